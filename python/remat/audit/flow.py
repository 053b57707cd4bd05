"""Which runs an audit makes: plain twice, each way once, and traces of what differs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Protocol

import torch

from remat.audit.records import BEFORE_CALL
from remat.audit.result import AuditResult, Row, difference_of, first_of
from remat.audit.trace import first_difference

Outcome = dict[str, Any]
Way = dict[str, Any]  #: "name", and for one of the user's "function"
PLAIN: Way = {"name": "plain"}


class Runner(Protocol):
    """Runs the audited steps. `folder`: for what runs write. Outcomes: of records.py and meter.py, with "error" and "log"
    of a run that failed."""

    folder: Path

    def run(
        self,
        way: Way,
        *,
        record: bool = False,
        noise: Sequence[Any] = (),
        trace: dict[str, Any] | None = None,
    ) -> Outcome: ...


class _Traces:
    """The operators of single steps, written when they are asked for; those of plain once."""

    def __init__(self, runner: Runner) -> None:
        self._runner = runner
        self._plain: dict[int, Path] = {}

    def first(self, way: Way, update: int) -> dict[str, str] | None:
        """None too where a run ends before, as one under a trace may."""
        if update not in self._plain:
            self._plain[update] = self._write(PLAIN, update, "plain")
        other = self._write(way, update, "other")
        if not self._plain[update].exists() or not other.exists():
            return None
        return first_difference(str(self._plain[update]), str(other))

    def _write(self, way: Way, update: int, kind: str) -> Path:
        path = self._runner.folder / f"operators.{update}.{kind}"
        path.unlink(missing_ok=True)
        self._runner.run(way, trace={"update": update, "path": str(path)})
        return path


def audit_with(
    runner: Runner, subject: str, ways: list[Way], seed: int, plain: Outcome, progress: Callable[[str], None]
) -> AuditResult:
    """`plain`: the outcome of the run that was recorded."""
    traces, updates = _Traces(runner), plain["updates"]
    progress("plain, a second time")
    again = runner.run(PLAIN)
    noise = again.get("differences", [])
    result = AuditResult(
        subject,
        steps=max((step for _, _, step in updates), default=0),
        seed=seed,
        versions={"torch": torch.__version__, "threads": torch.get_num_threads()},
        rows=[_row(PLAIN, {**again, "differences": [], "seconds": plain["seconds"]}, updates)],
        compared=plain["compared"],
        noise=len(noise),
    )
    if noise:
        first = first_of(noise)
        result.noise_first = difference_of(first, updates)
        progress("plain twice more, every operator of a step: two plain runs differ")
        result.noise_operator = traces.first(PLAIN, first["update"])
    keys = [(each["update"], each["kind"], each["name"]) for each in noise]
    for way in ways:
        if way["name"] == "plain":
            continue
        progress(way["name"])
        outcome = runner.run(way, noise=keys)
        row = _row(way, outcome, updates)
        before = row.first is not None and row.first.name.endswith(BEFORE_CALL)  # of the model: no operator of its is to be found
        if row.status == "differs" and not noise and not before and not way["name"].startswith("compile"):
            progress(f"{way['name']} and plain again, every operator of a step: they differ")
            row.operator = traces.first(way, first_of(outcome["differences"])["update"])
        result.rows.append(row)
    if noise and result.noise >= result.compared:
        result.notes.append("the plain run repeats nothing, so that no way can be judged; seed what draws random numbers")
    return result


def _row(way: Way, outcome: Outcome, updates: list[Any]) -> Row:
    found = outcome.get("differences", [])
    row = Row(
        way["name"],
        "differs" if found else "same",
        outcome.get("compared", 0),
        len(found),
        difference_of(first_of(found), updates) if found else None,
        peak_bytes=outcome.get("peak_bytes"),
        seconds=outcome.get("seconds"),
    )
    if outcome["error"] is not None:
        row.error = outcome["error"]
    elif way["name"] != "plain" and not outcome["applied"]:
        row.error = "; ".join(dict.fromkeys(outcome["refused"])) or "no call of a module with parameters was seen"
    elif len(outcome["updates"]) != len(updates):
        row.error = f"{len(outcome['updates'])} updates of parameters were made, {len(updates)} in plain"
    if row.error is not None:
        row.status, row.log = "failed", outcome.get("log", "")
    return row
