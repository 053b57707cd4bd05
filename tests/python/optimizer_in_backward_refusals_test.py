"""Where updates in backward end, fail or cannot be."""

from __future__ import annotations

import copy
import functools
import gc
import tempfile
import types
import weakref

import pytest
import torch
from compare import assert_same, blocks, same_bits
from scopes import loss_of
from torch import nn
from torch.utils.checkpoint import checkpoint

import remat


def test_nothing_keeps_an_optimizer_that_nobody_needs():
    model = blocks(1)
    optimizer = torch.optim.AdamW(model.parameters())
    remat.optimizer_in_backward(optimizer)
    loss_of(model(torch.randn(8, 64))).backward()
    alive = weakref.ref(optimizer), weakref.ref(model[0][0].weight)
    del optimizer
    gc.collect()
    with pytest.raises(remat.Error, match="optimizer is gone"):
        loss_of(model(torch.randn(8, 64))).backward()
    with remat.optimizer_in_backward(torch.optim.SGD(model.parameters(), lr=0.1)):  # in its place
        pass
    del model
    torch.ones((), requires_grad=True).backward()  # lets go of what the failed pass left in autograd's queue
    gc.collect()
    assert [ref() for ref in alive] == [None, None]


def test_removal():
    model = blocks(1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    before = copy.deepcopy(list(model.parameters()))
    updates = remat.optimizer_in_backward(optimizer)
    with pytest.raises(remat.Error, match="already"):
        remat.optimizer_in_backward(torch.optim.SGD(model[0][0].parameters(), lr=0.1))
    updates.remove()
    loss_of(model(torch.randn(8, 64))).backward()
    assert_same(before, list(model.parameters()))
    assert all(p.grad is not None for p in model.parameters())
    with remat.optimizer_in_backward(optimizer):
        pass
    with remat.optimizer_in_backward(optimizer):
        loss_of(model(torch.randn(8, 64))).backward()
    assert all(p.grad is None for p in model.parameters())
    assert not any(same_bits(a, b) for a, b in zip(before, model.parameters()))


class Fails(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x.clone()

    @staticmethod
    def backward(ctx, gradient):
        raise ValueError("on purpose")


fails = Fails.apply


def test_after_a_pass_that_failed_in_the_middle_nothing_is_updated_twice():
    first, second = blocks(1), blocks(1)
    optimizer = torch.optim.SGD([*first.parameters(), *second.parameters()], lr=0.1)
    updates = remat.optimizer_in_backward(optimizer)
    with pytest.raises(ValueError, match="on purpose"):
        loss_of(second(fails(first(torch.randn(8, 64))))).backward()
    before = copy.deepcopy(list(second.parameters()))
    with pytest.raises(remat.Error, match="failed after 4 parameters were updated"):
        loss_of(second(first(torch.randn(8, 64)))).backward()
    assert_same(before, list(second.parameters()))
    optimizer.zero_grad()
    updates.reset()
    loss_of(second(first(torch.randn(8, 64)))).backward()
    assert not any(same_bits(a, b) for a, b in zip(before, second.parameters()))
    # One that failed before any update can be tried again.
    with pytest.raises(ValueError, match="on purpose"):
        loss_of(fails(first(torch.randn(8, 64)))).backward()
    loss_of(second(first(torch.randn(8, 64)))).backward()


def test_a_step_of_several_passes_begins_again_where_one_failed():
    model = blocks(1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    updates = remat.optimizer_in_backward(optimizer, accumulate=3)
    before = copy.deepcopy(list(model.parameters()))
    loss_of(model(torch.randn(8, 64))).backward()
    with pytest.raises(ValueError, match="on purpose"):
        loss_of(model[0][0](fails(model[0][3](torch.randn(8, 256))))).backward()
    with pytest.raises(remat.Error, match="pass 2 of 3 of a step failed"):
        loss_of(model(torch.randn(8, 64))).backward()
    optimizer.zero_grad()
    updates.reset()
    for _ in range(2):
        loss_of(model(torch.randn(8, 64))).backward()
    assert_same(before, list(model.parameters()))
    loss_of(model(torch.randn(8, 64))).backward()
    assert not any(same_bits(a, b) for a, b in zip(before, model.parameters()))


class Own(torch.optim.SGD):
    pass


class Wrapper(torch.optim.SGD):
    def __init__(self, parameters):
        super().__init__(parameters, lr=0.1)
        self.inner = torch.optim.SGD(self.param_groups, lr=0.1)


class Decaying(torch.optim.SGD):
    """Also what has no gradient."""

    @torch.no_grad()
    def step(self, closure=None):
        super().step(closure)
        for group in self.param_groups:
            for parameter in group["params"]:
                parameter.mul_(0.99)


Own.__module__ = Wrapper.__module__ = Decaying.__module__ = "mine"


INSTALLS = {
    "in backward": remat.optimizer_in_backward,
    "paged": functools.partial(remat.paged, dir=tempfile.gettempdir()),
}


@pytest.mark.parametrize("install", INSTALLS.values(), ids=list(INSTALLS))
def test_a_step_that_changes_parameters_without_gradients_is_refused(install):
    model = blocks(1)
    before = copy.deepcopy(list(model.parameters()))
    optimizer = Decaying(model.parameters(), lr=0.1)
    with pytest.raises(remat.Error, match="of this Decaying changes parameters that have no gradient"):
        install(optimizer, per_parameter=True)
    assert_same(before, list(model.parameters()))
    assert not optimizer.state


@pytest.mark.parametrize("install", INSTALLS.values(), ids=list(INSTALLS))
def test_a_step_that_was_replaced_is_refused(install):
    model = blocks(1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    step = optimizer.step

    def clipped(self, closure=None):
        nn.utils.clip_grad_value_(model.parameters(), 0.001)
        return step(closure)

    optimizer.step = types.MethodType(clipped, optimizer)
    for _ in range(2):
        with pytest.raises(remat.Error, match=r"step\(\) of this SGD was replaced by .*clipped, .*del optimizer.step"):
            install(optimizer)
        torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.5)  # puts its own around it
    del optimizer.step
    torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.5)
    install(optimizer).remove()


def test_steps_of_paged_optimizers_are_not_refused(tmp_path):
    optimizer = torch.optim.SGD(blocks(1).parameters(), lr=0.1)
    remat.paged(optimizer, dir=tmp_path)
    torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.5)
    remat.optimizer_in_backward(optimizer)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda p: "adam", "no torch.optim.Optimizer"),
        (torch.optim.LBFGS, "LBFGS needs all gradients"),
        (Own, "per_parameter=True"),
        (Wrapper, "Wrapper wraps a SGD"),
        (lambda p: torch.optim.Adam(p, differentiable=True), "differentiable=True"),
    ],
)
def test_refused_optimizers(make, message):
    with pytest.raises(remat.Error, match=message):
        remat.optimizer_in_backward(make(blocks(1).parameters()))


def test_an_optimizer_that_is_said_to_be_of_the_kind():
    model = blocks(1)
    optimizer = Own(model.parameters(), lr=0.1)
    before = copy.deepcopy(list(model.parameters()))
    remat.optimizer_in_backward(optimizer, per_parameter=True)
    loss_of(model(torch.randn(8, 64))).backward()
    assert not any(same_bits(a, b) for a, b in zip(before, model.parameters()))


@pytest.mark.parametrize("accumulate", [0, True, "2"])
def test_refused_numbers_of_passes(accumulate):
    with pytest.raises(remat.Error, match="accumulate is"):
        remat.optimizer_in_backward(torch.optim.SGD(blocks(1).parameters(), lr=0.1), accumulate=accumulate)


class Reentrant(torch.autograd.Function):
    """A checkpoint as many libraries have one."""

    @staticmethod
    def forward(ctx, function, x):
        ctx.function = function
        ctx.save_for_backward(x)
        return function(x)

    @staticmethod
    def backward(ctx, gradient):
        x = ctx.saved_tensors[0].detach().requires_grad_()
        with torch.enable_grad():
            y = ctx.function(x)
        torch.autograd.backward(y, gradient)
        return None, x.grad


def test_refused_backward_passes():
    model = blocks(2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    remat.optimizer_in_backward(optimizer)
    before = copy.deepcopy(list(model.parameters()))
    x = torch.randn(8, 64, requires_grad=True)
    with pytest.raises(remat.Error, match="create_graph=True"):
        loss_of(model(x)).backward(create_graph=True)
    for nested in (functools.partial(checkpoint, model, use_reentrant=True), functools.partial(Reentrant.apply, model)):
        with pytest.raises(remat.Error, match="inside of another one"):
            loss_of(nested(x)).backward()
    x.register_hook(torch.enable_grad()(lambda _: loss_of(model(torch.randn(8, 64))).backward()))
    with pytest.raises(remat.Error, match="inside of another one"):
        x.sum().backward()
    x = x.detach()
    assert_same(before, list(model.parameters()))
    loss_of(checkpoint(model, x, use_reentrant=False)).backward()
    assert not any(same_bits(a, b) for a, b in zip(before, model.parameters()))


def test_a_pass_inside_of_one_that_has_updated_says_so():
    model, head = blocks(2), blocks(1)
    optimizer = torch.optim.SGD([*model.parameters(), *head.parameters()], lr=0.1)
    updates = remat.optimizer_in_backward(optimizer)
    x = torch.randn(8, 64, requires_grad=True)
    before = copy.deepcopy(list(model.parameters()))
    with pytest.raises(remat.Error, match=r"inside of another one.* 4 parameters were updated before"):
        loss_of(head(Reentrant.apply(model, x))).backward()
    assert_same(before, list(model.parameters()))
    optimizer.zero_grad()
    with pytest.raises(remat.Error, match="failed after 4 parameters were updated"):
        loss_of(head(model(x))).backward()
    updates.reset()
    loss_of(head(model(x))).backward()


def test_passes_inside_of_others_that_complete_no_gradient_are_fine():
    model, fixed = blocks(1), blocks(1).requires_grad_(False)

    def program(in_backward):
        torch.manual_seed(3)
        ours = copy.deepcopy(model)
        optimizer = torch.optim.SGD(ours.parameters(), lr=0.1)
        if in_backward:
            remat.optimizer_in_backward(optimizer)
        for _ in range(2):
            loss_of(ours(Reentrant.apply(fixed, torch.randn(8, 64, requires_grad=True)))).backward()
            optimizer.step()
            optimizer.zero_grad()
        return list(ours.parameters())

    assert_same(program(False), program(True))


def test_an_installation_that_is_refused_leaves_nothing_behind(monkeypatch):
    model = nn.Sequential(nn.Linear(64, 64), nn.LazyLinear(64))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with pytest.raises(remat.Error, match="is lazy and has no shape yet"):
        remat.optimizer_in_backward(optimizer)
    model(torch.randn(8, 64))
    with monkeypatch.context() as patch:
        patch.setattr(type(model[1].weight), "register_post_accumulate_grad_hook", failing_after(2))
        with pytest.raises(ValueError, match="on purpose"):
            remat.optimizer_in_backward(optimizer)
    before = copy.deepcopy(list(model.parameters()))
    loss_of(model(torch.randn(8, 64))).backward()
    assert_same(before, list(model.parameters()))
    optimizer.zero_grad()
    remat.optimizer_in_backward(optimizer)
    loss_of(model(torch.randn(8, 64))).backward()
    assert not any(same_bits(a, b) for a, b in zip(before, model.parameters()))


def failing_after(calls):
    register = torch.Tensor.register_post_accumulate_grad_hook
    counted = []

    def register_or_fail(parameter, hook):
        counted.append(None)
        if len(counted) > calls:
            raise ValueError("on purpose")
        return register(parameter, hook)

    return register_or_fail


def test_a_refusal_of_memory_says_that_parameters_were_updated():
    remat.memory.start_accounting()
    model = nn.Sequential(*(nn.Linear(512, 512) for _ in range(4)))
    optimizer = torch.optim.AdamW(model.parameters())
    remat.optimizer_in_backward(optimizer)
    budget = remat.memory.current() + (5 << 20)  # the state of two layers takes 4 MiB
    with pytest.raises(remat.BudgetError, match=r"this step has updated \d+ parameters in backward: load model"):
        with remat.Session(budget=budget).step():
            loss_of(model(torch.randn(8, 512))).backward()


def test_a_weight_that_is_read_past_autograd_is_named_as_a_cause():
    model = nn.ModuleDict({name: nn.Linear(64, 64) for name in ("inner", "outer")})
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    updates = remat.optimizer_in_backward(optimizer)

    def block(x):
        return nn.functional.linear(model.inner(x), model.outer.weight.detach()).tanh().exp()

    for call in (block, functools.partial(remat.checkpoint, block)):
        with pytest.raises(remat.Error, match=r"optimizer_in_backward.* without detach\(\)"):
            with remat.Session().step():
                loss_of(model.outer(call(torch.randn(8, 64)))).backward()
        updates.reset()
    with pytest.raises(remat.Error, match=r"optimizer_in_backward.* without detach\(\)"):
        loss_of(model.outer(remat.checkpoint(block, torch.randn(8, 64)))).backward()


def test_processes_that_train_together_are_refused():
    model = blocks(1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    updates = remat.optimizer_in_backward(optimizer)
    torch.distributed.init_process_group("gloo", store=torch.distributed.HashStore(), rank=0, world_size=1)
    try:
        with pytest.raises(remat.Error, match="torch.distributed is in use"):
            loss_of(model(torch.randn(8, 64))).backward()
        updates.remove()
        with pytest.raises(remat.Error, match="torch.distributed is in use"):
            remat.optimizer_in_backward(optimizer)
    finally:
        torch.distributed.destroy_process_group()


@pytest.mark.parametrize("fused", [False, True])
def test_a_gradient_scaler_raises(fused):
    model = blocks(1)
    optimizer = torch.optim.AdamW(model.parameters(), fused=fused)
    remat.optimizer_in_backward(optimizer)
    scaler = torch.amp.GradScaler("cpu")
    scaler.scale(loss_of(model(torch.randn(8, 64)))).backward()
    with pytest.raises(AssertionError, match="No inf checks were recorded"):
        scaler.step(optimizer)
        scaler.update()
