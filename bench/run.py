#!/usr/bin/env python3
"""Measures what remat costs and saves; writes bench/results/<date>-<figure>.json. See docs/measured.md for the tables.

  bench/run.py [FIGURE ...] [--pairs 9] [--only MODEL ...] [--batch gpt=2 ...] [--build build/release] [--out bench/results]

Two variants are compared in interleaved pairs after warm-up; a ratio is the median of the pairs' ratios, and of the
pairs those count during which other processes took the least of the machine. With --batch (to try the script, not to
publish) or fewer pairs, results go to build/bench-trial instead: the table never takes them. Each row is written when it
is there. With --only, those of other models stay as they are in the last results of that processor and PyTorch.
"""

import argparse
import datetime
import json
import sys
from pathlib import Path

from figures import CHANGING, FIGURES, SHARES, Bench
from machine import ROOT, describe
from moving import SHARES as SHARES_OF_MOVING
from worker import Protocol


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("figures", nargs="*", metavar="FIGURE", help=f"{', '.join(FIGURES)} (default: all)")
    parser.add_argument("--pairs", type=int, default=Protocol.pairs, help="pairs that count (default: %(default)s)")
    parser.add_argument("--only", nargs="+", default=[], metavar="MODEL", help="these models alone (moving)")
    parser.add_argument("--batch", nargs="*", default=[], metavar="MODEL=N", help="smaller batches, for a trial")
    parser.add_argument("--build", type=Path, default=ROOT / "build" / "release")
    parser.add_argument("--out", type=Path)
    args = parser.parse_args()
    for name in args.figures:
        if name not in FIGURES:
            parser.error(f"no figure '{name}'; there are {', '.join(FIGURES)}")
    batches = dict(item.partition("=")[::2] for item in args.batch)
    for model, batch in batches.items():
        if model not in (SHARES | CHANGING) or not batch.isdigit():
            parser.error(f"--batch takes MODEL=N with a model of {', '.join(SHARES | CHANGING)}, not '{model}={batch}'")
    if args.only and args.figures != ["moving"]:
        parser.error("--only is for the figure moving")
    if unknown := set(args.only) - set(SHARES_OF_MOVING):
        parser.error(f"no model {', '.join(sorted(unknown))}; there are {', '.join(SHARES_OF_MOVING)}")
    args.models = {model: f"{model}:{batch}" for model, batch in batches.items()}
    if args.pairs < 1:
        parser.error("--pairs must be 1 or more")
    if not (args.build / "bench" / "bench_step").exists():
        parser.error(f"{args.build}/bench/bench_step does not exist; run: make build")
    args.trial = bool(batches) or args.pairs < Protocol.pairs
    args.out = args.out or ROOT / ("build/bench-trial" if args.trial else "bench/results")
    return args


def summary(row):
    """A line for whoever waits."""
    if "error" in row:
        return f"{row['model']} {row['command']}: {row['error']}"
    if "nothing_moved" in row:
        return f"{row['model']} {row['command']}: nothing moves"
    if "record_cost_seconds" in row:
        return f"{1e6 * row['record_cost_seconds']:.2f} us per recorded operator"
    if "worse" in row:
        return (
            f"{row['graph']}: auto is slower than another planner at {row['worse']} budgets, has no plan where one has at "
            f"{row['none']}; {row['auto_seconds']:.2f} s at most"
        )
    if "planning_seconds" in row:
        return f"{row['operators']} operators: {row['planning_seconds']:.2f} s, {row['planning_bytes'] / 1e6:.0f} MB"
    if "floor_bytes" in row:
        shares = {name: 100 * peak / row["plain_activation_peak_bytes"] for name, peak in row["smallest_bytes"].items()}
        return f"{row['model']}: " + ", ".join(f"{name} {share:.1f} %" for name, share in shares.items())
    if "reference" in row:
        gap = f"gap {row['gap_percent']:.3f} % of the step" if "gap_percent" in row else "auto found no plan"
        return f"{row['model']} {row.get('graph', '')} {row['share']} %: {gap}"
    text = (
        f"{row['model']} {row.get('allocator', '')} {row['command']}: time x{row['wall_ratio']:.3f} (cpu x{row['cpu_ratio']:.3f}, "
        f"foreign {row['foreign']:.2f})"
    )
    if "activation_peak_bytes" in row:
        text += f", peak {100 * row['activation_peak_bytes'] / row['plain_activation_peak_bytes']:.1f} %"
    if "over_budget_bytes" in row:
        text += f", {row['over_budget_bytes']} bytes over budget"
    if "report" in row and row["report"]["values_moved"] > 0:
        text += f", moved {row['report']['moved_bytes'] / 2**20:.0f} MiB, waited {row['report']['move_wait_seconds']:.3f} s"
    if "against_recomputing" in row:
        text += f", against recomputing alone x{row['against_recomputing']['wall_ratio']:.3f}"
    if "plain" in row:
        text += f", plain against plain x{row['plain']['wall_ratio']:.3f}"
    return text + ("" if row["gradients_equal"] else ", GRADIENTS DIFFER")


def rows_that_stay(args, name, versions):
    """Of models that are not measured now: the rows of the last results of this figure on such a processor."""
    for path in sorted(args.out.glob(f"*-{name}.json"), reverse=True) if args.only else []:
        result = json.loads(path.read_text())
        about = result["versions"]
        if not result["trial"] and all(about.get(key) == versions[key] for key in ("cpu", "torch", "threads")):
            of = {"date": result["date"], "commit": about["commit"]}
            return [of | row for row in result["rows"] if row["model"] not in args.only]
    return []


def main():
    args = arguments()
    protocol = Protocol(pairs=args.pairs)
    bench = Bench(args.build, protocol, args.models, args.only)
    with bench.worker("mlp") as worker:
        about = worker.run("about")
    versions = {key: about[key] for key in ("torch", "compiler", "threads")} | describe()
    today = datetime.date.today().isoformat()
    args.out.mkdir(parents=True, exist_ok=True)
    exact = True
    for name in args.figures or FIGURES:
        print(f"{name}: {FIGURES[name].__doc__}", flush=True)
        rows = rows_that_stay(args, name, versions)
        for row in FIGURES[name](bench):
            rows.append(row)
            print("  " + summary(row), flush=True)
            exact = exact and row.get("gradients_equal", True)
            result = {
                "figure": name,
                "date": today,
                "trial": args.trial,
                "versions": versions,
                "protocol": vars(protocol),
                "rows": rows,
            }
            (args.out / f"{today}-{name}.json").write_text(json.dumps(result, indent=1) + "\n")
    if not exact:
        sys.exit("bench: gradients differ between variants; that is a bug, please report it")


if __name__ == "__main__":
    main()
