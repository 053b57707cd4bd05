"""Recurrent layers of every shape: oneDNN's kernels leave undefined bytes in their workspaces."""

from __future__ import annotations

import pytest
import torch
from compare import assert_exact
from torch import nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

import remat


class Recurrent(nn.Module):
    def __init__(self, kind, size=12, packed=False, **options):
        super().__init__()
        self.layer = kind(size, size, batch_first=True, **options)
        self.packed = packed

    def forward(self, x):
        if not self.packed:
            return self.layer(x)[0]
        lengths = torch.linspace(x.shape[1], 2, x.shape[0]).long()
        result, _ = self.layer(pack_padded_sequence(x, lengths, batch_first=True))
        return pad_packed_sequence(result, batch_first=True)[0]


SHAPES = [
    {},
    {"num_layers": 2},
    {"num_layers": 3, "dropout": 0.3},
    {"bidirectional": True},
    {"num_layers": 2, "bidirectional": True, "dropout": 0.2},
    {"packed": True, "num_layers": 2},
    {"packed": True, "bidirectional": True},
    {"bias": False},
    {"size": 50, "num_layers": 2},
]


def step(model):
    loss = model(torch.randn(6, 4, model[0].layer.input_size).cumsum(0)).sin().square().mean()
    loss.backward()
    return loss.detach()


def check(kind, options, budget, planner):
    session = remat.Session(budget=budget, planner=planner)

    try:
        assert_exact(nn.Sequential(Recurrent(kind, **options), nn.Tanh()), step, session.step, steps=3)
    except remat.BudgetError:
        return False
    return True


@pytest.mark.parametrize("options", SHAPES, ids=str)
@pytest.mark.parametrize("kind", [nn.LSTM, nn.GRU, nn.RNN])
def test_every_budget_and_planner(kind, options):
    every = kind is nn.LSTM
    for budget in ("90%", "80%", "70%", "60%", "50%", "40%") if every else ("80%", "60%", "40%"):
        for planner in ("online", "auto"):
            check(kind, options, budget, planner)
    for planner in set(remat.list_planners()) - {"online", "auto"} if every else ():
        for budget in ("80%", "60%"):
            check(kind, options, budget, planner)


@pytest.mark.parametrize("kind", [nn.LSTM, nn.GRU, nn.RNN])
def test_layers_within_a_budget(kind):
    assert check(kind, {"num_layers": 3, "size": 32}, "90%", "auto")


@pytest.mark.parametrize("budget", ["90%", "80%", "70%"])
def test_projections(budget):
    check(nn.LSTM, {"proj_size": 8}, budget, "auto")


@pytest.mark.parametrize("layers", [2, 3])
@pytest.mark.parametrize("size", [7, 50, 64])
def test_a_wrapped_lstm(size, layers):
    """Alone in a Sequential, its result a tuple: from the second step on a plan drops what it can."""
    model = remat.wrap(nn.Sequential(nn.LSTM(size, size, layers)), budget="70%")
    for _ in range(4):
        result, _ = model(torch.randn(20, 16, size))
        result.square().mean().backward()
