"""Recurrent layers of every shape: oneDNN's kernels leave undefined bytes in their workspaces."""

from __future__ import annotations

import pytest
import torch
from compare import assert_exact, same_bits
from scopes import Reporting
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


#: One call of a kernel is nearly the whole step, so that no share of it holds.
TOO_SMALL = {
    (nn.LSTM, "{}"),
    (nn.LSTM, "{'bias': False}"),
    (nn.RNN, "{'num_layers': 3, 'dropout': 0.3}"),
}


def step(model):
    loss = model(torch.randn(6, 4, model[0].layer.input_size).cumsum(0)).sin().square().mean()
    loss.backward()
    return loss.detach()


def check(kind, options, budget, planner):
    """Three steps with plain's bits within `budget`: their reports; None where one was refused."""
    scope = Reporting(remat.Session(budget=budget, planner=planner))
    try:
        assert_exact(nn.Sequential(Recurrent(kind, **options), nn.Tanh()), step, scope, steps=3)
    except remat.BudgetError:
        return None
    assert len(scope.reports) == 3
    assert all(0 < report.peak_bytes <= report.budget_bytes for report in scope.reports), scope.reports
    return scope.reports


@pytest.mark.parametrize("options", SHAPES, ids=str)
@pytest.mark.parametrize("kind", [nn.LSTM, nn.GRU, nn.RNN])
def test_every_budget_and_planner(kind, options):
    every = kind is nn.LSTM
    held = []
    for budget in ("90%", "80%", "70%", "60%", "50%", "40%") if every else ("80%", "60%", "40%"):
        for planner in ("online", "auto"):
            held.append(check(kind, options, budget, planner))
    for planner in set(remat.list_planners()) - {"online", "auto"} if every else ():
        for budget in ("80%", "60%"):
            held.append(check(kind, options, budget, planner))
    dropped = sum(report.values_dropped for reports in held if reports for report in reports)
    assert (dropped == 0) == ((kind, str(options)) in TOO_SMALL)
    assert check(kind, options, "100%", "auto")


@pytest.mark.parametrize("kind", [nn.LSTM, nn.GRU, nn.RNN])
def test_layers_within_a_budget(kind):
    assert check(kind, {"num_layers": 3, "size": 32}, "90%", "auto")


@pytest.mark.parametrize("budget", ["90%", "85%", "80%", "70%"])
def test_projections(budget):
    reports = check(nn.LSTM, {"proj_size": 8}, budget, "auto")
    assert budget == "70%" or reports[-1].values_dropped > 0


@pytest.mark.parametrize("layers", [2, 3])
@pytest.mark.parametrize("size", [7, 50, 64])
def test_a_wrapped_lstm(size, layers):
    """Alone in a Sequential, its result a tuple: from the second step on a plan drops what it can."""

    def train(wrap):
        torch.manual_seed(1)
        model = nn.Sequential(nn.LSTM(size, size, layers))
        wrapped = wrap(model)
        for _ in range(4):
            result, _ = wrapped(torch.randn(20, 16, size))
            result.square().mean().backward()
        return [*(parameter.grad for parameter in model.parameters()), torch.get_rng_state()], wrapped

    plain, _ = train(lambda model: model)
    ours, wrapped = train(lambda model: remat.wrap(model, budget="70%"))
    assert all(map(same_bits, plain, ours))
    report = remat.session_of(wrapped).report()
    assert report.peak_bytes <= report.budget_bytes < report.plain_peak_bytes and report.values_dropped > 0
