"""torch.compile inside of a step: the kernels of compiled forward graphs are operators, recomputed with the same bits. A
compiler's run takes seconds, so there are few."""

from __future__ import annotations

import copy
import ctypes
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
        monkeypatch.setattr(sys.modules["remat.compiled"], "kernels_of", lambda source: None)
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


@pytest.mark.parametrize("kind", ["adds", "writes"])
def test_kernels_whose_threads_write_to_the_same_element_are_kept(kind):
    """Where an index comes twice, they add in any order, and of two that write any may be the last."""

    class Scattering(nn.Linear):
        def forward(self, x):
            index, values = torch.arange(len(x)) % 3, super().forward(x).sigmoid()
            zeros = torch.zeros(3, self.out_features)
            result = zeros.index_add(0, index, values) if kind == "adds" else zeros.index_put((index,), values)
            return result.tanh()

    for threads in (1, 2):
        torch.compiler.reset()
        compiled = torch.compile(Scattering(64, 64), options={"cpp.threads": threads})
        session = remat.Session(device="cpu")
        with session.step():
            loss_of(compiled(torch.randn(6000, 64))).backward()
        recorded = len(compiled_operators(session))
        assert (recorded > 0) == (threads == 1)


@torch._dynamo.config.patch(capture_scalar_outputs=True)
def test_kernels_of_other_arguments_are_one_operator():
    linear = nn.Linear(8, 8)

    @torch.compile
    def scaled(x, scale):
        number = scale.item()  # a double among the kernel's arguments
        return (linear(x).sigmoid() * number).tanh(), number

    with remat.Session(device="cpu").step():
        result, number = scaled(torch.randn(4, 8), torch.tensor(0.5))
        loss_of(result).backward()
    assert number == 0.5 and linear.weight.grad.abs().sum() > 0


def test_a_backend_that_calls_the_compiler_is_seen_by_a_policy():
    from torch._inductor.compile_fx import compile_fx

    block, x = blocks(1)[0], torch.randn(512, 64)
    compiled = torch.compile(block, backend=lambda graph, inputs: compile_fx(graph, inputs))
    held = []
    for _ in range(2):  # in the first the compiler holds some
        before = remat.memory.current()
        with remat.policy():
            loss = loss_of(compiled(x))
        held.append(remat.memory.current() - before)
        loss.backward()
    assert held[1] < x.nbytes


def test_a_plan_is_followed_by_another_session_whose_first_step_compiles(tmp_path):
    model = blocks(6)
    for parameter in model.parameters():
        parameter.grad = torch.zeros_like(parameter)

    def decisions(session, steps):
        torch.compiler.reset()
        compiled = [torch.compile(block, dynamic=False) for block in model]
        found = []
        for _ in range(steps):
            with session.step():
                x = torch.randn(256, 64)
                for block in compiled:
                    x = block(x)
                loss_of(x).backward()
            found.append((session.report().decided_by, session.report().decision_reason))
        return found

    first = remat.Session("50%", device="cpu")
    assert decisions(first, 4)[-1] == ("auto", "")
    first.save_plan(tmp_path / "plan.json")
    budget = first.report().budget_bytes * 11 // 10
    later = decisions(remat.Session(budget, device="cpu", plan=tmp_path / "plan.json"), 3)
    assert later[0] == ("online", "code was compiled in the step")
    assert later[2] == ("plan given", "")


def test_what_calls_through_an_interface_of_c_is_refused_as_everything():
    torch.compiler.reset()
    model = blocks(2)
    compiled = torch.compile(model, options={"cpp_wrapper": True})
    x = torch.randn(512, 64)
    loss_of(compiled(x)).backward()
    session = remat.Session(remat.memory.current() + x.nbytes, device="cpu")
    with pytest.raises(remat.BudgetError, match=r"^\[budget\] ") as refused, session.step():
        compiled(x)
    assert refused.value.needed_bytes > refused.value.budget_bytes


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


@torch.library.custom_op("remat_test::fill_by_numpy", mutates_args={"out"})
def _fill_by_numpy(x: torch.Tensor, out: torch.Tensor) -> None:
    out.copy_(torch.from_numpy(x.numpy() * 2 + 1))


@_fill_by_numpy.register_fake
def _(x: torch.Tensor, out: torch.Tensor) -> None:
    return None


class ByNumpy(nn.Module):
    """Compiled code takes the memory that NumPy has seen for a later result."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(32, 32)

    def forward(self, x):
        y, out = self.layer(x), torch.zeros(x.shape)
        _fill_by_numpy(x.detach().sin(), out)
        return (y * out.exp()).tanh()


def test_memory_that_was_handed_out_is_taken_again():
    compiled = Parts()

    def program(net):
        part = compiled(net)
        loss = loss_of(part(part(torch.randn(64, 32))))
        loss.backward()
        return loss.detach()

    assert_exact(ByNumpy(), program, Dropping(), steps=2)


def test_what_is_written_to_a_compiled_result_by_a_pointer_is_refused():
    prepare = torch.compile(lambda x: (x.sin() * 2).exp())
    weight = torch.ones(64, requires_grad=True)
    for after_a_read in (False, True):
        with remat.policy():
            mask = prepare(torch.linspace(0, 1, 64))
            if after_a_read:
                y = (weight * mask).tanh()
            (ctypes.c_float * 64).from_address(mask.data_ptr())[0] = 7.0
            if not after_a_read:
                y = (weight * mask).tanh()
            del mask
        with pytest.raises(remat.Error, match="through a pointer"):
            y.sum().backward()
