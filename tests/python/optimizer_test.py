"""Parameters, averages and buffers that are updated inside and outside of steps."""

from __future__ import annotations

import contextlib
import copy

import pytest
import torch
from compare import blocks, run, same_bits
from scopes import Dropping, assert_exact_when_dropped, loss_of
from torch import nn
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn

import remat

OPTIMIZERS = {
    "sgd": lambda p: torch.optim.SGD(p, lr=0.05, momentum=0.9, nesterov=True),
    "adam": lambda p: torch.optim.Adam(p, foreach=False),
    "foreach adam": lambda p: torch.optim.AdamW(p, foreach=True),
    "fused adam": lambda p: torch.optim.AdamW(p, fused=True),
    "fused sgd": lambda p: torch.optim.SGD(p, lr=0.05, fused=True),
    "rmsprop": lambda p: torch.optim.RMSprop(p, foreach=True),
    "lamb-like": lambda p: torch.optim.Adafactor(p),
}


@pytest.mark.parametrize("name", OPTIMIZERS)
@pytest.mark.parametrize("inside", [False, True])
def test_optimizers(name, inside):
    model = blocks(3, norm=True)

    def train(scope):
        def program(m):
            optimizer = OPTIMIZERS[name](m.parameters())
            losses = []
            for _ in range(4):
                with scope():
                    optimizer.zero_grad()
                    loss = loss_of(m(torch.randn(32, 64)))
                    loss.backward()
                    if inside:
                        torch.nn.utils.clip_grad_norm_(m.parameters(), 0.1)
                        optimizer.step()
                if not inside:
                    optimizer.step()
                losses.append(loss.detach())
            return losses, [v for s in optimizer.state.values() for v in s.values()]

        return run(model, program, contextlib.nullcontext, 1)

    plain = train(contextlib.nullcontext)
    for scope in (Dropping(), remat.Session(budget="90%").step):
        assert all(same_bits(a, b) for a, b in zip(plain, train(scope), strict=True))


def test_several_updates_in_one_step():
    def program(model):
        optimizer = torch.optim.AdamW(model.parameters(), fused=True)
        for _ in range(3):
            optimizer.zero_grad()
            loss = loss_of(model(torch.randn(32, 64)))
            loss.backward()
            optimizer.step()
        return loss.detach()

    assert_exact_when_dropped(blocks(3), program)


@pytest.mark.parametrize("fused", [False, True])
def test_two_players(fused):
    """One network is updated between the forward pass of another and its backward."""

    def program(model):
        first = torch.optim.AdamW(model[0].parameters(), fused=fused)
        second = torch.optim.AdamW(model[1].parameters(), fused=fused)
        losses = []
        for _ in range(2):
            made = model[0](torch.randn(32, 64))
            judged = loss_of(model[1](made.detach()))
            second.zero_grad()
            judged.backward()
            second.step()
            first.zero_grad()
            fooled = loss_of(model[1](made).exp())
            fooled.backward()
            first.step()
            losses += [judged.detach(), fooled.detach()]
        return losses

    assert_exact_when_dropped(blocks(2), program)


def test_averages_of_weights():
    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.student = blocks(2)
            self.teacher = copy.deepcopy(self.student).requires_grad_(False)

    def program(model):
        x = torch.randn(32, 64)
        y = model.student(x)
        with torch.no_grad():
            for s, t in zip(model.student.parameters(), model.teacher.parameters(), strict=True):
                t.lerp_(s, 0.1)
            target = model.teacher(x)
        loss = loss_of(y.exp() - target)
        loss.backward()
        with torch.no_grad():
            for s, t in zip(model.student.parameters(), model.teacher.parameters(), strict=True):
                s.sub_(s.grad, alpha=0.1)
                t.data.copy_(0.9 * t.data + 0.1 * s.data)
        return loss.detach()

    assert_exact_when_dropped(Model(), program, steps=3)


def test_averaged_models():
    def program(model):
        average = AveragedModel(model, multi_avg_fn=get_ema_multi_avg_fn(0.9))
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for _ in range(3):
            optimizer.zero_grad()
            loss = loss_of(model(torch.randn(32, 64)))
            loss.backward()
            optimizer.step()
            average.update_parameters(model)
        return loss.detach(), list(average.parameters())

    assert_exact_when_dropped(blocks(2), program)


def test_a_teacher_updated_between_forward_and_backward():
    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.student = blocks(1)
            self.register_buffer("scale", torch.ones(64))

    def program(model):
        y = (model.student(torch.randn(32, 64)) * model.scale.exp()).exp()
        model.scale.mul_(0.5).add_(0.1)  # read before, by what a replay has to repeat
        model.scale.data[3] = 7
        z = (y * model.scale.sigmoid()).tanh()
        model.scale.copy_(z.detach().mean(0))
        loss = loss_of(z)
        loss.backward()
        return loss.detach()

    assert_exact_when_dropped(Model(), program, steps=3)


def test_buffers_replaced_by_new_tensors():
    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = blocks(1)
            self.register_buffer("memory", torch.zeros(4, 64))

    def program(model):
        y = model.layer(torch.randn(4, 64)) + model.memory.sin()
        model.memory = y.detach()
        y = y * model.memory.cos()
        model.memory.set_(torch.full((4, 64), 0.5))
        loss = loss_of(y.exp() * model.memory.exp())
        loss.backward()
        return loss.detach()

    assert_exact_when_dropped(Model(), program, steps=3)
