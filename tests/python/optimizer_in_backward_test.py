"""Parameters that are updated while backward runs: the same bits as by optimizer.step() after it."""

from __future__ import annotations

import contextlib
import copy
import functools
import warnings

import pytest
import torch
from compare import assert_same, blocks
from scopes import Dropping, loss_of
from torch import nn

import remat
from remat import paged_state

OPTIMIZERS = {
    "sgd": lambda p: torch.optim.SGD(p, lr=0.05, momentum=0.9, nesterov=True, weight_decay=0.1),
    "fused sgd": lambda p: torch.optim.SGD(p, lr=0.05, momentum=0.9, fused=True),
    "adam": lambda p: torch.optim.Adam(p, amsgrad=True),
    "adamw": lambda p: torch.optim.AdamW(p),
    "foreach adamw": lambda p: torch.optim.AdamW(p, foreach=True),
    "fused adamw": lambda p: torch.optim.AdamW(p, fused=True),
    "rmsprop": lambda p: torch.optim.RMSprop(p, momentum=0.9),
    "adafactor": lambda p: torch.optim.Adafactor(p),
}


class Tied(nn.Module):
    """Its first and its last product read one weight, and so do others in the middle."""

    def __init__(self):
        super().__init__()
        self.first, self.middle = nn.Linear(64, 64), blocks(3, norm=True)

    def forward(self, x):
        x = self.middle(torch.tanh(self.first(x)))
        for _ in range(2):
            x = torch.sigmoid(nn.functional.linear(x, self.middle[1][0].weight)[:, :64])
        return nn.functional.linear(x, self.first.weight).exp()


class Experts(nn.Module):
    """One of two experts in turn."""

    def __init__(self):
        super().__init__()
        self.experts = nn.ModuleList(blocks(2) for _ in range(2))
        self.turn = 0

    def forward(self, x):
        self.turn += 1
        return self.experts[self.turn % 3 == 0](x)


def train(model, make, scope=contextlib.nullcontext, *, in_backward, steps=4, accumulate=1, autocast=False):
    """Everything that the training leaves. The loop is the same with and without updates in backward."""
    model = copy.deepcopy(model)
    optimizer = make(model.parameters())
    if in_backward:
        remat.optimizer_in_backward(optimizer, accumulate=accumulate)
    torch.manual_seed(11)
    losses = []
    for step in range(steps):
        for _ in range(accumulate):
            with scope():
                with torch.autocast("cpu", torch.bfloat16, enabled=autocast):
                    y = model(torch.randn(256, 64))
                loss = loss_of(y)
                loss.backward()
            losses.append(loss.detach())
        if in_backward:
            assert all(p.grad is None for p in model.parameters())
        optimizer.step()
        optimizer.zero_grad()
    return losses + left_by(model, optimizer)


def left_by(model, optimizer):
    state = [optimizer.state[p] for g in optimizer.param_groups for p in g["params"] if p in optimizer.state]
    values = [torch.as_tensor(value) for each in state for _, value in sorted(each.items()) if value is not None]
    return values + list(model.parameters()) + list(model.buffers()) + [torch.get_rng_state()]


def scopes(*budgets):
    yield contextlib.nullcontext
    yield Dropping()
    for budget in budgets or ("60%", "40%"):
        for planner in ("auto", "online"):
            yield remat.Session(budget=budget, planner=planner).step


@pytest.fixture(params=[paged_state.PART_ELEMENTS, 1000], ids=["whole", "parts"])
def part(request, monkeypatch):
    """Elements of a parameter that are updated at once."""
    monkeypatch.setattr(paged_state, "PART_ELEMENTS", request.param)


@pytest.mark.usefixtures("part")
@pytest.mark.parametrize("name", OPTIMIZERS)
def test_optimizers(name):
    model = blocks(3, norm=True)
    plain = train(model, OPTIMIZERS[name], in_backward=False)
    for scope in scopes():
        assert_same(plain, train(model, OPTIMIZERS[name], scope, in_backward=True))


@pytest.mark.usefixtures("part")
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float64])
@pytest.mark.parametrize("name", ["sgd", "adamw"])
def test_optimizers_of_other_types(name, dtype):
    def trained(in_backward):
        torch.manual_seed(5)
        weight = nn.Parameter(torch.randn(40_007).to(dtype))
        optimizer = OPTIMIZERS[name]([weight])
        if in_backward:
            remat.optimizer_in_backward(optimizer)
        for _ in range(3):
            (weight * torch.randn(40_007).to(dtype)).sum().backward()
            optimizer.step()
            optimizer.zero_grad()
        return [weight, *(value for _, value in sorted(optimizer.state[weight].items()))]

    assert_same(trained(False), trained(True))


@pytest.mark.usefixtures("part")
@pytest.mark.parametrize(
    ("dtype", "of_gradients"), [(torch.float32, torch.bfloat16), (torch.float64, torch.float32)], ids=str
)
def test_gradients_of_other_types(dtype, of_gradients, tmp_path):
    def trained(install):
        torch.manual_seed(5)
        weight = nn.Parameter(torch.randn(40_007).to(dtype))
        weight.grad_dtype = of_gradients
        optimizer = torch.optim.SGD([weight], lr=0.1)
        install(optimizer)
        for _ in range(3):
            (weight * torch.randn(40_007).to(dtype)).sum().backward()
            optimizer.step()
            optimizer.zero_grad()
        return [weight]

    plain = trained(lambda optimizer: None)
    assert_same(plain, trained(remat.optimizer_in_backward))
    for gradients in (False, True):
        assert_same(plain, trained(functools.partial(remat.paged, dir=tmp_path, gradients=gradients)))


def test_an_update_takes_little_for_a_moment():
    weight = nn.Parameter(torch.zeros(4096, 4096))  # 64 MiB
    remat.memory.start_accounting()
    optimizer = torch.optim.AdamW([weight])
    remat.optimizer_in_backward(optimizer)
    for _ in range(2):
        loss = weight.sum()
        before = remat.memory.current()
        remat.memory.reset_peak()
        loss.backward()
    assert remat.memory.peak() - before < (64 << 20) + (20 << 20)  # the gradient, and what a part takes


@pytest.mark.usefixtures("part")
@pytest.mark.parametrize("autocast", [False, True])
def test_weights_that_are_read_again(autocast):
    model = Tied()
    plain = train(model, OPTIMIZERS["adamw"], in_backward=False, autocast=autocast)
    for scope in scopes():
        assert_same(plain, train(model, OPTIMIZERS["adamw"], scope, in_backward=True, autocast=autocast))


@pytest.mark.usefixtures("part")
def test_replays_after_an_update_read_the_weight_of_before():
    def program(scope, in_backward):
        torch.manual_seed(3)
        model = nn.ModuleDict({name: nn.Linear(64, 64) for name in ("inner", "gate", "outer")})
        optimizer = torch.optim.AdamW(model.parameters())
        if in_backward:
            remat.optimizer_in_backward(optimizer)
        for _ in range(3):
            with scope():
                h = model.inner(torch.randn(256, 64)).tanh()
                gate = model.gate(h.detach())
                y = model.outer(h * gate.detach().exp().sin())  # saves what a replay makes of gate's weight
                for loss in (loss_of(gate.sigmoid()), loss_of(y)):
                    loss.backward()
                    optimizer.step()
                    optimizer.zero_grad()
        return left_by(model, optimizer)

    plain = program(contextlib.nullcontext, in_backward=False)
    dropping = Dropping()
    assert_same(plain, program(dropping, in_backward=True))
    assert dropping.dropped > 0
    assert_same(plain, program(remat.Session(budget="80%").step, in_backward=True))


def test_a_shared_parameter_has_one_update_in_each_backward():
    model = Tied()
    optimizer = torch.optim.Adam(model.parameters())
    remat.optimizer_in_backward(optimizer)
    for _ in range(3):
        loss_of(model(torch.randn(8, 64))).backward()
    assert {int(optimizer.state[p]["step"]) for p in model.parameters()} == {3}


@pytest.mark.parametrize("model", [blocks(2, norm=True), Experts()], ids=["all", "some"])
def test_accumulation(model):
    """`some`: parameters that have no gradient in the last backward pass of a step, or in none of them."""
    plain = train(model, OPTIMIZERS["adamw"], in_backward=False, accumulate=2)
    for scope in scopes("90%", "75%"):
        assert_same(plain, train(model, OPTIMIZERS["adamw"], scope, in_backward=True, accumulate=2))


def test_a_step_of_fewer_passes_is_ended_by_the_optimizer():
    def program(in_backward):
        torch.manual_seed(3)
        model = blocks(2)
        optimizer = torch.optim.AdamW(model.parameters())
        if in_backward:
            remat.optimizer_in_backward(optimizer, accumulate=3)
        for i in range(8):
            loss_of(model(torch.randn(8, 64))).backward()
            if i in (2, 3, 6, 7):  # 3 passes, 1, 3, 1
                optimizer.step()
                optimizer.zero_grad()
        return left_by(model, optimizer)

    assert_same(program(False), program(True))


def test_groups_schedulers_frozen_parameters_and_saved_states():
    def program(in_backward):
        torch.manual_seed(3)
        model = blocks(4)
        model[1].requires_grad_(False)
        groups = [
            {"params": model[0].parameters(), "lr": 0.1},
            {"params": [*model[1].parameters(), *model[2].parameters()], "weight_decay": 0.5},
        ]
        optimizer = torch.optim.AdamW(groups, lr=0.01)
        scheduler = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.7)
        calls = []
        optimizer.register_step_post_hook(lambda *_: calls.append(None))
        if in_backward:
            remat.optimizer_in_backward(optimizer)
        session = remat.Session()
        with warnings.catch_warnings():
            warnings.simplefilter("error")  # of schedulers, about the order of calls
            for step in range(6):
                if step == 2:
                    model[1].requires_grad_(True)
                    optimizer.add_param_group({"params": model[3].parameters(), "lr": 0.2})
                    scheduler.base_lrs.append(0.2)
                if step == 4:
                    optimizer.load_state_dict(copy.deepcopy(optimizer.state_dict()))
                with session.step():
                    loss_of(model(torch.randn(8, 64))).backward()
                optimizer.step()
                optimizer.zero_grad()
                scheduler.step()
        assert len(calls) == 6
        return left_by(model, optimizer)

    assert_same(program(False), program(True))


def test_sparse_gradients():
    def program(in_backward, make, sparse=True):
        torch.manual_seed(3)
        model = nn.Embedding(16, 8, sparse=sparse)
        optimizer = make(model.parameters())
        if in_backward:
            remat.optimizer_in_backward(optimizer)
        for _ in range(3):
            loss_of(model(torch.randint(16, (4,)))).backward()
            optimizer.step()
            optimizer.zero_grad()
        return left_by(model, optimizer)

    for make in (lambda p: torch.optim.SGD(p, lr=0.1), lambda p: torch.optim.SparseAdam(list(p))):
        assert_same(program(False, make), program(True, make))
    with pytest.raises(RuntimeError, match="sparse"):
        program(True, torch.optim.Adam)


def test_wrapped_models():
    def program(in_backward, budget=None):
        torch.manual_seed(3)
        model = blocks(3, norm=True)
        optimizer = torch.optim.AdamW(model.parameters())
        if in_backward:
            remat.optimizer_in_backward(optimizer)
            model = remat.wrap(model, budget=budget)
        for _ in range(4):
            loss_of(model(torch.randn(256, 64))).backward()
            optimizer.step()
            optimizer.zero_grad()
        return left_by(model, optimizer)

    for budget in ("60%", "40%"):
        assert_same(program(False), program(True, budget))
