"""Reports and plans: what they say, and their copies."""

from __future__ import annotations

import copy
import dataclasses
import inspect
import json
import pickle
import re
import warnings
from pathlib import Path

import pytest
import torch
from compare import blocks
from wrapped import batch

import remat

ROOT = Path(__file__).resolve().parents[2]


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
    assert set(figures) == names | {
        "activation_peak_bytes",
        "plain_activation_peak_bytes",
        "saved_percent",
        "cost_percent",
        "head",
    }
    assert figures["plan"]["predicted_peak_bytes"] == report.plan.predicted_peak_bytes
    assert figures["replayed"][0]["name"] == report.replayed[0].name
    first = remat.Session(device="cpu")
    with first.step():
        pass
    assert first.report().to_dict()["plan"] is None


def test_a_report_says_what_was_saved_at_which_cost(session):
    report = session.report()
    plain = report.plain_activation_peak_bytes
    assert report.saved_percent == pytest.approx(100 - 100 * report.activation_peak_bytes / plain)
    assert 45 < report.saved_percent < 100
    working = report.step_seconds - report.planning_seconds - report.recompute_seconds
    assert report.cost_percent == pytest.approx(100 * report.recompute_seconds / working)
    assert f"saved {report.saved_percent:.0f} % of the activation peak, costs " in str(report)


def test_a_report_says_who_decided(session):
    report = session.report()
    assert (report.decided_by, report.decision_reason) == ("auto", "")
    first = remat.Session(device="cpu")
    with first.step():
        pass
    assert first.report().decided_by == "online"
    assert first.report().decision_reason == "the first step is recorded"
    assert "decided by             online: the first step is recorded" in str(first.report())


def steps_with(plan, model, count=4, **options):
    """The reports of steps of `model` in a session that is given `plan`."""
    session = remat.Session(device="cpu", plan=plan, **options)
    reports = []
    for _ in range(count):
        model.zero_grad()
        with session.step():
            model(batch()).square().mean().backward()
        reports.append(session.report())
    return reports


def test_a_plan_that_is_ignored_is_said_so_once(session):
    plan = session.plan()
    torch.manual_seed(3)
    other = torch.nn.Sequential(torch.nn.Linear(64, 8), torch.nn.Tanh())
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        reports = steps_with(plan, other)
    assert [report.decision_reason for report in reports] == ["the plan given is of another graph"] * 4
    assert [report.decided_by for report in reports] == ["online"] + 3 * ["auto"]
    assert [str(warning.message) for warning in caught] == [
        "[plan] the plan given is of another graph: step 1 did not follow it; give one that was made for this step, or none"
    ]


def test_a_plan_that_is_followed_needs_no_words(session):
    plan = session.plan()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        reports = steps_with(plan, blocks(), budget="60%", planner="online")
    assert [report.decided_by for report in reports] == ["online"] + 3 * ["plan given"]


def test_help_has_every_field_with_its_unit():
    text = inspect.getdoc(remat.Report)
    for field in dataclasses.fields(remat.Report):
        line = re.search(rf"^    {field.name}: (.*)$", text, re.MULTILINE)
        assert line, field.name
        unit = re.search("_(bytes|seconds)$", field.name)
        assert unit is None or field.name == "budget_bytes" or unit[1] in line[1], field.name


@pytest.mark.parametrize(
    "call",
    [
        lambda: remat.Session(planner=3),
        lambda: remat.Session(pack="no"),
        lambda: remat.Session(verify=None),
        lambda: remat.wrap(blocks(), planner=3),
        lambda: remat.keep(3),
        lambda: remat.memory.set_limit("lots"),
        lambda: remat.memory.set_limit(2**70),
        lambda: remat.Plan.from_json(3),
    ],
)
def test_a_wrong_argument_is_an_error_in_pythons_terms(call):
    with pytest.raises(remat.Error) as caught:
        call()
    assert str(caught.value).startswith("[")
    assert "_C" not in str(caught.value)
    assert "argument types" not in str(caught.value)


@pytest.mark.parametrize("budget", [40, "40"])
def test_a_budget_too_small_for_bytes_asks_whether_it_is_a_share(budget):
    with pytest.raises(remat.Error, match='did you mean "40%"'):
        remat.Session(budget=budget)


def test_the_report_in_the_readme_looks_like_a_real_one(session):
    """The same lines in the same order; what a line is for its first words say."""
    label = re.compile(r"^(?:(\w[\w /]*?)  +|  (aten)::\w+ +\d+ x, )", re.MULTILINE)
    shown = re.search(r"^```\n(step .*?)^```", (ROOT / "README.md").read_text(), re.MULTILINE | re.DOTALL)[1]
    # Which operators a plan repeats, and whether it packs, follows from times.
    real, found = (
        [name for name in dict.fromkeys(mine or theirs for mine, theirs in label.findall(text)) if name != "packed"]
        for text in (str(session.report()), shown)
    )
    assert len(found) > 12
    assert found == real[: len(found)]


def test_overloads_of_an_operator_are_one_row():
    weights = [torch.nn.Parameter(torch.randn(64, 64) * 0.1) for _ in range(6)]
    session = remat.Session(budget="30%", device="cpu")
    for _ in range(3):
        with session.step():
            x = torch.randn(256, 64)
            for weight in weights:
                x = torch.mm(x, weight)
                x = torch.sigmoid(torch.ops.aten.mul.Scalar(torch.sigmoid(x), 0.5)) * torch.tanh(x)
            x.square().mean().backward()
    names = [operator.name for operator in session.report().replayed]
    assert "aten::mul" in names
    assert len(names) == len(set(names)), names
    assert sum(operator.count for operator in session.report().replayed) == session.report().ops_replayed
