"""torch.utils.swap_tensors() wants its tensors to itself: no reference of remat's keeps it from that, nor load_state_dict()
and to() where they swap."""

from __future__ import annotations

import pytest
import torch
from compare import assert_exact, blocks
from scopes import Dropping, assert_exact_when_dropped, assert_exact_within, loss_of
from torch import nn

import remat


@pytest.fixture
def swapping():
    torch.__future__.set_swap_module_params_on_conversion(True)
    yield
    torch.__future__.set_swap_module_params_on_conversion(False)


def other(model):
    return nn.Parameter(torch.randn_like(model[1][0].weight))


def after_backward(model):
    loss = loss_of(model(torch.randn(64, 64)))
    loss.backward()
    model.zero_grad()
    torch.utils.swap_tensors(model[1][0].weight, other(model))
    again = loss_of(model(torch.randn(64, 64)))
    again.backward()
    return loss.detach(), again.detach()


def without_backward(model):
    with torch.no_grad():
        target = model(torch.randn(64, 64))
    torch.utils.swap_tensors(model[1][0].weight, other(model))
    loss = loss_of(model(torch.randn(64, 64)) - target)
    loss.backward()
    return loss.detach()


def between_forward_and_backward(model):
    """Of what backward does not read."""
    model[0].requires_grad_(False)
    loss = loss_of(model[0](torch.randn(64, 64)) + 0 * model[1](torch.randn(64, 64)))
    frozen = nn.Parameter(torch.randn(64, 256), requires_grad=False)
    torch.utils.swap_tensors(model[0][3].weight, frozen)
    loss.backward()
    model[0].requires_grad_(True)
    return loss.detach()


def with_gradients(model):
    """Which are counted as the model's until they are freed."""
    loss = loss_of(model(torch.randn(64, 64)))
    loss.backward()
    replacement = other(model)
    torch.utils.swap_tensors(model[1][0].weight, replacement)
    return loss.detach(), replacement.grad


def states(model):
    loss = loss_of(model(torch.randn(64, 64)))
    loss.backward()
    model.zero_grad()
    model.load_state_dict({name: 0.5 * value for name, value in model.state_dict().items()})
    return loss.detach()


def conversions(model):
    loss = loss_of(model(torch.randn(64, 64)))
    loss.backward()
    gradients = [p.grad.clone() for p in model.parameters()]
    model.to(torch.float64)
    second = loss_of(model(torch.randn(64, 64, dtype=torch.float64)))
    model.zero_grad()
    second.backward()
    model.zero_grad()
    model.to(torch.float32)
    return loss.detach(), second.detach(), gradients


PROGRAMS = [after_backward, without_backward, between_forward_and_backward, with_gradients]


@pytest.mark.parametrize("program", PROGRAMS)
def test_swaps_within_steps(program):
    assert_exact(blocks(3), program, remat.Session().step, steps=3)
    assert_exact(blocks(3), program, Dropping(), steps=3)


@pytest.mark.parametrize("program", [states, conversions])
def test_methods_that_swap(program, swapping):
    assert_exact(blocks(3), program, remat.Session().step, steps=3)
    assert_exact_when_dropped(blocks(3), program)


def test_after_a_checkpoint_without_a_session():
    model = blocks(3)
    loss = loss_of(remat.checkpoint(model, torch.randn(64, 64)))
    loss.backward()
    model.zero_grad()
    torch.utils.swap_tensors(model[1][0].weight, other(model))


def test_a_swap_in_the_step_of_a_wrapped_model():
    model = remat.wrap(blocks(3))
    loss = model(torch.randn(64, 64)).sum() + model[0](torch.randn(4, 64)).sum()
    loss.backward(retain_graph=True)
    model.zero_grad()
    torch.utils.swap_tensors(model[2][3].bias, nn.Parameter(torch.zeros(64)))
    assert model[2][3].bias.sum() == 0


def test_within_a_budget():
    def program(model):
        loss = loss_of(model(torch.randn(512, 64)))
        loss.backward()
        model.zero_grad()
        torch.utils.swap_tensors(model[1][0].weight, other(model))
        return loss.detach()

    assert_exact_within(blocks(), program)
