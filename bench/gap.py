"""How far plans are from the best possible ones, by the oracle (oracle.py): rows for the figure `gap`."""

import json
import math
import os
import subprocess

import exact_search
import oracle
from small_graphs import blocks, chain, random_graph
from step_model import Graph, share_of_peak, simulate

SHARES = (50, 40, 35, 25)
SOLVED = ("gpt", "bert", "resnet", "unet", "lstm", "mlp")  # by the oracle's program too; else `remat plan`'s bound
SMALL_SHARES = (70, 50, 35)
IGNORED_BYTES = {"resnet": 20_000, "gpt": 20_000, "bert": 20_000, "unet": 20_000}  # statistics of normalizations


def small_graphs():
    """Graphs with 6 to 14 values to decide on, by name."""
    graphs = {f"chain {length}, {seed}": chain(length, seed) for length in (6, 9, 12) for seed in range(4)}
    graphs |= {f"blocks {count}, {seed}": blocks(count, seed) for count in (1, 2) for seed in range(4)}
    for seed in range(1000, 1100):
        graph = random_graph(seed, 8 + seed % 8)
        if 6 <= len(graph.droppable) <= 14:
            graphs[f"random {seed}"] = graph
        if len(graphs) == 40:
            break
    return graphs


class Planner:
    """The command, and a folder for graphs and plans."""

    def __init__(self, remat, folder):
        self.remat, self.folder = remat, folder
        folder.mkdir(parents=True, exist_ok=True)

    def _run(self, *arguments):
        environment = os.environ | {"OMP_WAIT_POLICY": "passive"}
        run = subprocess.run([self.remat, *map(str, arguments)], env=environment, capture_output=True, text=True)
        if run.returncode not in (0, 3):  # 3: the budget is too small
            raise RuntimeError(
                f"[gap] remat {' '.join(map(str, arguments))} ended with code {run.returncode}: {run.stderr}"
            )
        return run.returncode == 0

    def record(self, model, batch):
        path = self.folder / f"{model}.json"
        self._run("record", model, "--out", path, *(["--batch", batch] if batch else []))
        return Graph.read(path)

    def smallest(self, model, batch):
        """The smallest activation peaks that each planner's plans reach, and the bound of any plan, in bytes."""
        self.record(model, batch)
        out = self.folder / "planners.json"
        self._run("plan", self.folder / f"{model}.json", "--all", "--budget", "1%", "--json", out)
        result = json.loads(out.read_text())
        baseline = result["baseline_bytes"]
        return {
            "model": model,
            "plain_activation_peak_bytes": result["plain_peak_bytes"] - baseline,
            "floor_bytes": result["floor_bytes"] - baseline,
            "smallest_bytes": {plan["planner"]: plan["smallest_peak_bytes"] - baseline for plan in result["plans"]},
        }

    def plan(self, graph, budget):
        """The actions of auto's plan, refined as sessions do, and its seconds (None, None if it has none), and seconds that no
        plan falls below. The plan must take what the command says, or the simulators differ."""
        path, out, report = (self.folder / name for name in ("graph.json", "plan.json", "report.json"))
        path.write_text(json.dumps(graph.document))
        found = self._run("plan", path, "--budget", budget, "--refine", "--out", out, "--json", report)
        least = json.loads(report.read_text())["least_seconds"]
        least = math.inf if least is None else least
        if not found:
            return None, None, least
        plan = json.loads(out.read_text())
        actions = graph.actions_from(plan["actions"])
        result = simulate(graph, actions)
        if result.peak_bytes != plan["predicted_peak_bytes"] or abs(result.seconds - plan["predicted_seconds"]) > 1e-9:
            raise RuntimeError(
                f"[gap] the simulators differ: {result} here, {plan['predicted_peak_bytes']} bytes and "
                f"{plan['predicted_seconds']} seconds there; that is a bug, please report it"
            )
        return actions, result.seconds, least


def compared(graph, auto, reference):
    """Seconds of auto's plan, or None, against those that no plan falls below; null in the file: nothing fits."""
    row = {
        "step_seconds": graph.step_seconds,
        "auto_seconds": auto,
        "reference_seconds": None if math.isinf(reference) else reference,
    }
    if auto is not None:
        row["gap_percent"] = 100 * (auto - reference) / graph.step_seconds
    return row


def model_rows(planner, graphs, seconds):
    for model, graph in graphs.items():
        for share in SHARES:
            budget = share_of_peak(graph, share)
            actions, auto, least = planner.plan(graph, budget)
            row = {"model": model, "share": share, "reference": "lower bound"}
            if model not in SOLVED:
                yield row | compared(graph, auto, least)
                continue
            bound = oracle.refined_bound(graph, budget, seconds, IGNORED_BYTES.get(model, 0), actions)
            row |= compared(graph, auto, max(least, bound.seconds)) | {
                "knapsack_seconds": None if math.isinf(least) else least
            }
            if bound.actions not in (None, actions):
                row |= {
                    "better_seconds": simulate(graph, bound.actions).seconds,
                    "better_actions": oracle.lists_of(bound.actions),
                }
            yield row


def small_rows(planner):
    for name, graph in small_graphs().items():
        for share in SMALL_SHARES:
            budget = share_of_peak(graph, share)
            actions, auto, least = planner.plan(graph, budget)
            optimum, better = exact_search.ExactSearch(graph, budget, math.inf if auto is None else auto).run()
            if math.isinf(optimum):
                continue  # nothing fits
            if least > optimum + 1e-12:
                raise RuntimeError(
                    f"[gap] the bound of {name} at {share} % is {least} seconds, above the optimum of {optimum}; "
                    "that is a bug, please report it"
                )
            row = {"model": "small", "graph": name, "share": share, "reference": "optimum"}
            if better is not None:
                row |= {"better_seconds": optimum, "better_actions": oracle.lists_of(better)}
            yield row | compared(graph, auto, optimum)
