#!/usr/bin/env python3
"""How much a step replays where its budget is just below what plain takes, on the simulated device of tests/device and on the
CPU, beside the fewest replays that any plan could do with: small models, of which one value is dropped.

  bench/device_replays.py [--build build/release] [--out FILE.json]
"""

import argparse
import contextlib
import gc
import itertools
import json
import sys
import warnings
from pathlib import Path

from machine import ROOT
from step_model import EACH_TIME, KEEP, PACK, Graph, simulate
from table import table

BELOW = (None, 0.005, 0.01, 0.02)  # of plain's activation peak; None: a byte
MOST = 0.05  # of a step's operators


def models(torch):
    nn = torch.nn

    class Residual(nn.Module):
        def __init__(self):
            super().__init__()
            self.convolution = nn.Conv2d(8, 8, 3, padding=1, bias=False)
            self.norm, self.relu = nn.BatchNorm2d(8), nn.ReLU(inplace=True)

        def forward(self, x):
            return self.relu(x + self.norm(self.convolution(x)))

    class Layer(nn.TransformerEncoderLayer):
        def __init__(self):
            super().__init__(32, 4, 128, dropout=0.1, batch_first=True)

    def block(activation, dropout=0.0):
        return nn.Sequential(nn.Linear(32, 128), activation(), nn.Dropout(dropout), nn.Linear(128, 32))

    kinds = {
        "GELU": (lambda: block(nn.GELU), (256, 32)),
        "ReLU": (lambda: block(nn.ReLU), (256, 32)),
        "dropout": (lambda: block(nn.GELU, 0.2), (256, 32)),
        "residual": (Residual, (8, 8, 16, 16)),
        "transformer": (Layer, (16, 16, 32)),
    }
    for name, (make, shape) in kinds.items():
        for depth in (2, 5, 10):
            yield f"{name}, {depth} blocks", nn.Sequential(*(make() for _ in range(depth))), torch.randn(shape)


def train(session, model, x, steps):
    for _ in range(steps):
        gc.collect()
        with session.step():
            model(x).square().mean().backward()
    return session.report()


def fewest(graph, budget, replays, seconds):
    """The fewest replays of plans within `budget` that drop one value or two, and the fewest seconds of them; not more
    than those of the plan that there is."""
    for count in (1, 2):
        for values in itertools.combinations(graph.droppable, count):
            for action in (0, EACH_TIME, PACK):
                if action == PACK and not all(graph.packed_bytes[v] for v in values):
                    continue
                actions = [KEEP] * len(graph.values)
                for v in values:
                    actions[v] = action
                result = simulate(graph, actions)
                if result.peak_bytes <= budget:
                    replays, seconds = min(replays, result.replays), min(seconds, result.seconds)
        if count == 1 and (replays <= 1 or len(graph.droppable) > 40):
            break
    return replays, seconds


def rows_of(name, model, x, device, remat):
    model, x = model.to(device), x.to(device)
    for parameter in model.parameters():
        parameter.grad = parameter.detach().clone().zero_()
    plain = train(remat.Session(device=device), model, x, 2)
    for below in BELOW:
        cut = 1 if below is None else int(plain.plain_activation_peak_bytes * below)
        session = remat.Session(budget=plain.plain_peak_bytes - cut, device=device)
        row = {"model": name, "device": str(device), "below": "1 byte" if below is None else f"{100 * below:g} %"}
        try:
            report = train(session, model, x, 4)
        except remat.BudgetError:
            yield row | {"refused": True}
            continue
        graph, plan = Graph(json.loads(session.graph().to_json())), json.loads(session.plan().to_json())
        planned = simulate(graph, graph.actions_from(plan["actions"]))
        replays, seconds = fewest(graph, session.plan().budget_bytes, planned.replays, planned.seconds)
        yield row | {
            "operators": report.ops_recorded,
            "replayed": report.ops_replayed,
            "planned": planned.replays,
            "fewest": replays,
            "extra_percent": 100 * planned.seconds / graph.step_seconds,
            "least_extra_percent": 100 * seconds / graph.step_seconds,
        }


def summary(rows):
    for device in dict.fromkeys(row["device"] for row in rows):
        done = [row for row in rows if row["device"] == device and not row.get("refused")]
        above = [row for row in done if row["replayed"] > MOST * row["operators"]]
        small = [row for row in above if row["fewest"] > MOST * row["operators"]]
        yield {
            "device": device,
            "steps": len(done),
            "above": len(above),
            "no plan is below": len(small),
            "slower than the best by 1 % of the step": sum(
                row["extra_percent"] > row["least_extra_percent"] + 1 for row in done
            ),
        }


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", type=Path, default=ROOT / "build/release")
    parser.add_argument("--out", type=Path, help="where to write the rows as JSON")
    options = parser.parse_args()
    sys.path[:0] = [str(options.build / "python"), str(ROOT / "tests/python")]
    warnings.simplefilter("ignore")  # that no real device was tried
    import simulated_device
    import torch

    import remat

    simulated_device.LIBRARY = str(options.build / "tests/libremat_simulated_device_python.so")
    torch.set_num_threads(1)
    torch.manual_seed(0)
    rows = []
    with torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.MATH), contextlib.suppress(KeyboardInterrupt):
        for name, model, x in models(torch):
            for device in (torch.device("cpu"), simulated_device.load()):
                rows += rows_of(name, model, x, device, remat)
                for row in rows[-len(BELOW) :]:
                    print(" ".join(f"{key} {value}" for key, value in row.items()), file=sys.stderr, flush=True)
    head = list(next(iter(summary(rows))))
    print(table(head, [list(row.values()) for row in summary(rows)]))
    if options.out:
        options.out.write_text(json.dumps(rows, indent=1) + "\n")


if __name__ == "__main__":
    main()
