"""Updates in backward in loops that do more than backward(), step() and zero_grad() in turn."""

from __future__ import annotations

import copy
import gc
import pickle

import pytest
import torch
from compare import assert_same, blocks, same_bits
from optimizer_in_backward_test import left_by
from scopes import loss_of
from torch import nn
from torch.optim.optimizer import register_optimizer_step_post_hook

import remat


def two_groups(model):
    groups = [{"params": list(layer.parameters()), "lr": 0.1 * (index + 1)} for index, layer in enumerate(model)]
    return torch.optim.SGD(groups, momentum=0.9)


def reverse(optimizer):
    optimizer.param_groups.reverse()


def remove_a_group(optimizer):
    del optimizer.param_groups[0]


def remove_a_parameter(optimizer):
    del optimizer.param_groups[1]["params"][0]


def move_a_parameter(optimizer):
    optimizer.param_groups[0]["params"].append(optimizer.param_groups[1]["params"].pop())


@pytest.mark.parametrize("accumulate", [1, 2])
@pytest.mark.parametrize("change", [reverse, remove_a_group, remove_a_parameter, move_a_parameter])
def test_groups_are_those_of_the_time_of_the_update(change, accumulate):
    def program(in_backward):
        torch.manual_seed(3)
        model = blocks(2)
        optimizer = two_groups(model)
        if in_backward:
            remat.optimizer_in_backward(optimizer, accumulate=accumulate)
        for step in range(4):
            if step == 2:
                change(optimizer)
            for _ in range(accumulate):
                loss_of(model(torch.randn(8, 64))).backward()
            optimizer.step()
            optimizer.zero_grad()
        return [p.grad for p in model.parameters()] + list(model.parameters()) + left_by(model, optimizer)

    assert_same(program(False), program(True))


def test_a_parameter_that_comes_into_the_groups_twice_is_refused_before_any_update():
    model = blocks(2)
    optimizer = two_groups(model)
    with remat.optimizer_in_backward(optimizer):
        optimizer.param_groups[0]["params"].append(model[1][0].weight)
        before = copy.deepcopy(list(model.parameters()))
        with pytest.raises(remat.Error, match="in the optimizer's groups twice"):
            loss_of(model(torch.randn(8, 64))).backward()
        assert_same(before, list(model.parameters()))
    with pytest.raises(remat.Error, match="in the optimizer's groups twice"):
        remat.optimizer_in_backward(optimizer)


def test_a_pass_that_updates_what_another_optimizer_trains_is_noticed():
    """The usual loop of a GAN: the generator's pass gives the discriminator gradients, which it throws away."""

    def program(in_backward, frozen):
        torch.manual_seed(3)
        generator, discriminator = nn.Linear(8, 16), nn.Linear(16, 1)
        optimizers = [torch.optim.Adam(each.parameters()) for each in (generator, discriminator)]
        if in_backward:
            for each in optimizers:
                remat.optimizer_in_backward(each)
        for _ in range(3):
            optimizers[1].zero_grad()
            fake = generator(torch.randn(4, 8))
            (loss_of(discriminator(torch.randn(4, 16))) - loss_of(discriminator(fake.detach()))).backward()
            optimizers[1].step()
            optimizers[0].zero_grad()
            discriminator.requires_grad_(not frozen)
            loss_of(discriminator(fake)).backward()
            discriminator.requires_grad_(True)
            optimizers[0].step()
        return left_by(generator, optimizers[0]) + left_by(discriminator, optimizers[1])

    with pytest.raises(remat.Error, match=r"throws gradients away .* it updated 2 parameters"):
        program(True, frozen=False)
    assert_same(program(False, frozen=True), program(True, frozen=True))


def test_a_step_that_is_left_out_is_noticed():
    model = blocks(1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    updates = remat.optimizer_in_backward(optimizer)
    loss_of(model(torch.randn(8, 64))).backward()
    with pytest.raises(remat.Error, match="throws gradients away"):
        optimizer.zero_grad(set_to_none=True)
    updates.reset()
    optimizer.zero_grad()
    loss_of(model(torch.randn(8, 64))).backward()
    optimizer.step()
    optimizer.zero_grad()
    optimizer.zero_grad()


def test_accumulation_that_was_not_said_is_noticed():
    model = blocks(1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    remat.optimizer_in_backward(optimizer)

    def step():
        for _ in range(2):
            loss_of(model(torch.randn(8, 64))).backward()
        optimizer.step()
        optimizer.zero_grad()

    step()  # as in a loop that never calls step()
    with pytest.raises(remat.Error, match=r"second backward pass since optimizer\.step\(\)"):
        step()


def check_loop(count, loop, **options):
    """`loop(model, optimizer, in_backward)` leaves the same with updates in backward as without."""

    def program(in_backward):
        torch.manual_seed(3)
        model = blocks(count)
        optimizer = torch.optim.AdamW(model.parameters())
        if in_backward:
            remat.optimizer_in_backward(optimizer, **options)
        losses = loop(model, optimizer, in_backward) or []
        return [*losses, *left_by(model, optimizer)]

    assert_same(program(False), program(True))


def test_losses_of_different_parameters_need_no_step_between():
    def loop(model, optimizer, in_backward):
        for _ in range(3):
            for each in model:
                loss_of(each(torch.randn(8, 64))).backward()
            optimizer.step()
            optimizer.zero_grad()

    check_loop(2, loop)


@pytest.mark.parametrize("accumulate", [1, 2])
def test_loops_without_step_and_zero_grad(accumulate):
    def loop(model, optimizer, in_backward):
        for i in range(6):
            loss_of(model(torch.randn(8, 64))).backward()
            if not in_backward and i % accumulate == accumulate - 1:
                optimizer.step()
                optimizer.zero_grad()

    check_loop(1, loop, accumulate=accumulate)


def test_a_closure():
    def loop(model, optimizer, in_backward):
        def closure():
            optimizer.zero_grad()
            loss = loss_of(model(torch.randn(8, 64)))
            loss.backward()
            return loss

        return [optimizer.step(closure) for _ in range(3)]

    check_loop(1, loop)


def test_copies_and_pickles_of_an_optimizer_are_usual_ones():
    optimizer = torch.optim.SGD(blocks(1).parameters(), lr=0.1)
    updates = remat.optimizer_in_backward(optimizer)
    for other in (copy.copy(optimizer), copy.deepcopy(optimizer), pickle.loads(pickle.dumps(optimizer))):
        assert "zero_grad" not in vars(other)
        other.zero_grad()
    updates.remove()
    assert "zero_grad" not in vars(optimizer)


def test_hooks_of_all_optimizers_run_once_per_step():
    model = blocks(1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    remat.optimizer_in_backward(optimizer)
    calls = []
    handle = register_optimizer_step_post_hook(lambda *_: calls.append(None))
    try:
        loss_of(model(torch.randn(8, 64))).backward()
        assert calls == []
        optimizer.step()
    finally:
        handle.remove()
    assert len(calls) == 1


def test_an_optimizer_in_a_cycle_gives_way_to_the_next():
    model = blocks(1)

    class Trainer:
        def __init__(self):
            self.itself = self
            self.optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
            remat.optimizer_in_backward(self.optimizer)

    gc.disable()
    try:
        Trainer()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.0)
        remat.optimizer_in_backward(optimizer)
    finally:
        gc.enable()
    before = copy.deepcopy(list(model.parameters()))
    loss_of(model(torch.randn(8, 64))).backward()
    assert_same(before, list(model.parameters()))


def test_the_optimizer_inside_of_accelerates():
    accelerate = pytest.importorskip("accelerate")
    model = blocks(1)
    accelerator = accelerate.Accelerator(cpu=True)
    model, optimizer = accelerator.prepare(model, torch.optim.SGD(model.parameters(), lr=0.1))
    for options in ({}, {"per_parameter": True}):
        with remat.optimizer_in_backward(optimizer, **options):
            before = copy.deepcopy(list(model.parameters()))
            accelerator.backward(loss_of(model(torch.randn(8, 64))))
            assert not any(same_bits(a, b) for a, b in zip(before, model.parameters()))
            after = copy.deepcopy(list(model.parameters()))
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
            assert_same(after, list(model.parameters()))
