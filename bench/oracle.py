"""How good plans are: a proven lower bound on their seconds (of small graphs, exact_search.py finds the optimum).

It is about one budget and the plan language of docs/formats.md, as src/plan/simulate.cpp judges it. It needs highspy.

  bench/oracle.py GRAPH --budget 40 [--seconds 60] [--plan PLAN] [--out BETTER]

The bound is the optimum of a mixed-integer program of which every plan within the budget is a point (notation:
docs/algorithms.md). Replays happen only where a dropped value is asked for first: at moments, which are put into groups g
of successive ones; u(v) is the group of the first use of v. All variables are 0 or 1: v is dropped, d(v), or packed, q(v);
it was recomputed in a group before g, c(v, g); operator o runs in group g, r(o, g).

  minimise   sum of t(o) r(o, g)  +  pack and unpack seconds of v * q(v)
  d(v) + q(v) <= 1
  d(v) <= c(v, u(v)) + r(producer of v, u(v))             used: it was recomputed, or is now
  c(v, g) <= d(v),  c(v, g) <= c(v, g - 1) + r(producer of v, g - 1),  c(v, g - 1) <= c(v, g)
  r(o, g) <= r(producer of i, g)                          for an input i that plain has freed before g, or never held
  r(o, g) <= r(producer of i, g) + (1 - d(i)) + c(i, g)   for a saved input i, until u(i)

for every event e, with g the first group that is not over, and idle(e) the values that are idle at e and not used yet:

  plain's level at e and rise - sum over idle(e) of [b(v) (d(v) - c(v, g)) + (b(v) - p(v)) q(v)]  <=  B

(plus p(v) q(v) of packed values from their first use until they are freed); and for every operator and group

  the lowest level at g's moments, as above, but with o's inputs, results and scratch  <=  B  if r(o, g)

Relaxed, always to the side of fewer seconds or bytes: an operator is paid for once per group; a recomputed value counts
from the next group on; inputs that may be there need not be replayed; old contents of in-place operators take nothing.
"""
import argparse
import json
import math
import time
from dataclasses import dataclass

from exact_search import away
from integer_program import Program
from step_model import EACH_TIME, GONE, KEEP, PACK, PACK_SECONDS, PRESENT, UNPACK_SECONDS
from step_model import Graph, Step, share_of_peak, simulate

@dataclass
class Bound:
    seconds: float  # no plan within the budget takes fewer; inf: there is none
    actions: list = None  # of the program's best solution: a hint at a good plan, which may not fit
    solved: bool = False  # no more time would raise it


class Relaxation:
    """The program for one graph and budget. Backward's first uses of values are the moments at which something may be
    replayed; `groups` runs of moments are told apart. Within a group an operator is paid for once, and what comes back
    takes no memory before the next group: fewer groups are solved faster, more are tighter. `groups`: how many of the
    same length, or the events at which they start."""

    def __init__(self, graph, budget, groups=1, ignored_bytes=0):
        self.graph, self.budget = graph, budget
        self.program = Program()
        self.unit = max(1, graph.plain_peak() - graph.baseline_bytes)  # rows are in shares of this
        self.scale = 100 / max(graph.step_seconds, 1e-12)  # costs are in percent of the step
        # What is smaller counts as dropped and as there, for nothing: below any plan.
        self.small = {v for v in graph.droppable if graph.bytes[v] < ignored_bytes}
        self.choices = [v for v in graph.droppable if v not in self.small]
        self.first_use = [uses[0] if uses else None for uses in graph.uses]
        self._group_moments(groups)
        self._add_actions()
        self.candidates = [self._candidates(g) for g in range(len(self.moments))]
        cost = [self.scale * operator["replay_seconds"] for operator in graph.operators]
        self.run = [{o: self.program.column(cost[o]) for o in sorted(found)} for found in self.candidates]
        self._add_returns()
        for g in range(len(self.moments)):
            self._add_inputs(g)
        self._add_memory()
        for g in range(len(self.moments)):
            self._add_working_sets(g)

    def solve(self, seconds=60.0, plan=None):
        """`plan`: actions that fit the budget, where the solver starts."""
        bound, solution, solved = self.program.solve(seconds, plan and self.point(plan))
        # A solver's tolerances let it accept more than the rows allow, which is below all plans; costs are off by less
        # than this.
        safe = bound if bound == math.inf else max(0.0, bound * (1 - 1e-5) - 1e-6) / self.scale
        return Bound(safe, solution and self._actions(solution), solved)

    def _actions(self, solution):
        actions = [KEEP] * len(self.graph.values)
        for v in self.choices:
            if solution[self.dropped[v]] > 0.5:
                actions[v] = self._held_from(v, solution)
            elif v in self.packed and solution[self.packed[v]] > 0.5:
                actions[v] = PACK
        return actions

    def _held_from(self, v, solution):
        """The time at which `v` stays that a recompute makes it: one more than those at which it does not."""
        passed = 0
        for g in range(self._last_group(v)):
            back = self.back[v].get(g + 1)
            if back is not None and solution[back] > 0.5:
                return passed + 1
            run = self.run[g].get(self.graph.producer[v])
            passed += run is not None and solution[run] > 0.5
        return EACH_TIME if passed else 1

    def point(self, actions):
        """What the columns are for a plan. If it fits the budget, all rows hold and its costs are at most its seconds."""
        point = [0.0] * len(self.program.costs)
        for v in self.choices:
            gone = actions[v] not in (KEEP, PACK) if self.graph.idle[v] is not None else not self.graph.held(v)
            point[self.dropped[v]] = float(gone)
            if v in self.packed:
                point[self.packed[v]] = float(actions[v] == PACK)
        step, g = Step(self.graph, actions), -1
        for e in range(len(self.graph.events)):
            if g + 1 < len(self.moments) and self.moments[g + 1][0] == e:
                g += 1
                for v, columns in self.back.items():
                    if g in columns and point[self.dropped[v]]:
                        point[columns[g]] = float(step.states[v] == PRESENT)
            if e in self.group_of:
                v = self.graph.events[e][1]
                if step.states[v] == GONE:
                    for o in step.missing_operators(v):
                        point[self.run[g][o]] = 1.0
            step.event(e)
        return point

    # ---- moments

    def _group_moments(self, groups):
        moments = sorted({self.first_use[v] for v in self.graph.droppable if self.first_use[v] is not None})
        if isinstance(groups, int):
            count = min(groups, len(moments))
            starts = {moments[len(moments) * g // count] for g in range(count)}
        else:
            starts = set(groups)
        self.moments = []
        for e in moments:
            if e in starts or not self.moments:
                self.moments.append([])
            self.moments[-1].append(e)
        self.group_of = {e: g for g, events in enumerate(self.moments) for e in events}

    def _last_group(self, v):
        """In which `v` is asked for first: until then it may be gone."""
        use = self.first_use[v]
        return len(self.moments) - 1 if use is None else self.group_of[use]

    # ---- columns

    def _add_actions(self):
        graph, program = self.graph, self.program
        self.dropped, self.packed = {}, {}
        for v in self.choices:
            self.dropped[v] = program.column()
            if graph.idle[v] is None:  # never put away: there, or from the start gone
                program.fixed[self.dropped[v]] = 0.0 if graph.held(v) else 1.0
            elif graph.packed_bytes[v] > 0:
                # A replay of its producer for another result's sake may spare the unpacking.
                alone = len(graph.operators[graph.producer[v]]["results"]) == 1
                seconds = PACK_SECONDS + (UNPACK_SECONDS if alone and graph.uses[v] else 0)
                self.packed[v] = program.column(self.scale * seconds * graph.bytes[v])
                program.at_most([(self.dropped[v], 1), (self.packed[v], 1)], 1)

    def _status(self, v, g):
        """What every plan has of `v` at the moments of a group: "gone", "there", or "open"; "choice" where it is gone
        if it is dropped and has not come back."""
        graph, first, last = self.graph, self.moments[g][0], self.moments[g][-1]
        if graph.producer[v] < 0:
            return "there"
        if not graph.held(v) and v not in self.dropped:
            return "gone" if v not in self.small else "open"
        freed = graph.freed[v]
        if freed is not None and freed < first:
            return "gone" if v not in self.small else "open"
        if v in self.small:
            return "open"
        whole = freed is None or freed > last
        if v not in self.dropped or (graph.idle[v] is None and graph.held(v)):
            return "there" if whole else "open"
        if graph.idle[v] is not None and graph.idle[v] > first:
            return "there" if graph.idle[v] > last and whole else "open"
        if g > self._last_group(v):
            return "there" if whole else "open"
        return "choice"

    def _candidates(self, g):
        """The operators that a replay at the moments of a group may run."""
        found = set()
        search = [v for v in self.graph.droppable if self.first_use[v] in self.moments[g]]
        while search:
            producer = self.graph.producer[search.pop()]
            if producer < 0 or producer in found:
                continue
            found.add(producer)
            search.extend(i for i in self.graph.operators[producer]["inputs"] if self._status(i, g) != "there")
        return found

    def _add_returns(self):
        """back[v][g]: dropped `v` has come back in a group before g."""
        self.back = {}
        for v in self.choices:
            self.back[v] = {}
            if self.first_use[v] is None:
                continue  # what nobody asks for never stays
            dropped, producer, last = self.dropped[v], self.graph.producer[v], self._last_group(v)
            for g in range(1, last + 1):
                ways = [column for column in (self.back[v].get(g - 1), self.run[g - 1].get(producer)) if column is not None]
                if not ways:
                    continue
                self.back[v][g] = back = self.program.column()
                self.program.at_most([(back, 1), (dropped, -1)], 0)
                self.program.at_most([(back, 1), *((way, -1) for way in ways)], 0)
                if g - 1 in self.back[v]:  # what has come back stays
                    self.program.at_most([(self.back[v][g - 1], 1), (back, -1)], 0)
            ways = [column for column in (self.back[v].get(last), self.run[last].get(producer)) if column is not None]
            self.program.at_most([(dropped, 1), *((way, -1) for way in ways)], 0)

    # ---- rows

    def _add_inputs(self, g):
        """What a replayed operator reads is there, or is replayed too."""
        for o, column in self.run[g].items():
            for i in self.graph.operators[o]["inputs"]:
                status = self._status(i, g)
                if status not in ("gone", "choice"):
                    continue
                terms = [(column, 1), (self.run[g][self.graph.producer[i]], -1)]
                if status == "gone":
                    self.program.at_most(terms, 0)
                else:
                    terms.append((self.dropped[i], 1))
                    if g in self.back[i]:
                        terms.append((self.back[i][g], -1))
                    self.program.at_most(terms, 1)

    def _add_memory(self):
        """At every event the budget holds, if what is dropped comes back no earlier than it must."""
        graph = self.graph
        levels, _ = graph.plain_levels()
        strictest = {}  # rows differ in their terms; of those with the same the highest level counts
        for e, (_, _, rise, _) in enumerate(graph.events):
            g = sum(events[-1] <= e for events in self.moments)  # groups that are over
            level = levels[e] + rise - sum(graph.bytes[v] for v in self.small if e in away(graph, v))
            terms = []
            for v in self.choices:
                if e in away(graph, v):
                    terms.append((self.dropped[v], -graph.bytes[v]))
                    if g in self.back[v]:
                        terms.append((self.back[v][g], graph.bytes[v]))
                    if v in self.packed:
                        terms.append((self.packed[v], graph.packed_bytes[v] - graph.bytes[v]))
                elif v in self.packed and graph.idle[v] < e and (graph.freed[v] is None or e < graph.freed[v]):
                    terms.append((self.packed[v], graph.packed_bytes[v]))
            if level + sum(max(0, factor) for _, factor in terms) > self.budget:
                key = tuple(terms)
                strictest[key] = max(level, strictest.get(key, 0))
        for terms, level in strictest.items():
            self._within_budget(terms, level)

    def _within_budget(self, terms, level, switch=None):
        """The terms and the level are at most the budget; with `switch`, a column, where that is 1."""
        # Sums of multiples of `step` within the budget are within the next multiple below it: then a solver's tolerance
        # does not let a plan through that is a few bytes too large.
        step = math.gcd(*(factor for _, factor in terms)) or 1
        most = (self.budget - level) // step * step
        if switch is not None:
            excess = sum(max(0, factor) for _, factor in terms) - most
            if excess <= 0:
                return
            terms, most = [*terms, (switch, excess)], most + excess
        self.program.at_most([(column, factor / self.unit) for column, factor in terms], most / self.unit + 1e-9)

    def _add_working_sets(self, g):
        """While a replay runs an operator, its inputs and results are there beside what is held."""
        graph, first, last = self.graph, self.moments[g][0], self.moments[g][-1]
        after, before = graph.plain_levels()

        def unused(v):
            return self.first_use[v] is None or self.first_use[v] >= first

        def at(v, e):
            return graph.idle[v] is not None and graph.idle[v] < e and (graph.freed[v] is None or graph.freed[v] > e)

        # Without what may be away or come back during the group.
        def without(level, e):
            return level - sum(graph.bytes[v] for v in graph.droppable if unused(v) and at(v, e))

        floor = min(without(before[e], e) for e in self.moments[g])
        # The rows of _add_memory hold what needs no more than this anyway.
        looked_after = max(without(after[e] + graph.events[e][2], e) for e in range(first, last + 1))
        throughout = [v for v in self.choices if at(v, first) and at(v, last)]
        for o, column in self.run[g].items():
            operator = graph.operators[o]
            level = floor + operator["scratch_bytes"] + sum(graph.bytes[v] for v in operator["results"])
            inputs = set(operator["inputs"]) - set(operator["overwritten"])
            most = level + sum(graph.bytes[i] for i in inputs)
            if most <= looked_after:
                continue
            level += sum(graph.bytes[i] for i in inputs if self._status(i, g) == "gone")
            terms = []
            for v in throughout:
                if v in self.packed:
                    terms.append((self.packed[v], graph.packed_bytes[v]))
                if not unused(v):
                    continue
                level += graph.bytes[v]
                if v in inputs:
                    continue
                terms.append((self.dropped[v], -graph.bytes[v]))
                if v in self.packed:
                    terms.append((self.packed[v], -graph.bytes[v]))
                # One moment: its replay runs in order, so what it has brought back by now is there.
                brought = g + 1 if first == last and graph.producer[v] < o and g < self._last_group(v) else g
                if brought in self.back[v]:
                    terms.append((self.back[v][brought], graph.bytes[v]))
            self._within_budget(terms, level, switch=column)


    # ---- refinement

    def finer_groups(self, actions, most=4):
        """The starts of groups that tell apart what this relaxation did not: the moments of its actions that pass the
        budget by most, or else those that run again what their group has run."""
        starts = {events[0] for events in self.moments}
        moments = [e for events in self.moments for e in events]
        step, now, runs, wrong = Step(self.graph, actions), -1, set(), []
        for e, (kind, v, _, _) in enumerate(self.graph.events):
            if now + 1 < len(moments) and moments[now + 1] == e:
                now += 1
                runs = set() if e in starts else runs
            again = set()
            if kind == "use" and step.states[v] == GONE:
                again = runs.intersection(operators := step.missing_operators(v))
                runs.update(operators)
            step.peak = 0
            step.event(e)
            around = set(moments[max(0, now - 1):now + 2]) - starts if now >= 0 else set()
            if around and (step.peak > self.budget or again):
                wrong.append((max(0, step.peak - self.budget), len(again), sorted(around)))
        for _, _, around in sorted(wrong, reverse=True)[:most]:
            starts.update(around)
        return starts


def refined_bound(graph, budget, seconds=60.0, ignored_bytes=0, plan=None, groups=4):
    """The best bound of a row of relaxations, each finer where the one before was wrong about its own solution. Its
    actions are those of the fastest plan that came by and fits, `plan` included, or None."""
    best, fastest, deadline = Bound(-1.0), math.inf, time.monotonic() + seconds
    if plan is not None:
        fastest = simulate(graph, plan).seconds
    coarser, again = groups, False
    while (left := deadline - time.monotonic()) > 1:
        relaxation = Relaxation(graph, budget, groups, ignored_bytes)
        bound = relaxation.solve(left if again else left / 2, plan)
        gained = bound.seconds > best.seconds
        best = max(best, bound, key=lambda one: one.seconds)
        if bound.actions is not None:
            result = simulate(graph, bound.actions)
            if result.peak_bytes <= budget and result.seconds < fastest:
                plan, fastest = bound.actions, result.seconds
        if again or bound.actions is None or fastest * (1 - 1e-4) <= best.seconds:
            break
        finer = relaxation.finer_groups(bound.actions)
        if gained and len(finer) > len(relaxation.moments):
            coarser, groups = groups, finer
        elif bound.solved:
            break
        else:  # finer is too hard; the rest of the time is for what went well
            groups, again = groups if gained else coarser, True
    return Bound(max(0.0, best.seconds), plan)


def lower_bound(graph, budget, groups=1, seconds=60.0, ignored_bytes=0, plan=None):
    """Seconds that no plan within `budget` bytes falls below. `plan`: actions that fit, to start from."""
    return Relaxation(graph, budget, groups, ignored_bytes).solve(seconds, plan)


def lists_of(actions):
    """As a plan file has them."""
    lists = {"recompute": {}, PACK: [], KEEP: []}
    for v, action in enumerate(actions):
        if action in (KEEP, PACK):
            lists[action].append(v)
        else:
            lists["recompute"].setdefault("each_time" if action == EACH_TIME else str(action), []).append(v)
    return lists


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("graph")
    parser.add_argument("--budget", type=float, required=True, help="percent of plain's activation peak")
    parser.add_argument("--seconds", type=float, default=60.0, help="for the solver (default: %(default)s)")
    parser.add_argument("--ignored", type=int, default=0, help="values of fewer bytes are left out")
    parser.add_argument("--plan", help="a plan file to compare with, where the solver starts")
    parser.add_argument("--out", help="write the actions of the fastest plan that came by here")
    args = parser.parse_args()
    graph = Graph.read(args.graph)
    budget = share_of_peak(graph, args.budget)

    def tell(what, seconds):
        print(f"{what} {seconds:.6g} seconds, {100 * seconds / graph.step_seconds:.3f} % of the step")

    plan = None
    if args.plan:
        with open(args.plan, encoding="utf-8") as file:
            plan = graph.actions_from(json.load(file)["actions"])
        result = simulate(graph, plan)
        tell("the plan takes", result.seconds)
        plan = plan if result.peak_bytes <= budget else None
    bound = refined_bound(graph, budget, args.seconds, args.ignored, plan)
    tell("no plan takes less than", bound.seconds)
    if bound.actions:
        tell("the fastest known plan takes", simulate(graph, bound.actions).seconds)
    if bound.actions and args.out:
        with open(args.out, "w", encoding="utf-8") as file:
            json.dump(lists_of(bound.actions), file)


if __name__ == "__main__":
    main()
