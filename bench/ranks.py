#!/usr/bin/env python3
"""Measures `remat train` on two processes: memory of shards within a budget against plain copies; writes
bench/results/<date>-ranks.json.

  bench/ranks.py [--steps 8] [--build build/release] [--out bench/results]

Both train the command's GPT on the same batches. A row has the sum over the processes of their peaks, and the median
seconds of a step; times are those of runs one after another, so they are no figure to compare.
"""

import argparse
import datetime
import json
import subprocess
import tempfile
from pathlib import Path

from machine import ROOT, describe

VARIANTS = {
    "plain, copies": ["--plain"],
    "plain, shards": ["--plain", "--shard"],
    "40 %, shards": ["--budget", "40%", "--shard"],
}


def run(command, text, variant, steps):
    with tempfile.TemporaryDirectory() as folder:
        out = f"{folder}/run.json"
        options = ["--ranks", "2", "--batch", "16", "--steps", str(steps), "--json", out, *VARIANTS[variant]]
        subprocess.run([command, "train", "--data", text, *options], check=True, capture_output=True)
        steps = json.loads(Path(out).read_text())["steps"]
    held = [step for step in steps if "--plain" in VARIANTS[variant] or step["step"] > 1]
    return {
        "variant": variant,
        "sum_peak_bytes": max(sum(step["rank_peak_bytes"]) for step in held),
        "seconds": sorted(step["seconds"] for step in held)[len(held) // 2],
        "loss_bits": [step["loss_bits"] for step in steps],
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=8)
    parser.add_argument("--build", type=Path, default=ROOT / "build" / "release")
    parser.add_argument("--out", type=Path, default=ROOT / "bench" / "results")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        text = f"{folder}/kjv.txt"
        subprocess.run([ROOT / "scripts" / "kjv", text], check=True, capture_output=True)
        rows = [run(args.build / "app" / "remat", text, variant, args.steps) for variant in VARIANTS]
    for row in rows:
        row["sum_peak_ratio"] = row["sum_peak_bytes"] / rows[0]["sum_peak_bytes"]
        print(f"{row['variant']}: {row['sum_peak_bytes'] / 2**20:.0f} MiB, {row['sum_peak_ratio']:.3f} of plain copies")
    if rows[1]["loss_bits"] != rows[2]["loss_bits"]:
        raise SystemExit("bench: the losses of shards differ; that is a bug, please report it")
    date = datetime.date.today().isoformat()
    result = {"figure": "ranks", "date": date, "trial": args.steps < 8, "versions": describe(), "rows": rows}
    args.out.mkdir(parents=True, exist_ok=True)
    (args.out / f"{date}-ranks.json").write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
