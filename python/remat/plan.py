"""Plans: what a step does with each saved value."""

from __future__ import annotations

import os
from collections.abc import Callable

from remat import _C, json_text


class Plan:
    """What a step does with each saved value: keep, drop or pack it. Made by a session, kept in a file of JSON. Plans
    with the same JSON are equal."""

    def __init__(self, plan: _C.Plan) -> None:
        self._plan = plan

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Plan:
        """Reads what :meth:`save` or :meth:`Session.save_plan` wrote. Raises Error if it is not a plan, OSError if it
        cannot be read."""
        return cls.from_json(json_text.read(path, "plan", "Session.save_plan"))

    @classmethod
    def from_json(cls, text: str) -> Plan:
        """Reads a plan from JSON text. Raises Error if it is none."""
        json_text.check(text, "plan", "Plan.to_json()")
        return cls(_C.Plan.from_json(text))

    def to_json(self) -> str:
        """The plan as JSON text (docs/formats.md)."""
        return self._plan.to_json()

    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes the plan to a file."""
        with open(path, "w", encoding="utf-8") as file:
            file.write(self.to_json())

    @property
    def planner(self) -> str:
        """Name of the planner that made it."""
        return self._plan.planner

    @property
    def budget_bytes(self) -> int:
        """What it was made for; everything counted, parameters included."""
        return self._plan.budget_bytes

    @property
    def predicted_peak_bytes(self) -> int:
        """Everything counted, parameters included."""
        return self._plan.predicted_peak_bytes

    @property
    def predicted_seconds(self) -> float:
        """Of replays, packing, unpacking and waiting for copies, in one step."""
        return self._plan.predicted_seconds

    # Copies and pickles: of a report, or of a model wrapped with a plan.
    def __reduce__(self) -> tuple[Callable[[str], Plan], tuple[str]]:
        return type(self).from_json, (self.to_json(),)

    def __eq__(self, other: object) -> bool:
        return self.to_json() == other.to_json() if isinstance(other, Plan) else NotImplemented

    def __hash__(self) -> int:
        return hash(self.to_json())

    def __repr__(self) -> str:
        return (
            f"remat.Plan(planner={self.planner!r}, budget_bytes={self.budget_bytes}, "
            f"predicted_peak_bytes={self.predicted_peak_bytes}, predicted_seconds={self.predicted_seconds:.4f})"
        )
