#!/usr/bin/env python3
"""The oracle's own tests. Needs highspy for the bounds (pip install highspy==1.15.*), and the command (REMAT: its path) to
compare the simulators; what is missing is skipped. REMAT_ORACLE_GRAPHS: how many random graphs.
"""
import itertools
import json
import math
import os
import random
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT / "bench"))

import exact_search  # noqa: E402
import integer_program  # noqa: E402
import oracle  # noqa: E402
from small_graphs import blocks, chain, random_graph  # noqa: E402
from step_model import EACH_TIME, KEEP, PACK, share_of_peak, simulate  # noqa: E402

REMAT = Path(os.environ.get("REMAT", ROOT / "build/release/app/remat"))
GRAPHS = int(os.environ.get("REMAT_ORACLE_GRAPHS", 60))


def every_plan(graph):
    choices = [[KEEP, 1, 2, EACH_TIME] + [PACK] * (graph.packed_bytes[v] > 0) for v in graph.droppable]
    for chosen in itertools.product(*choices):
        actions = [KEEP] * len(graph.values)
        for v, action in zip(graph.droppable, chosen):
            actions[v] = action
        yield actions


def small_random_graphs(count, most_droppable=5):
    found, seed = 0, 0
    while found < count:
        graph = random_graph(seed, 3 + seed % 8)
        if 2 <= len(graph.droppable) <= most_droppable:
            yield seed, graph
            found += 1
        seed += 1


def budgets(results):
    """Where it matters: from the lowest peak of all plans to plain's."""
    peaks = sorted({result.peak_bytes for result in results})
    return sorted({peaks[0] - 1, peaks[0], peaks[len(peaks) // 4], peaks[len(peaks) // 2], peaks[-1]})


def fastest(results, budget):
    return min((result.seconds for result in results if result.peak_bytes <= budget), default=math.inf)


class Optimum(unittest.TestCase):
    def test_is_the_fastest_of_all_plans(self):
        for seed, graph in small_random_graphs(GRAPHS):
            results = [simulate(graph, actions) for actions in every_plan(graph)]
            for budget in budgets(results):
                with self.subTest(seed=seed, budget=budget):
                    best = fastest(results, budget)
                    seconds, actions = exact_search.ExactSearch(graph, budget).run()
                    self.assertAlmostEqual(seconds, best, delta=1e-9)
                    if actions is not None:
                        result = simulate(graph, actions)
                        self.assertAlmostEqual(result.seconds, best, delta=1e-9)
                        self.assertLessEqual(result.peak_bytes, budget)


@unittest.skipIf(integer_program.highspy is None, "highspy is missing: pip install highspy==1.15.*")
class LowerBound(unittest.TestCase):
    def test_no_plan_is_faster(self):
        tight = 0
        for seed, graph in small_random_graphs(GRAPHS):
            results = [simulate(graph, actions) for actions in every_plan(graph)]
            for budget, groups, ignored in itertools.product(budgets(results), (1, 3, 100), (0, 300)):
                with self.subTest(seed=seed, budget=budget, groups=groups, ignored=ignored):
                    best = fastest(results, budget)
                    bound = oracle.lower_bound(graph, budget, groups, 20, ignored)
                    self.assertLessEqual(bound.seconds, best)
                    tight += groups == 100 and ignored == 0 and bound.seconds >= 0.999 * best - 1e-6
        # A bound of 0 would pass all that.
        self.assertGreater(tight, 0.7 * 5 * GRAPHS)

    def test_holds_for_every_plan_that_fits(self):
        """The proof, row by row: a plan that fits, written as the program's columns, breaks none and costs no more."""
        draw = random.Random(2)
        graphs = [random_graph(seed, 3 + seed % 30) for seed in range(GRAPHS)] + [blocks(3, 1), chain(12, 1)]
        for number, graph in enumerate(graphs):
            for share in (1, 0.5, 0.2):
                actions = [KEEP] * len(graph.values)
                for v in graph.droppable:
                    if draw.random() < share:
                        actions[v] = draw.choice([1, 1, 2, 3, EACH_TIME] + [PACK] * (graph.packed_bytes[v] > 0))
                result = simulate(graph, actions)
                for groups, ignored in itertools.product((1, 4, 100), (0, 300)):
                    with self.subTest(graph=number, share=share, groups=groups, ignored=ignored):
                        relaxation = oracle.Relaxation(graph, result.peak_bytes, groups, ignored)
                        point = relaxation.point(actions)
                        self.assertLessEqual(relaxation.program.violation(point), 1e-9)
                        self.assertLessEqual(relaxation.program.cost(point), relaxation.scale * result.seconds + 1e-9)

    def test_refined_bounds_lie_between(self):
        for graph, share in ((blocks(1, 1), 85), (blocks(2, 0), 55), (chain(8, 0), 80)):
            budget = share_of_peak(graph, share)
            optimum, actions = exact_search.ExactSearch(graph, budget).run()
            with self.subTest(share=share, optimum=optimum):
                self.assertIsNotNone(actions)
                coarse = oracle.lower_bound(graph, budget, 1)
                refined = oracle.refined_bound(graph, budget, 20, plan=actions, groups=1)
                self.assertGreaterEqual(refined.seconds, coarse.seconds)
                self.assertLessEqual(refined.seconds, optimum)
                self.assertGreater(refined.seconds, 0.9 * optimum)
                result = simulate(graph, refined.actions)
                self.assertLessEqual(result.peak_bytes, budget)
                self.assertAlmostEqual(result.seconds, optimum, delta=1e-9)

    def test_says_that_nothing_fits(self):
        graph = blocks(1, 1)
        self.assertEqual(oracle.refined_bound(graph, graph.baseline_bytes).seconds, math.inf)

    def test_more_groups_are_no_looser(self):
        graph = blocks(2, 1)
        budget = share_of_peak(graph, 40)
        bounds = [oracle.lower_bound(graph, budget, groups).seconds for groups in (1, 4, 100)]
        self.assertGreater(bounds[0], 0)
        self.assertLessEqual(bounds[0], bounds[1] + 1e-9)
        self.assertLessEqual(bounds[1], bounds[2] + 1e-9)



@unittest.skipUnless(REMAT.exists(), f"{REMAT} is missing: make build, or set REMAT")
class Simulator(unittest.TestCase):
    """As src/plan/simulate.cpp, through the command's predictions."""

    def test_agrees_with_the_command(self):
        draw = random.Random(1)
        graphs = [random_graph(seed, 3 + seed % 30) for seed in range(GRAPHS)] + [chain(9, 1), blocks(2, 1)]
        with tempfile.TemporaryDirectory() as folder:
            path, plan = Path(folder) / "graph.json", Path(folder) / "plan.json"
            for number, graph in enumerate(graphs):
                path.write_text(json.dumps(graph.document))
                for share in (100, 70, draw.randrange(20, 70)):
                    plan.unlink(missing_ok=True)
                    run = subprocess.run([REMAT, "plan", path, "--budget", f"{share}%", "--out", plan],
                                         capture_output=True, text=True)
                    self.assertIn(run.returncode, (0, 3), run.stderr)
                    if run.returncode == 3:
                        continue
                    document = json.loads(plan.read_text())
                    result = simulate(graph, graph.actions_from(document["actions"]))
                    with self.subTest(graph=number, share=share):
                        self.assertEqual(result.peak_bytes, document["predicted_peak_bytes"])
                        self.assertAlmostEqual(result.seconds, document["predicted_seconds"], delta=1e-9)
                        self.assertEqual(share_of_peak(graph, share), document["budget_bytes"])


if __name__ == "__main__":
    unittest.main(verbosity=2)
