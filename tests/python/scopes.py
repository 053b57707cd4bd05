"""The two ways of remat in which most tests compare a program with its plain run, and pieces of such programs."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator

import torch
from compare import Program, assert_exact
from torch import nn

import remat


class Dropping:
    """Steps of a session in which everything that can be recomputed is dropped."""

    def __init__(self) -> None:
        self.session = remat.Session()
        self.dropped = 0

    @contextlib.contextmanager
    def __call__(self) -> Iterator[None]:
        with self.session.step(), remat.policy():
            yield
        self.dropped += self.session.report().values_dropped


class Reporting:
    """Steps of `session`, whose reports are kept."""

    def __init__(self, session: remat.Session) -> None:
        self.session = session
        self.reports: list[remat.Report] = []

    @contextlib.contextmanager
    def __call__(self) -> Iterator[None]:
        with self.session.step():
            yield
        self.reports.append(self.session.report())


def assert_exact_when_dropped(model: nn.Module, program: Program, steps: int = 2, drops: bool = True) -> None:
    """Same bits as plain with everything dropped; `drops`: and something was."""
    scope = Dropping()
    assert_exact(model, program, scope, steps)
    assert not drops or scope.dropped > 0, "nothing was dropped: the test shows nothing"


def assert_exact_within(model: nn.Module, program: Program, budget: str = "60%", steps: int = 3) -> None:
    """Same bits as plain within a budget, by plan and by the online policy."""
    for planner in ("auto", "online"):
        session = remat.Session(budget=budget, planner=planner)
        assert_exact(model, program, session.step, steps)
        report = session.report()
        assert report.completed and report.values_dropped > 0
        assert report.peak_bytes <= report.budget_bytes


def loss_of(y: torch.Tensor) -> torch.Tensor:
    return y.float().square().mean()


def assert_no_higher_peak(prepare: Callable[[], object], run: Callable[[], object], budget: str | None) -> None:
    """`run` in steps of a session takes no more memory than in plain. `prepare` comes before each."""

    def peak() -> int:
        prepare()
        before = remat.memory.current()
        remat.memory.reset_peak()
        run()
        return remat.memory.peak() - before

    remat.memory.start_accounting()
    peak()
    plain = peak()
    session = remat.Session(budget=budget, device="cpu")
    for _ in range(3):
        with session.step():
            recorded = peak()
        assert recorded <= plain * 1.01


def doing_in_backward(action: Callable[[], object]) -> type[torch.autograd.Function]:
    """An identity that saves its input; its backward unpacks it and calls `action`."""

    class Acts(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return x.clone()

        @staticmethod
        def backward(ctx, gradient):
            _ = ctx.saved_tensors
            action()
            return gradient

    return Acts


def scaled_by(operator: Callable[[torch.Tensor], torch.Tensor]) -> Callable[[torch.Tensor], torch.Tensor]:
    """`operator`, whose result autograd alone saves: the gradient is scaled by it."""

    class Scaled(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            y = operator(x)
            ctx.save_for_backward(y)
            return y.clone()

        @staticmethod
        def backward(ctx, gradient):
            return gradient * ctx.saved_tensors[0]

    return Scaled.apply
