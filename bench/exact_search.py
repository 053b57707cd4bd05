"""The fastest plan of a small graph: every plan, in the order in which a step comes to the decisions."""

import math

from step_model import EACH_TIME, GONE, KEEP, PACK, HeldAfter, Step, Undecided


class SearchTooLong(Exception):
    """More nodes than allowed."""


class ExactSearch:
    """The step is run until the action of a value matters; then each choice goes on from a copy of the step there. A
    branch ends where it passes the budget or cannot become faster than the best."""

    def __init__(self, graph, budget, seconds=math.inf, most_nodes=10**7):
        self.graph, self.budget, self.most_nodes = graph, budget, most_nodes
        self.seconds, self.actions, self.nodes = seconds, None, 0
        # What would be left of the budget after each event if all that is put away took nothing.
        levels, _ = graph.plain_levels()
        self.left = [budget - level - event[2] for level, event in zip(levels, graph.events)]
        for v in graph.droppable:
            for e in away(graph, v):
                self.left[e] += graph.bytes[v]

    def run(self):
        """The fewest seconds within the budget, less than `seconds` of the constructor, and actions that take them; actions
        are None where there are none."""
        self._go_on(Step(self.graph, [None] * len(self.graph.values)), 0)
        return self.seconds, self.actions

    def _go_on(self, step, e):
        self.nodes += 1
        if self.nodes > self.most_nodes:
            raise SearchTooLong(f"[oracle] {self.most_nodes} nodes were not enough")
        while e < len(self.graph.events):
            before = step.copy()
            try:
                step.event(e)
            except Undecided as open_:
                return self._branch(before, e, open_)
            if step.peak > self.budget or step.seconds + self._to_come(step) >= self.seconds - 1e-12:
                return None
            e += 1
        self.seconds = step.seconds
        self.actions = [decided(action) for action in step.actions]
        return None

    def _branch(self, step, e, open_):
        for choice in open_.choices:
            next_ = step.copy()
            next_.actions[open_.value] = choice
            taken = {KEEP: self.graph.bytes[open_.value], PACK: self.graph.packed_bytes[open_.value]}.get(choice, 0)
            events = away(self.graph, open_.value) if taken else ()
            for event in events:
                self.left[event] -= taken
            if all(self.left[event] >= 0 for event in events):
                self._go_on(next_, e)
            for event in events:
                self.left[event] += taken

    def _to_come(self, step):
        """Seconds that any choice from here on takes at least: what is gone and will be asked for is replayed, and what
        that reads and is gone as well."""
        wanted = [v for v in self.graph.droppable if step.states[v] == GONE and step.uses[v] > 0]
        # Its first operator may run before: what is gone now stays gone until one of these replays makes it.
        seen = set()
        while wanted:
            producer = self.graph.producer[wanted.pop()]
            if producer < 0 or producer in seen:
                continue
            seen.add(producer)
            wanted.extend(i for i in self.graph.operators[producer]["inputs"] if step.states[i] == GONE)
        return sum(self.graph.operators[o]["replay_seconds"] for o in seen)


def decided(action):
    """Of what never mattered nothing was said."""
    return KEEP if action is None else EACH_TIME if isinstance(action, HeldAfter) else action


def away(graph, v):
    """The events at which `v` takes nothing if it is dropped and comes back as late as it may."""
    if graph.idle[v] is None:
        return range(0)
    ends = [e for e in (graph.freed[v], *graph.uses[v][:1]) if e is not None]
    return range(graph.idle[v], min(ends, default=len(graph.events)))
