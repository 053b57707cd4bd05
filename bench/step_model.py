"""A recorded step (docs/formats.md) and what a plan makes of it, in Python: for the oracle (oracle.py), not for users.

`simulate` follows src/plan/simulate.cpp but is written on its own, and tests/bench compares the two. Actions are a list
with one of KEEP, PACK and a number for each value: the time from which on it is held where it is recomputed.
"""

import json
from dataclasses import dataclass

KEEP, PACK = "keep", "pack"
EACH_TIME = float("inf")
PACK_SECONDS, UNPACK_SECONDS = 0.08e-9, 0.05e-9  # per byte of the original, as in src/plan/form_costs.h
GONE, PRESENT, PACKED, TRANSIENT = "gone", "present", "packed", "transient"


class Graph:
    """The fields of a graph file by their names, and for each value when it is put away, used and freed."""

    def __init__(self, document):
        self.document = document
        self.baseline_bytes, self.step_seconds = document["baseline_bytes"], document["step_seconds"]
        self.values, self.operators = document["values"], document["operators"]
        self.plain_rises = [event[2] for event in document["events"]]
        # Of a rise, a step under remat does not take what is reused.
        self.events = [
            (kind, index, rise - sum(reused), delta) for kind, index, rise, delta, *reused in document["events"]
        ]
        count = len(self.values)
        if any(value["dropped"] for value in self.values):
            raise ValueError(
                "[oracle] the graph has values that a policy drops, which it knows nothing of; record the step without"
            )
        self.bytes = [value["bytes"] for value in self.values]
        self.packed_bytes = [value["packed_bytes"] for value in self.values]
        self.producer = [value["producer"] for value in self.values]
        self.droppable = [v for v in range(count) if self.values[v]["droppable"]]
        self.idle, self.freed = [None] * count, [None] * count  # events: the first of each
        self.uses = [[] for _ in range(count)]
        for e, (kind, index, _, _) in enumerate(self.events):
            if kind == "idle" and (self.idle[index] is not None or self.uses[index]):
                raise ValueError(
                    "[oracle] backward goes through the graph more than once, of which the oracle knows nothing"
                )
            if kind == "idle":
                self.idle[index] = e
            elif kind == "free" and self.freed[index] is None:
                self.freed[index] = e
            elif kind == "use":
                self.uses[index].append(e)

    @classmethod
    def read(cls, path):
        with open(path, encoding="utf-8") as file:
            return cls(json.load(file))

    def held(self, v):
        """Whether plain keeps `v` when the forward pass is over."""
        return self.producer[v] < 0 or self.idle[v] is not None or self.freed[v] is not None

    def actions_from(self, lists):
        """From the lists of a plan file."""
        actions = [KEEP] * len(self.values)
        for v in lists[PACK]:
            actions[v] = PACK
        for time, values in lists["recompute"].items():
            for v in values:
                actions[v] = EACH_TIME if time == "each_time" else int(time)
        return actions

    def plain_levels(self):
        """Plain's memory right after each event, before its delta, and right before it."""
        level, after, before = self.baseline_bytes, [], []
        for e, (kind, index, _, delta) in enumerate(self.events):
            before.append(level)
            if kind == "free" and self.freed[index] == e:
                level -= self.bytes[index]
            after.append(level)
            level += delta
        return after, before

    def plain_peak(self):
        after, _ = self.plain_levels()
        return max([self.baseline_bytes] + [level + rise for level, rise in zip(after, self.plain_rises)])


def share_of_peak(graph, percent):
    """The budget that leaves a share of plain's activation peak, as `remat plan --budget 40%` takes it."""
    return graph.baseline_bytes + int((graph.plain_peak() - graph.baseline_bytes) * percent / 100)


@dataclass(frozen=True)
class HeldAfter:
    """A value is recomputed, and not held at the first so many times; of later ones nothing is decided yet."""

    times: int


class Undecided(Exception):
    """The action of a value that has none yet matters now."""

    def __init__(self, value, choices):
        super().__init__(value)
        self.value, self.choices = value, choices


@dataclass
class Result:
    peak_bytes: int
    seconds: float
    replays: int


class Step:
    """A step in progress under actions; None and HeldAfter: not decided yet, `Undecided` is raised when it matters."""

    def __init__(self, graph, actions):
        self.graph, self.actions = graph, list(actions)
        self.states = [PRESENT if graph.held(v) else GONE for v in range(len(graph.values))]
        self.uses = [len(uses) for uses in graph.uses]
        self.made = [0] * len(graph.values)  # times that recomputes have made each
        self.bits = set()  # values whose packed form is there
        self.level = self.peak = graph.baseline_bytes
        self.seconds, self.replays = 0.0, 0

    def copy(self):
        other = object.__new__(Step)
        other.__dict__.update(self.__dict__)
        other.actions, other.states, other.uses = self.actions.copy(), self.states.copy(), self.uses.copy()
        other.bits, other.made = self.bits.copy(), self.made.copy()
        return other

    def event(self, e):
        kind, v, rise, delta = self.graph.events[e]
        if kind == "idle" and self.graph.values[v]["droppable"]:
            self._give_up(v)
        elif kind == "use" and self.graph.values[v]["droppable"]:
            self._use(v)
        elif kind == "free":
            self._free(v)
        self._look(rise)
        self.level += delta

    def result(self):
        return Result(self.peak, self.seconds, self.replays)

    def _look(self, extra):
        self.peak = max(self.peak, self.level + extra)

    def _give_up(self, v):
        action = self.actions[v]
        if action is None:
            raise Undecided(v, [KEEP, HeldAfter(0)] + [PACK] * (self.graph.packed_bytes[v] > 0))
        if action == KEEP:
            return
        self.level -= self.graph.bytes[v]
        self.states[v] = GONE
        if action == PACK:
            self.states[v] = PACKED
            self.bits.add(v)
            self.level += self.graph.packed_bytes[v]
            self.seconds += PACK_SECONDS * self.graph.bytes[v]

    def _use(self, v):
        if self.states[v] == PACKED:
            self._unpack(v)
        elif self.states[v] == GONE:
            self._replay(v)
        self.uses[v] -= 1

    def _free(self, v):
        if self.states[v] == PRESENT:
            self.level -= self.graph.bytes[v]
        if v in self.bits:
            self.level -= self.graph.packed_bytes[v]
            self.bits.remove(v)
        self.states[v] = GONE

    def _unpack(self, v):
        self.states[v] = PRESENT
        self.level += self.graph.bytes[v]
        self._look(0)
        self.seconds += UNPACK_SECONDS * self.graph.bytes[v]

    def missing_operators(self, v):
        """Those that a replay of `v` runs, in order."""
        operators, search = set(), [v]
        while search:
            producer = self.graph.producer[search.pop()]
            if producer < 0 or producer in operators:
                continue
            operators.add(producer)
            search.extend(i for i in self.graph.operators[producer]["inputs"] if self.states[i] == GONE)
        return sorted(operators)

    def _replay(self, target):
        operators = self.missing_operators(target)
        reads = {target: 1}  # the caller's
        for o in operators:
            for i in self.graph.operators[o]["inputs"]:
                reads[i] = reads.get(i, 0) + 1
        for o in operators:
            self._run(self.graph.operators[o], target, reads)

    def _stays(self, v, target):
        self.made[v] += 1
        if v == target:
            return True
        if self.uses[v] == 0 or not self.graph.values[v]["droppable"]:
            return False
        action, times = self.actions[v], self.made[v]
        if isinstance(action, HeldAfter):
            if times > action.times:
                raise Undecided(v, [times, HeldAfter(times)])
            return False
        return action == PACK or times >= action

    def _run(self, operator, target, reads):
        size = self.graph.bytes
        for i in operator["inputs"]:
            if self.states[i] == PACKED:
                self._unpack(i)
        for i in operator["overwritten"]:
            if self.states[i] == TRANSIENT and reads[i] == 1:  # its storage becomes the result's
                self.states[i] = GONE
                self.level -= size[i]
        self.level += sum(size[v] for v in operator["results"])
        self._look(operator["scratch_bytes"])
        self.seconds += operator["replay_seconds"]
        self.replays += 1
        for v in operator["results"]:
            if self.states[v] in (GONE, PACKED) and self._stays(v, target):
                self.states[v] = PRESENT
            elif self.states[v] == GONE and reads.get(v, 0) > 0:
                self.states[v] = TRANSIENT
            else:
                self.level -= size[v]
        for i in operator["inputs"]:
            reads[i] -= 1
            if reads[i] == 0 and self.states[i] == TRANSIENT:
                self.states[i] = GONE
                self.level -= size[i]


def simulate(graph, actions):
    """Peak, seconds and replays of a step under actions, as the simulator predicts them."""
    step = Step(graph, actions)
    for e in range(len(graph.events)):
        step.event(e)
    return step.result()
