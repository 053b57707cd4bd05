"""Updates in backward under a budget: gradients take less, and percentages are of activations alone."""

from __future__ import annotations

import gc

import pytest
import torch
from scopes import loss_of
from torch import nn

import remat


def mlp():
    return nn.Sequential(*(layer for _ in range(12) for layer in (nn.Linear(256, 256), nn.GELU())))


def session_after(in_backward, budget=None, steps=3):
    """A session that has trained a model of which gradients take more than activations."""
    gc.collect()
    torch.manual_seed(3)
    model = mlp()
    optimizer = torch.optim.AdamW(model.parameters())
    if in_backward:
        remat.optimizer_in_backward(optimizer)
    session = remat.Session(budget=budget)
    numbers = []
    for _ in range(steps):
        with session.step():
            loss_of(model(torch.randn(64, 256))).backward()
        optimizer.step()
        optimizer.zero_grad()
        numbers.append(session.min_budget_bytes())
    return session.report(), numbers


def test_gradients_are_never_all_alive_and_the_budget_can_be_smaller():
    gradients = sum(p.nbytes for p in mlp().parameters())
    plain, _ = session_after(False)
    ours, smallest = session_after(True)
    assert ours.end_bytes == ours.baseline_bytes
    assert ours.peak_bytes < plain.peak_bytes
    assert smallest[0] == smallest[2]  # the optimizer's state, which came in the first step, counts once
    assert smallest[2] < session_after(False)[1][2] - 0.5 * gradients
    report, _ = session_after(True, smallest[2] + (1 << 16))
    assert report.completed and report.peak_bytes <= report.budget_bytes


def test_a_percentage_is_of_activations_without_the_state_that_the_first_step_made():
    report, _ = session_after(True, "50%")
    plain, _ = session_after(True)
    activations = plain.plain_peak_bytes - plain.baseline_bytes
    assert report.budget_bytes - report.baseline_bytes == pytest.approx(activations / 2, rel=0.02)


def base_of_percentage(planner, drops):
    """Bytes that are 100 % after three steps, and those of the last; `drops`: a policy drops something in the model."""
    gc.collect()
    torch.manual_seed(3)
    model = nn.Sequential(*(nn.Sequential(nn.Linear(128, 256), nn.GELU(), nn.Linear(256, 128)) for _ in range(6)))
    if drops:
        remat.enable(model)
    optimizer = torch.optim.AdamW(model.parameters())
    remat.optimizer_in_backward(optimizer)
    session = remat.Session(budget="100%", planner=planner)
    for _ in range(3):
        with session.step():
            loss_of(model(torch.randn(128, 128))).backward()
        optimizer.step()
        optimizer.zero_grad()
    report = session.report()
    return report.budget_bytes - report.baseline_bytes, report.plain_activation_peak_bytes


@pytest.mark.parametrize("drops", [False, True])
@pytest.mark.parametrize("planner", ["auto", "online"])
def test_state_and_policies_leave_the_base_of_a_percentage_as_it_is(planner, drops):
    """The first step, which is measured, makes the optimizer's state; the last does not."""
    base, last = base_of_percentage(planner, drops)
    assert base == pytest.approx(last, rel=0.005)
    assert base == pytest.approx(base_of_percentage(planner, not drops)[0], rel=0.005)
