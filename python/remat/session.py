"""Training steps within a byte budget."""

from __future__ import annotations

import dataclasses
import json
import os
from types import TracebackType
from typing import Any

import torch

from remat import _C
from remat.compiled import see_compiled_regions
from remat.errors import Error


class Plan:
    """What a step does with each saved value: keep, drop or pack it. Made by a session, kept in a file of JSON."""

    def __init__(self, plan: _C.Plan) -> None:
        self._plan = plan

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Plan:
        """Reads what :meth:`save` or :meth:`Session.save_plan` wrote. Raises Error if it is not a plan, OSError if it
        cannot be read."""
        with open(os.fspath(path), "rb") as file:
            text = file.read()
        try:
            return cls.from_json(text.decode("utf-8"))
        except UnicodeDecodeError as error:
            raise Error(f"[plan] '{path}' is no text ({error}); give a file that Session.save_plan wrote") from None

    @classmethod
    def from_json(cls, text: str) -> Plan:
        """Reads a plan from JSON text. Raises Error if it is none."""
        return cls(_C.Plan.from_json(text))

    def to_json(self) -> str:
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
        return self._plan.budget_bytes

    @property
    def predicted_peak_bytes(self) -> int:
        """Everything counted, parameters included."""
        return self._plan.predicted_peak_bytes

    @property
    def predicted_seconds(self) -> float:
        """Of replays, packing and unpacking, in one step."""
        return self._plan.predicted_seconds

    def __repr__(self) -> str:
        return (
            f"remat.Plan(planner={self.planner!r}, budget_bytes={self.budget_bytes}, "
            f"predicted_peak_bytes={self.predicted_peak_bytes}, predicted_seconds={self.predicted_seconds:.4f})"
        )


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
    _session: Session = dataclasses.field(repr=False, compare=False)
    _text: str = dataclasses.field(repr=False, compare=False)

    @property
    def min_budget_bytes(self) -> int | None:
        """The smallest budget for a session like this one, as predicted: for the first step, which has no plan yet, and
        for the plan that later ones follow. What a first step drops depends on the times that it measures: it may need
        a few percent of its activations more. Planned anew when asked for: up to some tenths of a second."""
        return self._session.min_budget_bytes()

    @property
    def activation_peak_bytes(self) -> int:
        """The peak above what was alive when the step began."""
        return self.peak_bytes - self.baseline_bytes

    @property
    def plain_activation_peak_bytes(self) -> int:
        return self.plain_peak_bytes - self.baseline_bytes

    def __str__(self) -> str:
        return self._text


def _report(session: Session, raw: _C.StepReport) -> Report:
    figures = json.loads(raw.to_json())
    plan = session.plan() if figures["completed"] and figures["planned_peak_bytes"] > 0 else None
    figures["ops_recorded"] = figures.pop("operators_recorded")
    figures["ops_replayed"] = figures.pop("operators_replayed")
    figures["replayed"] = tuple(ReplayedOperator(**operator) for operator in figures["replayed"])
    known = {field.name for field in dataclasses.fields(Report)}
    figures = {name: value for name, value in figures.items() if name in known}
    return Report(**figures, plan=plan, _session=session, _text=str(raw))


class Step:
    """One forward and backward pass (or one micro-batch) of the calling thread: ``with session.step(): ...``.

    It has begun when :meth:`Session.step` returns, and ends with the ``with`` block or :meth:`end`. Graphs made inside
    may outlive it: a later backward still brings back what it needs, outside the budget.
    """

    def __init__(self, session: Session, step: _C.Step) -> None:
        self._session = session
        self._step = step

    def end(self, completed: bool = True) -> Report:
        """Ends the step and returns its report; ``completed=False`` for one that failed. A second call returns the
        session's last report."""
        self._step.end(completed)
        return self._session.report()

    def live_values(self) -> int:
        """Values saved in this step that autograd may still ask for: none once backward has freed the graph."""
        return self._step.live_values()

    def __enter__(self) -> Step:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._step.end(kind is None)


class Session:
    """Keeps the steps of a training loop under a budget::

        session = remat.Session(budget="6GiB")
        for x, y in batches:
            with session.step():
                loss = loss_of(model(x), y)
                loss.backward()
            optimizer.step()

    Args:
        budget: the most tensor bytes alive on the device at any moment of a step, parameters, gradients and optimizer
            state included: an int, or "6GiB", "1500MB". "40%" means 40 % of the plain step's activation peak, that is,
            of its peak above the bytes alive when the step began; the first step measures it and keeps everything that
            the device allows. None: the device's or container's limit.
        planner: "auto", "online" (decides when memory runs short, without plans), or another of
            :func:`remat.list_planners`. From the second step on a plan made from the first is followed.
        device: "cpu" or "cuda"; None: CUDA where there is one.
        plan: a :class:`Plan`, or the path of one, to follow instead of the planner's in steps like the one it was made
            for.
        pack: may hold masks as bits and indices in fewer bytes, without loss, where that is cheaper than recomputing.
        verify: compare every recomputed value with a checksum; a difference raises InternalError. For debugging.

    A session is used by one thread at a time; threads may each have their own. Raises Error for what it cannot do.
    """

    def __init__(
        self,
        budget: int | str | None = None,
        *,
        planner: str = "auto",
        device: str | torch.device | None = None,
        plan: Plan | str | os.PathLike[str] | None = None,
        pack: bool = True,
        verify: bool = False,
    ) -> None:
        if plan is not None and not isinstance(plan, Plan):
            plan = Plan.load(plan)
        self._session = _C.Session(
            _budget(budget), device_of(device), planner, None if plan is None else plan._plan, pack, verify
        )

    def step(self) -> Step:
        """Begins a step on this thread. Raises BudgetError if the bytes alive already pass the budget, Error if a step
        of this thread or of this session is in progress."""
        see_compiled_regions()
        return Step(self, self._session.step())

    def report(self) -> Report:
        """The report of the last step that ended. Raises Error before the first."""
        return _report(self, self._session.report())

    def plan(self) -> Plan:
        """The plan of the last completed step that followed one to its end. Raises Error if there was none."""
        return Plan(self._session.plan())

    def save_plan(self, path: str | os.PathLike[str]) -> None:
        """Writes :meth:`plan` to a file, for ``Session(plan=...)``. What was there before stays if that fails."""
        self._session.save_plan(os.fspath(path))

    def graph(self) -> dict[str, Any]:
        """The operators, values and memory of the last step that was written down (docs/formats.md). Raises Error
        before the first."""
        return json.loads(self._session.graph_json())

    def min_budget_bytes(self) -> int | None:
        """See :attr:`Report.min_budget_bytes`."""
        return self._session.min_budget_bytes()

    @property
    def budget_bytes(self) -> int | None:
        """The budget that the next step will have; None while a percent budget waits for its first step."""
        return self._session.budget_bytes()


def _budget(budget: int | str | None) -> _C.Budget:
    if budget is None:
        return _C.Budget()
    if isinstance(budget, str):
        return _C.Budget.parse(budget)
    if isinstance(budget, bool) or not hasattr(budget, "__index__"):
        raise Error(f'[session] a budget of {budget!r} has no meaning; use bytes (an int), "6GiB", "40%" or None')
    count = budget.__index__()
    if not 0 < count < 2**63:
        raise Error(f"[session] a budget of {count} bytes has no meaning; use a positive number below 2**63")
    return _C.Budget.bytes(count)


def device_of(device: str | torch.device | None) -> torch.device:
    """What the caller means by `device`: None is CUDA where there is one."""
    if device is None:
        device = "cuda" if torch.cuda.is_available() else "cpu"
    try:
        device = torch.device(device)
    except (RuntimeError, TypeError) as error:
        raise Error(f"[device] {device!r} is no device ({error}); use 'cpu' or 'cuda'") from None
    if device.type == "cuda" and device.index is None and torch.cuda.is_available():
        device = torch.device("cuda", torch.cuda.current_device())
    return device


def list_planners() -> dict[str, str]:
    """The planners by name, and what each does in a line."""
    return dict(_C.list_planners())
