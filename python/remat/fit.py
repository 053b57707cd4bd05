"""The largest batch, length or depth that fits a budget, and whether it is worth its time; the smallest budget that fits
a training. Steps run on the thread that asks."""

from __future__ import annotations

import dataclasses
import gc
import json
import time
from collections.abc import Callable, Iterable
from typing import Any

import torch

from remat import _C, memory
from remat.budget import parse_budget
from remat.device import HOST, META, device_of, synchronize
from remat.errors import BudgetError, Error
from remat.plan import Plan
from remat.session import Session

Step = Callable[[], object]
Trial = tuple[bool, int, list[float], "str | None"]


@dataclasses.dataclass(frozen=True)
class FitPoint:
    """What steps of one size take.

    Attributes:
        size: of the batch, or what else was asked for.
        peak_bytes: the most alive in a step, everything counted.
        seconds: of a step: the least of all that were timed.
        measured: False where nothing but a prediction was asked for.
        usual_seconds: the least in a usual round of steps: far more than `seconds` where the machine does other things
            beside.
        least_loss_percent, most_loss_percent: how much less of the size than plain's largest is handled in a second, as
            far as times vary: at least and at most; negative where more. Of larger sizes than plain's that were measured;
            otherwise 0.
    """

    size: int
    peak_bytes: int
    seconds: float
    measured: bool
    usual_seconds: float = 0.0
    least_loss_percent: float = 0.0
    most_loss_percent: float = 0.0

    @property
    def per_second(self) -> float:
        """Of the size, handled in a second."""
        return self.size / self.seconds if self.seconds > 0 else 0.0


@dataclasses.dataclass(frozen=True)
class FitSplit:
    """How to train with an effective size: `steps` steps of `step.size`, whose gradients add up.

    Attributes:
        step: one of them.
        steps: how many.
        plain: they fit without remat.
        plan: for ``Session(plan=...)``; None where `plain`, and where none is made ahead.
        clear: False where times vary too much to tell that no other measured split is faster.
    """

    step: FitPoint
    steps: int
    plain: bool
    plan: Plan | None
    clear: bool = True

    @property
    def seconds(self) -> float:
        """Of all of them."""
        return self.steps * self.step.seconds


@dataclasses.dataclass(frozen=True)
class Fit:
    """What :func:`fit` found; ``str()`` is a table and a verdict.

    Attributes:
        what: what the sizes are of.
        budget_bytes: the budget.
        most_loss_percent: what a larger size may cost to be worth it.
        plain: the largest that fits without remat; None where none does.
        largest: the largest that fits with it.
        worthwhile: the largest that surely handles at most most_loss_percent less in a second than `plain`; None without
            `plain`.
        verdict: on sizes larger than plain's: "worth it" (`largest` is), "worth it up to a size" (`worthwhile` is, larger
            ones are not), "not worth it" (none is), "cannot tell" (times vary too much); None where there is nothing to
            compare.
        split: the fastest way to the effective size; None where none was asked for, or no division of it fits.
        predicted_plain, predicted_largest: what the small steps said before anything was measured; 0: none fits.
        smallest_budget_bytes: for the smallest size, as predicted.
        same_operators: steps of all sizes ran the same operators, so that whole graphs were predicted.
        runs: (size, "record" or "plain" or "remat", whether it fitted) in their order.
    """

    what: str
    budget_bytes: int
    most_loss_percent: float
    plain: FitPoint | None
    largest: FitPoint
    worthwhile: FitPoint | None
    verdict: str | None
    split: FitSplit | None
    predicted_plain: int
    predicted_largest: int
    smallest_budget_bytes: int
    same_operators: bool
    runs: tuple[tuple[int, str, bool], ...]
    _text: str = dataclasses.field(default="", repr=False, compare=False)
    _json: str = dataclasses.field(default="", repr=False, compare=False)

    def times_plain(self, point: FitPoint) -> float:
        """How many times plain's largest size `point` is; 0 where plain fits at none."""
        return point.size / self.plain.size if self.plain else 0.0

    def loss_percent(self, point: FitPoint) -> float:
        """How much less `point` handles in a second than plain at its largest, in percent; negative where more."""
        usual = self.plain.per_second if self.plain else 0.0
        return 100 * (1 - point.per_second / usual) if usual > 0 else 0.0

    def to_json(self) -> str:
        """Every figure, as the command `remat fit --json` writes them."""
        return self._json

    def __str__(self) -> str:
        return self._text


def fit_sizes(least: int, most: int, step: int = 1) -> list[int]:
    """Multiples of `step` from `least` to `most`: every one up to 16 times `step`, then 8 in each doubling, so that two
    neighbours differ by no more than an eighth."""
    if not 1 <= least <= most < 2**62 or step < 1:
        raise Error(f"[fit] there are no sizes from {least} to {most} by {step}; give 1 <= least <= most and step >= 1")
    return _C.fit_sizes(least, most, step)


def fit(
    make_step: Callable[[int], Step],
    sizes: Iterable[int],
    budget: int | str | None = None,
    *,
    what: str = "batch",
    effective: int | None = None,
    most_loss_percent: float = 15.0,
    steps: int = 2,
    predict: bool = False,
    device: str | torch.device | None = None,
    disk: str | None = None,
    host: int | str | None = None,
) -> Fit:
    """Finds the largest size that fits a budget, without remat and with it::

        def make_step(batch):
            x, y = data[:batch], labels[:batch]

            def step():
                optimizer.zero_grad()
                loss_of(model(x), y).backward()

            return step

        found = remat.fit(make_step, range(1, 513), budget="6GiB")
        print(found)                     # plain's largest, remat's largest, their times, and whether it is worth it
        batch = found.largest.size

    Steps of three small sizes are recorded; their graphs tell what any size takes. The answer is then measured, and
    lowered until it holds: no size is announced that did not run. Plain's largest and larger ones are timed in turn, in
    several rounds: whether these are worth it is said where the least times tell, as far as they vary. Every run keeps to the budget, these first ones too,
    so that nothing is found by running out of memory. (accelerate's ``find_executable_batch_size`` runs until it
    crashes, and again with less.)

    Args:
        make_step: makes a callable for a size: one forward and backward pass, as often as it is called, with data that
            were made before. It is called anew for each run, and its step a few times. What these do to the model stays
            done: leave ``optimizer.step()`` out, or give a model that may learn. Along depth or width it makes the model
            too.
        sizes: those to choose from, such as ``range(1, 513)`` or :func:`fit_sizes`; ascending.
        budget: bytes that everything alive must fit in, parameters and optimizer state included: an int or "6GiB". None:
            the device's or container's limit. A percentage has no meaning, for it would be of each size's own peak.
        what: what messages call the size.
        effective: the size that is wanted of several steps together, whose gradients add up: the fastest division of
            it is in ``split``.
        most_loss_percent: a larger size is worth its time where a step handles at most this much less of it in a second
            than plain at its largest.
        steps: of each measured size under remat until times count, at least 2: the first has no plan. More follow where
            they are short.
        predict: measure nothing but the small steps. Then nothing vouches for the answer.
        device: where the model is trained, as of :class:`Session`; None: the CPU. On an accelerator a step's time is that
            until its kernels have ended.
        disk, host: where values may move to, as of :class:`Session`. What that buys is the difference to a call without.

    Raises BudgetError where not even the smallest size fits, Error for arguments that make no sense. What `make_step`
    and its steps raise is handed on.
    """
    on = device_of(HOST if device is None else device)
    if on.type == META:
        raise Error(f"[fit] steps on {on} take no time and no memory; use the device that the model is to be trained on")
    runner = _Runner(make_step, _bytes_of(budget, on), steps, {"device": on, "disk": disk, "host": host})
    chosen = list(sizes)
    for size in chosen if effective is None else [*chosen, effective]:
        if isinstance(size, bool) or not hasattr(size, "__index__"):
            raise Error(f"[fit] a size of {size!r} has no meaning; give whole numbers")
    if not isinstance(what, str):
        raise Error(f"[fit] what is {what!r}; use a word for what the sizes are of, as in 'batch'")
    if effective is not None and effective < 1:
        raise Error(f"[fit] an effective {what} of {effective} has no meaning; give 1 or more, or None")
    text, table = _C.fit(
        [size.__index__() for size in chosen],
        runner.budget_bytes,
        float(most_loss_percent),
        effective or 0,
        bool(predict),
        what,
        runner.run,
    )
    return _fit_of(text, table)


def fit_budget(train: Callable[[int | str], int]) -> int:
    """The smallest budget, in bytes, that a training stays within::

        def train(budget):
            model, optimizer = make_training()
            session, peak = remat.Session(budget), 0
            for x, y in batches[:3]:
                with session.step():
                    loss_of(model(x), y).backward()
                optimizer.step()
                optimizer.zero_grad()
                peak = max(peak, session.report().peak_bytes)
            return peak

        smallest = remat.fit_budget(train)

    It is found by trying: first ``"1%"``, of which a first step takes what it needs and no more; then what each
    BudgetError names, until one suffices; then less, until what is refused is a 32nd below what works. To that a 16th is
    added, since times, and with them plans, differ from run to run. That takes about six calls, more where steps differ,
    and as much memory as the answer.

    Args:
        train: runs the first steps of a training within a budget, ``"1%"`` or a number of bytes, and returns the most
            bytes alive at once, over all steps. A model, an optimizer and a session are made anew each time, and two
            steps or more are taken: an optimizer's state comes to stay in the first.

    Raises the last BudgetError where the device has less than the steps need, or nothing has sufficed in 24 calls. What
    `train` raises otherwise is handed on.
    """
    if not callable(train):
        raise Error(f"[fit] train is {train!r}; give a function of a budget that runs steps and returns their peak")

    def run(budget_bytes: int | None) -> int | tuple[str, int, int, int]:
        gc.collect()  # what an earlier call left in cycles would count
        budget = "1%" if budget_bytes is None else budget_bytes
        try:
            peak = train(budget)
        except BudgetError as error:
            if error.budget_bytes is None or error.needed_bytes is None:
                raise
            return str(error), error.budget_bytes, error.lower_bound_bytes or 0, error.needed_bytes
        if isinstance(peak, bool) or not hasattr(peak, "__index__") or not 0 < peak.__index__() < 2**63:
            raise Error(f"[fit] train({budget!r}) returned {peak!r}; return the most bytes alive in its steps, an int")
        return peak.__index__()

    return _C.fit_budget(run)


def _bytes_of(budget: int | str | None, device: torch.device) -> int:
    parsed = parse_budget(budget, "fit")
    if parsed.share:
        raise Error(
            f"[fit] a budget of {budget!r} would be of each size's own peak, which grows with it; give bytes, as in '6GiB'"
        )
    if parsed.is_pressure:
        raise Error("[fit] the budget \"pressure\" is another in each step; give bytes, as in '6GiB'")
    return parsed.byte_count or memory.limit(device)


def _fit_of(text: str, table: str) -> Fit:
    figures = json.loads(text)
    split = figures["split"]
    if split is not None:
        split.pop("seconds")
        split["step"] = FitPoint(**split["step"])
        split["plan"] = None if split["plan"] is None else Plan.from_json(json.dumps(split["plan"]))
        split = FitSplit(**split)

    def point(name: str) -> Any:
        return None if figures[name] is None else FitPoint(**figures[name])

    runs = tuple((run["size"], run["mode"], run["fits"]) for run in figures["runs"])
    points = {name: point(name) for name in ("plain", "largest", "worthwhile")}
    return Fit(**{**figures, **points, "split": split, "runs": runs}, _text=table, _json=text)


def _time_round(run_step: Callable[[], float]) -> list[float]:
    """One step at least; five where these take no more than half a second together, and up to 64 where they take no more
    than a 20th. The first of several short ones warms up and is left out. (time_round() in src/plan/rounds.h)"""
    seconds: list[float] = []
    while not seconds or (len(seconds) < 5 and sum(seconds) < 0.5) or (len(seconds) < 64 and sum(seconds) < 0.05):
        seconds.append(run_step())
    return seconds[1:] if len(seconds) > 2 else seconds


class _Runner:
    """Runs steps as the search asks for them."""

    def __init__(
        self, make_step: Callable[[int], Step], budget_bytes: int, steps: int, options: dict[str, Any]
    ) -> None:  # `options` of sessions
        if not callable(make_step):
            raise Error(f"[fit] make_step is {make_step!r}; give a function of a size that returns a step to call")
        if isinstance(steps, bool) or not isinstance(steps, int) or steps < 2:
            raise Error(f"[fit] steps is {steps!r}; use 2 or more: the first has no plan")
        self.budget_bytes = budget_bytes
        self._make_step, self._steps, self._options = make_step, steps, options
        self._device: torch.device = options["device"]
        self._runs = 0
        self._begins_anew = True
        memory.start_accounting(self._device)

    def run(self, size: int, mode: str) -> Trial:
        """Whether the steps fitted, their peak (or what the refusal says is needed), the seconds of those that are timed,
        and the graph."""
        gc.collect()  # what an earlier size left in cycles would count
        step = self._make_step(size)
        if not callable(step):
            raise Error(f"[fit] make_step({size}) returned {step!r}; return a function that runs one step")
        if mode == "remat":  # its peak is the largest of several steps
            return self._run_within(step, self._steps - 1, timed=True)
        if self._begins_anew:
            first = self._first_step(step)
            if not first[0]:
                return first
        return self._run_plain(step) if mode == "plain" else self._run_within(step, 1)

    def _first_step(self, step: Step) -> Trial:
        """Makes gradients, an optimizer's state, and whatever else the first step leaves behind. Where `make_step` makes
        model and optimizer, every size has such a first step; else the first two tell that there are no more."""
        before = memory.current(self._device)
        result = self._run_within(step, 1)
        self._runs += 1
        self._begins_anew = self._runs < 2 or memory.current(self._device) > before
        return result

    def _run_plain(self, step: Step) -> Trial:
        memory.reset_peak(self._device)

        def run_step() -> float:
            begin = time.perf_counter()
            step()
            synchronize(self._device)
            return time.perf_counter() - begin

        seconds = _time_round(run_step)
        return True, memory.peak(self._device), seconds, None

    def _run_within(self, step: Step, count: int, timed: bool = False) -> Trial:
        session = Session(self.budget_bytes, name="remat.fit", **self._options)
        peak = 0

        def run_step() -> float:
            nonlocal peak
            with session.step():
                step()
            report = session.report()
            peak = max(peak, report.peak_bytes)
            begin = time.perf_counter()
            synchronize(self._device)
            return report.step_seconds - report.planning_seconds + time.perf_counter() - begin

        try:
            for _ in range(count):
                run_step()
            seconds = _time_round(run_step) if timed else []
        except BudgetError as error:
            return False, error.needed_bytes or 0, [], None
        return True, peak, seconds, session._session.graph_json()
