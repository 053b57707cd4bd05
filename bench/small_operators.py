#!/usr/bin/env python3
"""What an operator costs where it computes next to nothing: long chains of operators on 16 x 16 matrices, from Python, on
one thread. Writes bench/results/<date>-small-operators.json.

  bench/small_operators.py [--operators 1000 12000 36000] [--pairs 9] [--build build/release] [--out bench/results]

Each variant is a process of its own, in interleaved pairs of steps with plain, after steps in which plans are made:
what those take is said, too.
"""

import argparse
import contextlib
import datetime
import importlib.metadata
import json
import sys
from pathlib import Path

from machine import ROOT, describe
from worker import Protocol, Worker, compare, interleave

VARIANTS = (("100%", "auto"), ("50%", "auto"), ("50%", "online"))
PLANNED = 6  # steps before which plans are made


def make_steps(operators, budget, planner):
    """The worker: makes a step for each line, and answers with a line of JSON."""
    import peer_step
    import torch

    import remat

    torch.set_num_threads(1)
    torch.manual_seed(1)
    remat.memory.start_accounting()
    x, w = (torch.randn(16, 16, requires_grad=True) for _ in range(2))
    session = remat.Session(budget=budget, planner=planner) if budget else None

    def train():
        with session.step() if session else contextlib.nullcontext():
            y = x
            for _ in range(operators // 4):
                y = ((y * w + x).sigmoid()) + w
            y.square().mean().backward()

    for _ in sys.stdin:
        x.grad = w.grad = None
        answer = peer_step.measure(train)[0] | {"gradients": peer_step.fingerprint([x.grad, w.grad])}
        if session:
            report = session.report()
            answer |= {"planning": report.planning_seconds, "replayed": report.ops_replayed}
        print(json.dumps(answer), flush=True)


def measure(operators, budget, planner, protocol, environment):
    def worker(*words):
        return Worker(sys.executable, __file__, "--steps", str(operators), *words, environment=environment)

    with worker("", "") as plain, worker(budget, planner) as other:
        planning = sum(other.run("step")["planning"] for _ in range(PLANNED))
        pairs = interleave(protocol, lambda: plain.run("step"), lambda: other.run("step"))
    row = {"operators": operators, "budget": budget, "planner": planner} | compare(pairs)
    row |= {"planning_seconds": planning, "replayed": pairs[-1][1]["replayed"]}
    plain, own = row["cpu_seconds"]
    print(
        f"{operators} operators, {budget}, {planner}: x{row['wall_ratio']:.2f}, {1e6 * (own - plain) / operators:.1f} us more"
        f" each, {row['replayed']} replayed; {planning:.1f} s of planning at first"
        + ("" if row["gradients_equal"] else ", gradients differ"),
        flush=True,
    )
    return row


def main():
    if sys.argv[1:2] == ["--steps"]:
        return make_steps(int(sys.argv[2]), *sys.argv[3:])
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--operators", type=int, nargs="*", default=[1000, 12000, 36000])
    parser.add_argument("--pairs", type=int, default=Protocol.pairs)
    parser.add_argument("--build", type=Path, default=ROOT / "build" / "release")
    parser.add_argument("--out", type=Path, default=ROOT / "bench" / "results")
    args = parser.parse_args()
    environment = {"PYTHONPATH": str(args.build / "python")}
    protocol = Protocol(pairs=args.pairs, warm_up=2)
    rows = [measure(count, *variant, protocol, environment) for count in args.operators for variant in VARIANTS]
    today = datetime.date.today().isoformat()
    versions = {"torch": importlib.metadata.version("torch")} | describe()
    result = {"figure": "small-operators", "date": today, "trial": args.pairs < Protocol.pairs, "versions": versions}
    result |= {"protocol": {"pairs": args.pairs}}
    args.out.mkdir(parents=True, exist_ok=True)
    (args.out / f"{today}-small-operators.json").write_text(json.dumps(result | {"rows": rows}, indent=1) + "\n")


if __name__ == "__main__":
    main()
