"""The page of a report in a real browser: what it draws, what the pointer and keys do, how long it takes to open."""

from __future__ import annotations

import html
import json
import re
import shutil
import subprocess

import pytest
import torch
from compare import blocks

import remat
from remat import _C

BROWSER = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
pytestmark = pytest.mark.skipif(BROWSER is None, reason="no browser is installed (Debian's package chromium)")

# Runs after the page's own scripts, and writes what it saw where the test finds it. Where a script fails there is no
# result.
PROBE = """<script>{
const seen = {alerts: 0, requests: performance.getEntriesByType('resource').length};
const errors = [];
window.alert = () => ++seen.alerts;
window.addEventListener('error', event => errors.push(event.message));
const text = id => document.getElementById(id).textContent;
const svg = document.querySelector('#chart svg'), box = svg.getBoundingClientRect();
const point = (kind, share, more = {}) => svg.dispatchEvent(new PointerEvent(kind, {
  clientX: box.left + 54 + share * (box.width - 62), clientY: box.top + 100, pointerType: 'mouse', ...more}));
seen.title = text('summary');
seen.heading = document.querySelector('h1').textContent;
seen.areas = document.querySelectorAll('#chart path[fill]').length;
seen.cut = [...document.querySelectorAll('.cut')].filter(hint => !hint.hidden).map(hint => hint.nextElementSibling.id);
seen.scrollable = [...document.querySelectorAll('.wide')].filter(place => place.scrollWidth > place.clientWidth).map(place => place.id);
const boxes = [...svg.querySelectorAll('text')].map(made => [made.textContent, made.getBoundingClientRect()]);
seen.texts = boxes.map(([name]) => name);
seen.touching = boxes.flatMap(([name, a], i) => boxes.slice(0, i).filter(([, b]) => a.left < b.right && b.left < a.right &&
  a.top + 3 < b.bottom && b.top + 3 < a.bottom).map(([other]) => `${name} / ${other}`));
seen.overflow = document.documentElement.scrollWidth > window.innerWidth;
point('pointermove', .05);
seen.forward = text('tip');
point('pointermove', .9);
seen.backward = text('tip');
const rows = id => [...document.querySelectorAll(`#${id} tbody tr`)].map(row => [...row.cells].map(cell => cell.textContent));
seen.values = rows('values').length;
seen.layers = rows('layers').map(row => row[0]);
const column = document.querySelector('#values th button');
column.click();
seen.descending = rows('values').map(row => row[0]);
column.click();
seen.ascending = rows('values').map(row => row[0]);
svg.dispatchEvent(new KeyboardEvent('keydown', {key: 'ArrowRight'}));
seen.key = text('tip');
svg.setPointerCapture = () => {};
point('pointerdown', .4); point('pointermove', .6); point('pointerup', .6);
seen.zoomed = !document.getElementById('whole').disabled;
document.getElementById('whole').click();
document.querySelectorAll('#shown input')[1].click();
seen.plain = text('legend');
seen.milliseconds = performance.now();
seen.errors = errors;
document.body.append(element('pre', {id: 'probe'}, JSON.stringify(seen)));
}</script>"""


def chain(operators):
    """A forward pass of `operators` in a row, each with a result that backward needs."""
    values = [{"bytes": 4096, "producer": -1, "packed_bytes": 0, "droppable": False, "dropped": False}]
    graph = {"format": "remat-graph", "version": 3, "baseline_bytes": 8192, "parameter_bytes": 4096, "gradient_bytes": 0}
    graph |= {"step_seconds": 3e-5 * operators, "values": values, "operators": [], "events": [["other", -1, 0, 0]]}
    for index in range(operators):
        size = 4096 + 64 * (index % 100)
        values.append({"bytes": size, "producer": index, "packed_bytes": 0, "droppable": True, "dropped": False})
        name, seconds = f"aten::op{index % 40}", 1e-5 / (1 + index % 7)
        graph["operators"].append(
            {"name": name, "seconds": seconds, "replay_seconds": seconds, "scratch_bytes": 0, "inputs": [index]}
            | {"overwritten": [], "results": [index + 1]}
        )
        graph["events"][-1][2:] = [size, size]
        graph["events"] += [["operator", index, 0, 0], ["idle", index + 1, 0, 0]]
    for index in range(operators, 0, -1):
        graph["events"] += [["use", index, 128, 0], ["free", index, 0, 0]]
    return graph


def page_of(graph, name="a chain", layers=(), budget="40%"):
    plan = remat.make_plan(graph, budget)
    return _C.Run(name, json.dumps(graph), plan._plan, None, list(layers)).to_html()


def opened(page, folder, width=1280):
    """What the probe saw in the page."""
    path = folder / "page.html"
    path.write_text(page.replace("</body>", PROBE + "</body>"), encoding="utf-8")
    command = [BROWSER, "--headless", "--no-sandbox", "--disable-gpu", f"--window-size={width},900", "--dump-dom"]
    command += [f"--user-data-dir={folder / 'browser'}", path.as_uri()]
    dom = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True).stdout
    found = re.search(r'<pre id="probe">(.*?)</pre>', dom, re.DOTALL)
    assert found, "the page's script ended with an error"
    seen = json.loads(html.unescape(found[1]))
    assert seen["errors"] == [] and seen["requests"] == 0
    return seen


def test_the_page_answers_the_pointer_the_keys_and_clicks(tmp_path):
    graph = chain(30)
    layers = [f"blocks.{index // 10}" for index in range(30)]
    seen = opened(page_of(graph, layers=layers), tmp_path)
    assert seen["heading"] == "a chain"
    assert re.match(r"Plain peaks at .*, under the plan the step peaks at .* of plain's activation peak", seen["title"])
    assert seen["areas"] == 7
    assert re.match(r"aten::op\d+layer blocks\.\dforward, operator \d+at ", seen["forward"])
    assert re.search("backward of operator|runs again, for value", seen["backward"])
    assert seen["values"] == 30
    assert sorted(seen["layers"]) == ["blocks.0", "blocks.1", "blocks.2"]
    assert [int(value) for value in seen["descending"]] == list(range(30, 0, -1))
    assert [int(value) for value in seen["ascending"]] == list(range(1, 31))
    assert "alive" in seen["key"]
    assert seen["zoomed"]
    assert "recomputed" not in seen["plain"]


def test_what_was_measured_goes_before_what_was_planned(tmp_path):
    torch.manual_seed(0)
    model, session = blocks(norm=True), remat.Session("40%", device="cpu")
    for _ in range(3):
        with session.step():
            model(torch.randn(256, 64)).square().mean().backward()
    report = session.report()
    report.to_html(tmp_path / "measured.html")
    measured = opened((tmp_path / "measured.html").read_text(), tmp_path)["title"]
    assert f", for {report.cost_percent:.1f} % more time, as measured (planned: " in measured
    assert re.search(r", for [\d.]+ % more time, as planned\.", opened(page_of(chain(30)), tmp_path)["title"])


def test_a_phone_has_room_for_it(tmp_path):
    seen = opened(page_of(chain(30), name="w" * 300), tmp_path, width=500)
    assert not seen["overflow"]
    assert {"operators", "values"} <= set(seen["scrollable"])
    assert seen["cut"] == seen["scrollable"]  # it says that there is more


@pytest.mark.parametrize("width", [500, 1280])
@pytest.mark.parametrize("budget", ["30%", "97%", "100%"])
@pytest.mark.parametrize("before", [8192, 1 << 20])
def test_no_text_of_the_picture_touches_another(tmp_path, width, budget, before):
    graph = chain(30) | {"baseline_bytes": before}
    seen = opened(page_of(graph, budget=budget), tmp_path, width=width)
    assert any("under the plan: " in text for text in seen["texts"]) and any("budget " in text for text in seen["texts"])
    assert seen["touching"] == []


def test_names_are_shown_and_do_nothing(tmp_path):
    evil = "</script><img src=x onerror=alert(1)><script>alert(2)</script>"
    graph = chain(30)
    for operator in graph["operators"]:
        operator["name"] = evil
    seen = opened(page_of(graph, name=evil, layers=[evil] * 30), tmp_path)
    assert seen["alerts"] == 0
    assert seen["heading"] == evil
    assert seen["layers"] == [evil]
    assert seen["forward"].startswith(evil)


def test_a_step_of_2500_operators_opens_within_two_seconds(tmp_path):
    page = page_of(chain(2500))
    assert len(page.encode()) < 3_000_000
    seen = opened(page, tmp_path)
    assert seen["milliseconds"] < 2000
    assert seen["values"] == 100  # and a button for the others
