"""``python -m remat plot``: what a sweep and a curve look like."""

from __future__ import annotations

import json

import pytest

import remat
from remat import __main__ as command
from remat import plot

pytest.importorskip("matplotlib", reason="matplotlib draws the pictures; pip install matplotlib")

PNG = b"\x89PNG\r\n\x1a\n"


def cell(name, percent, extra, measured=None):
    result = {"name": name, "within_budget": percent is not None}
    if percent is None:
        return result
    result |= {"activation_percent": percent, "extra_percent": extra, "predicted_peak_bytes": 2**20 * percent}
    result |= {"predicted_seconds": extra / 1000}
    if measured:
        result["measured"] = {
            "activation_percent": measured[0],
            "extra_percent": measured[1],
            "peak_bytes": 2**20 * measured[0],
            "seconds": 0.2,
        }
    return result


def sweep(**more):
    strategies = [cell("store all", 90, 0), cell("checkpoints", 30, 20, (30, 22))]
    depths = [{"depth": d, "baseline_bytes": 0, "step_seconds": 0.1, "strategies": strategies} for d in (4, 8)]
    return {
        "format": "remat-sweep",
        "version": 1,
        "model": "gpt",
        "budgets": [cell("auto", 80, 1), cell("auto", 40, 9, (40, 10)), cell("segments", None, None)],
        "checkpoints": [cell("checkpoints", 30, 20, (30, 21)) | {"checkpoints": 3, "auto": cell("auto", 30, 12)}],
        "depths": depths,
        **more,
    }


CURVE = {
    "graph": "x/gpt.json",
    "planner": "auto",
    "baseline_bytes": 100,
    "plain_peak_bytes": 300,
    "points": [{"predicted_peak_bytes": 300, "extra_percent": 0}, {"predicted_peak_bytes": 200, "extra_percent": 5}],
}


def lines_of(axes):
    return {line.get_label(): list(zip(line.get_xdata(), line.get_ydata())) for line in axes.lines}


def test_a_sweep_has_an_axes_for_each_part():
    budgets, checkpoints, memory, time = plot.figure(sweep()).axes
    assert lines_of(budgets) == {"auto": [(80, 1), (40, 9)], "auto, measured": [(40, 10)]}
    assert lines_of(checkpoints) == {
        "activation peak": [(3, 30)],
        "activation peak, measured": [(3, 30)],
        "extra time": [(3, 20)],
        "extra time, measured": [(3, 21)],
        "extra time of auto there": [(3, 12)],
    }
    assert lines_of(memory)["store all"] == [(4, 90), (8, 90)]
    assert lines_of(time)["checkpoints, measured"] == [(4, 122), (8, 122)]
    assert memory.get_ylabel() == "activation peak, MiB"


def test_what_was_published_is_shown_beside():
    (budgets, *_) = plot.figure(sweep(published={"memory_percent": 40, "extra_percent": 25})).axes
    assert lines_of(budgets)["published, of all memory"] == [(40, 25)]


def test_recomputing_all_does_not_flatten_the_rest():
    (budgets, *_) = plot.figure(sweep(budgets=[cell("auto", 50, 9), cell("drop-all", 20, 5000)])).axes
    assert budgets.get_ylim()[1] == plot.MOST_EXTRA
    depth = {"depth": 4, "baseline_bytes": 0, "step_seconds": 0.1, "strategies": [cell("recompute all", 20, 5000)]}
    *_, time = plot.figure(sweep(depths=[depth])).axes
    assert time.get_ylim()[1] == plot.MOST_STEPS * 100


def test_refused_budgets_leave_an_axes_that_says_so():
    (budgets, *_) = plot.figure(sweep(budgets=[cell("auto", None, None)])).axes
    assert not budgets.lines
    assert budgets.get_title() == "gpt: no planner has a plan"


def test_what_has_no_percentage_is_left_out():
    (budgets, *_) = plot.figure(sweep(budgets=[cell("auto", 50, 1) | {"extra_percent": None}, cell("auto", 40, 2)])).axes
    assert lines_of(budgets) == {"auto": [(40, 2)]}


def test_what_was_faster_than_plain_is_below_zero():
    (budgets, *_) = plot.figure(sweep(budgets=[cell("auto", 50, 1, (50, -3))])).axes
    assert budgets.get_ylim()[0] < -3


def test_a_curve_is_one_line():
    (axes,) = plot.figure(CURVE).axes
    assert lines_of(axes) == {"auto": [(100, 0), (50, 5)]}
    assert axes.get_title() == "gpt.json, planner auto"


@pytest.mark.parametrize("document", [sweep(), CURVE], ids=["sweep", "curve"])
def test_the_command_writes_png_and_svg(tmp_path, document):
    source = tmp_path / "in.json"
    source.write_text(json.dumps(document))
    for name in ("out.png", "out.svg"):
        assert command.main(["plot", str(source), "--out", str(tmp_path / name)]) == 0
    assert (tmp_path / "out.png").read_bytes().startswith(PNG)
    assert "<svg" in (tmp_path / "out.svg").read_text()


@pytest.mark.parametrize(
    "text, message",
    [
        (None, "[plot] cannot read"),
        ("{", "[plot] cannot read"),
        ('{"format": "remat-plan"}', "is neither a sweep nor a curve"),
        ("[]", "is neither a sweep nor a curve"),
        ('{"format": "remat-sweep", "version": 2}', "is of version 2, not 1"),
        ('{"format": "remat-sweep", "version": 1}', "nothing has been swept yet"),
        ('{"format": "remat-sweep", "budgets": [{"name": "auto"}]}', "incomplete or changed here (no 'within_budget')"),
        ('{"format": "remat-sweep", "depths": 3}', "incomplete or changed here ('int' object is not iterable)"),
        (json.dumps(CURVE | {"plain_peak_bytes": 100}), "(an activation peak of 0 bytes)"),
    ],
)
def test_other_files_are_refused(tmp_path, capsys, text, message):
    source = tmp_path / "in.json"
    if text is not None:
        source.write_text(text)
    assert command.main(["plot", str(source), "--out", str(tmp_path / "out.png")]) == 1
    assert message in capsys.readouterr().err
    assert not (tmp_path / "out.png").exists()


def test_a_picture_of_an_unknown_kind_is_refused(tmp_path):
    source = tmp_path / "in.json"
    source.write_text(json.dumps(CURVE))
    with pytest.raises(remat.Error, match="give a path that ends in .png, .svg or .pdf"):
        plot.save(source, tmp_path / "out.bmp3")
