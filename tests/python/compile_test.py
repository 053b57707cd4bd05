"""torch.compile inside of a step: the kernels of compiled forward graphs are operators, recomputed with the same bits. A
compiler's run takes seconds, so there are few."""

from __future__ import annotations

import copy
import shutil
import sys

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


def compiled_operators(session):
    """The kernels and graphs of the compiler's among the operators of a session's last step, by name."""
    names = (op["name"] for op in session.graph()["operators"])
    return [name for name in names if name.startswith(("compiled::kernel_", "compiled::graph_"))]


@pytest.mark.parametrize("kind", ["kernel", "graph"])
def test_a_compiled_part_is_recomputed_and_exact(kind, monkeypatch):
    if kind == "graph":  # such as those with kernels of a GPU
        monkeypatch.setattr(sys.modules["remat.compiled"], "_kernels_of", lambda source: None)
        torch.compiler.reset()
    compiled = Parts()

    def program(net):
        loss = loss_of(net(torch.randn(4, 3, 16, 16), compiled(net.inner)))
        loss.backward()
        return loss.detach()

    dropping = Dropping()
    assert_exact(Net(), program, dropping, steps=3)
    assert dropping.dropped > 1
    names = compiled_operators(dropping.session)
    assert names and all(name.startswith(f"compiled::{kind}_") for name in names)


def test_compiled_blocks_stay_within_half_of_what_they_save():
    compiled = Parts()

    def program(model):
        x = torch.randn(512, 64)
        for block in model:
            x = compiled(block)(x)
        loss = loss_of(x)
        loss.backward()
        return loss.detach()

    session = remat.Session(budget="50%", device="cpu")
    assert_exact(blocks(8, dropout=0.1, norm=True), program, session.step, steps=4)
    report = session.report()
    assert report.completed and report.peak_bytes <= report.budget_bytes
    assert report.values_dropped > 0 and report.decided_by == "auto"


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


def test_symbolic_sizes_may_be_traced_inside_of_a_step(capfd):
    torch.compiler.reset()
    compiled = torch.compile(blocks(1)[0].train(False), dynamic=True)
    session = remat.Session(device="cpu")
    losses = []
    for length in (5, 9):
        x = torch.randn(length, 64)
        with session.step():
            loss = loss_of(compiled(x))
            loss.backward()
        losses.append((loss.detach(), loss_of(compiled(x)).detach()))
    assert all(torch.equal(*pair) for pair in losses)
    assert "RecordFunction" not in capfd.readouterr().err


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

    compiled = Parts()

    def program(model):
        calls[:] = [0.5]  # a second call has none
        loss = loss_of(compiled(model)(torch.randn(600, 64)).exp())
        loss.backward()
        return loss.detach()

    assert_exact_when_dropped(Noisy(64, 64), program)


def test_kernels_whose_threads_add_to_the_same_element_are_kept():
    """Where an index comes twice, they add in any order."""

    class Adding(nn.Linear):
        def forward(self, x):
            index = torch.arange(len(x)) % 3
            return torch.zeros(3, self.out_features).index_add(0, index, super().forward(x).sigmoid()).tanh()

    for threads in (1, 2):
        torch.compiler.reset()
        compiled = torch.compile(Adding(64, 64), options={"cpp.threads": threads})
        session = remat.Session(device="cpu")
        with session.step():
            loss_of(compiled(torch.randn(6000, 64))).backward()
        recorded = len(compiled_operators(session))
        assert recorded == (1 if threads == 1 else 0)


def test_code_that_was_thrown_out_before_backward_is_asked_for_no_more():
    """Its autograd node holds it."""
    compiled = Parts()

    def program(model):
        x = torch.randn(16, 64)
        for block in model:
            x = compiled(block)(x)
        loss = loss_of(x)
        torch.compiler.reset()
        loss.backward()
        return loss.detach()

    assert_exact_when_dropped(blocks(2), program, steps=2)


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


class Tower(nn.Module):
    """Blocks, which are found, between layers that are not."""

    def __init__(self):
        super().__init__()
        self.first, self.blocks, self.last = nn.Linear(16, 64), blocks(6, dropout=0.1), nn.Linear(64, 4)

    def forward(self, x):
        return self.last(self.blocks(self.first(x)))


def test_repeated_blocks_are_compiled_one_by_one_under_a_budget():
    def train(model):
        torch.manual_seed(3)
        losses = []
        for _ in range(4):
            loss = loss_of(model(torch.randn(256, 16)))
            loss.backward()
            losses.append(loss.detach())
        return losses, [parameter.grad for parameter in model.parameters()]

    torch.manual_seed(0)
    plain = Tower()
    budgeted = copy.deepcopy(plain)
    names = list(plain.state_dict())
    plain.blocks = nn.Sequential(*(torch.compile(block, dynamic=False) for block in plain.blocks))
    assert remat.compile(budgeted, budget="50%", dynamic=False) is budgeted
    assert list(budgeted.state_dict()) == names
    losses, gradients = train(plain)
    own_losses, own_gradients = train(budgeted)
    assert all(map(torch.equal, losses + gradients, own_losses + own_gradients))
    session = remat.session_of(budgeted)
    report = session.report()
    assert report.values_dropped > 0 and report.peak_bytes <= report.budget_bytes
    assert compiled_operators(session)


def test_what_cannot_be_compiled_is_an_error():
    with pytest.raises(remat.Error, match=r"^\[compile\] .*Module"):
        remat.compile(torch.relu)
    model = Tower()
    with pytest.raises(remat.Error, match="budget"):
        remat.compile(model, budget="half")
    with pytest.raises(remat.Error, match="not wrapped"):
        remat.session_of(model)
