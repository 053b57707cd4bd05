#!/usr/bin/env python3
"""Measures remat from Python beside other ways to save memory; writes bench/results/<date>-peers.json.

  bench/peers.py [MODEL ...] [--rounds 5] [--batch MODEL=N ...] [--build build/release] [--out bench/results]

One process for each model. In every round each variant makes one step, in turn, on the same weights, data and seed, with
the same allocator; a ratio is the median over the rounds of the variant's time to plain's in that round. Bytes are exact.
remat runs at the peak of every peer, at twice that of checkpointing every block, and with nothing dropped. The rounds
with the least foreign load count.

Not fit to be published yet: the variants share one allocator's cache, which a budget trims, so that whoever comes after a
tight budget (plain) pays for its page faults. Each variant needs a process of its own, as in bench/run.py.
"""
import argparse
import datetime
import gc
import hashlib
import json
import os
import statistics
import subprocess
import sys
import time
from pathlib import Path

os.environ.setdefault("OMP_WAIT_POLICY", "passive")
os.environ.setdefault("HF_HUB_OFFLINE", "1")
from machine import ROOT, busy_seconds, describe, process_seconds

WARM_UP, EXTRA, QUIET = 5, 2, 0.1  # as in worker.Protocol
EVERY_BLOCK = "checkpoint every block"


class Bench:
    """One model, and what a step of it costs in each variant."""

    def __init__(self, name, batch):
        import peer_models
        import torch

        import remat

        self.torch, self.memory = torch, remat.memory
        remat.memory.start_accounting()
        self.model = peer_models.make(name, batch)
        self.buffers = [buffer.clone() for buffer in self.model.buffers()]
        self.model.loss().backward()  # gradients are there from now on

    def step(self, around):
        torch = self.torch
        with torch.no_grad():
            for buffer, first in zip(self.model.buffers(), self.buffers):
                buffer.copy_(first)
            for parameter in self.model.parameters():
                if parameter.grad is not None:
                    parameter.grad.zero_()
        gc.collect()
        torch.manual_seed(7)
        self.memory.reset_peak("cpu")
        baseline = self.memory.current("cpu")
        busy, own = busy_seconds(), process_seconds(os.getpid())
        wall, cpu = time.perf_counter(), time.process_time()
        with around():
            self.model.loss().backward()
        wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
        foreign = max(0.0, busy_seconds() - busy - (process_seconds(os.getpid()) - own)) / wall
        peak = self.memory.peak("cpu") - baseline
        return {"wall": wall, "cpu": cpu, "foreign": foreign, "activation_peak_bytes": peak,
                "gradients": fingerprint(p.grad for p in self.model.parameters()),
                "buffers": fingerprint(self.model.buffers())}


def fingerprint(tensors):
    digest = hashlib.blake2b()
    for tensor in tensors:
        if tensor is not None:
            digest.update(tensor.detach().numpy())
    return digest.hexdigest()


def measure(name, batch, rounds):
    """The rows of one model."""
    import contextlib

    import peer_variants

    bench = Bench(name, batch)
    variants = {"plain": contextlib.nullcontext} | peer_variants.peers_of(bench.model)
    peaks = {}
    for variant, around in variants.items():
        bench.step(around)
        peaks[variant] = bench.step(around)["activation_peak_bytes"]
    variants["remat, nothing dropped"] = peer_variants.nothing_dropped()
    for peer in list(peaks)[1:]:
        variants[f"remat at the peak of {peer}"] = peer_variants.WithinPeak(peaks[peer])
    variants[f"remat at twice the peak of {EVERY_BLOCK}"] = peer_variants.WithinPeak(2 * peaks[EVERY_BLOCK])
    variants["remat at 40 % of plain's peak"] = peer_variants.WithinPeak(int(0.4 * peaks["plain"]))

    failed, measured = {}, []
    while len(measured) < WARM_UP + rounds + EXTRA:
        row = {}
        for variant, around in variants.items():
            if variant in failed:
                continue
            try:
                row[variant] = bench.step(around)
            except RuntimeError as error:  # remat.BudgetError: no plan for so little
                failed[variant] = str(error)
        measured.append(row)
        quiet = sum(load(row) < QUIET for row in measured[WARM_UP:])
        if len(measured) >= WARM_UP + rounds and quiet >= rounds:
            break
    measured = sorted(measured[WARM_UP:], key=load)[:rounds]
    plain = [row["plain"] for row in measured]
    rows = []
    for variant, around in variants.items():
        row = {"model": name if batch is None else f"{name}:{batch}", "variant": variant}
        if variant in failed:
            rows.append(row | {"error": failed[variant]})
            continue
        steps = [r[variant] for r in measured]
        for clock in ("wall", "cpu"):
            ratios = [step[clock] / p[clock] for step, p in zip(steps, plain)]
            row[clock + "_ratio"] = statistics.median(ratios)
            row[clock + "_range"] = [min(ratios), max(ratios)]
            row[clock + "_seconds"] = statistics.median(step[clock] for step in steps)
        row["foreign"] = statistics.median(step["foreign"] for step in steps)
        row["activation_peak_bytes"] = max(step["activation_peak_bytes"] for step in steps)
        row["share_of_plain"] = row["activation_peak_bytes"] / max(p["activation_peak_bytes"] for p in plain)
        row["gradients_equal"] = len({s["gradients"] for s in steps + plain}) == 1
        row["buffers_equal"] = len({s["buffers"] for s in steps + plain}) == 1
        if isinstance(around, peer_variants.WithinPeak):
            report = around.session.report()
            row["over_budget_bytes"] = max(0, row["activation_peak_bytes"] - around.activation_peak_bytes)
            row |= {key: getattr(report, key) for key in
                    ("recompute_seconds", "planning_seconds", "planned_peak_bytes", "peak_bytes", "budget_bytes")}
        rows.append(row)
    return rows


def load(row):
    return max(step["foreign"] for step in row.values())


def summary(row):
    if "error" in row:
        return f"{row['variant']}: {row['error']}"
    return (f"{row['variant']}: x{row['wall_ratio']:.3f} (cpu x{row['cpu_ratio']:.3f}, foreign {row['foreign']:.2f}) at "
            f"{100 * row['share_of_plain']:.1f} %" + ("" if row["gradients_equal"] else ", gradients differ") +
            ("" if row["buffers_equal"] else ", buffers differ") +
            (f", {row['over_budget_bytes']} bytes over" if row.get("over_budget_bytes") else ""))


def arguments():
    models = ("gpt", "bert", "resnet", "mlp", "gpt2")
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="*", metavar="MODEL", help=f"{', '.join(models)} (default: all)")
    parser.add_argument("--rounds", type=int, default=5, help="rounds that count (default: %(default)s)")
    parser.add_argument("--batch", nargs="*", default=[], metavar="MODEL=N", help="smaller batches, for a trial")
    parser.add_argument("--build", type=Path, default=ROOT / "build" / "release")
    parser.add_argument("--out", type=Path)
    parser.add_argument("--one", nargs=2, metavar=("MODEL", "FILE"), help=argparse.SUPPRESS)  # in a process of its own
    args = parser.parse_args()
    if wrong := set(args.models) - set(models):
        parser.error(f"no model '{wrong.pop()}'; there are {', '.join(models)}")
    args.models = args.models or models
    args.batches = {model: int(batch) for model, _, batch in (item.partition("=") for item in args.batch)}
    args.trial = bool(args.batches) or args.rounds < 5
    args.out = args.out or ROOT / ("build/bench-trial" if args.trial else "bench/results")
    return args


def main():
    args = arguments()
    sys.path.insert(0, str(args.build / "python"))
    if args.one:
        name, file = args.one
        Path(file).write_text(json.dumps(measure(name, args.batches.get(name), args.rounds)))
        return
    import torch

    rows = []
    args.out.mkdir(parents=True, exist_ok=True)
    for name in args.models:
        print(name, flush=True)
        file = args.build / f"peers-{name}.json"
        subprocess.run([sys.executable, __file__, "--one", name, file, *sys.argv[1:]], check=True)
        for row in json.loads(file.read_text()):
            print("  " + summary(row), flush=True)
            rows.append(row)
        today = datetime.date.today().isoformat()
        versions = {"torch": torch.__version__, "threads": torch.get_num_threads()} | describe()
        result = {"figure": "peers", "date": today, "trial": args.trial, "versions": versions,
                  "protocol": {"rounds": args.rounds, "warm_up": WARM_UP}, "rows": rows}
        (args.out / f"{today}-peers.json").write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
