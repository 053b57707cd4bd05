#!/usr/bin/env python3
"""Measures remat from Python beside other ways to save memory; writes bench/results/<date>-peers.json.

  bench/peers.py [MODEL ...] [--pairs 9] [--eager | --compiled | --only PEER] [--batch MODEL=N ...] [--build build/release]
                 [--out bench/results]

Each variant is a process of its own (peer_step.py), so that none pays for another's use of memory, and is compared with
plain in interleaved pairs of steps on the same weights, data and seed, with the same allocator. A ratio is the median of
the pairs'. Only two processes at a time: with seven, medians were off by up to a tenth. Bytes are exact. remat runs with
nothing dropped, within the peak of every peer, within twice that of checkpointing every block, and within 40 % of plain's.
--eager leaves torch.compile out, whose peers take a minute each to compile, and --compiled measures these alone: the others
of the same day stay in the file, like other models. --only measures the peers whose names begin so, and remat within
their peaks; the file is named after them. torch_remat is no part of the set-up: .venv/bin/pip install torch_remat
"""

import argparse
import datetime
import json
import os
import re
import sys
from pathlib import Path

from machine import ROOT, describe
from worker import Protocol, StepError, Worker, compare, interleave

MODELS = ("gpt", "bert", "bert-gradients", "gpt2", "resnet", "unet", "lstm", "mlp", "deep")
WARM_UP = 7  # cuts of compiled blocks are chosen before the third step; plans change after the first, second and fourth
CLOSE = 1.05  # peers whose peaks are this close are compared with one run of remat, within the least of them


class Bench:
    def __init__(self, build, pairs, models):
        self.models = models
        self.protocol = Protocol(pairs=pairs, warm_up=1)
        self.environment = {"PYTHONPATH": str(build / "python"), "HF_HUB_OFFLINE": "1"}

    def worker(self, model, *variant):
        program = Path(__file__).with_name("peer_step.py")
        return Worker(
            sys.executable, program, self.models.get(model, model), *map(str, variant), environment=self.environment
        )

    def rows(self, model, variants, plain="plain"):
        """A row for each of `variants`, (name, bytes...), in pairs with `plain`."""
        rows = []
        with self.worker(model, plain) as plain:
            plain.run("step")
            for variant in variants:
                row = {"model": self.models.get(model, model), "variant": name_of(variant)}
                try:
                    with self.worker(model, *variant) as other:
                        for _ in range(WARM_UP if variant[0].startswith("remat") else 1):
                            other.run("step")
                        pairs = interleave(
                            self.protocol, lambda: plain.run("step"), lambda other=other: other.run("step")
                        )
                except StepError as error:
                    rows.append(row | {"error": str(error)})
                    continue
                rows.append(row | compare(pairs) | self.bytes_of(pairs, *variant[1:]))
        return rows

    @staticmethod
    def bytes_of(pairs, within=None):
        plain, own = zip(*pairs)
        result = {
            "plain_activation_peak_bytes": max(step["activation_peak_bytes"] for step in plain),
            "activation_peak_bytes": max(step["activation_peak_bytes"] for step in own),
            "buffers_equal": len({step["buffers"] for step in plain + own}) == 1,
        }
        if "report" in own[-1]:
            result["report"] = own[-1]["report"]
        if within is not None:
            result["within_bytes"] = within
            result["over_budget_bytes"] = max(0, result["activation_peak_bytes"] - within)
        return result


def name_of(variant):
    name, *peak = variant
    return f"{name} within {peak[0]} bytes" if peak else name


def measure(bench, model, kinds, before, only=""):
    """The rows of one model, for the `kinds` of peers that are compiled (True) or not (False), and whose names begin with
    `only`. A peer's row names the row of remat that took no more memory, which may be among `before`, the model's rows
    that stay."""
    import peer_models
    import peer_variants

    peers = [name for name in peer_variants.peers_of(peer_models.MODELS[model]) if name.startswith(only)]
    rows = []
    for compiled in kinds:
        rows += bench.rows(model, [(peer,) for peer in peers if peer.startswith(peer_variants.COMPILED) == compiled])
    measured = {row["variant"]: row for row in rows if "error" not in row}
    plain = max((row["plain_activation_peak_bytes"] for row in measured.values()), default=0)
    wanted = [row["activation_peak_bytes"] for row in measured.values()]
    if peer_variants.EVERY_BLOCK in measured:
        wanted += [2 * measured[peer_variants.EVERY_BLOCK]["activation_peak_bytes"], plain * 2 // 5]
    known = [row["within_bytes"] for row in before if "within_bytes" in row]
    points = []
    for peak in sorted(wanted):
        if peak < plain and not any(point <= peak <= CLOSE * point for point in known + points):
            points.append(peak)
    for row in measured.values():
        if row["variant"].startswith(peer_variants.COMPILED) and peer_variants.COMPILED in measured:
            row["compiled_ratio"] = row["wall_ratio"] / measured[peer_variants.COMPILED]["wall_ratio"]
        if row["variant"] != peer_variants.AGAIN:
            row["remat_within_bytes"] = max(
                (p for p in known + points if p <= row["activation_peak_bytes"]), default=None
            )
    nothing_dropped = [(peer_variants.NOTHING_DROPPED,)] if False in kinds and not only else []
    return rows + bench.rows(model, [*nothing_dropped, *(("remat", point) for point in points)])


def staying(rows, kinds):
    """Of a model's rows, those that measuring `kinds` leaves as they are: the other kind's, and remat's that they name."""
    import peer_variants

    compiled = [row for row in rows if row["variant"].startswith(peer_variants.COMPILED)]
    if kinds == (True,):
        return [row for row in rows if row not in compiled]
    named = {row.get("remat_within_bytes") for row in compiled} - {None}
    return compiled + [row for row in rows if row.get("within_bytes") in named] if kinds == (False,) else []


def summary(row):
    if "error" in row:
        return f"{row['variant']}: {row['error']}"
    share = 100 * row["activation_peak_bytes"] / row["plain_activation_peak_bytes"]
    return (
        f"{row['variant']}: x{row['wall_ratio']:.3f} (cpu x{row['cpu_ratio']:.3f}, foreign {row['foreign']:.2f}) at {share:.1f} %"
        + ("" if row["gradients_equal"] else ", gradients differ")
        + ("" if row["buffers_equal"] else ", buffers differ")
        + (f", {row['over_budget_bytes']} bytes over" if row.get("over_budget_bytes") else "")
    )


def parse(parser, models, pairs):
    """The arguments that measurements of models in pairs of steps have in common. Fewer than `pairs` are a trial."""
    parser.add_argument("models", nargs="*", metavar="MODEL", help=f"{', '.join(models)} (default: all)")
    parser.add_argument("--pairs", type=int, default=pairs, help="pairs that count (default: %(default)s)")
    parser.add_argument("--batch", nargs="*", default=[], metavar="MODEL=N", help="smaller batches, for a trial")
    parser.add_argument("--build", type=Path, default=ROOT / "build" / "release")
    parser.add_argument("--out", type=Path)
    args = parser.parse_args()
    batches = dict(item.partition("=")[::2] for item in args.batch)
    if wrong := {*args.models, *batches} - set(models):
        parser.error(f"no model '{wrong.pop()}'; there are {', '.join(models)}")
    args.models = args.models or models
    args.batches = {model: f"{model}:{batch}" for model, batch in batches.items()}
    args.trial = bool(batches) or args.pairs < pairs
    args.out = args.out or ROOT / ("build/bench-trial" if args.trial else "bench/results")
    return args


class Results:
    """The file of one figure and day. Models that are not measured anew stay in it."""

    def __init__(self, args, figure, **more):
        self.bench = Bench(args.build, args.pairs, args.batches)
        today = datetime.date.today().isoformat()
        args.out.mkdir(parents=True, exist_ok=True)
        self.file = args.out / f"{today}-{figure}.json"
        self.rows = json.loads(self.file.read_text())["rows"] if self.file.exists() else []
        self.head = {"figure": figure, "date": today, "trial": args.trial}
        self.protocol = {"pairs": args.pairs, "warm_up": WARM_UP + self.bench.protocol.warm_up}
        self.more = more

    def of(self, model):
        name = self.bench.models.get(model, model)
        return [row for row in self.rows if row["model"] == name]

    def replace(self, model, before, measured):
        """The rows of `model` by those of them that stay, and new ones."""
        import torch

        for row in measured:
            print("  " + summary(row), flush=True)
        old = self.of(model)
        self.rows = [row for row in self.rows if row not in old] + before + measured
        versions = {"torch": torch.__version__, "threads": torch.get_num_threads()} | describe()
        result = self.head | {"versions": versions, "protocol": self.protocol} | self.more | {"rows": self.rows}
        self.file.write_text(json.dumps(result, indent=1) + "\n")


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    kinds = parser.add_mutually_exclusive_group()
    kinds.add_argument("--eager", dest="kinds", action="store_const", const=(False,), help="without torch.compile")
    kinds.add_argument("--compiled", dest="kinds", action="store_const", const=(True,), help="torch.compile alone")
    kinds.add_argument("--only", metavar="PEER", default="", help="the peers whose names begin so")
    parser.set_defaults(kinds=(False, True))
    return parse(parser, MODELS, Protocol.pairs)


def main():
    args = arguments()
    os.environ["OMP_WAIT_POLICY"] = "passive"
    sys.path.insert(0, str(args.build / "python"))
    results = Results(args, "peers-" + re.sub(r"\W+", "-", args.only) if args.only else "peers")
    for model in args.models:
        print(model, flush=True)
        before = staying(results.of(model), args.kinds)
        results.replace(model, before, measure(results.bench, model, args.kinds, before, args.only))


if __name__ == "__main__":
    main()
