"""remat.compile(activation_memory_budget="fastest") under a budget: the step that decides which cuts are taken."""

from __future__ import annotations

import shutil

import pytest
import torch
from scopes import loss_of
from torch import nn

import remat
from remat import partition_choice

pytestmark = pytest.mark.skipif(shutil.which("g++") is None, reason="compiling needs g++")


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(64, 256), nn.GELU(), nn.Dropout(0.1), nn.Linear(256, 64))

    def forward(self, x):
        return x + self.layers(x)


def compiled(budget):
    model = nn.Sequential(nn.Sequential(*(Block() for _ in range(3))))
    return remat.compile(model, budget=budget, activation_memory_budget="fastest", dynamic=False)


def batch():
    return torch.randn(256, 64, requires_grad=True)  # so that all blocks share a graph


@pytest.fixture
def choices(monkeypatch):
    """Of each time that cuts are chosen the graphs' options and the step. The last option is taken."""
    made = []

    def choose(graphs, step):
        made.append((graphs, step))
        return [options[-1] for options in graphs]

    torch.compiler.reset()
    torch.manual_seed(0)
    monkeypatch.setattr(partition_choice, "choose", choose)
    monkeypatch.setattr(partition_choice, "_SHARES", (1.0, 0.1))
    return made


def test_the_step_after_the_one_that_compiled(choices):
    model, reports = compiled("60%"), []
    for _ in range(5):
        loss_of(model(batch())).backward()
        reports.append(remat.session_of(model).report())
        assert len(choices) == (len(reports) > 2)
    [([[first, last]], step)] = choices
    assert (first.share, last.share) == (1.0, 0.1)
    assert 0 < last.saved_bytes < first.saved_bytes <= step.plain_peak
    assert first.rebuilt_bytes == 0 and 3 * last.rebuilt_bytes == first.saved_bytes - last.saved_bytes  # three blocks
    assert step.plain_peak == pytest.approx(reports[1].plain_activation_peak_bytes, rel=0.01)
    assert step.budget == pytest.approx(0.6 * step.plain_peak, rel=0.02)
    assert step.least_peak == step.curve[0][0] < step.budget
    # The share stays one of the largest step, which was plain's on the first cut.
    assert reports[3].plain_activation_peak_bytes < reports[1].plain_activation_peak_bytes
    assert all(report.budget_bytes - report.baseline_bytes == pytest.approx(step.budget, rel=0.02) for report in reports[2:])


def test_a_step_of_the_session_that_ran_the_graph(choices, monkeypatch):
    """Two models that take turns, each of which is called in the other's steps too, as in adversarial training: the second's
    first step is the first in which nothing is compiled."""

    def last_step(session):
        asked.append(session)

    asked = []
    monkeypatch.setattr(partition_choice, "last_step", last_step)
    models = [compiled("80%"), compiled("80%")]
    for _ in range(3):
        for first, second in (models, models[::-1]):
            loss_of(second(first(batch()))).backward()
    assert [len(graphs) for graphs, _ in choices] == [1, 1]
    assert asked == [remat.session_of(models[1])] * 2


def test_calls_that_wait_for_backward_at_once(choices):
    """Micro-batches in one step save what one of them saves."""
    model, session = compiled(None), remat.Session(budget="80%", device="cpu")
    for _ in range(3):
        with session.step():
            for _ in range(2):
                loss_of(model(batch())).backward()
    [([[first, last]], step)] = choices
    assert first.saved_bytes < step.plain_peak < 2 * first.saved_bytes
    assert 3 * last.rebuilt_bytes == first.saved_bytes - last.saved_bytes
