"""Random numbers: every draw is made once, whatever it comes from."""

from __future__ import annotations

import numpy
import torch
from compare import blocks
from scopes import assert_exact_when_dropped, loss_of
from torch.nn import functional as F


def test_explicit_generators():
    def program(model):
        generator = torch.Generator().manual_seed(5)
        y = torch.randn(32, 64, generator=generator)
        for block in model:
            y = block(y)
            mask = torch.bernoulli(torch.full_like(y, 0.8), generator=generator)
            y = y * mask + y.detach().new_empty(y.shape).normal_(generator=generator).exp()
            y = y + torch.rand(64, generator=generator).log1p()
        loss = loss_of(y)
        loss.backward()
        return loss.detach(), generator.get_state()

    assert_exact_when_dropped(blocks(3), program)


def test_one_generator_used_by_forward_and_backward():
    def program(model):
        generator = torch.Generator().manual_seed(5)
        y = model[0](torch.randn(32, 64))
        y.register_hook(lambda g: g * torch.rand(g.shape, generator=generator))
        y = model[1](y * torch.rand(y.shape, generator=generator))
        loss = loss_of(y)
        loss.backward()
        return loss.detach(), generator.get_state()

    assert_exact_when_dropped(blocks(2), program)


def test_generators_reset_and_states_restored_in_between():
    def program(model):
        state = torch.get_rng_state()
        y = model[0](torch.randn(32, 64))
        torch.set_rng_state(state)
        y = model[1](y)
        with torch.random.fork_rng():
            torch.manual_seed(99)
            y = model[2](y)
        loss = loss_of(y)
        loss.backward()
        return loss.detach()

    assert_exact_when_dropped(blocks(3), program)


def test_every_kind_of_dropout():
    def program(model):
        y = model(torch.randn(32, 64)).reshape(32, 8, 8)
        y = F.dropout(y, 0.3)
        y = F.dropout1d(y, 0.3)
        y = F.dropout2d(y.reshape(32, 8, 4, 2), 0.3)
        y = F.alpha_dropout(y, 0.3)
        y = F.feature_alpha_dropout(y, 0.3)
        y = F.rrelu(y, training=True)
        y = F.gumbel_softmax(y.reshape(32, 64), hard=True) + F.dropout(y.reshape(32, 64), 0.5, inplace=True)
        loss = loss_of(y)
        loss.backward()
        return loss.detach()

    assert_exact_when_dropped(blocks(2), program)


def test_distributions():
    from torch.distributions import Categorical, Gamma, Normal

    def program(model):
        y = model(torch.randn(32, 64))
        sample = Normal(y, y.exp()).rsample()
        gamma = Gamma(y.exp(), torch.ones(64)).rsample()
        choice = Categorical(logits=y)
        action = choice.sample()
        loss = loss_of(sample) + gamma.mean() - choice.log_prob(action).mean()
        loss.backward()
        return loss.detach(), action

    assert_exact_when_dropped(blocks(2), program)


def test_random_numbers_of_numpy():
    def program(model):
        draw = numpy.random.default_rng(4)
        y = model(torch.from_numpy(draw.standard_normal((32, 64), dtype=numpy.float32)))
        mask = torch.from_numpy(draw.random((32, 64), dtype=numpy.float32))
        loss = loss_of((y * mask).exp())
        loss.backward()
        return loss.detach()

    assert_exact_when_dropped(blocks(2), program)
