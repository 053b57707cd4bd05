"""Autocast and gradient scaling."""

from __future__ import annotations

import pytest
import torch
from compare import blocks
from scopes import assert_exact_when_dropped, assert_exact_within, loss_of

import remat

TYPES = [torch.bfloat16, torch.float16]


@pytest.mark.parametrize("dtype", TYPES)
def test_autocast_is_exact_with_everything_dropped(dtype):
    def program(model):
        with torch.autocast("cpu", dtype=dtype):
            loss = loss_of(model(torch.randn(64, 64)))
        loss.backward()
        return loss.detach()

    assert_exact_when_dropped(blocks(norm=True), program)


def test_autocast_is_exact_within_a_budget():
    def program(model):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            loss = loss_of(model(torch.randn(512, 64)))
        loss.backward()
        return loss.detach()

    assert_exact_within(blocks(norm=True), program)


def test_autocast_around_forward_and_backward():
    def program(model):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            loss = loss_of(model(torch.randn(64, 64)))
            loss.backward()
        return loss.detach()

    assert_exact_when_dropped(blocks(), program)


def test_backward_under_another_autocast_than_forward():
    def program(model):
        loss = loss_of(model(torch.randn(64, 64)))
        with torch.autocast("cpu", dtype=torch.bfloat16):
            loss.backward()
        return loss.detach()

    assert_exact_when_dropped(blocks(), program)


def test_a_region_without_autocast_inside_one_with_it():
    def program(model):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            x = model[0](torch.randn(64, 64))
            with torch.autocast("cpu", enabled=False):
                x = model[1](x.float())
            loss = loss_of(model[2](x))
        loss.backward()
        return loss.detach()

    assert_exact_when_dropped(blocks(3), program)


def test_weights_cast_once_and_used_twice():
    def program(model):
        x = torch.randn(64, 64)
        with torch.autocast("cpu", dtype=torch.bfloat16):  # its cache holds the cast weights until the scope ends
            loss = loss_of(model(model(x)))
        loss.backward()
        return loss.detach()

    assert_exact_when_dropped(blocks(2), program)


@pytest.mark.parametrize("dtype", TYPES)
def test_a_checkpoint_replays_with_the_autocast_of_its_call(dtype):
    def program(model):
        with torch.autocast("cpu", dtype=dtype):
            y = remat.checkpoint(model, torch.randn(64, 64))
        loss = loss_of(y)
        loss.backward()
        return y.detach(), loss.detach()

    assert_exact_when_dropped(blocks(), program)


@pytest.mark.parametrize("scale", [2.0**10, 2.0**40])  # the second overflows float16: steps are skipped
def test_gradient_scaling(scale):
    def program(model):
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        scaler = torch.amp.GradScaler("cpu", init_scale=scale)
        losses = []
        for _ in range(3):
            optimizer.zero_grad()
            with torch.autocast("cpu", dtype=torch.float16):
                loss = loss_of(model(torch.randn(32, 64)))
            scaler.scale(loss).backward()
            scaler.unscale_(optimizer)
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            scaler.step(optimizer)
            scaler.update()
            losses.append(loss.detach())
        return losses, torch.tensor(scaler.get_scale())

    assert_exact_when_dropped(blocks(3), program, steps=1)


def test_functions_with_their_own_autocast_rules():
    class Product(torch.autograd.Function):
        @staticmethod
        @torch.amp.custom_fwd(device_type="cpu", cast_inputs=torch.bfloat16)
        def forward(ctx, a, b):
            ctx.save_for_backward(a, b)
            return a @ b

        @staticmethod
        @torch.amp.custom_bwd(device_type="cpu")
        def backward(ctx, g):
            a, b = ctx.saved_tensors
            return g @ b.t(), a.t() @ g

    def program(model):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            x = model[0](torch.randn(64, 64)).exp()
            loss = loss_of(Product.apply(x, model[0][0].weight.t()))
        loss.backward()
        return loss.detach()

    assert_exact_when_dropped(blocks(1), program)
