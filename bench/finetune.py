#!/usr/bin/env python3
"""Measures `remat train --hf` on GPT-2 small beside transformers' Trainer; writes bench/results/<date>-finetune.json.

  bench/finetune.py [--rounds 3] [--steps 8] [--batch 4] [--seq 256] [--share 60] [--least 40] [--layers 12] [--build build/release]
                    [--out bench/results]

The model has GPT-2 small's shape (124 million parameters, its usual dropout) and weights from a seed, in float32. Each
run is a process of its own that trains on windows of the same text; runs follow each other in turn, round by round, so
nothing else runs beside one. Within a budget it is run twice: in a share of the activation peak of plain, and, in the
least share, with --optimizer-in-backward, since the gradients that a step leaves are a third of that peak. A run's time
is the median of its steps but for the first two (forward, backward and AdamW; the Trainer without its clipping), a ratio
the median over the rounds. Fewer rounds or layers are a trial.
"""

import argparse
import datetime
import json
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from machine import ROOT, describe
from tokenizer import save_tokenizer

WARM_UP = 2
VARIANTS = {
    "plain": ["--plain"],
    "budget": ["--budget", "{share}%"],
    "in backward": ["--budget", "{least_bytes}", "--optimizer-in-backward"],
}


def make_directory(path, text, layers):
    """GPT-2 small, and a tokenizer trained on the text."""
    import torch
    import transformers

    save_tokenizer(path, text)
    torch.manual_seed(0)
    transformers.GPT2LMHeadModel(transformers.GPT2Config(n_layer=layers)).save_pretrained(path)


def train_with_transformers(directory, text, steps, batch, seq):
    """The seconds of each step of transformers' Trainer."""
    import torch
    import transformers

    ids = transformers.AutoTokenizer.from_pretrained(directory)(Path(text).read_text(), return_tensors="pt")["input_ids"]
    windows = ids[0][: len(ids[0]) // seq * seq].view(-1, seq)
    seconds = []

    class Clock(transformers.TrainerCallback):
        def on_step_begin(self, *args, **kwargs):
            self.begin = time.perf_counter()

        def on_step_end(self, *args, **kwargs):
            seconds.append(time.perf_counter() - self.begin)

    with tempfile.TemporaryDirectory() as folder:
        arguments = transformers.TrainingArguments(
            output_dir=folder,
            max_steps=steps,
            per_device_train_batch_size=batch,
            learning_rate=1e-3,
            max_grad_norm=0,
            use_cpu=True,
            report_to=[],
            save_strategy="no",
            disable_tqdm=True,
        )
        model = transformers.AutoModelForCausalLM.from_pretrained(directory, dtype=torch.float32)
        data = [{"input_ids": row, "labels": row} for row in windows]
        transformers.Trainer(model=model, args=arguments, train_dataset=data, callbacks=[Clock()]).train()
    return seconds


def share_of_peak(steps, percent):
    """The bytes of a budget that leaves so much of the activation peak that steps of plain have."""
    baseline = max(step["baseline_bytes"] for step in steps[WARM_UP:])
    peak = max(step["peak_bytes"] for step in steps[WARM_UP:])
    return baseline + (peak - baseline) * percent // 100


def run(variant, args, directory, text, least_bytes=None):
    """The steps of one run: seconds, and what remat's command says of each."""
    if variant == "transformers":
        command = [sys.executable, __file__, "--trainer", directory, "--text", text]
        command += ["--steps", args.steps, "--batch", args.batch, "--seq", args.seq]
        done = subprocess.run(list(map(str, command)), check=True, capture_output=True, text=True)
        return [{"seconds": seconds} for seconds in json.loads(done.stdout.splitlines()[-1])]
    out = Path(directory).with_name("run.json")
    command = [args.build / "app" / "remat", "train", "--hf", directory, "--data", text, "--json", out]
    command += ["--steps", args.steps, "--batch", args.batch, "--seq", args.seq]
    command += [word.format(share=args.share, least_bytes=least_bytes) for word in VARIANTS[variant]]
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True)
    if done.returncode != 0:
        raise SystemExit(f"bench: {variant}: {done.stderr}")
    return json.loads(out.read_text())["steps"]


def row_of(variant, runs, reference):
    """`runs` and `reference` have the steps of each round."""

    def times(rounds):
        return [statistics.median(step["seconds"] for step in steps[WARM_UP:]) for steps in rounds]

    own, plain = times(runs), times(reference)
    speeds = [theirs / ours for theirs, ours in zip(plain, own)]
    row = {
        "variant": variant,
        "seconds": statistics.median(own),
        "speed_ratio": statistics.median(speeds),
        "speed_range": [min(speeds), max(speeds)],
    }
    reports = [step["report"] for step in runs[-1][WARM_UP:] if "report" in step]
    if reports:
        row["activation_peak_bytes"] = max(r["peak_bytes"] - r["baseline_bytes"] for r in reports)
        row["plain_activation_peak_bytes"] = max(r["plain_peak_bytes"] - r["baseline_bytes"] for r in reports)
    if "loss_bits" in runs[-1][-1]:
        row["loss_bits"] = [step["loss_bits"] for step in runs[-1]]
    return row


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=8)
    parser.add_argument("--batch", type=int, default=4)
    parser.add_argument("--seq", type=int, default=256)
    parser.add_argument("--share", type=int, default=60, help="of the activation peak that the budget leaves, in percent")
    parser.add_argument("--least", type=int, default=40, help="the same with --optimizer-in-backward")
    parser.add_argument("--layers", type=int, default=12)
    parser.add_argument("--build", type=Path, default=ROOT / "build" / "release")
    parser.add_argument("--out", type=Path, default=ROOT / "bench" / "results")
    parser.add_argument("--trainer", help=argparse.SUPPRESS)
    parser.add_argument("--text", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.trainer:
        print(json.dumps(train_with_transformers(args.trainer, args.text, args.steps, args.batch, args.seq)))
        return
    with tempfile.TemporaryDirectory() as folder:
        text = Path(folder) / "kjv.txt"
        directory = Path(folder) / "gpt2"
        subprocess.run([ROOT / "scripts" / "kjv", text], check=True, capture_output=True)
        make_directory(directory, text, args.layers)
        variants = ["transformers", *VARIANTS]
        rounds = []
        for _ in range(args.rounds):
            done = {}
            for variant in variants:
                least_bytes = share_of_peak(done["plain"], args.least) if "plain" in done else None
                done[variant] = run(variant, args, directory, text, least_bytes)
            rounds.append(done)
    runs = {variant: [each[variant] for each in rounds] for variant in variants}
    rows = [row_of(variant, runs[variant], runs["transformers"]) for variant in variants]
    if any(row["loss_bits"] != rows[1]["loss_bits"] for row in rows[2:]):
        raise SystemExit("bench: the losses within a budget differ; that is a bug, please report it")
    for row in rows:
        tokens = args.batch * args.seq / row["seconds"]
        print(f"{row['variant']}: {tokens:.0f} tokens/s, {row['speed_ratio']:.3f} of transformers' speed")
    date = datetime.date.today().isoformat()
    trial = args.rounds < 3 or args.layers < 12
    rows[2]["share"] = args.share
    rows[3]["share"] = args.least
    rows[3]["plain_activation_peak_bytes"] = rows[2]["plain_activation_peak_bytes"]  # that of usual updates
    shape = {"batch": args.batch, "seq": args.seq, "layers": args.layers}
    result = {
        "figure": "finetune",
        "date": date,
        "trial": trial,
        "versions": describe(),
        "shape": shape,
        "protocol": {"pairs": args.rounds},
        "rows": rows,
    }
    out = args.out if not trial else ROOT / "build" / "bench-trial"
    out.mkdir(parents=True, exist_ok=True)
    (out / f"{date}-finetune.json").write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
