"""Hooks of tensors, modules and parameters: each runs as often as in plain, at the same points."""

from __future__ import annotations

import torch
from compare import blocks
from scopes import assert_exact_when_dropped, loss_of
from torch import nn
from torch.nn.utils import parametrizations, parametrize


def test_tensor_hooks_fire_once_and_their_result_counts():
    calls = []

    def program(model):
        x = torch.randn(32, 64, requires_grad=True)
        y = x
        for i, block in enumerate(model):
            y = block(y)
            y.register_hook(lambda g, i=i: (calls.append(i), g * 1.5)[1])
            y.retain_grad()
        loss = loss_of(y)
        loss.backward()
        return loss.detach(), x.grad, y.grad

    assert_exact_when_dropped(blocks(3), program, steps=1)
    assert calls == [2, 1, 0] * 2  # plain's and ours


def test_module_hooks_fire_once():
    calls = []

    def program(model):
        model[0][0].weight.grad = None
        handles = []
        for i, block in enumerate(model):
            note = lambda kind, i=i: calls.append((kind, i))  # noqa: E731
            handles += [
                block.register_forward_pre_hook(lambda m, args, note=note: (note("pre"), (args[0] * 0.9,))[1]),
                block.register_forward_hook(lambda m, args, y, note=note: (note("forward"), y * 1.1)[1]),
                block.register_full_backward_pre_hook(lambda m, g, note=note: note("backward pre")),
                block.register_full_backward_hook(lambda m, gi, go, note=note: (note("backward"), (gi[0] * 2,))[1]),
            ]
        x = torch.randn(32, 64, requires_grad=True)
        loss = loss_of(model(x))
        loss.backward()
        for handle in handles:
            handle.remove()
        return loss.detach(), x.grad

    assert_exact_when_dropped(blocks(3), program, steps=1)
    once = [(kind, i) for i in range(3) for kind in ("pre", "forward")]
    once += [(kind, i) for i in (2, 1, 0) for kind in ("backward pre", "backward")]
    assert calls == once * 2


def test_hooks_of_parameters_and_of_accumulated_gradients():
    calls = []

    def program(model):
        handles = []
        for i, parameter in enumerate(model.parameters()):
            handles.append(parameter.register_hook(lambda g: g.clamp(-1e-3, 1e-3)))
            handles.append(parameter.register_post_accumulate_grad_hook(lambda p, i=i: calls.append(i)))
        loss = loss_of(model(torch.randn(32, 64)))
        loss.backward()
        for handle in handles:
            handle.remove()
        return loss.detach()

    model = blocks(3)
    assert_exact_when_dropped(model, program, steps=1)
    count = len(list(model.parameters()))
    assert calls[:count] == calls[count:] and sorted(calls[:count]) == list(range(count))


def test_an_optimizer_that_steps_inside_of_backward():
    def program(model):
        optimizers = {p: torch.optim.Adam([p], lr=0.01) for p in model.parameters()}

        def step(parameter):
            optimizers[parameter].step()
            parameter.grad = None

        handles = [p.register_post_accumulate_grad_hook(step) for p in model.parameters()]
        losses = []
        for _ in range(3):
            loss = loss_of(model(torch.randn(32, 64)))
            loss.backward()
            losses.append(loss.detach())
        for handle in handles:
            handle.remove()
        return losses

    assert_exact_when_dropped(blocks(4), program)


def test_node_hooks():
    calls = []

    def program(model):
        y = model(torch.randn(32, 64))
        y.grad_fn.register_hook(lambda gi, go: calls.append("after"))
        y.grad_fn.register_prehook(lambda go: (calls.append("before"), (go[0] * 3,))[1])
        loss = loss_of(y)
        loss.backward()
        return loss.detach()

    assert_exact_when_dropped(blocks(2), program, steps=1)
    assert calls == ["before", "after"] * 2


def test_hooks_on_several_gradients_at_once():
    seen = []

    def program(model):
        a, b = model[0](torch.randn(32, 64)), model[1](torch.randn(32, 64))
        torch.autograd.graph.register_multi_grad_hook((a, b), lambda grads: seen.append(len(grads)))
        loss = loss_of(a * b)
        loss.backward()
        return loss.detach()

    assert_exact_when_dropped(blocks(2), program, steps=1)
    assert seen == [2, 2]


def test_spectral_and_weight_norm():
    model = blocks(3)
    parametrizations.spectral_norm(model[0][0])
    parametrizations.weight_norm(model[1][0])
    parametrizations.orthogonal(model[2][3])

    def program(model):
        loss = loss_of(model(torch.randn(32, 64)))
        loss.backward()
        with parametrize.cached():
            second = loss_of(model(torch.randn(32, 64)) + model(torch.randn(32, 64)))
        second.backward()
        return loss.detach(), second.detach()

    assert_exact_when_dropped(model, program)


def test_the_old_weight_norm_and_spectral_norm():
    import warnings

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)

        class Old(nn.Module):
            def __init__(self):
                super().__init__()
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore")
                    self.spectral = torch.nn.utils.spectral_norm(nn.Linear(64, 64))

            def forward(self, x):
                return self.spectral(x).exp().tanh()

        model = Old()
        model(torch.randn(2, 64)).sum().backward()  # its weight is no leaf before

    def program(model):
        loss = loss_of(model(torch.randn(32, 64)))
        loss.backward()
        return loss.detach()

    model.spectral.weight = model.spectral.weight.detach()
    assert_exact_when_dropped(model, program)
