"""Operators that the kernels of others call: where one must run once, so must those that call it."""

from __future__ import annotations

import pytest
import torch
from scopes import Dropping, assert_exact_when_dropped, loss_of
from torch import nn

import remat

pytestmark = pytest.mark.filterwarnings("ignore:.*previously registered kernel")
calls = []


def addmm(bias, x, w, beta=1, alpha=1):
    calls.append("addmm")
    with torch._C._AutoDispatchBelowAutograd():
        return torch.matmul(x, w) * (1 + 0.01 * len(calls)) + bias


def mm(x, w):
    calls.append("mm")
    with torch._C._AutoDispatchBelowAutograd():
        return (x[:, :, None] * w[None]).sum(1) * (1 + 0.01 * len(calls))


LAYERS = {
    "linear": ("addmm", addmm, lambda layer, x: layer(x)),
    "linear without bias": ("mm", mm, lambda layer, x: nn.functional.linear(x, layer.weight)),
    "product": ("mm", mm, lambda layer, x: x @ layer.weight),
}


@pytest.mark.parametrize("kind", LAYERS)
@pytest.mark.parametrize("key", ["CPU", "ADInplaceOrView"])
def test_a_function_in_the_place_of_a_layers_product_runs_once(kind, key):
    """PyTorch calls its kernels of linear and matmul, which call the product, at autograd's level."""
    name, kernel, layer_of = LAYERS[kind]

    def program(model):
        calls.clear()
        x = torch.randn(24, 24)
        with torch.library._scoped_library("aten", "IMPL") as library:
            library.impl(name, kernel, key, allow_override=True)
            for layer in model:
                x = layer_of(layer, x).sin().tanh()
            assert len(calls) == len(model)
        loss = loss_of(x)
        before = len(calls)
        loss.backward()
        assert len(calls) == before
        return loss.detach()

    assert_exact_when_dropped(nn.ModuleList(nn.Linear(24, 24) for _ in range(4)), program)


class Product(torch.autograd.Function):
    @staticmethod
    def forward(ctx, bias, x, w):
        ctx.save_for_backward(x, w)
        return addmm(bias, x, w)

    @staticmethod
    def backward(ctx, gradient):
        x, w = ctx.saved_tensors
        return gradient.sum(0), gradient @ w.t(), x.t() @ gradient


def test_a_function_at_autograds_key_runs_once():
    def program(model):
        calls.clear()
        with torch.library._scoped_library("aten", "IMPL") as library:
            library.impl("addmm", lambda b, x, w, beta=1, alpha=1: Product.apply(b, x, w), "AutogradCPU")
            x = torch.randn(48, 48)
            for layer in model:
                x = layer(x).sin().tanh()
            loss = loss_of(x)
            loss.backward()
        assert len(calls) == len(model)
        return loss.detach()

    assert_exact_when_dropped(nn.ModuleList(nn.Linear(48, 48) for _ in range(4)), program)


def test_what_is_declared_of_a_product_is_true_of_a_layer():
    layer, scope = nn.Linear(48, 48), Dropping()

    def replays_product():
        with scope():
            layer(torch.randn(48, 48)).sin().sum().backward()
        replayed = str(scope.session.report().to_dict()["replayed"])
        return "aten::addmm" in replayed or "aten::linear" in replayed

    assert replays_product()
    remat.not_repeatable("aten::addmm")
    try:
        assert not replays_product()
    finally:
        remat.repeatable("aten::addmm")
    assert replays_product()
