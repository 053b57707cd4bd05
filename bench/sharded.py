#!/usr/bin/env python3
"""Measures remat under FSDP2 beside checkpoint_wrapper; writes bench/results/<date>-sharded.json.

  bench/sharded.py [--pairs 9] [--layers 12] [--build build/release] [--out bench/results]

Two processes train a GPT whose blocks are sharded (sharded_step.py). Each variant is compared with plain FSDP2 in
interleaved pairs of steps; remat runs without a budget (also with sessions that agree), and within the peak of
checkpoint_wrapper around every block.
"""

import argparse
import datetime
import json
import os
import sys
from pathlib import Path

from machine import ROOT, describe
from worker import Protocol, StepError, Worker, compare, interleave

WARM_UP = 4  # remat's plans change after the first, second and fourth step


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pairs", type=int, default=Protocol.pairs, help="pairs that count (default: %(default)s)")
    parser.add_argument("--layers", type=int, default=12, help="fewer, for a trial (default: %(default)s)")
    parser.add_argument("--build", type=Path, default=ROOT / "build" / "release")
    parser.add_argument("--out", type=Path)
    args = parser.parse_args()
    args.trial = args.layers != 12 or args.pairs < Protocol.pairs
    args.out = args.out or ROOT / ("build/bench-trial" if args.trial else "bench/results")
    return args


class Bench:
    def __init__(self, args):
        self.args, self.protocol = args, Protocol(pairs=args.pairs, warm_up=1)

    def worker(self, *variant):
        program = Path(__file__).with_name("sharded_step.py")
        environment = {"PYTHONPATH": str(self.args.build / "python")}
        return Worker(sys.executable, program, str(self.args.layers), *map(str, variant), environment=environment)

    def row(self, plain, *variant):
        row = {"variant": " within ".join(map(str, variant))}
        try:
            with self.worker(*variant) as other:
                for _ in range(WARM_UP):
                    other.run("step")
                pairs = interleave(self.protocol, lambda: plain.run("step"), lambda: other.run("step"))
        except StepError as error:
            return row | {"error": str(error)}
        before, own = zip(*pairs)
        for key in ("activation_peak_bytes", "forward_bytes"):
            row["plain_" + key], row[key] = (max(step[key] for step in side) for side in (before, own))
        for key in ("values_dropped", "ops_replayed", "over"):
            if key in own[-1]:
                row[key] = max(step[key] for step in own)
        row["losses_equal"] = len({tuple(step["buffers"]) for step in before + own}) == 1
        return row | compare(pairs)


def summary(row):
    if "error" in row:
        return f"{row['variant']}: {row['error']}"
    return (
        f"{row['variant']}: x{row['wall_ratio']:.3f} (cpu x{row['cpu_ratio']:.3f}, foreign {row['foreign']:.2f}), peak "
        f"{100 * row['activation_peak_bytes'] / row['plain_activation_peak_bytes']:.1f} %, end of forward "
        f"{100 * row['forward_bytes'] / row['plain_forward_bytes']:.1f} %"
        + ("" if row["gradients_equal"] and row["losses_equal"] else ", BITS DIFFER")
    )


def main():
    args = arguments()
    os.environ["OMP_WAIT_POLICY"] = "passive"
    import torch

    bench = Bench(args)
    with bench.worker("plain") as plain:
        plain.run("step")
        rows = [bench.row(plain, variant) for variant in ("checkpoint", "remat", "agreed")]
        if "error" not in rows[0]:
            rows.append(bench.row(plain, "remat", rows[0]["activation_peak_bytes"]))
            if "error" not in rows[-1]:
                rows[-1]["extra_time_ratio"] = (rows[-1]["wall_ratio"] - 1) / (rows[0]["wall_ratio"] - 1)
    for row in rows:
        print(summary(row), flush=True)
    result = {
        "figure": "sharded",
        "date": datetime.date.today().isoformat(),
        "trial": args.trial,
        "versions": {"torch": torch.__version__, "processes": 2, "threads": 1} | describe(),
        "protocol": {"pairs": args.pairs, "warm_up": WARM_UP + bench.protocol.warm_up},
        "rows": rows,
    }
    args.out.mkdir(parents=True, exist_ok=True)
    (args.out / f"{result['date']}-sharded.json").write_text(json.dumps(result, indent=1) + "\n")
    if not all(row.get("gradients_equal", True) and row.get("losses_equal", True) for row in rows):
        sys.exit("bench: bits differ between variants; that is a bug, please report it")


if __name__ == "__main__":
    main()
