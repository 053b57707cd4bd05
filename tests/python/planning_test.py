"""remat.Graph, remat.make_plan, remat.plan_curve: plans without training."""

from __future__ import annotations

import json

import pytest
import torch
from compare import blocks

import remat


@pytest.fixture(scope="module")
def graph():
    torch.manual_seed(1)
    model, session, x = blocks(8), remat.Session(device="cpu"), torch.randn(128, 64)
    with session.step():
        model(x).square().mean().backward()
    return session.graph()


def test_a_graph_comes_back_from_its_json_and_its_file(graph, tmp_path):
    assert isinstance(graph, remat.Graph) and graph["operators"]
    assert remat.Graph.from_json(graph.to_json()) == graph
    graph.save(tmp_path / "graph.json")
    assert remat.Graph.load(tmp_path / "graph.json") == graph


def test_plans_fit_their_budgets_and_sessions_follow_them(graph):
    torch.manual_seed(1)
    model, x = blocks(8), torch.randn(128, 64)
    plan = remat.make_plan(graph, "50%", refine=True)
    assert plan.planner == "auto" and plan.predicted_peak_bytes <= plan.budget_bytes
    session = remat.Session(device="cpu", plan=plan)
    for _ in range(2):
        model.zero_grad(set_to_none=True)
        with session.step():
            model(x).square().mean().backward()
    assert session.report().decided_by == "plan given"
    assert session.report().peak_bytes - session.report().baseline_bytes == (
        plan.predicted_peak_bytes - graph["baseline_bytes"]
    )
    for other in (graph.to_json(), dict(graph)):
        assert remat.make_plan(other, plan.budget_bytes, refine=True) == plan


def test_a_curve_and_every_planner(graph):
    budgets = ["100%", "80%", "60%"]
    curve = remat.plan_curve(graph, budgets)
    assert len(curve) == 4
    seconds = [plan.predicted_seconds for plan in curve]
    assert seconds == sorted(seconds) and seconds[0] == 0
    for planner in remat.list_planners():
        assert remat.make_plan(graph, "100%", planner).planner == planner
    packed = remat.make_plan(graph, "60%", pack=False)
    assert json.loads(packed.to_json())["actions"]["pack"] == []


def test_what_is_refused(graph):
    with pytest.raises(remat.BudgetError) as caught:
        remat.make_plan(graph, 101)
    assert remat.make_plan(graph, caught.value.needed_bytes).predicted_peak_bytes <= caught.value.needed_bytes
    for arguments, message in (
        ((graph, "much"), "budget"),
        ((graph, None), "device's limit"),
        ((graph, True), r"\[plan\] a budget of True"),
        ((graph, "50%", "best"), "best"),
        ((3, "50%"), "no graph"),
        (("{}", "50%"), r"\[graph\]"),
    ):
        with pytest.raises(remat.Error, match=message):
            remat.make_plan(*arguments)
    with pytest.raises(remat.Error, match=r"\[graph\]"):
        remat.Graph.from_json("{}")


@pytest.mark.parametrize("budgets", ["40%", 40])
def test_one_budget_is_no_curve(budgets):
    with pytest.raises(remat.Error, match="budgets is .*; give several"):
        remat.plan_curve({}, budgets)
