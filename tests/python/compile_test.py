"""torch.compile inside of a step: compiled forward graphs are operators, recomputed with the same bits. A compiler's run
takes seconds, so there are few."""

from __future__ import annotations

import shutil

import pytest
import torch
from compare import assert_exact, blocks
from scopes import Dropping, assert_exact_when_dropped, loss_of
from torch import nn

import remat

pytestmark = pytest.mark.skipif(shutil.which("g++") is None, reason="compiling needs g++")


class Net(nn.Module):
    """A convolution that a compiled kernel changes in place, BatchNorm, dropout, and plain layers around."""

    def __init__(self):
        super().__init__()
        self.before = nn.Linear(16, 16)
        self.inner = nn.Sequential(
            nn.Conv2d(3, 8, 3, padding=1), nn.ReLU(), nn.Conv2d(8, 8, 3, padding=1), nn.BatchNorm2d(8), nn.Sigmoid(),
            nn.Dropout(0.2),
        )  # fmt: skip
        self.after = nn.Conv2d(8, 4, 3)

    def forward(self, x, inner):
        y = inner(self.before(x).exp())
        return self.after((y.sigmoid() * y).exp()).tanh()


class Parts:
    """Compiles a module once, as each copy of a model has its own."""

    def __init__(self, **options):
        self._options, self._compiled = options, {}

    def __call__(self, module):
        if id(module) not in self._compiled:
            self._compiled[id(module)] = torch.compile(module, **self._options), module
        return self._compiled[id(module)][0]


def graph_operators(session):
    """The compiled graphs among the operators of a session's last step."""
    return [op for op in session.graph()["operators"] if op["name"].startswith("compiled::")]


def test_a_compiled_part_is_recomputed_and_exact():
    compiled = Parts()

    def program(net):
        loss = loss_of(net(torch.randn(4, 3, 16, 16), compiled(net.inner)))
        loss.backward()
        return loss.detach()

    dropping = Dropping()
    assert_exact(Net(), program, dropping, steps=3)
    assert graph_operators(dropping.session)


def test_compiled_blocks_stay_within_half_of_what_they_save():
    compiled = Parts()

    def program(model):
        x = torch.randn(64, 64)
        for block in model:
            x = compiled(block)(x)
        loss = loss_of(x)
        loss.backward()
        return loss.detach()

    session = remat.Session(budget="50%", device="cpu")
    assert_exact(blocks(8, dropout=0.1, norm=True), program, session.step, steps=4)
    report = session.report()
    assert report.completed and report.peak_bytes <= report.budget_bytes
    assert report.values_dropped > 0 and report.decided_by == "plan"


def test_sizes_that_change_are_arguments():
    compiled, lengths = Parts(dynamic=True), iter([5, 9, 7, 12] * 2)

    def program(model):
        x = torch.randn(next(lengths), 64)
        for block in model:
            x = compiled(block)(x)
        loss = loss_of(x)
        loss.backward()
        return loss.detach()

    assert_exact_when_dropped(blocks(2), program, steps=4)


def test_what_cannot_run_again_is_kept():
    @torch.library.custom_op("compile_test::noisy", mutates_args=())
    def noisy(x: torch.Tensor) -> torch.Tensor:
        return x * 2 + calls.pop()

    noisy.register_fake(lambda x: torch.empty_like(x))
    noisy.register_autograd(lambda ctx, gradient: gradient * 2)
    calls = []

    class Noisy(nn.Linear):
        def forward(self, x):
            return noisy(super().forward(x).sigmoid()).tanh()

    class Adding(nn.Linear):
        """Where an index comes twice, threads add in any order."""

        def forward(self, x):
            index = torch.arange(len(x)) % 3
            return torch.zeros(3, self.out_features).index_add(0, index, super().forward(x).sigmoid()).tanh()

    for model in (Noisy(8, 8), Adding(8, 8)):
        compiled = Parts()

        def program(model, compiled=compiled):
            calls[:] = [0.5]
            loss = loss_of(compiled(model)(torch.randn(600, 8)).exp())
            loss.backward()
            return loss.detach()

        dropping = Dropping()
        assert_exact(model, program, dropping, steps=2)
        assert not graph_operators(dropping.session)


def test_code_that_was_thrown_out_before_backward_is_asked_for_no_more():
    """Its autograd node holds it."""
    compiled = Parts()

    def program(model):
        loss = loss_of(compiled(model)(torch.randn(16, 64)))
        if torch.is_grad_enabled():
            torch.compiler.reset()
        loss.backward()
        return loss.detach()

    assert_exact_when_dropped(blocks(1), program, steps=2)


def test_an_inference_in_the_middle_of_a_step_is_none_of_its_business():
    compiled = Parts()

    def program(model):
        with torch.inference_mode():
            compiled(model)(torch.randn(16, 64))
        with torch.no_grad():
            x = compiled(model)(torch.randn(16, 64))
        loss = loss_of(compiled(model)(x))
        loss.backward()
        return loss.detach()

    assert_exact_when_dropped(blocks(2), program, steps=2)
