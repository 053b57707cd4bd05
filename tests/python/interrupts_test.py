"""Ctrl-C anywhere in remat's own Python."""

from __future__ import annotations

import pathlib
import sys

import torch
from compare import blocks
from torch import nn

import remat
from remat import _C

PACKAGE = str(pathlib.Path(remat.__file__).parent)
X = torch.randn(64, 32, generator=torch.Generator().manual_seed(1))


class Interrupt:
    """Raises KeyboardInterrupt at the `at`-th line of remat's Python that runs; counts them."""

    def __init__(self, at: int) -> None:
        self.at, self.lines, self.where = at, 0, ""

    def __call__(self, frame, event, argument):
        if not frame.f_code.co_filename.startswith(PACKAGE):
            return None
        if event == "line":
            self.lines += 1
            if self.lines == self.at:
                self.where = f"{frame.f_code.co_filename}:{frame.f_lineno}"
                sys.settrace(None)
                raise KeyboardInterrupt
        return self

    def __enter__(self):
        self.before = sys.gettrace()
        sys.settrace(self)
        return self

    def __exit__(self, *_):
        sys.settrace(self.before)


def train(model: nn.Module, steps: int = 2) -> None:
    for _ in range(steps):
        model.zero_grad()
        torch.manual_seed(3)
        model(X).square().mean().backward()


def test_an_interrupt_leaves_no_limit_and_no_step(one_thread):
    def wrapped():
        torch.manual_seed(5)
        model = remat.wrap(blocks(2, width=32), budget=remat.memory.current("cpu") + (2 << 20), planner="online")
        train(model)
        return model

    model = wrapped()
    with Interrupt(-1) as every:
        train(model, steps=1)
    wanted = [parameter.grad for parameter in model.parameters()]
    assert every.lines > 100
    for at in range(1, every.lines + 1):
        model = wrapped()
        with Interrupt(at) as interrupt:
            try:
                train(model, steps=1)
                raise AssertionError(f"{interrupt.where}: the interrupt did not come through")
            except KeyboardInterrupt:
                pass
        torch.zeros(2 << 20)  # more than the budget
        train(model)
        assert all(torch.equal(p.grad, grad) for p, grad in zip(model.parameters(), wanted)), interrupt.where
        report = remat.session_of(model).report()
        assert report.completed, interrupt.where
        assert report.peak_bytes <= report.budget_bytes, interrupt.where
        assert not _C.is_recording(), interrupt.where
        remat.unwrap(model)
