"""What an audit found, as text and JSON."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from typing import Any

from remat.audit.hints import hint
from remat.audit.records import BEFORE_CALL

_KINDS = ("mode", "loss", "gradient", "option", "state", "parameter", "buffer", "generator")


@dataclass(frozen=True)
class Difference:
    """The first value that differs from the plain run's."""

    step: int
    """Of its optimizer: the number of the update, from 1."""
    where: str
    """ "step 2", "step 2 of Adam 2" where there are several optimizers."""
    kind: str
    """"loss", "gradient", "parameter", "buffer", "state" (of an optimizer), "option" (of an optimizer, as lr), "mode" (train
    or eval), "generator"."""
    name: str
    """Of the parameter, the buffer, the module..."""
    elements: int | None = None
    """How many differ."""
    total: int | None = None
    """How many it has."""
    largest: float | None = None
    """How far the value is that is farthest."""
    ulps: int | None = None
    """The same, in floating-point numbers that lie between."""
    plain: str | None = None
    """What plain has, where that is words: "absent", "float32 [3, 4]", "train"."""
    other: str | None = None
    """What this way has."""

    def __str__(self) -> str:
        words = f"{self.where}: {_named(self.kind, self.name)}"
        if self.elements is None:
            return f"{words} is {self.other}, {self.plain} in plain"
        words += f", {self.elements} of {self.total} elements"
        if self.largest is not None:
            words += f", by up to {self.largest:.3g}"
        return words + ("" if self.ulps is None else f" ({self.ulps if self.ulps < 10**6 else f'{self.ulps:.1e}'} ULPs)")


@dataclass
class Row:
    """One way."""

    way: str
    status: str
    """"same", "differs", "failed"."""
    compared: int = 0
    """Values that were compared: tensors, settings of optimizers, states of generators."""
    differing: int = 0
    first: Difference | None = None
    operator: dict[str, str] | None = None
    """The first operator that computed what plain never does: "operator", "module", "phase" ("forward", "backward",
    "recomputed"). None if none did, or it was not looked for (docs/audit.md)."""
    peak_bytes: int | None = None
    seconds: float | None = None
    """Of a step, the median without the first."""
    error: str | None = None
    log: str = ""
    """The end of what a run that failed wrote."""


@dataclass
class AuditResult:
    """What :func:`remat.audit` returns. As text: a table, and what differs."""

    subject: str
    steps: int
    """That the plain run took."""
    seed: int
    versions: dict[str, Any]
    rows: list[Row]
    """One for each way, plain first."""
    compared: int
    """Values of the plain run."""
    noise: int = 0
    """How many of them the plain run does not repeat: no way is blamed for those."""
    noise_first: Difference | None = None
    noise_operator: dict[str, str] | None = None
    notes: list[str] = field(default_factory=list)

    @property
    def same(self) -> bool:
        """Whether all ways have the bits of plain, in all that plain repeats; that must be something."""
        return all(row.status == "same" for row in self.rows) and self.noise < self.compared

    def row(self, way: str) -> Row:
        """That of one way, by its name. Raises StopIteration where there is none."""
        return next(row for row in self.rows if row.way == way)

    def to_dict(self) -> dict[str, Any]:
        """All of it, for JSON."""
        return {**asdict(self), "same": self.same}

    def to_json(self) -> str:
        """to_dict() as text."""
        return json.dumps(self.to_dict(), indent=1)

    def __str__(self) -> str:
        lines = [f"{self.subject}: {self.steps} steps, seed {self.seed}, torch {self.versions['torch']}", self._floor(), ""]
        width = max(len("way"), *(len(row.way) for row in self.rows))
        lines.append(f"{'way':<{width}}  result     peak        seconds a step")
        for row in self.rows:
            result = {"same": "same bits", "differs": "DIFFERS", "failed": "FAILED"}[row.status]
            result = "" if row.way == "plain" else result
            seconds = "" if row.seconds is None else f"{row.seconds:.3g}"
            lines.append(f"{row.way:<{width}}  {result:<9}  {_bytes(row.peak_bytes):<10}  {seconds}".rstrip())
        for row in self.rows:
            lines += self._explained(row)
        return "\n".join([*lines, *(f"[audit] {note}" for note in self.notes)]) + "\n"

    def _floor(self) -> str:
        if self.noise == 0:
            return f"plain twice: same bits in {self.compared} values"
        words = f"plain twice: {self.noise} of {self.compared} values differ, which no way is blamed for; first in {self.noise_first}"
        return words + _at(self.noise_operator)

    def _explained(self, row: Row) -> list[str]:
        if row.status == "differs":
            what = f"{row.differing} of {row.compared} values differ, first in {row.first}{_at(row.operator)}"
            return ["", f"[audit] {row.way}: {what}; {hint(row)}"]
        if row.status == "failed":
            written = [line for line in row.log.splitlines() if str(row.error) not in line]  # which is said already
            return ["", f"[audit] {row.way}: {row.error}", *(f"    {line}" for line in written[-12:])]
        return []


def difference_of(found: dict[str, Any], updates: list[tuple[int, str, int]]) -> Difference:
    number, optimizer, step = updates[found["update"] - 1] if found["update"] <= len(updates) else (1, "", found["update"])
    several = len({each[0] for each in updates}) > 1
    where = f"step {step}" + (f" of {optimizer} {number}" if several else "")
    rest = {key: found[key] for key in ("kind", "name", "elements", "total", "largest", "ulps", "plain", "other") if key in found}
    return Difference(step, where, **rest)


def first_of(differences: list[dict[str, Any]]) -> dict[str, Any]:
    """Of the first step the first in the order in which a step makes them. Gradients are made from the last layer on, so
    that the first that differs is the last one listed."""
    least = min(found["update"] for found in differences)
    ordered = sorted(
        (found for found in differences if found["update"] == least),
        key=lambda found: (not found["name"].endswith(BEFORE_CALL), _KINDS.index(found["kind"])),
    )
    first = ordered[0]
    return [found for found in ordered if found["kind"] == first["kind"]][-1] if first["kind"] == "gradient" else first


def _named(kind: str, name: str) -> str:
    return {
        "loss": name,
        "gradient": f"gradient of {name}",
        "mode": f"mode of {name}",
        "option": f"the optimizer's {name}",
        "state": f"the optimizer's {name}",
        "generator": f"state of generator {name}",
    }.get(kind, f"{kind} {name}")


def _at(operator: dict[str, str] | None) -> str:
    if operator is None:
        return ""
    inside = f" in {operator['module']}" if operator["module"] else ""
    phase = {"forward": "", "backward": ", in backward", "recomputed": ", recomputed in backward"}[operator["phase"]]
    return f", from {operator['operator']}{inside}{phase}"


def _bytes(count: int | None) -> str:
    if count is None:
        return ""
    for unit, size in (("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)):
        if count >= size:
            return f"{count / size:.3g} {unit}"
    return f"{count} B"
