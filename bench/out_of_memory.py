#!/usr/bin/env python3
"""Measures what each way to less memory saves and costs of one training; writes bench/results/<date>-out-of-memory.json.

  bench/out_of_memory.py [--steps 8] [--batch 8] [--seq 256] [--layers 12] [--build build/release] [--out bench/results]

The model has GPT-2 small's shape (124 million parameters) without dropout and weights from a seed, in float32; `remat
train --hf` trains it by AdamW. Each way is a process of its own. Of each: the most bytes of tensors in a step, the
optimizer's update included, the resident peak of the process, and the CPU seconds of a step, the median of those after
the fourth (plans are made anew until then), and its seconds. CPU seconds are those of all threads: other processes matter
little to them, and waiting for a file is not in them. State in files is in the system's temporary folder. Fewer layers are a trial. docs/out-of-memory.md has the table.
"""

import argparse
import datetime
import json
import os
import re
import statistics
import subprocess
import tempfile
from pathlib import Path

from finetune import make_directory
from machine import ROOT, describe, process_seconds
from table import table

WARM_UP = 4
WHOLE = ["--head", "whole"]  # where there is room, a training compares both
WAYS = {
    "plain": ["--plain"],
    "tiles": ["--head", "tiles"],
    "budget 50%": ["--budget", "50%"],
    "accumulate 4": ["--accumulate", "4", *WHOLE],
    "in backward": ["--optimizer-in-backward", *WHOLE],
    "bf16": ["--precision", "bf16", *WHOLE],
    "lora 8": ["--lora", "8", *WHOLE],
    "in backward, budget 50%": ["--optimizer-in-backward", "--budget", "50%"],
    "state in files": ["--optimizer-in-backward", "--page-optimizer", "{folder}", *WHOLE],
    "state in files, budget 25%": ["--optimizer-in-backward", "--page-optimizer", "{folder}", "--budget", "25%"],
    "lora 8, budget 50%": ["--lora", "8", "--budget", "50%"],
}
SAME_BITS = {way for way, options in WAYS.items() if not {"--accumulate", "--precision", "--lora"} & set(options)}


def run(way, args, directory, text):
    out = Path(directory).with_name("run.json")
    command = [args.build / "app" / "remat", "train", "--hf", directory, "--data", text, "--json", out, "--dropout", 0]
    command += ["--steps", args.steps, "--batch", args.batch, "--seq", args.seq]
    command += [option.format(folder=Path(directory).parent) for option in WAYS[way]]
    cpu = []
    with tempfile.TemporaryFile("w+") as errors:
        process = subprocess.Popen(list(map(str, command)), stdout=subprocess.PIPE, stderr=errors, text=True)
        for line in process.stdout:
            if re.match(r"train \d+/", line):
                cpu.append(process_seconds(process.pid))
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        if process.returncode:
            errors.seek(0)
            raise SystemExit(f"bench: {way}: {errors.read()}")
    steps = json.loads(out.read_text())["steps"]
    if len(cpu) != len(steps):
        raise SystemExit(f"bench: {way}: {len(cpu)} lines of progress for {len(steps)} steps")
    return {
        "way": way,
        "options": WAYS[way],
        "peak_bytes": max(step["peak_bytes"] for step in steps[WARM_UP:]),
        "resident_peak_bytes": usage.ru_maxrss * 1024,
        "cpu_seconds": statistics.median(after - before for before, after in zip(cpu[WARM_UP - 1 :], cpu[WARM_UP:])),
        "seconds": statistics.median(step["seconds"] for step in steps[WARM_UP:]),
        "loss_bits": [step["loss_bits"] for step in steps],
    }


def page(result):
    """What each way to less memory takes of plain's."""
    plain = result["rows"][0]

    def options(row):
        words = " ".join(row["options"]).replace(" ".join(WHOLE), "").replace("{folder}", "DIR").strip()
        return "plain" if row is plain else f"`{words}`"

    rows = [
        [
            options(row),
            f"{row['peak_bytes'] / 2**30:.2f} GiB",
            f"{row['resident_peak_bytes'] / 2**30:.2f} GiB",
            f"{row['cpu_seconds'] / plain['cpu_seconds']:.2f}",
            "" if row is plain else "the same bits" if row["same_bits"] else "other bits",
        ]
        for row in result["rows"]
    ]
    versions, shape = result["versions"], result["shape"]
    return table(["`remat train`", "tensors", "process", "CPU time x plain", "losses"], rows) + (
        "\nRows without a budget have whole logits, but for the one of tiles; those with a budget have tiles.\n"
        f"GPT-2 small ({shape['batch']} x {shape['seq']} tokens a step, AdamW, float32, no dropout), `bench/out_of_memory.py`, "
        f"{result['date']}, {versions['cpu']}, {versions['cores']} cores, commit {versions['commit']}.\n"
    )


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=8)
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--seq", type=int, default=256)
    parser.add_argument("--layers", type=int, default=12)
    parser.add_argument("--build", type=Path, default=ROOT / "build" / "release")
    parser.add_argument("--out", type=Path, default=ROOT / "bench" / "results")
    args = parser.parse_args()
    if args.steps <= WARM_UP:
        raise SystemExit(f"bench: --steps has to be more than {WARM_UP}")
    trial = args.layers < 12
    result = {
        "figure": "out-of-memory",
        "date": datetime.date.today().isoformat(),
        "trial": trial,
        "versions": describe(),
        "shape": {"batch": args.batch, "seq": args.seq, "layers": args.layers},
        "protocol": {"steps": args.steps},
        "rows": [],
    }
    out = args.out if not trial else ROOT / "build" / "bench-trial"
    out.mkdir(parents=True, exist_ok=True)
    rows = result["rows"]
    with tempfile.TemporaryDirectory() as folder:
        text, directory = Path(folder) / "kjv.txt", Path(folder) / "gpt2"
        subprocess.run([ROOT / "scripts" / "kjv", text], check=True, capture_output=True)
        make_directory(directory, text, args.layers)
        for way in WAYS:
            rows.append(run(way, args, directory, text))
            row, plain = rows[-1], rows[0]
            row["same_bits"] = row["loss_bits"] == plain["loss_bits"]
            print(
                f"{way}: {row['peak_bytes'] / 2**30:.2f} GiB, resident {row['resident_peak_bytes'] / 2**30:.2f} GiB, "
                f"CPU time x {row['cpu_seconds'] / plain['cpu_seconds']:.2f}, {row['seconds']:.1f} s a step, "
                f"losses {'same' if row['same_bits'] else 'differ'}",
                flush=True,
            )
            if way in SAME_BITS and not row["same_bits"]:
                raise SystemExit("bench: the losses differ; that is a bug, please report it")
            (out / f"{result['date']}-out-of-memory.json").write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
