"""Reports and plans: what they say, and their copies."""

from __future__ import annotations

import copy
import dataclasses
import json
import pickle

import pytest
import torch
from compare import blocks
from wrapped import batch

import remat


@pytest.fixture(scope="module")
def session():
    torch.manual_seed(3)
    model, session = blocks(), remat.Session(budget="50%", device="cpu")
    for _ in range(3):
        model.zero_grad()
        with session.step():
            model(batch()).square().mean().backward()
    assert session.report().plan is not None
    return session


def test_a_plan_can_be_copied_and_pickled_and_is_equal_to_its_copy(session):
    plan = session.plan()
    for other in (copy.copy(plan), copy.deepcopy(plan), pickle.loads(pickle.dumps(plan))):
        assert other == plan
        assert hash(other) == hash(plan)
        assert other.to_json() == plan.to_json()
    figures = json.loads(plan.to_json())
    figures["budget_bytes"] += 1
    assert remat.Plan.from_json(json.dumps(figures)) != plan
    assert plan != plan.to_json()


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda model: pickle.loads(pickle.dumps(model))])
def test_a_model_wrapped_with_a_plan_can_be_copied(session, tmp_path, copied):
    session.save_plan(tmp_path / "plan.json")
    model = remat.wrap(blocks(), plan=remat.Plan.load(tmp_path / "plan.json"))
    other = copied(model)
    for _ in range(2):
        other(batch()).square().mean().backward()
    assert remat.session_of(other).report().step == 2


def test_copies_of_a_report_are_the_report(session):
    report = session.report()
    for other in (copy.copy(report), copy.deepcopy(report)):
        assert other == report
        assert other.min_budget_bytes == report.min_budget_bytes > 0
        assert str(other) == str(report)


def test_a_pickled_report_has_all_but_what_the_session_plans(session):
    report = session.report()
    other = pickle.loads(pickle.dumps(report))
    assert other == report
    assert hash(other) == hash(report)
    assert str(other) == str(report)
    assert other.activation_peak_bytes == report.activation_peak_bytes
    with pytest.raises(remat.Error, match=r"\[report\].*from a pickle"):
        _ = other.min_budget_bytes


def test_a_report_is_a_dataclass_like_any_other(session):
    report = session.report()
    figures = dataclasses.asdict(report)
    assert figures["peak_bytes"] == report.peak_bytes
    assert figures["replayed"][0] == dataclasses.asdict(report.replayed[0])
    assert not any(name.startswith("_") for name in figures)
    other = dataclasses.replace(report, step=77)
    assert other.step == 77
    assert "step=77" in str(other)


def test_a_report_as_a_dict_is_json(session):
    report = session.report()
    figures = report.to_dict()
    assert json.loads(json.dumps(figures)) == figures
    names = {field.name for field in dataclasses.fields(report)}
    assert set(figures) == names | {"activation_peak_bytes", "plain_activation_peak_bytes"}
    assert figures["plan"]["predicted_peak_bytes"] == report.plan.predicted_peak_bytes
    assert figures["replayed"][0]["name"] == report.replayed[0].name
    first = remat.Session(device="cpu")
    with first.step():
        pass
    assert first.report().to_dict()["plan"] is None
