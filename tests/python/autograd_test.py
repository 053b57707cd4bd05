"""What a training step may ask of autograd beyond one backward call."""

from __future__ import annotations

import pytest
import torch
from compare import blocks
from scopes import Dropping, assert_exact_when_dropped, assert_exact_within, loss_of
from torch import nn

import remat


def test_gradient_accumulation():
    def program(model):
        losses = []
        for _ in range(4):
            loss = loss_of(model(torch.randn(32, 64))) / 4
            loss.backward()
            losses.append(loss.detach())
        return losses

    assert_exact_when_dropped(blocks(norm=True), program)


def test_gradient_accumulation_with_backwards_at_the_end():
    def program(model):
        losses = [loss_of(model(torch.randn(256, 64))) for _ in range(3)]
        for loss in losses:
            loss.backward()
        return [loss.detach() for loss in losses]

    assert_exact_when_dropped(blocks(norm=True), program)
    assert_exact_within(blocks(norm=True), program)


def test_a_graph_retained_for_a_second_backward():
    def program(model):
        loss = loss_of(model(torch.randn(64, 64)))
        loss.backward(retain_graph=True)
        loss.backward(retain_graph=True)
        loss.backward()
        with pytest.raises(RuntimeError, match="backward through the graph a second time"):
            loss.backward()
        return loss.detach()

    assert_exact_when_dropped(blocks(), program)


@pytest.mark.parametrize("dropout", [0.0, 0.1])
def test_gradient_penalty(dropout):
    def program(model):
        x = torch.randn(64, 64, requires_grad=True)
        y = model(x)
        (gradient,) = torch.autograd.grad(y.sum(), x, create_graph=True)
        penalty = (gradient.norm(dim=1) - 1).square().mean()
        (loss_of(y) + penalty).backward()
        return penalty.detach(), x.grad

    assert_exact_when_dropped(blocks(3, dropout=dropout), program)


def test_third_derivative():
    def program(model):
        x = torch.randn(8, 64, requires_grad=True)
        g = model(x).sum()
        for _ in range(3):
            (g,) = torch.autograd.grad(g.sum(), x, create_graph=True)
        g.sum().backward()
        return g.detach(), x.grad

    assert_exact_when_dropped(blocks(1, dropout=0.0), program)


def test_gradients_of_chosen_tensors():
    def program(model):
        x = torch.randn(64, 64, requires_grad=True)
        hidden = [x]
        for block in model:
            hidden.append(block(hidden[-1]))
        loss = loss_of(hidden[-1])
        first = torch.autograd.grad(loss, [hidden[1], model[1][0].weight], retain_graph=True)
        rest = torch.autograd.grad(loss, list(model.parameters()) + [x], allow_unused=True)
        return loss.detach(), first, rest

    assert_exact_when_dropped(blocks(), program)


def test_backward_of_some_inputs_and_with_given_gradients():
    def program(model):
        x = torch.randn(64, 64, requires_grad=True)
        y, z = model[0](x), model[1](x)
        torch.autograd.backward([y, z], [torch.randn(64, 64), torch.randn(64, 64)], inputs=[x, model[0][0].weight])
        return x.grad

    assert_exact_when_dropped(blocks(2), program)


def test_parts_without_gradient():
    def program(model):
        x = torch.randn(64, 64)
        with torch.no_grad():
            target = model(x)
        with torch.inference_mode():
            scale = model(x).abs().mean()
        y = model(x)
        loss = ((y - target) ** 2).mean() * float(scale)
        loss.backward()
        frozen = y.detach() * 2
        return loss.detach(), frozen

    assert_exact_when_dropped(blocks(), program)


def test_inference_tensors_as_inputs():
    with torch.inference_mode():
        data = torch.randn(64, 64)

    def program(model):
        loss = loss_of(model(data.clone()) * data.clone())
        loss.backward()
        return loss.detach()

    assert_exact_when_dropped(blocks(), program)


def test_frozen_parameters():
    model = blocks()
    for parameter in model[:4].parameters():
        parameter.requires_grad_(False)

    def program(model):
        loss = loss_of(model(torch.randn(64, 64)))
        loss.backward()
        return loss.detach()

    assert_exact_when_dropped(model, program)


def test_in_place_operators_and_views():
    def program(model):
        x = torch.randn(64, 64)
        y = model[0](x)
        y.add_(1).mul_(0.5)
        y[:, ::2] *= 2
        y.t()[3].zero_()
        first, second = y.chunk(2, dim=1)
        y = torch.cat([first.sigmoid() * second, second.tanh()], dim=1)
        y = model[1](y).relu_()
        y = torch.where(y > 0.1, y, y.detach() * 0.1).masked_fill_(torch.rand(64, 64) > 0.9, 0.5)
        rows = torch.randint(0, 64, (16,))
        y = y.index_add(0, rows, torch.ones(16, 64)).scatter_(1, torch.randint(0, 64, (64, 3)), 0.25)
        loss = loss_of(model[2](y.unsqueeze(0).expand(2, -1, -1).permute(1, 0, 2).reshape(128, 64)))
        loss.backward()
        return loss.detach()

    assert_exact_when_dropped(blocks(3), program)


def test_a_saved_tensor_written_in_place_is_refused_as_in_plain():
    def program():
        x = torch.randn(8, 8, requires_grad=True)
        y = x.exp()
        z = y.sum()
        y.add_(1)
        z.backward()

    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        program()
    with remat.policy(), pytest.raises(remat.Error, match="modified by an in-place operation"):
        program()


def test_outputs_of_several_losses_freed_in_any_order():
    def program(model):
        x = torch.randn(64, 64)
        losses = [loss_of(model[i](x)) for i in range(4)]
        del losses[2]
        for loss in (losses[2], losses[0], losses[1]):
            loss.backward()
        return [loss.detach() for loss in losses]

    assert_exact_when_dropped(blocks(4), program)


def test_backward_after_the_scope_has_ended():
    def run(scope):
        torch.manual_seed(3)
        model = blocks(norm=True)
        with scope():
            loss = loss_of(model(torch.randn(64, 64)))
        loss.backward()
        return [loss.detach()] + [p.grad for p in model.parameters()]

    import contextlib

    for a, b in zip(run(contextlib.nullcontext), run(Dropping()), strict=True):
        assert torch.equal(a, b)


def test_anomaly_mode():
    def program(model):
        with torch.autograd.detect_anomaly(check_nan=True):
            loss = loss_of(model(torch.randn(64, 64)))
            loss.backward()
        return loss.detach()

    with pytest.warns(UserWarning, match="Anomaly"):
        assert_exact_when_dropped(blocks(), program)


def test_jacobian_and_hessian():
    def program(model):
        jacobian = torch.autograd.functional.jacobian(model, torch.randn(2, 8), create_graph=True)
        hessian = torch.autograd.functional.hessian(lambda x: model(x).square().sum(), torch.randn(1, 8))
        jacobian.square().sum().backward()
        return jacobian.detach(), hessian

    assert_exact_when_dropped(blocks(1, width=8, dropout=0.0), program)


def test_a_backward_inside_of_a_backward():
    def program(model):
        x = torch.randn(16, 64, requires_grad=True)
        y = model[0](x)

        def inner(gradient):
            with torch.enable_grad():
                z = model[1](y.detach().requires_grad_())
                loss_of(z).backward()
            return gradient * 2

        y.register_hook(inner)
        loss = loss_of(y)
        loss.backward()
        return loss.detach(), x.grad

    assert_exact_when_dropped(blocks(2), program)


def test_deep_chains_do_not_recurse():
    class Deep(nn.Module):
        def __init__(self):
            super().__init__()
            self.scale = nn.Parameter(torch.ones(4))

    def program(model):
        y = torch.ones(4)
        for _ in range(3000):
            y = (y * model.scale).sin()
        y.sum().backward()
        return y.detach()

    assert_exact_when_dropped(Deep(), program, steps=1)
