"""Training steps within a byte budget."""

from __future__ import annotations

import json
import os
import warnings
import weakref
from collections.abc import Callable
from types import TracebackType

import torch
from torch import nn

from remat import _C
from remat.accounting import count_older_tensors
from remat.budget import Pool, parse_budget, parse_bytes
from remat.device import device_of, end_after_autograd
from remat.errors import Error
from remat.heads import describe_heads
from remat.layers import LayerNotes
from remat.plan import Plan
from remat.planning import Graph
from remat.progress import before_step, end_interrupted, end_waiting, note_step
from remat.ranks import connections_of
from remat.report import Report, ignored_plan, report_of


class Step:
    """One forward and backward pass (or one micro-batch) of the calling thread: ``with session.step(): ...``.

    It has begun when :meth:`Session.step` returns, and ends with the ``with`` block or :meth:`end`. Graphs made inside
    may outlive it: a later backward still brings back what it needs, outside the budget.
    """

    def __init__(self, session: Session, step: _C.Step, notes: LayerNotes | None = None) -> None:
        self._session = session
        self._step = step
        self._notes = notes

    def end(self, completed: bool = True) -> Report:
        """Ends the step and returns its report; ``completed=False`` for one that failed. A second call returns the
        session's last report."""
        self._end(completed)
        self._session._warn_if_plan_is_ignored()
        return self._session.report()

    def _end(self, completed: bool) -> None:
        if self._notes is not None:
            self._notes.close()
        self._step.end(completed)

    def has_ended(self) -> bool:
        """Whether it has: by :meth:`end`, its ``with`` block, or, of a wrapped model, by a backward that failed."""
        return self._step.has_ended()

    def was_refused(self) -> bool:
        """Whether a BudgetError has been raised for anything in this step, which has not ended."""
        return self._step.was_refused()

    def live_values(self) -> int:
        """Values saved in this step that autograd may still ask for: none once backward has freed the graph."""
        return self._step.live_values()

    def enter_forward(self, goes_on: Callable[[], bool]) -> None:
        """A forward call of the step's model begins. From the first one on, only what belongs to such calls is refused
        memory: the calls, operators whose inputs' gradients lead into them, and backward passes that do. Anything else
        passes the budget where nothing is left to evict. A backward pass of the step that fails ends the step.
        `goes_on` says, before memory is refused, whether the call is still there: an interrupt calls no hooks."""
        self._step.enter_forward(goes_on)

    def leave_forward(self) -> None:
        """The forward call ends."""
        self._step.leave_forward()

    def backward_passes(self) -> int:
        """How many backward passes through what the forward calls have made have ended without an exception. Once there
        has been a call, the step ends by itself where no values are left that another one may ask for: completed, if
        this is not 0."""
        return self._step.backward_passes()

    def hold_under(self, session: Session) -> bool:
        """A model with a session of its own is called inside of this step: a budget in bytes on the same device holds
        too, until the step ends. False where that session has one that is not kept here: a share, which is one of its
        own steps, or one of another device."""
        ours, theirs = self._session._budget, session._budget
        if theirs.is_pressure:
            return ours.is_pressure
        if (theirs.byte_count, theirs.share) == (0, 0):  # the device's limit
            return True
        if session._device != self._session._device:
            return False
        if theirs.byte_count > 0:
            self._step.hold_under(theirs.byte_count, session._name or "another session")
            return True
        return ours.share == theirs.share

    def __enter__(self) -> Step:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._end(kind is None)
        if kind is None:
            self._session._warn_if_plan_is_ignored()


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
            of its peak above the bytes alive when the step began. The first step measures that, and keeps under 40 % of
            what plain would have taken by then, wherever enough can be evicted; later ones under 40 % of what the largest
            so far takes, themselves included. "pressure": what the machine and the container have left before each step, on the
            CPU (docs/budget.md). A :class:`Pool`: bytes that several sessions share. None: the device's or container's
            limit. :meth:`set_budget` gives another.
        planner: "auto", "online" (decides when memory runs short, without plans), or another of
            :func:`remat.list_planners`. From the second step on a plan made from the first is followed, also in steps
            of other sizes, and where some operators are left out or added.
        device: "cpu", "cuda", or an accelerator that comes to PyTorch as PrivateUse1; None: CUDA where there is one.
            Accelerators were tried on simulated devices alone, of which the session warns (docs/devices.md). Other
            devices are refused.
        plan: a :class:`Plan`, or the path of one, to follow instead of the planner's in steps like the one it was made
            for.
        pack: may hold masks as bits and indices in fewer bytes, without loss, where that is cheaper than recomputing.
        disk: a directory that values may be moved to while the step computes, and how much they may take there:
            "100GiB:/scratch". Done where a plan finds that faster than to recompute them; steps without a plan move
            what would take longer to recompute. Making the session measures the disk with some 140 MiB. The file has no name: a process that is
            killed leaves nothing. Values have checksums; one that fails to come back is recomputed, with a warning.
            CPU only.
        host: bytes of pinned host memory, an int or "32GiB", that values of CUDA or an accelerator may be moved to while
            the step computes, as to a disk on the CPU. Tried on simulated devices alone.
        name: what messages call the session.
        process_group: of torch.distributed, whose processes train one model together and run the same collectives in the
            same order in their steps (DDP, FSDP2, DeepSpeed, tensor parallel). Each has a session with the same group, and
            steps begin and end on all. Where memory is refused to one, BudgetError is raised on all, with that rank's
            number, before the next collective; the model's groups can go on to be used. Where all record the same
            graph, all follow one plan, made for the least room and the slowest rank. Making the session is a collective
            call. Default: the session is for itself.
        verify: compare every recomputed value with a checksum; a difference raises InternalError. Finds operators that
            do not repeat, and writes that nothing else shows (docs/exactness.md).

    A session is used by one thread at a time; threads may each have their own. Where their steps run at once, all that
    is alive counts for each, and the smallest budget holds for all: give them one :class:`Pool`. A percentage is of
    what all threads had alive while the step ran: it is for steps that run one at a time. After a fork parent and child
    each go on by themselves, and steps in progress are the parent's. Raises Error for what it cannot do.
    """

    def __init__(
        self,
        budget: int | str | Pool | None = None,
        *,
        planner: str = "auto",
        device: str | torch.device | None = None,
        plan: Plan | str | os.PathLike[str] | None = None,
        pack: bool = True,
        verify: bool = False,
        disk: str | None = None,
        host: int | str | None = None,
        name: str = "",
        process_group: torch.distributed.ProcessGroup | None = None,
    ) -> None:
        if not isinstance(planner, str):
            raise Error(f"[session] planner is {planner!r}; use a name, as in remat.list_planners()")
        for option, flag in (("pack", pack), ("verify", verify)):
            if not isinstance(flag, bool):
                raise Error(f"[session] {option} is {flag!r}; use True or False")
        if disk is not None and not isinstance(disk, str):
            raise Error(f'[session] disk is {disk!r}; use bytes and a directory, as in "100GiB:/scratch"')
        if not isinstance(name, str):
            raise Error(f"[session] name is {name!r}; use a string")
        if plan is not None and not isinstance(plan, Plan):
            if not isinstance(plan, (str, os.PathLike)):
                raise Error(f"[session] plan is {plan!r}; give a remat.Plan, or the path of one")
            plan = Plan.load(plan)
        self._budget, self._device, self._name = parse_budget(budget), device_of(device), name
        self.asked_budget = budget  # as it was given last
        self._has_group = process_group is not None
        end_after_autograd(self._device)
        self._session = _C.Session(
            self._budget,
            self._device,
            planner,
            None if plan is None else plan._plan,
            pack,
            verify,
            name,
            disk,
            None if host is None else parse_bytes(host, "session", "host"),
            None if process_group is None else connections_of(process_group),
        )
        self._layer_notes: LayerNotes | None = None  # of the last step
        self._model: weakref.ref[nn.Module] | None = None  # whose steps they are, where that is known
        self._plan_to_watch = plan is not None  # until a step has shown that it is ignored
        count_older_tensors()

    def __reduce_ex__(self, protocol: object) -> str:
        raise TypeError(
            "[session] a session belongs to a training in progress: it cannot be copied or pickled; make another with the "
            "same options, or leave it out of what you copy"
        )

    def _head(self) -> str:
        """How the model's losses are made of its logits, and why; empty where that is not known."""
        model = None if self._model is None else self._model()
        return "" if model is None else describe_heads(model)

    def _warn_if_plan_is_ignored(self) -> None:
        if self._plan_to_watch and (reason := ignored_plan(self._session.report())):
            self._plan_to_watch = False
            number = self.report().step
            warnings.warn(
                f"[plan] {reason}: step {number} did not follow it; give one that was made for this step, or none",
                RuntimeWarning,
                stacklevel=3,
            )

    def step(self, layers: nn.Module | None = None) -> Step:
        """Begins a step on this thread. `layers`: a model whose modules the step's pictures name
        (:meth:`Report.to_html`); its modules have hooks until the step ends. In a :class:`Pool` it waits until the step
        fits beside those in progress. Raises BudgetError if the bytes alive already pass the budget, Error if a step of
        this thread or of this session is in progress."""
        end_waiting()
        if layers is None:
            return self.step_of_call(None)
        notes = LayerNotes(layers)
        try:
            step = self.step_of_call(None, notes)
        except BaseException:
            notes.close()
            raise
        return step

    def step_of_call(self, goes_on: Callable[[], bool] | None, notes: LayerNotes | None = None) -> Step:
        """Begins a step whose first forward call has begun; see Step.enter_forward(). Both at once: an interrupt in
        between would leave a step to which everything belongs."""
        end_interrupted()
        before_step(self)
        step = Step(self, self._session.step(goes_on), notes)
        if self._layer_notes is not None:
            self._layer_notes.close()  # an interrupt may have left it open
        self._layer_notes = notes
        note_step(step)
        return step

    def set_budget(self, budget: int | str | Pool | None) -> None:
        """Gives the steps from the next one on another budget, of any kind that the session takes. Between steps, from
        any thread; Error while a step is in progress. Nothing is recorded anew. Raises BudgetError where a step like the
        last one recorded is predicted not to do with it, with the smallest number that works (``needed_bytes``); the
        budget before stays in force then. Before a step was recorded, the next step finds that out. With a
        process_group it is called on all processes, between the same steps; where one is refused, all are, and all keep
        their budgets."""
        parsed = parse_budget(budget)
        end_waiting()
        self._session.set_budget(parsed)
        self._budget, self.asked_budget = parsed, budget

    @property
    def has_budget_in_bytes(self) -> bool:
        """A number, or the device's limit, which stays; in a process of its own. Not a share, a pool's, or "pressure"."""
        kind = self._budget
        return not (kind.share or kind.is_pressure or isinstance(self.asked_budget, Pool) or self._has_group)

    @property
    def last_report(self) -> _C.StepReport | None:
        """As the engine has it; None before the first step has ended."""
        try:
            return self._session.report()
        except Error:
            return None

    def report(self, layers: bool = False) -> Report:
        """The report of the last step that ended. `layers`: its text has besides what became of each layer's saved
        values, as :meth:`Report.by_layer`, whose errors it raises. Raises Error before the first step."""
        return report_of(self, self._session.report(), layers)

    def plan(self) -> Plan:
        """The plan of the last completed step that followed one to its end. Raises Error if there was none."""
        return Plan(self._session.plan())

    def save_plan(self, path: str | os.PathLike[str]) -> None:
        """Writes :meth:`plan` to a file, for ``Session(plan=...)``. What was there before stays if that fails."""
        self._session.save_plan(os.fspath(path))

    def graph(self) -> Graph:
        """The operators, values and memory of the last step that was written down (docs/formats.md), to plan from with
        :func:`remat.make_plan`. Raises Error before the first."""
        return Graph(json.loads(self._session.graph_json()))

    def layers_of(self, operators: int) -> list[str]:
        """The layer of each of the last step's operators, which are so many; empty where :meth:`step` was given none."""
        return [] if self._layer_notes is None else self._layer_notes.paths(operators)

    def min_budget_bytes(self) -> int | None:
        """See :attr:`Report.min_budget_bytes`."""
        return self._session.min_budget_bytes()

    @property
    def budget_bytes(self) -> int | None:
        """The budget that the next step will have; None while a percent budget waits for its first step."""
        return self._session.budget_bytes()


def list_planners() -> dict[str, str]:
    """The planners by name, and what each does in a line."""
    return dict(_C.list_planners())
