"""Pictures of a step: a page, a picture, a trace, from a session's report."""

from __future__ import annotations

import dataclasses
import html
import json
import pickle
from xml.etree import ElementTree

import pytest
import torch
from compare import blocks
from wrapped import batch

import remat


def trained(budget, steps=3):
    torch.manual_seed(3)
    model, session = blocks(), remat.Session(budget=budget, device="cpu")
    for _ in range(steps):
        model.zero_grad()
        with session.step():
            model(batch()).square().mean().backward()
    return session


@pytest.fixture(scope="module")
def report():
    report = trained("50%").report()
    assert report.plan is not None
    return report


def data_of(page):
    begin = page.index('id="data">') + len('id="data">')
    return json.loads(page[begin : page.index("</script>", begin)])


def test_a_page_has_what_was_planned_and_measured(report, tmp_path):
    report.to_html(tmp_path / "step.html", name="<b>mine</b>")
    page = (tmp_path / "step.html").read_text(encoding="utf-8")
    assert "<title>&lt;b&gt;mine&lt;/b&gt;</title>" in page
    data = data_of(page)
    assert data["name"] == "<b>mine</b>"
    assert data["budget"] == report.budget_bytes
    assert data["figures"][0] == ["peak", "bytes", report.planned_peak_bytes, report.peak_bytes]
    assert {row[3] for row in data["values"]} >= {"kept", "recomputed"}


def test_a_trace_has_the_operators_and_the_memory(report, tmp_path):
    report.to_trace(tmp_path / "trace.json")
    events = json.loads((tmp_path / "trace.json").read_text())["traceEvents"]
    assert {event["ph"] for event in events} == {"M", "X", "C"}
    planned = [sum(e["args"].values()) for e in events if e["ph"] == "C" and e["pid"] == 1 and e["name"] == "memory"]
    assert max(planned) == report.planned_peak_bytes
    assert any(event.get("cat") == "recompute" for event in events)


def test_notebooks_show_a_plot(report, tmp_path):
    picture = report.plot()
    assert ElementTree.fromstring(picture._repr_svg_()).tag == "{http://www.w3.org/2000/svg}svg"
    picture.save(tmp_path / "step.svg")
    assert (tmp_path / "step.svg").read_text(encoding="utf-8") == str(picture)


def test_a_step_is_saved_for_the_command(report, tmp_path):
    report.save(tmp_path / "run.json", name="a step")
    run = json.loads((tmp_path / "run.json").read_text())
    assert (run["format"], run["name"], run["layers"]) == ("remat-run", "a step", [])
    assert remat.Plan.from_json(json.dumps(run["plan"])) == report.plan
    assert run["report"]["peak_bytes"] == report.peak_bytes
    assert len(remat.Graph.from_json(json.dumps(run["graph"]))["operators"]) == report.ops_recorded


def test_a_step_without_a_plan_shows_plain(tmp_path):
    report = trained("1GiB", steps=1).report()
    assert report.plan is None
    report.to_html(tmp_path / "step.html")
    assert data_of((tmp_path / "step.html").read_text(encoding="utf-8"))["step"] is None


def test_a_report_that_has_lost_its_session_has_no_pictures(report, tmp_path):
    for other in (pickle.loads(pickle.dumps(report)), dataclasses.replace(report)):
        with pytest.raises(remat.Error, match="the graph of the step is the session's"):
            other.to_html(tmp_path / "step.html")
    assert not (tmp_path / "step.html").exists()


def test_a_report_of_an_older_step_says_so(tmp_path):
    session = trained("50%")
    report = session.report()
    other = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.Tanh(), torch.nn.Linear(8, 8))
    with session.step():
        other(torch.ones(4, 8)).sum().backward()
    with pytest.raises(remat.Error, match="the session has recorded another step since"):
        report.plot()


def test_layers_are_named_where_the_step_is_given_the_model(tmp_path):
    model, session = blocks(), remat.Session(budget="50%", device="cpu")
    hooks = [len(module._forward_hooks) + len(module._forward_pre_hooks) for module in model.modules()]
    for _ in range(3):
        with session.step(layers=model):
            model(batch()).square().mean().backward()
    report = session.report()
    report.save(tmp_path / "run.json")
    run = json.loads((tmp_path / "run.json").read_text())
    names = [operator["name"] for operator in run["graph"]["operators"]]
    paths = dict(model.named_modules())
    of_linear = {layer for name, layer in zip(names, run["layers"]) if name == "aten::addmm"}
    assert of_linear == {path for path, module in paths.items() if isinstance(module, torch.nn.Linear)}
    assert dict(zip(names, run["layers"]))["aten::mean"] == ""  # the loss is in no layer
    assert hooks == [len(module._forward_hooks) + len(module._forward_pre_hooks) for module in model.modules()]
    with session.step():
        model(batch()).square().mean().backward()
    session.report().save(tmp_path / "run.json")
    assert json.loads((tmp_path / "run.json").read_text())["layers"] == []


def test_a_table_has_what_became_of_each_layer():
    model, session = blocks(), remat.Session(budget="50%", device="cpu")
    for _ in range(3):
        with session.step(layers=model):
            model(batch()).square().mean().backward()
    report = session.report(layers=True)
    text, table = str(session.report()), report.by_layer()
    assert str(report) == f"{text}\n{table}"
    rows = [line.split("  ")[0] for line in table.splitlines()]
    assert rows[0] == "layer" and "0-5 x 6" in rows and rows[-1] == "all"
    assert "recomputed" in table
    assert pickle.loads(pickle.dumps(report)).__str__() == str(report)


def test_a_table_of_layers_needs_a_step_with_layers(report):
    with pytest.raises(remat.Error, match="the step has no names of layers"):
        report.by_layer()
    with pytest.raises(remat.Error, match="the step has no names of layers"):
        trained("50%", steps=1).report(layers=True)
    with pytest.raises(remat.Error, match="the graph of the step is the session's"):
        pickle.loads(pickle.dumps(report)).by_layer()


def test_a_wrapped_models_layers_are_those_of_a_step_of_its_session():
    model = remat.wrap(blocks(), budget="50%")
    for _ in range(3):
        with remat.session_of(model).step(layers=model):
            model(batch()).square().mean().backward()
    assert "0-5 x 6" in remat.session_of(model).report(layers=True).by_layer()


def test_notebooks_show_a_report_with_its_picture_while_the_session_has_the_step():
    session = trained("50%")
    report = session.report()
    shown = report._repr_html_()
    assert shown.startswith("<svg ") and html.escape(str(report)) in shown
    other = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.Tanh(), torch.nn.Linear(8, 8))
    with session.step():
        other(torch.ones(4, 8)).sum().backward()
    assert report._repr_html_() == f"<pre>{html.escape(str(report))}</pre>"


def test_hooks_for_layers_are_gone_where_a_step_fails():
    model, session = blocks(), remat.Session(budget="1GiB", device="cpu")
    with pytest.raises(ZeroDivisionError), session.step(layers=model):
        model(batch())
        1 / 0
    with pytest.raises(remat.Error, match="no torch.nn.Module"):
        session.step(layers="model")
    with session.step(), pytest.raises(remat.Error):
        session.step(layers=model)
    assert not any(module._forward_hooks or module._forward_pre_hooks for module in model.modules())
