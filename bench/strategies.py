#!/usr/bin/env python3
"""The pictures of docs/strategies.md: bench/strategies.py COMMAND, where COMMAND is the built `remat`.

Each shows one planner on one step: which operators run when, and what memory they hold. The step is the zoo's MLP. Its
times are set, so that the pictures come out the same on every machine.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from pathlib import Path

FOLDER = Path(__file__).resolve().parent.parent / "docs" / "strategies"
SECONDS = {"aten::addmm": 0.012, "aten::gelu": 0.003}  # of one call; others take nothing to speak of
# The planner, and its budget in percent of plain's activation peak.
PICTURES = {
    "keep-all": 100,
    "drop-all": 100,
    "segments": 30,
    "articulation-memory": 30,
    "articulation-speed": 60,
    "selective": 60,
    "revolve": 15,
    "rotor": 15,
    "online": 30,
    "auto": 30,
}
WIDTH, LEFT, RIGHT = 680, 60, 668
SCHEDULE = (34, 164)  # top and bottom of the upper panel
MEMORY = (196, 296)  # and of the lower one
COLORS = {"forward": "#3b73b9", "backward": "#9aa3ad", "recompute": "#e08214"}  # later ones are drawn over earlier
PARTS = {"kept": "#3b73b9", "recomputed": "#e08214", "temporaries": "#c3c9cf"}
WORDS = {
    "forward": "forward",
    "recompute": "recomputed",
    "backward": "backward",
    "kept": "kept",
    "recomputed": "recomputed",
    "temporaries": "in use",
}


def record(command: str, model: str, batch: int, folder: Path) -> Path:
    """The graph of a step, with times that are the same everywhere."""
    path = folder / f"{model}.json"
    run(command, "record", model, "--batch", str(batch), "--steps", "2", "--out", str(path))
    graph = json.loads(path.read_text())
    for operator in graph["operators"]:
        operator["seconds"] = operator["replay_seconds"] = SECONDS.get(operator["name"], 1e-4)
    graph["step_seconds"] = 3 * sum(operator["seconds"] for operator in graph["operators"])
    path.write_text(json.dumps(graph))
    return path


def run(*command: str) -> None:
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)


def events_of(command: str, graph: Path, planner: str, percent: int) -> list[dict]:
    """What `remat report` says of the step under the planner's plan."""
    plan, trace = graph.with_suffix(".plan"), graph.with_suffix(".trace")
    run(command, "plan", str(graph), "--planner", planner, "--budget", f"{percent}%", "--out", str(plan))
    run(command, "report", str(graph), "--plan", str(plan), "--trace", str(trace))
    return json.loads(trace.read_text())["traceEvents"]


def levels(events: list[dict], process: int) -> list[tuple[float, dict[str, int]]]:
    """Bytes over time, by what they are for, above those that were alive when the step began."""
    counters = [(event["ts"], event["args"]) for event in events if event["ph"] == "C" and event["pid"] == process]
    counters = [(time, parts) for time, parts in counters if "kept" in parts]
    first = counters[0][1]
    return [(time, {part: parts[part] - first[part] for part in parts}) for time, parts in counters]


def picture(events: list[dict], percent: int) -> str:
    works = [event for event in events if event["ph"] == "X" and event["pid"] == 1 and "operator" in event["args"]]
    last_operator = max(event["args"]["operator"] for event in works)
    end = max(event["ts"] + event["dur"] for event in works)
    under_plan, plain = levels(events, 1), levels(events, 2)
    peak = max(sum(parts.values()) for _, parts in plain)
    top = 1.08 * max(peak, *(sum(parts.values()) for _, parts in under_plan))

    def x(time: float) -> float:
        return LEFT + (RIGHT - LEFT) * time / end

    def y(size: float) -> float:
        return MEMORY[1] - (MEMORY[1] - MEMORY[0]) * size / top

    def wide(work: dict) -> float:
        return max(1.0, (RIGHT - LEFT) * work["dur"] / end)

    height = (SCHEDULE[1] - SCHEDULE[0]) / (last_operator + 1)
    out = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} 324"'
        ' font-family="sans-serif" font-size="12" fill="#333">'
    ]
    out.append(f'<rect width="{WIDTH}" height="324" fill="#fff"/>')
    out += legend([*COLORS.items()], 18)
    for kind, color in COLORS.items():
        path = "".join(
            f"M{x(work['ts']):.1f} {SCHEDULE[1] - height * (work['args']['operator'] + 1):.1f}"
            f"h{wide(work):.1f}v{max(height, 3.2):.1f}h-{wide(work):.1f}z"
            for work in works
            if work["cat"] == kind
        )
        out.append(f'<path d="{path}" fill="{color}"/>')
    below = [0.0] * len(under_plan)
    used = []
    for part, color in PARTS.items():
        above = [low + max(0, parts[part]) for low, (_, parts) in zip(below, under_plan)]
        if above != below:
            used.append((part, color))
            out.append(f'<path d="{area(under_plan, below, above, x, y, end)}" fill="{color}"/>')
        below = above
    out.append(
        f'<path d="{outline(plain, x, y, end)}" fill="none" stroke="#333" stroke-width="0.9" stroke-dasharray="2 2"/>'
    )
    limit = y(peak * percent / 100)
    out.append(f'<path d="M{LEFT} {limit:.1f}H{RIGHT}" stroke="#c0392b" stroke-width="1.2"/>')
    out += legend([*used, ("plain", "none"), (f"budget, {percent} %", "#c0392b")], 186)
    for low, high in (SCHEDULE, MEMORY):
        out.append(f'<path d="M{LEFT} {low}V{high}H{RIGHT}" fill="none" stroke="#888"/>')
    out.append(f'<text x="{LEFT - 8}" y="{SCHEDULE[1]}" text-anchor="end">first</text>')
    out.append(f'<text x="{LEFT - 8}" y="{SCHEDULE[0] + 10}" text-anchor="end">last</text>')
    out.append(f'<text transform="translate(16 {sum(SCHEDULE) / 2}) rotate(-90)" text-anchor="middle">operator</text>')
    out.append(f'<text transform="translate(16 {sum(MEMORY) / 2}) rotate(-90)" text-anchor="middle">memory</text>')
    out.append(f'<text x="{LEFT - 8}" y="{y(peak) + 4:.1f}" text-anchor="end">100 %</text>')
    out.append(f'<text x="{RIGHT}" y="314" text-anchor="end">time</text>')
    return "\n".join([*out, "</svg>\n"])


def legend(entries: list[tuple[str, str]], y: int) -> list[str]:
    out, x = [], LEFT + 6
    for name, color in entries:
        word = WORDS.get(name, name)
        if color == "none":
            out.append(f'<path d="M{x} {y - 4}h12" stroke="#333" stroke-dasharray="2 2"/>')
        else:
            high = 2 if name.startswith("budget") else 10
            out.append(f'<rect x="{x}" y="{y - 4 - high / 2:.0f}" width="12" height="{high}" fill="{color}"/>')
        out.append(f'<text x="{x + 17}" y="{y}">{word}</text>')
        x += 34 + 7 * len(word)
    return out


def area(moments, below, above, x, y, end) -> str:  # stairs up to `above`, and back along `below`
    times = [time for time, _ in moments] + [end]
    up = "".join(f"H{x(times[i]):.1f}V{y(level):.1f}" for i, level in enumerate(above))
    down = "".join(f"V{y(below[i]):.1f}H{x(times[i]):.1f}" for i in range(len(below) - 1, -1, -1))
    return f"M{x(times[0]):.1f} {y(below[0]):.1f}{up}H{x(end):.1f}{down}z"


def outline(moments, x, y, end) -> str:
    path = f"M{x(0):.1f} {y(0):.1f}" + "".join(
        f"H{x(time):.1f}V{y(sum(parts.values())):.1f}" for time, parts in moments
    )
    return path + f"H{x(end):.1f}"


def main() -> None:
    if len(sys.argv) != 2:
        raise SystemExit("use: bench/strategies.py COMMAND")
    command = str(Path(sys.argv[1]).resolve())
    FOLDER.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        graph = record(command, "mlp", 512, Path(folder))
        for planner, percent in PICTURES.items():
            (FOLDER / f"{planner}.svg").write_text(picture(events_of(command, graph, planner, percent), percent))


if __name__ == "__main__":
    main()
