"""Plans without training: from a recorded step, for any budget, by any planner. Pure functions, for any thread."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping
from typing import Any

from remat import _C, json_text
from remat.budget import parse_budget
from remat.errors import Error
from remat.plan import Plan


class Graph(dict[str, Any]):
    """A step as it was recorded: a dictionary with the fields of docs/formats.md (`operators`, `values`, `events`,
    `baseline_bytes` ...). :meth:`Session.graph` makes it."""

    @classmethod
    def from_json(cls, text: str) -> Graph:
        """Reads a graph from JSON text. Raises Error if it is none."""
        json_text.check(text, "graph", "Graph.to_json()")
        _C.check_graph(text)
        return cls(json.loads(text))

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Graph:
        """Reads what :meth:`save` or the command `remat record` wrote. Raises Error if it is no graph, OSError if it
        cannot be read."""
        return cls.from_json(json_text.read(path, "graph", "Graph.save()"))

    def to_json(self) -> str:
        """The graph as JSON text."""
        return json.dumps(self)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes the graph to a file."""
        with open(path, "w", encoding="utf-8") as file:
            file.write(self.to_json())


def _json_of(graph: Graph | Mapping[str, Any] | str) -> str:
    if isinstance(graph, str):
        return graph
    if isinstance(graph, Mapping):
        return json.dumps(dict(graph))
    raise Error(f"[plan] a {type(graph).__name__} is no graph; give what Session.graph() returned, or its JSON")


def _bytes_of(budget: int | str, graph: str) -> int:
    parsed = parse_budget(budget, "plan")
    if parsed.byte_count:
        return parsed.byte_count
    if parsed.is_pressure:
        raise Error('[plan] the budget "pressure" is known as a step begins alone; name bytes or a share')
    if not parsed.share:
        raise Error("[plan] the budget is the device's limit, which is not the plan's to know; name bytes or a share")
    plain = _C.plain_peak_bytes(graph)
    baseline = int(json.loads(graph)["baseline_bytes"])
    return baseline + int((plain - baseline) * parsed.share / 100)


def make_plan(
    graph: Graph | Mapping[str, Any] | str,
    budget: int | str,
    planner: str = "auto",
    *,
    refine: bool = False,
    pack: bool = True,
) -> Plan:
    """A plan for steps like the recorded one, for ``Session(plan=...)``.

    Args:
        graph: what :meth:`Session.graph` returned, or its JSON.
        budget: bytes, parameters and all else included, or text as for :class:`Session`; a share is of the graph's
            activation peak.
        planner: one of :func:`list_planners`.
        refine: "auto" searches on around this budget, for some tenths of a second.
        pack: plans may hold values packed.

    Raises BudgetError where no plan of this planner fits, with the smallest budget that one fits; Error for what is no
    graph, budget or planner.
    """
    text = _json_of(graph)
    return Plan(_C.make_plan(text, _bytes_of(budget, text), planner, refine, pack))


def plan_curve(graph: Graph | Mapping[str, Any] | str, budgets: Iterable[int | str]) -> list[Plan]:
    """Plans by "auto" for several budgets from one search: in their order one for each that a plan fits, and at the end
    the plan with the lowest peak. A larger budget's plan is never slower. Raises Error as :func:`make_plan` does."""
    if isinstance(budgets, str) or not isinstance(budgets, Iterable):
        raise Error(f"[plan] budgets is {budgets!r}; give several, as in ['40%', '30%']")
    text = _json_of(graph)
    return [Plan(plan) for plan in _C.plan_curve(text, [_bytes_of(budget, text) for budget in budgets])]
