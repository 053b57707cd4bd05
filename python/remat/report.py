"""What one step took."""

from __future__ import annotations

import dataclasses
import json
from typing import TYPE_CHECKING, Any, ClassVar

from remat import _C
from remat.errors import Error
from remat.plan import Plan

if TYPE_CHECKING:
    from remat.session import Session


@dataclasses.dataclass(frozen=True)
class ReplayedOperator:
    """How often one operator was replayed in a step, and what that cost."""

    name: str
    count: int
    seconds: float
    bytes: int  # of results


@dataclasses.dataclass(frozen=True)
class Report:
    """The measurements of one step. Byte figures are tensor bytes on the session's device; ``str()`` is a table."""

    step: int  # its number in the session, from 1
    completed: bool
    budget_bytes: int  # the limit in force, parameters and everything else included
    baseline_bytes: int  # alive when the step began
    peak_bytes: int  # measured
    planned_peak_bytes: int  # predicted by the plan that the step followed to its end; 0: there was none
    plain_peak_bytes: int  # what the peak would have been with every saved value kept
    end_bytes: int
    record_bytes: int  # remat's own records
    resident_peak_bytes: int  # the process's largest resident set
    values_saved: int
    values_dropped: int
    dropped_bytes: int
    values_packed: int
    packed_bytes: int
    ops_recorded: int
    ops_replayed: int
    forward_seconds: float  # of the recorded operators
    recompute_seconds: float  # of replays and unpacking
    planning_seconds: float  # waited for plans before the step began
    step_seconds: float
    replayed: tuple[ReplayedOperator, ...]
    plan: Plan | None  # that the step followed to its end

    # Set by report_of(), and no fields: dataclasses.asdict() would copy a session, which cannot be copied.
    _session: ClassVar[Session | None] = None
    _text: ClassVar[str] = ""

    @property
    def min_budget_bytes(self) -> int | None:
        """The smallest budget for a session like this one, as predicted: that a first step can do with, which has no plan
        yet, and later ones that have none for so little. What such a step drops depends on the times that it measures:
        it may need a few percent of its activations more. Computed anew when asked for: up to some tenths of a second.
        Raises Error where the report came from a pickle: sessions stay where they are."""
        if self._session is None:
            raise Error(
                "[report] min_budget_bytes is computed by the session, and a report from a pickle or "
                "dataclasses.replace() has none; read it from the original report, and keep the number"
            )
        return self._session.min_budget_bytes()

    @property
    def activation_peak_bytes(self) -> int:
        """The peak above what was alive when the step began."""
        return self.peak_bytes - self.baseline_bytes

    @property
    def plain_activation_peak_bytes(self) -> int:
        return self.plain_peak_bytes - self.baseline_bytes

    def to_dict(self) -> dict[str, Any]:
        """Every figure, of the types that JSON has: for logs. Of the plan, what says how good it is
        (:meth:`Plan.to_json` has all of it)."""
        figures = {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}
        figures["activation_peak_bytes"] = self.activation_peak_bytes
        figures["plain_activation_peak_bytes"] = self.plain_activation_peak_bytes
        figures["replayed"] = [dataclasses.asdict(operator) for operator in self.replayed]
        if self.plan is not None:
            names = ("planner", "budget_bytes", "predicted_peak_bytes", "predicted_seconds")
            figures["plan"] = {name: getattr(self.plan, name) for name in names}
        return figures

    def __str__(self) -> str:
        return self._text or repr(self)

    # Nothing in it changes, and a copy of its own would have lost the session.
    def __copy__(self) -> Report:
        return self

    def __deepcopy__(self, memo: dict[int, Any]) -> Report:
        return self

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in self.__dict__.items() if name != "_session"}


def report_of(session: Session, raw: _C.StepReport) -> Report:
    """What `raw` says, for the users of `session`."""
    figures = json.loads(raw.to_json())
    plan = session.plan() if figures["completed"] and figures["planned_peak_bytes"] > 0 else None
    figures["ops_recorded"] = figures.pop("operators_recorded")
    figures["ops_replayed"] = figures.pop("operators_replayed")
    figures["replayed"] = tuple(ReplayedOperator(**operator) for operator in figures["replayed"])
    known = {field.name for field in dataclasses.fields(Report)}
    report = Report(**{name: value for name, value in figures.items() if name in known}, plan=plan)
    report.__dict__.update(_session=session, _text=str(raw))
    return report
