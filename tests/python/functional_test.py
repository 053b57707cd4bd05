"""torch.func: transforms inside of a step are exact."""

from __future__ import annotations

import pytest
import torch
from compare import blocks
from scopes import assert_exact_when_dropped, assert_no_higher_peak, loss_of
from torch.func import functional_call, grad, jacrev, jvp, vjp, vmap


def around(transform):
    """A program with a transform between two blocks that are trained."""

    def program(model):
        x = model[0](torch.randn(16, 32))
        made = transform(model[1], x)
        loss = loss_of(model[2](x + made).exp())
        loss.backward()
        return loss.detach(), made.detach()

    return program


MODEL = dict(count=3, width=32, dropout=0.0)


def test_grad():
    def gradient(block, x):
        return grad(lambda v: block(v).exp().sum())(x)

    assert_exact_when_dropped(blocks(**MODEL), around(gradient))


def test_vmap():
    assert_exact_when_dropped(blocks(**MODEL), around(lambda block, x: vmap(lambda row: block(row).tanh())(x)))


def test_vmap_with_random_numbers():
    def rows(block, x):
        return vmap(lambda row: block(row) * torch.rand(32), randomness="different")(x)

    assert_exact_when_dropped(blocks(**MODEL), around(rows))


def test_gradients_per_sample():
    def per_sample(block, x):
        parameters = {name: p.detach() for name, p in block.named_parameters()}

        def loss(parameters, row):
            return functional_call(block, parameters, (row,)).square().sum()

        gradients = vmap(grad(loss), in_dims=(None, 0))(parameters, x.detach())
        return sum(g.flatten(1).sum(1, keepdim=True) for g in gradients.values()) * 1e-3

    assert_exact_when_dropped(blocks(**MODEL), around(per_sample))


def test_jvp():
    def tangent(block, x):
        _, out = jvp(block, (x,), (torch.ones_like(x),))
        return out

    assert_exact_when_dropped(blocks(**MODEL), around(tangent))


def test_forward_mode():
    from torch.autograd import forward_ad

    def tangent(block, x):
        with forward_ad.dual_level():
            dual = forward_ad.make_dual(x, torch.ones_like(x))
            return forward_ad.unpack_dual(block(dual).exp()).tangent

    assert_exact_when_dropped(blocks(**MODEL), around(tangent))


def test_vjp_and_jacrev():
    def both(block, x):
        _, pull = vjp(lambda v: block(v).sigmoid(), x)
        (back,) = pull(torch.ones_like(x))
        return back + vmap(jacrev(lambda row: block(row).sum()))(x)

    assert_exact_when_dropped(blocks(**MODEL), around(both))


def test_functional_call_with_other_parameters():
    def called(block, x):
        return functional_call(block, {name: p * 1.5 for name, p in block.named_parameters()}, (x,))

    assert_exact_when_dropped(blocks(**MODEL), around(called))


def test_batches_of_gradients():
    def program(model):
        x = torch.randn(4, 32, requires_grad=True)
        y = model(x)
        rows = torch.eye(4).unsqueeze(-1).expand(4, 4, 32)
        (batch,) = torch.autograd.grad(y, x, rows, is_grads_batched=True)  # backward runs inside of vmap
        return batch, torch.autograd.functional.jacobian(model, torch.randn(2, 32), vectorize=True)

    assert_exact_when_dropped(blocks(count=3, width=32), program)


def inner_step(block, x):
    """An update within the step, as of meta-learning: backward goes through it."""
    parameters = dict(block.named_parameters())

    def loss(parameters, rows):
        return loss_of(functional_call(block, parameters, (rows,)))

    gradients = grad(loss)(parameters, x)
    return loss({name: p - 0.1 * gradients[name] for name, p in parameters.items()}, x)


MEMORY = {
    "grad": lambda block, x: grad(lambda v: loss_of(block(v)))(x).square().mean(),
    "vmap": lambda block, x: vmap(lambda rows: loss_of(block(rows)))(x.view(4, -1, x.shape[1])).mean(),
    "inner step": inner_step,
    "vmap of inner steps": lambda block, x: vmap(lambda rows: inner_step(block, rows))(x.view(4, -1, x.shape[1])).mean(),
    "vjp": lambda block, x: vjp(lambda v: loss_of(block(v)), x)[1](torch.ones(()))[0].square().mean(),
    "jvp": lambda block, x: jvp(lambda v: loss_of(block(v)), (x,), (torch.ones_like(x),))[1],
}


@pytest.mark.parametrize("budget", [None, "100%"])
@pytest.mark.parametrize("transform", MEMORY)
def test_no_more_memory_than_in_plain(transform, budget):
    torch.manual_seed(1)
    block = torch.nn.Sequential(*[torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.ReLU()) for _ in range(4)])
    x = torch.randn(512, 64, requires_grad=True)

    def forget_gradients():
        block.zero_grad()
        x.grad = None

    assert_no_higher_peak(forget_gradients, lambda: MEMORY[transform](block, x).backward(), budget)
