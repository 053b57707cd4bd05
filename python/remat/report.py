"""What one step took."""

from __future__ import annotations

import dataclasses
import html
import json
import os
from typing import TYPE_CHECKING, Any, ClassVar

from remat import _C
from remat.errors import Error
from remat.plan import Plan

if TYPE_CHECKING:
    from remat.session import Session


@dataclasses.dataclass(frozen=True)
class ReplayedOperator:
    """How often one operator was replayed in a step, and what that cost.

    Attributes:
        name: as in PyTorch's schemas, "aten::gelu".
        count: replays.
        seconds: spent in them.
        bytes: of the results that they made.
    """

    name: str
    count: int
    seconds: float
    bytes: int


class Picture:
    """A picture as SVG, which notebooks show; ``str()`` is its text."""

    def __init__(self, svg: str) -> None:
        self._svg = svg

    def _repr_svg_(self) -> str:
        return self._svg

    def __str__(self) -> str:
        return self._svg

    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes the picture to a file."""
        _write(path, self._svg)


def _write(path: str | os.PathLike[str], text: str) -> None:
    with open(path, "w", encoding="utf-8") as file:
        file.write(text)


@dataclasses.dataclass(frozen=True)
class Report:
    """The measurements of one step. Byte figures are tensor bytes on the session's device; ``str()`` is a table.

    Attributes:
        step: its number in the session, from 1.
        completed: False where the step ended by an exception.
        decided_by: what chose the values to evict: "plan given" (the session's ``plan=``), the name of the planner
            whose plan the step followed ("auto"), or "online": nothing was planned, memory decided as it ran short.
        decision_reason: why what was asked for did not decide; empty where it did. Begins with "the plan given" where
            that is ignored, as in "the plan given is of another graph". Where a planner decided, whose plan it was if
            not the step's own: "the plan is that of a step of other sizes".
        budget_reason: why the budget is another than in the step before: "set_budget(): was 3.00 GiB", or what the budget
            "pressure" did, as in "lowered from 3.00 GiB: 210 MiB are left in /sys/fs/cgroup". Empty where it is the same.
        available_bytes: with the budget "pressure", bytes that were left when the step began; 0 with others.
        stalled_percent: with the budget "pressure", the time in percent that tasks waited for memory in the last ten
            seconds.
        granted_bytes: of a session in a :class:`Pool`, what the pool granted to the step above the bytes alive when it
            began; 0 of others.
        waited_seconds: the same, seconds that the step waited for others before it began.
        budget_bytes: the limit in force, in bytes; parameters and everything else included.
        baseline_bytes: bytes alive when the step began.
        peak_bytes: the most bytes alive in the step, measured.
        planned_peak_bytes: the peak in bytes that was predicted by the plan that the step followed to its end; 0: none.
        plain_peak_bytes: bytes that the peak would have been with every saved value kept.
        end_bytes: bytes alive when the step ended.
        record_bytes: bytes of remat's own records at their largest.
        reserved_peak_bytes: the most bytes that the device's caching allocator had taken from it in the step, free blocks
            included; 0 on the CPU.
        resident_peak_bytes: the largest resident set of the process so far, in bytes, as the system counts it.
        values_saved: values that autograd saved, each counted once.
        values_dropped: times that a saved value was evicted, to be recomputed, packed or moved.
        dropped_bytes: bytes evicted that way.
        values_packed: times that a value was held packed instead.
        packed_bytes: bytes that this freed.
        values_moved: times that a value was moved to the disk instead.
        moved_bytes: bytes that this freed.
        move_wait_seconds: seconds waited for copies, there and back.
        ops_recorded: operators recorded.
        ops_replayed: operators replayed, each time counted.
        forward_seconds: seconds in the recorded operators.
        recompute_seconds: seconds in replays and in unpacking.
        planning_seconds: seconds waited for plans before the step began.
        step_seconds: seconds of the whole step, planning included.
        replayed: a :class:`ReplayedOperator` for each operator, most expensive first.
        plan: the :class:`Plan` that the step followed to its end; None: there was none.
    """

    step: int
    completed: bool
    decided_by: str
    decision_reason: str
    budget_reason: str
    available_bytes: int
    stalled_percent: float
    granted_bytes: int
    waited_seconds: float
    budget_bytes: int
    baseline_bytes: int
    peak_bytes: int
    planned_peak_bytes: int
    plain_peak_bytes: int
    end_bytes: int
    record_bytes: int
    reserved_peak_bytes: int
    resident_peak_bytes: int
    values_saved: int
    values_dropped: int
    dropped_bytes: int
    values_packed: int
    packed_bytes: int
    values_moved: int
    moved_bytes: int
    move_wait_seconds: float
    ops_recorded: int
    ops_replayed: int
    forward_seconds: float
    recompute_seconds: float
    planning_seconds: float
    step_seconds: float
    replayed: tuple[ReplayedOperator, ...]
    plan: Plan | None

    # Set by report_of(), and no fields: dataclasses.asdict() would copy a session, which cannot be copied.
    _session: ClassVar[Session | None] = None
    _text: ClassVar[str] = ""
    _json: ClassVar[str] = ""
    _head: ClassVar[str] = ""

    @property
    def min_budget_bytes(self) -> int | None:
        """The smallest budget for a session like this one, as predicted: that a first step can do with, which has no
        plan yet, and later ones that have none for so little. What is alive now counts, an optimizer's state or a
        result that is kept; gradients are taken to be there or not as when the last step began. What such a step drops depends on the times that it
        measures: on a busy machine it may need up to an eighth of its activations more. Computed anew when asked for:
        up to some tenths of a second. Raises Error where the report came from a pickle: sessions stay where they
        are."""
        if self._session is None:
            raise Error(
                "[report] min_budget_bytes is computed by the session, and a report from a pickle or "
                "dataclasses.replace() has none; read it from the original report, and keep the number"
            )
        return self._session.min_budget_bytes()

    @property
    def activation_peak_bytes(self) -> int:
        """Bytes of the peak above what was alive when the step began."""
        return self.peak_bytes - self.baseline_bytes

    @property
    def plain_activation_peak_bytes(self) -> int:
        """The same for plain, in bytes."""
        return self.plain_peak_bytes - self.baseline_bytes

    @property
    def head(self) -> str:
        """Of a language model that was wrapped, or trained by a Trainer: was its loss made in tiles or of whole logits,
        and why (docs/tiles.md); empty where there is no head that remat knows."""
        return self._head

    @property
    def saved_percent(self) -> float:
        """How much smaller the activation peak is than plain's, in percent of plain's; 0 where plain has none."""
        plain = self.plain_activation_peak_bytes
        return 100 * (1 - self.activation_peak_bytes / plain) if plain > 0 else 0.0

    @property
    def cost_percent(self) -> float:
        """What replays, unpacking and waiting for copies took, in percent of the step's time without them and without
        planning."""
        extra = self.recompute_seconds + self.move_wait_seconds
        rest = self.step_seconds - self.planning_seconds - extra
        return 100 * extra / rest if rest > 0 else 0.0

    def to_dict(self) -> dict[str, Any]:
        """Every figure, of the types that JSON has: for logs. Of the plan, what says how good it is
        (:meth:`Plan.to_json` has all of it)."""
        figures = {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}
        figures["activation_peak_bytes"] = self.activation_peak_bytes
        figures["plain_activation_peak_bytes"] = self.plain_activation_peak_bytes
        figures["saved_percent"] = self.saved_percent
        figures["cost_percent"] = self.cost_percent
        figures["head"] = self.head
        figures["replayed"] = [dataclasses.asdict(operator) for operator in self.replayed]
        if self.plan is not None:
            names = ("planner", "budget_bytes", "predicted_peak_bytes", "predicted_seconds")
            figures["plan"] = {name: getattr(self.plan, name) for name in names}
        return figures

    def to_html(self, path: str | os.PathLike[str], *, name: str = "") -> None:
        """Writes a page for browsers, in one file: memory over the step, plain and under its plan, what became of each
        value and what that cost, what was planned and what was measured (docs/report.md). `name` is its heading. To be
        called before the session has recorded a step of other operators: raises Error after that, and for a report from
        a pickle."""
        _write(path, self._run(name).to_html())

    def to_trace(self, path: str | os.PathLike[str]) -> None:
        """Writes the step as trace events, for ui.perfetto.dev and chrome://tracing. Raises Error as :meth:`to_html`."""
        _write(path, self._run("").to_trace())

    def plot(self) -> Picture:
        """A picture of memory over the step, plain and under its plan, which notebooks show. Raises Error as
        :meth:`to_html`."""
        return Picture(self._run("").to_svg())

    def by_layer(self) -> str:
        """A table for terminals: by layer, the bytes that plain saves for backward, and of them those that the plan keeps,
        packs, moves and recomputes, how many operators run again for them, and the time that bringing them back takes.
        Equal layers are one row with the sums of all: "layers.0-11 x 12". Raises Error where the step was not begun by
        ``session.step(layers=model)``, and as :meth:`to_html`."""
        return self._run("").to_text()

    def save(self, path: str | os.PathLike[str], *, name: str = "") -> None:
        """Writes the step for the command ``remat report``. Raises Error as :meth:`to_html`."""
        _write(path, self._run(name).to_json())

    def _run(self, name: str) -> _C.Run:
        if self._session is None:
            raise Error(
                "[report] the graph of the step is the session's, and a report from a pickle or dataclasses.replace() has "
                "no session; make pictures from the original report, and keep the files"
            )
        plan = None if self.plan is None else self.plan._plan
        graph = self._session.graph()
        operators = len(graph["operators"])
        layers = self._session.layers_of(operators) if operators == self.ops_recorded else []
        try:
            return _C.Run(name, graph.to_json(), plan, self._json, layers)
        except Error as error:
            raise Error(
                f"{error}; the session has recorded another step since step {self.step}, make pictures of a step before "
                "the next one begins"
            ) from None

    def __str__(self) -> str:
        head = f"\nhead: {self._head}" if self._head else ""
        return self._text + head if self._text else repr(self)

    def _repr_html_(self) -> str:
        """The text and, while the session has the graph of the step, the picture of :meth:`plot`: notebooks show them."""
        text = f"<pre>{html.escape(str(self))}</pre>"
        try:
            return f"{self.plot()}{text}"
        except Error:
            return text

    # Nothing in it changes, and a copy of its own would have lost the session.
    def __copy__(self) -> Report:
        return self

    def __deepcopy__(self, memo: dict[int, Any]) -> Report:
        return self

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in self.__dict__.items() if name != "_session"}


def report_of(session: Session, raw: _C.StepReport, layers: bool = False) -> Report:
    """What `raw` says, for the users of `session`; `layers`: by layer, too."""
    figures = json.loads(raw.to_json())
    plan = session.plan() if figures["completed"] and figures["planned_peak_bytes"] > 0 else None
    figures["ops_recorded"] = figures.pop("operators_recorded")
    figures["ops_replayed"] = figures.pop("operators_replayed")
    figures["replayed"] = tuple(ReplayedOperator(**operator) for operator in figures["replayed"])
    known = {field.name for field in dataclasses.fields(Report)}
    report = Report(**{name: value for name, value in figures.items() if name in known}, plan=plan)
    report.__dict__.update(_session=session, _text=str(raw), _json=raw.to_json(), _head=session._head())
    if layers:
        report.__dict__["_text"] += "\n" + report.by_layer()
    return report


def ignored_plan(raw: _C.StepReport) -> str:
    """Why the step did not follow the plan that its session was given; empty where there is nothing to say."""
    reason = json.loads(raw.to_json())["decision_reason"]
    return reason if reason.startswith("the plan given ") else ""
