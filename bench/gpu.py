#!/usr/bin/env python3
"""Measures remat on a CUDA device beside other ways to save memory; writes bench/results/<date>-cuda-<device>.json.

  bench/gpu.py [MODEL[:BATCH] ...] [--seconds 480] [--pairs 9] [--smoke] [--out bench/results]

As bench/peers.py does on the CPU: each variant is a process of its own (gpu_step.py), compared with plain in interleaved
pairs of steps; a ratio is the median of the pairs'. remat runs with nothing dropped, at the peaks of each peer (with the
share of plain's activations that the peer took, and with a budget of the bytes that PyTorch's allocator had reserved for
it), and at some other shares. What the day's file has already
is not measured again. After --seconds it ends with code 75 where there is more to do: call it again. Code 1: remat gave
other bits than plain, whose steps all gave the same, or passed its budget; or plain itself failed.

--smoke tries the scripts with small models; such results are never published. A simulated device has no times: they are
left out.
"""

import argparse
import datetime
import json
import math
import re
import subprocess
import sys
import time
from pathlib import Path

import gpu_models
import gpu_table
import peer_variants
import torch
from gpu_pairs import ROW_SECONDS, SIMULATED, WARM_UP, OutOfTime, is_wrong, measure, name_of, worker
from machine import ROOT, describe
from worker import Protocol, StepError

PEERS = (
    peer_variants.AGAIN,
    peer_variants.EVERY_BLOCK,
    "checkpoint sqrt(n) segments",
    "selective (save products)",
    peer_variants.SAVED_ON_HOST,
    peer_variants.COMPILED,
    f"{peer_variants.COMPILED}, memory budget 0.5",
    f"{peer_variants.COMPILED}, memory budget 0.3",
)
SHARES = ("60%", "40%")
CLOSE = 1.05  # peers whose peaks are this close are compared with one run of remat
AGAIN = 75


def distinct(rows, key):
    """Peaks of peers below plain's, without those that are close to a smaller one; each with plain's."""
    peaks = []
    for peak, plain in sorted((row[key], row["plain_" + key]) for row in rows):
        if peak < plain and not any(peak <= CLOSE * smaller for smaller, _ in peaks):
            peaks.append((peak, plain))
    return peaks


def variants_of(rows):
    """What there is to measure of a model, given its rows so far: the budgets of remat are the peers' peaks."""
    yield from ((peer, None) for peer in PEERS)
    yield peer_variants.NOTHING_DROPPED, None
    rows = [row for row in rows if row["variant"] in PEERS and "error" not in row]
    for peak, plain in distinct(rows, "activation_peak_bytes"):
        yield "remat", f"{math.floor(1000 * peak / plain) / 10}%"
    for peak, _ in distinct(rows, "reserved_peak_bytes"):
        yield "remat", peak
    yield from (("remat", share) for share in SHARES)


class Results:
    """The file of one device and day, written after each row."""

    def __init__(self, args):
        self.device = torch.cuda.get_device_name()
        today = datetime.date.today().isoformat()
        args.out.mkdir(parents=True, exist_ok=True)
        self.file = args.out / f"{today}-cuda-{re.sub(r'[^A-Za-z0-9]+', '-', self.device)}.json"
        self.rows = json.loads(self.file.read_text())["rows"] if self.file.exists() else []
        self.head = {"figure": "cuda", "date": today, "trial": args.smoke or args.pairs < Protocol.pairs}
        self.head |= {"versions": self.versions(), "protocol": {"pairs": args.pairs, "warm_up": WARM_UP + 1}}

    def versions(self):
        found = {"device": self.device, "device_bytes": torch.cuda.get_device_properties(0).total_memory}
        found |= {"torch": torch.__version__, "cuda": torch.version.cuda, "cudnn": torch.backends.cudnn.version()}
        try:
            query = ["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader", "--id=0"]
            found["driver"] = subprocess.run(query, capture_output=True, text=True, check=True).stdout.strip()
        except (OSError, subprocess.CalledProcessError):
            found["driver"] = "unknown"
        return found | describe()

    def of(self, model):
        return [row for row in self.rows if row["model"] == model]

    def left(self, model):
        """The variants that are still to be measured."""
        done = {row["variant"] for row in self.of(model)}
        if "plain" in done:  # it failed, so that there is nothing to compare with
            return []
        return [variant for variant in variants_of(self.of(model)) if name_of(*variant) not in done]

    def add(self, row):
        self.rows.append(row)
        self.file.write_text(json.dumps(self.head | {"rows": self.rows}, indent=1) + "\n")
        print("  " + gpu_table.summary(row), flush=True)


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="*", metavar="MODEL", help=f"{', '.join(gpu_models.MODELS)} (default: all)")
    parser.add_argument("--seconds", type=float, default=float("inf"), help="what this call may take")
    parser.add_argument("--pairs", type=int, default=None, help=f"pairs that count (default: {Protocol.pairs})")
    parser.add_argument("--smoke", action="store_true", help="small models, 2 pairs")
    parser.add_argument("--out", type=Path)
    args = parser.parse_args()
    if wrong := {model.partition(":")[0] for model in args.models} - set(gpu_models.MODELS):
        parser.error(f"no model '{wrong.pop()}'; there are {', '.join(gpu_models.MODELS)}")
    args.models = args.models or list(gpu_models.MODELS)
    args.smoke = args.smoke or SIMULATED
    args.pairs = args.pairs or (2 if args.smoke else Protocol.pairs)
    args.out = args.out or ROOT / ("build/bench-trial" if args.smoke else "bench/results")
    return args


def measure_model(results, model, args, end):
    if not results.left(model):
        return
    print(model, flush=True)
    protocol = Protocol(pairs=args.pairs, warm_up=1, extra=0 if args.smoke else Protocol.extra)
    with worker(model, "plain", smoke=args.smoke) as plain:
        try:
            plain.run("step")
        except StepError as error:
            return results.add({"model": model, "variant": "plain", "error": str(error)})
        while left := results.left(model):
            if end - time.monotonic() < ROW_SECONDS / 4:
                raise OutOfTime
            results.add(measure(plain, model, *left[0], protocol, args.smoke, end))


def main():
    args = arguments()
    end = time.monotonic() + args.seconds
    results = Results(args)
    try:
        for model in args.models:
            measure_model(results, model, args, end)
    except OutOfTime:
        print("there is more to measure: call it again", flush=True)
        return AGAIN
    print("\n" + gpu_table.page(json.loads(results.file.read_text())) + f"\n{results.file}")
    wrong = [f"{row['model']}, {row['variant']}" for row in results.rows if is_wrong(row)]
    if wrong:
        print(f"other bits than plain's, more than the budget, or no plain step: {'; '.join(wrong)}")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
