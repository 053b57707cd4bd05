#!/usr/bin/env python3
"""Measures remat from Python beside other ways to save memory; writes bench/results/<date>-peers.json.

  bench/peers.py [MODEL ...] [--rounds 5] [--eager] [--batch MODEL=N ...] [--build build/release] [--out bench/results]

Each variant is a process of its own (peer_step.py), so that none pays for another's use of memory; in every round each
makes one step, in turn, on the same weights, data and seed, with the same allocator. A ratio is the median over the rounds
of the variant's time to plain's in that round. Bytes are exact. remat runs with nothing dropped, within the peak of every
peer, within twice that of checkpointing every block, and within 40 % of plain's. --eager leaves torch.compile out, whose
peers take a minute each to compile. Models measured before on the same day keep their rows in the file.
"""
import argparse
import contextlib
import datetime
import json
import os
import statistics
import sys
from pathlib import Path

from machine import ROOT, describe
from worker import Protocol, StepError, Worker, compare, interleave

MODELS = ("gpt", "bert", "gpt2", "resnet", "unet", "lstm", "mlp", "deep")
AT_ONCE = 6  # variants beside plain: what fits into memory
WARM_UP = 4  # remat's plans change after the first, second and fourth step
CLOSE = 1.05  # peers whose peaks are this close are compared with one run of remat, within the least of them


class Bench:
    def __init__(self, build, rounds, models):
        self.models = models
        self.protocol = Protocol(pairs=rounds, warm_up=1)
        self.environment = {"PYTHONPATH": str(build / "python"), "HF_HUB_OFFLINE": "1"}

    def worker(self, model, *variant):
        program = Path(__file__).with_name("peer_step.py")
        return Worker(sys.executable, program, self.models.get(model, model), *map(str, variant), environment=self.environment)

    def rows(self, model, variants):
        """Plain's steps and a row for each of `variants`, (name, bytes...), AT_ONCE at a time."""
        for first in range(0, len(variants), AT_ONCE):
            yield from self.group(model, variants[first:first + AT_ONCE])

    def group(self, model, variants):
        with contextlib.ExitStack() as workers:
            steps, ready = {}, []
            for variant in [("plain",), *variants]:
                worker = workers.enter_context(self.worker(model, *variant))
                try:
                    for _ in range(WARM_UP if variant[0].startswith("remat") else 1):
                        worker.run("step")
                except StepError as error:
                    yield {"model": self.models.get(model, model), "variant": name_of(variant), "error": str(error)}
                    continue
                steps[name_of(variant)] = lambda worker=worker: worker.run("step")
                ready.append(variant)
            rounds = interleave(self.protocol, *steps.values())
        columns = dict(zip(steps, zip(*rounds)))
        for variant in ready[1:]:
            yield self.row(model, variant, columns)

    def row(self, model, variant, columns):
        plain, own = columns["plain"], columns[name_of(variant)]
        row = {"model": self.models.get(model, model), "variant": name_of(variant)} | compare(list(zip(plain, own)))
        row["plain_activation_peak_bytes"] = max(step["activation_peak_bytes"] for step in plain)
        row["activation_peak_bytes"] = max(step["activation_peak_bytes"] for step in own)
        row["buffers_equal"] = len({step["buffers"] for step in plain + own}) == 1
        if "compiled" in columns and variant[0].startswith("compiled"):
            row["compiled_ratio"] = statistics.median(b["wall"] / a["wall"] for a, b in zip(columns["compiled"], own))
        if "report" in own[-1]:
            row["report"] = own[-1]["report"]
        if len(variant) > 1:
            row["within_bytes"] = variant[1]
            row["over_budget_bytes"] = max(0, row["activation_peak_bytes"] - variant[1])
        return row


def name_of(variant):
    name, *peak = variant
    return f"{name} within {peak[0]} bytes" if peak else name


def measure(bench, model, eager):
    """The rows of one model. A peer's row names the row of remat that took no more memory."""
    import peer_models
    import peer_variants

    peers = peer_variants.peers_of(peer_models.MODELS[model])
    own = [peer for peer in peers if not peer.startswith(peer_variants.COMPILED)]
    rows = list(bench.rows(model, [(peer,) for peer in own]))
    if not eager:
        rows += bench.rows(model, [(peer,) for peer in peers if peer not in own])
    peaks = {row["variant"]: row["activation_peak_bytes"] for row in rows if "error" not in row}
    plain = max(row.get("plain_activation_peak_bytes", 0) for row in rows)
    wanted = {**peaks, "twice": 2 * peaks[peer_variants.EVERY_BLOCK], "40 %": plain * 2 // 5}
    points = []
    for peak in sorted(wanted.values()):
        if peak < plain and (not points or peak > CLOSE * points[-1]):
            points.append(peak)
    for row in rows:
        if "error" not in row:
            row["remat_within_bytes"] = max((p for p in points if p <= row["activation_peak_bytes"]), default=None)
    rows += bench.rows(model, [(peer_variants.NOTHING_DROPPED,), *(("remat", point) for point in points)])
    return rows


def summary(row):
    if "error" in row:
        return f"{row['variant']}: {row['error']}"
    share = 100 * row["activation_peak_bytes"] / row["plain_activation_peak_bytes"]
    return (f"{row['variant']}: x{row['wall_ratio']:.3f} (cpu x{row['cpu_ratio']:.3f}, foreign {row['foreign']:.2f}) at {share:.1f} %" +
            ("" if row["gradients_equal"] else ", gradients differ") + ("" if row["buffers_equal"] else ", buffers differ") +
            (f", {row['over_budget_bytes']} bytes over" if row.get("over_budget_bytes") else ""))


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="*", metavar="MODEL", help=f"{', '.join(MODELS)} (default: all)")
    parser.add_argument("--rounds", type=int, default=5, help="rounds that count (default: %(default)s)")
    parser.add_argument("--eager", action="store_true", help="without torch.compile")
    parser.add_argument("--batch", nargs="*", default=[], metavar="MODEL=N", help="smaller batches, for a trial")
    parser.add_argument("--build", type=Path, default=ROOT / "build" / "release")
    parser.add_argument("--out", type=Path)
    args = parser.parse_args()
    batches = dict(item.partition("=")[::2] for item in args.batch)
    if wrong := {*args.models, *batches} - set(MODELS):
        parser.error(f"no model '{wrong.pop()}'; there are {', '.join(MODELS)}")
    args.batches = {model: f"{model}:{batch}" for model, batch in batches.items()}
    args.trial = bool(batches) or args.rounds < 5
    args.out = args.out or ROOT / ("build/bench-trial" if args.trial else "bench/results")
    return args


def main():
    args = arguments()
    os.environ["OMP_WAIT_POLICY"] = "passive"
    sys.path.insert(0, str(args.build / "python"))
    import torch

    bench = Bench(args.build, args.rounds, args.batches)
    today = datetime.date.today().isoformat()
    args.out.mkdir(parents=True, exist_ok=True)
    file = args.out / f"{today}-peers.json"
    rows = json.loads(file.read_text())["rows"] if file.exists() else []
    for model in args.models or MODELS:
        print(model, flush=True)
        measured = measure(bench, model, args.eager)
        for row in measured:
            print("  " + summary(row), flush=True)
        rows = [row for row in rows if row["model"] != bench.models.get(model, model)] + measured
        versions = {"torch": torch.__version__, "threads": torch.get_num_threads()} | describe()
        result = {"figure": "peers", "date": today, "trial": args.trial, "versions": versions,
                  "protocol": {"pairs": args.rounds, "warm_up": WARM_UP + bench.protocol.warm_up}, "rows": rows}
        file.write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
