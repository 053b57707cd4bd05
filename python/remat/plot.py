"""Pictures of sweeps and curves: what ``remat sweep`` and ``remat plan --curve`` wrote, drawn by matplotlib."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING, Any, Callable

from remat.errors import Error

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

MEMORY = "activation peak, % of plain"
TIME = "extra time, % of the step"
# Recomputing all would flatten everything else: lines run out of the picture beyond these.
MOST_EXTRA = 200  # percent
MOST_STEPS = 3  # times the slowest plain step

Point = tuple[float, float]
# What was predicted, and what was measured.
Lines = dict[str, tuple[list[Point], list[Point]]]


def read(path: str | os.PathLike[str]) -> dict[str, Any]:
    """The contents of a file of either kind. Raises Error for anything else."""
    try:
        with open(path, encoding="utf-8") as file:
            document = json.load(file)
    except (OSError, ValueError) as error:
        raise Error(
            f"[plot] cannot read '{os.fspath(path)}' ({error}); give sweep.json of `remat sweep --out`, or the .json of "
            "`remat plan --curve`"
        ) from None
    if not isinstance(document, dict) or not (document.get("format") == "remat-sweep" or "points" in document):
        raise Error(
            f"[plot] '{os.fspath(path)}' is neither a sweep nor a curve; give sweep.json of `remat sweep --out`, or the "
            ".json of `remat plan --curve`"
        )
    if document.get("version", 1) != 1:
        raise Error(f"[plot] '{os.fspath(path)}' is of version {document['version']}, not 1; write it with this remat")
    return document


def figure(document: dict[str, Any]) -> Figure:
    """A figure with an axes for each part of a sweep, or the one of a curve: ``figure(read(path)).savefig("x.png")``."""
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise Error(f"[plot] matplotlib cannot be imported ({error}); install it: pip install matplotlib") from None
    parts: list[Callable[[Axes], None]] = []
    if "points" in document:
        parts.append(lambda axes: _curve(axes, document))
    if document.get("budgets"):
        parts.append(lambda axes: _budgets(axes, document))
    if document.get("checkpoints"):
        parts.append(lambda axes: _checkpoints(axes, document))
    if document.get("depths"):
        parts.append(lambda axes: _depth_memory(axes, document))
        parts.append(lambda axes: _depth_time(axes, document))
    if not parts:
        raise Error("[plot] nothing has been swept yet; let `remat sweep` run on")
    columns = min(2, len(parts))
    rows = -(-len(parts) // columns)
    result = Figure(figsize=(8.4 * columns, 4.4 * rows), layout="constrained")
    try:
        for index, draw in enumerate(parts):
            draw(result.add_subplot(rows, columns, index + 1))
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        reason = f"no {error}" if isinstance(error, KeyError) else str(error)
        raise Error(
            f"[plot] what remat writes is incomplete or changed here ({reason}); write it again with `remat sweep --out` or "
            "`remat plan --curve`"
        ) from None
    return result


def save(path: str | os.PathLike[str], out: str | os.PathLike[str]) -> None:
    """Draws the file `path` into `out`, whose ending says as what: .png, .svg, .pdf."""
    picture = figure(read(path))
    try:
        picture.savefig(out, dpi=144)
    except (OSError, ValueError) as error:
        raise Error(f"[plot] cannot write '{os.fspath(out)}' ({error}); give a path that ends in .png, .svg or .pdf") from None


def _add(points: list[Point], x: float | None, y: float | None) -> None:
    """Percentages are null where plain has no activations, or no time."""
    if x is not None and y is not None:
        points.append((x, y))


def _lines(axes: Axes, named: Lines) -> None:
    """A line for each name: what was predicted, and dashed in its colour what was measured."""
    for number, (name, (predicted, measured)) in enumerate(named.items()):
        for points, style, label in ((predicted, "-o", name), (measured, "--x", f"{name}, measured")):
            if points:
                xs, ys = zip(*points)
                axes.plot(xs, ys, style, color=f"C{number}", markersize=4, label=label)
    axes.grid(alpha=0.3)
    if len(axes.lines) > 1:
        _legend(axes)


def _legend(axes: Axes) -> None:
    """Beside the axes: of ten planners, predicted and measured, it would hide the lines."""
    axes.legend(fontsize="small", loc="upper left", bbox_to_anchor=(1.01, 1), borderaxespad=0, frameon=False)


def _cut(axes: Axes, top: float) -> None:
    if axes.get_ylim()[1] > top:
        axes.set_ylim(top=top)


def _label(axes: Axes, title: str, across: str, up: str) -> None:
    axes.set_title(title)
    axes.set_xlabel(across)
    axes.set_ylabel(up)
    lowest = min((min(line.get_ydata()) for line in axes.lines), default=0)
    lowest = min(lowest, 0)
    axes.set_ylim(bottom=lowest - 0.03 * (axes.get_ylim()[1] - lowest))  # markers at the bottom are whole


def _budgets(axes: Axes, document: dict[str, Any]) -> None:
    named: Lines = {}
    for cell in document["budgets"]:
        if not cell["within_budget"]:
            continue
        for points, figures in zip(named.setdefault(cell["name"], ([], [])), (cell, cell.get("measured"))):
            if figures:
                _add(points, figures["activation_percent"], figures["extra_percent"])
    _lines(axes, named)
    if published := document.get("published"):
        place = published["memory_percent"], published["extra_percent"]
        axes.plot(*place, "k*", markersize=11, label="published, of all memory")
        _legend(axes)
    _cut(axes, MOST_EXTRA)
    what = "planners and budgets" if named else "no planner has a plan"
    _label(axes, f"{document['model']}: {what}", MEMORY, TIME)


def _checkpoints(axes: Axes, document: dict[str, Any]) -> None:
    named: Lines = {}
    for row in document["checkpoints"]:
        for name, key in (("activation peak", "activation_percent"), ("extra time", "extra_percent")):
            predicted, measured = named.setdefault(name, ([], []))
            _add(predicted, row["checkpoints"], row[key])
            if "measured" in row:
                _add(measured, row["checkpoints"], row["measured"][key])
        if row["auto"]:
            predicted, _ = named.setdefault("extra time of auto there", ([], []))
            _add(predicted, row["checkpoints"], row["auto"]["extra_percent"])
    _lines(axes, named)
    _label(axes, f"{document['model']}: how many checkpoints?", "checkpoints", "% of plain")


def _mebibytes(row: dict[str, Any], cell: dict[str, Any]) -> tuple[float, float | None]:
    measured = cell.get("measured")
    base = row["baseline_bytes"]
    return (cell["predicted_peak_bytes"] - base) / 2**20, (measured["peak_bytes"] - base) / 2**20 if measured else None


def _milliseconds(row: dict[str, Any], cell: dict[str, Any]) -> tuple[float, float | None]:
    # Of what was measured, how much longer than plain in the same minutes: the machine may have been busier by then.
    plain, measured = 1e3 * row["step_seconds"], cell.get("measured")
    extra = measured["extra_percent"] if measured else None  # None too where times vary too much to tell
    times = 1 + extra / 100 if extra is not None else None
    return plain + 1e3 * cell["predicted_seconds"], plain * times if times is not None else None


def _depths(
    axes: Axes,
    document: dict[str, Any],
    figures: Callable[[dict[str, Any], dict[str, Any]], tuple[float, float | None]],
) -> None:
    named: Lines = {}
    for row in document["depths"]:
        for cell in row["strategies"]:
            predicted, measured = named.setdefault(cell["name"], ([], []))
            if not cell["within_budget"]:
                continue
            expected, found = figures(row, cell)
            _add(predicted, row["depth"], expected)
            _add(measured, row["depth"], found)
    _lines(axes, named)


def _depth_memory(axes: Axes, document: dict[str, Any]) -> None:
    _depths(axes, document, _mebibytes)
    _label(axes, f"{document['model']}: memory and depth", "depth", "activation peak, MiB")


def _depth_time(axes: Axes, document: dict[str, Any]) -> None:
    _depths(axes, document, _milliseconds)
    slowest = max(1e3 * row["step_seconds"] for row in document["depths"])
    if slowest > 0:
        _cut(axes, MOST_STEPS * slowest)
    _label(axes, f"{document['model']}: time and depth", "depth", "a step, ms")


def _curve(axes: Axes, document: dict[str, Any]) -> None:
    base = document["baseline_bytes"]
    whole = document["plain_peak_bytes"] - base
    if whole <= 0:
        raise ValueError(f"an activation peak of {whole} bytes")
    points = [
        (100 * (point["predicted_peak_bytes"] - base) / whole, point["extra_percent"]) for point in document["points"]
    ]
    _lines(axes, {document["planner"]: (points, [])})
    _label(axes, f"{os.path.basename(document['graph'])}, planner {document['planner']}", MEMORY, TIME)
