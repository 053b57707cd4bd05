"""Which of its cuts each compiled graph runs with: of those with the same bits the fastest, and under a budget those with
which the whole step is predicted to be fastest, with what is then left to recompute kernel by kernel."""

from __future__ import annotations

import bisect
import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from typing import TYPE_CHECKING

from remat import _C, memory
from remat.errors import Error
from remat.planning import plan_curve

if TYPE_CHECKING:
    from remat.session import Session

_ALIKE = 1.02  # of times that differ by less, the cut that saves less is taken
_POINTS = 16  # of the curve between the budget and the plain step


@dataclass(frozen=True)
class Option:
    """A cut that a graph may run with.

    Args:
        share: its activation_memory_budget.
        seconds: of forward and backward of all the graph's calls in a step.
        saved_bytes: between them, by all calls that wait for backward at once.
        rebuilt_bytes: what backward of one call makes that the graph's first cut saves.
    """

    share: float
    seconds: float
    saved_bytes: int
    rebuilt_bytes: int

    def __str__(self) -> str:
        return f"{self.share} ({1e3 * self.seconds:.3g} ms, {self.saved_bytes / 2**20:.3g} MiB saved for backward)"


@dataclass
class RecordedStep:
    """A step in which each graph ran with the first of its options; bytes above what is alive when it begins.

    Args:
        budget: what the next step may take.
        plain_peak: what the step took, or would have taken with nothing dropped.
        least_peak: the lowest peak of any plan for it.
        curve: peaks of plans for it, from the least on, and the seconds that the step takes by each.
    """

    budget: int
    plain_peak: int
    least_peak: int
    curve: list[tuple[int, float]]

    def recompute_seconds(self, peak: int) -> float:
        """What recomputing takes from `peak` down to the budget."""
        return max(0.0, self._seconds(self.budget) - self._seconds(peak))

    def _seconds(self, peak: int) -> float:
        above = bisect.bisect(self.curve, peak, key=lambda point: point[0])
        if above in (0, len(self.curve)):
            return self.curve[min(above, len(self.curve) - 1)][1]
        (low, slow), (high, fast) = self.curve[above - 1 : above + 1]
        return slow + (fast - slow) * (peak - low) / (high - low)


def last_step(session: Session) -> RecordedStep | None:
    """The last that the session has recorded, and what its next one may take; None where there is no limit to that, or no
    step yet."""
    limit = session.budget_bytes
    try:
        graph = session._session.graph_json()
    except Error:
        return None
    if limit is None:
        return None
    baseline, plain = int(json.loads(graph)["baseline_bytes"]), _C.plain_peak_bytes(graph)
    budget = max(1, limit - memory.current(session._device))
    if baseline + budget >= plain:
        return None
    step = (plain - baseline - budget) / _POINTS
    plans = plan_curve(graph, [baseline + budget + round(point * step) for point in range(_POINTS + 1)])
    curve = {plan.predicted_peak_bytes - baseline: plan.predicted_seconds for plan in plans}
    return RecordedStep(budget, plain - baseline, min(curve), sorted(curve.items()))


def choose(graphs: Sequence[Sequence[Option]], step: RecordedStep | None) -> list[Option]:
    """An option for each graph, of which the first has the bits of all. `step`: None where there is no budget to keep.

    Lagrangian: each price of a saved byte gives an option for every graph; of these choices that with the least predicted
    time is taken, and changed for one graph after the other as long as that helps. What is above the budget is
    recomputed, for which the recorded step stands. Cuts whose backward makes more than the budget is above the lowest peak
    are left out, lest it has no room."""
    room = None if step is None else max(0, step.budget - step.least_peak)
    fitting = [_alike([each for each in options if room is None or each.rebuilt_bytes <= room]) for options in graphs]

    def cost(choice: Sequence[Option]) -> tuple[float, int]:
        seconds, saved = sum(each.seconds for each in choice), sum(each.saved_bytes for each in choice)
        if step is not None:
            rest = step.plain_peak - sum(options[0].saved_bytes for options in graphs)
            seconds += step.recompute_seconds(rest + saved + max(each.rebuilt_bytes for each in choice))
        return seconds, saved

    best = min((_cheapest(fitting, price) for price in _prices(fitting)), key=cost)
    while True:
        others = [[*best[:i], each, *best[i + 1 :]] for i, options in enumerate(fitting) for each in options]
        better = min(others, key=cost, default=best)
        if cost(better) >= cost(best):
            return best
        best = better


def _alike(options: Sequence[Option]) -> list[Option]:
    """With equal times where they differ by less than can be told."""
    least = _ALIKE * min(each.seconds for each in options)
    return [replace(each, seconds=max(each.seconds, least)) for each in options]


def _cheapest(graphs: Sequence[Sequence[Option]], price: float) -> list[Option]:
    """Of each graph's options the one that takes the least time, at `price` seconds a saved byte."""
    return [min(options, key=lambda each: (each.seconds + price * each.saved_bytes, each.saved_bytes)) for options in graphs]


def _prices(graphs: Sequence[Sequence[Option]]) -> list[float]:
    """Those at which some graph's cheapest option changes, or a little above."""
    prices = {0.0}
    for options in graphs:
        for one, other in combinations(options, 2):
            slower, faster = (one, other) if one.seconds > other.seconds else (other, one)
            if slower.saved_bytes < faster.saved_bytes:
                prices.add(1.000001 * (slower.seconds - faster.seconds) / (faster.saved_bytes - slower.saved_bytes))
    return sorted(prices)
