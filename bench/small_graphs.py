"""Small graphs for the oracle, the same on every machine: random ones with one of everything that a graph can have, and
layers as models have them."""

import random

from step_model import Graph


class Recorder:
    """Writes a graph down as a step would leave it: values by operators forward, uses and frees backward."""

    def __init__(self, leaves, baseline=0):
        self.values = [
            {"bytes": size, "producer": -1, "packed_bytes": 0, "droppable": False, "dropped": False} for size in leaves
        ]
        self.operators, self.events, self.baseline = [], [], baseline

    def event(self, kind, index, delta=0, scratch=0):
        self.events.append([kind, index, max(0, delta) + scratch, delta])

    def run(self, inputs, results, seconds, scratch=0, overwritten=(), delta=None):
        """`results`: (bytes, packed bytes, droppable) of each. Returns their numbers."""
        made = range(len(self.values), len(self.values) + len(results))
        o = len(self.operators)
        for size, packed, droppable in results:
            self.values.append(
                {"bytes": size, "producer": o, "packed_bytes": packed, "droppable": droppable, "dropped": False}
            )
        self.operators.append(
            {
                "name": f"aten::op{o}",
                "seconds": seconds,
                "replay_seconds": seconds,
                "scratch_bytes": scratch,
                "inputs": list(inputs),
                "overwritten": list(overwritten),
                "results": list(made),
            }
        )
        self.event("operator", o, sum(result[0] for result in results) if delta is None else delta, scratch)
        return list(made)

    def graph(self):
        seconds = 3 * sum(operator["seconds"] for operator in self.operators)
        return Graph(
            {
                "format": "remat-graph",
                "version": 3,
                "baseline_bytes": self.baseline,
                "parameter_bytes": 0,
                "gradient_bytes": 0,
                "step_seconds": seconds,
                "values": self.values,
                "operators": self.operators,
                "events": self.events,
            }
        )


def random_graph(seed, operators):
    """A chain with skips, in-place operators, values used twice, never, or by nobody who saved them."""
    draw = random.Random(seed)

    def chance(percent):
        return draw.randrange(100) < percent

    step = Recorder([100 + draw.randrange(100) for _ in range(2)], 1000 + draw.randrange(1000))
    step.event("other", -1, scratch=draw.randrange(50))
    held, busy = [], []  # what plain keeps beyond the forward pass, droppable or not; what is still to be put away
    for o in range(operators):
        inputs = [len(step.values) - 1]
        for percent, reach in ((40, 6), (20, len(step.values))):
            other = max(0, len(step.values) - 1 - draw.randrange(reach))
            if chance(percent) and other not in inputs:
                inputs.append(other)
        results = []
        for _ in range(2 if chance(15) else 1):
            size, droppable = 50 + draw.randrange(1000), chance(70)
            results.append((size, 1 + size // 8 if droppable and chance(25) else 0, droppable))
        old, overwritten, delta = inputs[0], (), None
        if len(results) == 1 and old >= 2 and old not in held and chance(50):  # what was there before is not saved
            size, (_, packed, droppable) = step.values[old]["bytes"], results[0]
            results, overwritten, delta = [(size, min(packed, size), droppable)], (old,), 0
        made = step.run(
            inputs,
            results,
            0.001 * (1 + draw.randrange(20)),
            draw.randrange(200) if chance(30) else 0,
            overwritten,
            delta,
        )
        for v in made:
            if step.values[v]["droppable"] or chance(30):
                held.append(v)
                if chance(95) or step.values[v]["droppable"]:  # what is droppable is idle before it is used
                    busy.append(v)
        for v in [v for v in busy if o == operators - 1 or chance(70)]:
            busy.remove(v)
            step.event("idle", v)
        if idle := [v for v in held if v not in busy and chance(5)]:  # a gradient within the forward pass
            step.event("use", draw.choice(idle), scratch=draw.randrange(300))
    for operator in reversed(step.operators):
        for v in operator["inputs"]:
            if v in held and chance(60):
                step.event("use", v, scratch=draw.randrange(300))
        for v in operator["results"]:
            if v not in held:
                continue
            if chance(90):
                step.event("use", v, draw.choice((0, 0, draw.randrange(200))), draw.randrange(300))
            if chance(95):
                step.event("free", v, scratch=draw.randrange(50))
    return step.graph()


def chain(length, seed):
    """Operators in a row; all results are saved, costs and sizes differ."""
    draw = random.Random(seed)
    step, last = Recorder([1000], 1000), 0
    for _ in range(length):
        [last] = step.run([last], [(draw.randrange(200, 2000), 0, True)], draw.randrange(1, 50) * 1e-4)
        step.event("idle", last)
    for v in range(last, 0, -1):
        step.event("use", v, scratch=step.values[v]["bytes"])
        step.event("free", v)
    return step.graph()


def blocks(count, seed):
    """Residual blocks: normalization, product, activation in place of a bias, dropout with a mask that packs, product,
    sum. Backward holds a gradient as large as what it goes through."""
    draw = random.Random(seed)
    width, unit = 1024 * draw.randrange(1, 5), 1e-4 * draw.randrange(1, 4)
    step, x, saved = Recorder([width], 4 * width), 0, []

    def save(v):
        saved.append(v)
        step.event("idle", v)
        return v

    for _ in range(count):
        normal, statistics = step.run([x], [(width, 0, True), (width // 64, 0, True)], unit)
        (product,) = step.run([normal], [(4 * width, 0, False)], 20 * unit, scratch=width // 4)
        (hidden,) = step.run([product], [(4 * width, 0, True)], 2 * unit, overwritten=[product], delta=0)
        (mask,) = step.run([hidden], [(4 * width, width // 8, True)], 3 * unit)
        (active,) = step.run([hidden, mask], [(4 * width, 0, True)], 2 * unit)
        (out,) = step.run([active], [(width, 0, False)], 20 * unit)
        (x_next,) = step.run([x, out], [(width, 0, True)], unit)
        step.event("other", -1, -width)
        for v in (normal, statistics, hidden, mask, active):
            save(v)
        x = save(x_next)
    for v in reversed(saved):
        size = step.values[v]["bytes"]
        step.event("use", v, size, scratch=size // 2)
        step.event("free", v, -size)
    return step.graph()
