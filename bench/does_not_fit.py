#!/usr/bin/env python3
"""Trains a Llama of 1.1 billion parameters that plain PyTorch cannot train on a machine of 24 GiB; writes
bench/results/<date>-does-not-fit.json.

  bench/does_not_fit.py [--only in-backward,paged,lora] [--budget 3GiB] [--steps 2] [--layers 22] [--batch 2] [--seq 2048]
                        [--folder /tmp] [--build build/release] [--out bench/results]

The model has TinyLlama's shape and weights from a seed, in float32, and is trained by AdamW on windows of one text, with
`remat train --hf`: once in plain, which may take as much address space as the machine has memory, and once in each way of
WAYS, whose budgets were named before anything was measured. A row has what plain would have taken as remat counted it,
what was taken, what of the process was no file's (anonymous, looked at twice a second), and the seconds of each step. The
files, 14 GB, are in the folder. Rows of ways that are left out stay as they were last measured. Fewer layers or another budget
are a trial.
"""

import argparse
import datetime
import json
import multiprocessing
import os
import resource
import subprocess
import tempfile
import threading
from pathlib import Path

from machine import ROOT, describe
from tokenizer import save_tokenizer


# Budgets by way. By arithmetic: parameters take 4.4 GB and AdamW's state 8.8, so that 16 GiB leave 4.0 GB for a step. State
# in a file leaves 4.2 of 8 GiB; frozen weights in a file too, and no gradients of them, leave all of 3 GiB for activations,
# two copies of the logits (1.0 GB) among them.
WAYS = {
    "in-backward": ("16GiB", ["--optimizer-in-backward"]),
    "paged": ("8GiB", ["--optimizer-in-backward", "--page-optimizer", "{folder}"]),
    "lora": ("3GiB", ["--lora", "8", "--page-weights", "{folder}"]),
}


class Anonymous(threading.Thread):
    """The most memory of a process that is no file's, in bytes: `most`, until stop() is called."""

    def __init__(self, pid):
        super().__init__()
        self.status, self.most, self.stopped = Path(f"/proc/{pid}/status"), 0, threading.Event()
        self.start()

    def run(self):
        while not self.stopped.wait(0.5):
            for line in self.status.read_text().splitlines():
                if line.startswith("RssAnon:"):
                    self.most = max(self.most, 1024 * int(line.split()[1]))

    def stop(self):
        self.stopped.set()
        self.join()
        return self.most


def make_directory(path, text, layers):
    """TinyLlama's shape (Zhang et al. 2024), and a tokenizer trained on the text. Returns the number of parameters."""
    import torch
    import transformers

    save_tokenizer(path, text)
    torch.manual_seed(0)
    config = transformers.LlamaConfig(
        hidden_size=2048,
        intermediate_size=5632,
        num_hidden_layers=layers,
        num_attention_heads=32,
        num_key_value_heads=4,
        vocab_size=32000,
        max_position_embeddings=2048,
        tie_word_embeddings=False,
    )
    model = transformers.LlamaForCausalLM(config)
    model.save_pretrained(path)
    return sum(parameter.numel() for parameter in model.parameters())


def measured(folder):
    """The rows of the newest result, by way; a result before there were ways has the first alone."""
    newest = max(folder.glob("*-does-not-fit.json"), default=None)
    if newest is None:
        return []
    result = json.loads(newest.read_text())
    return [{"way": "in-backward", "date": result["date"], **row} for row in result["rows"]]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default=",".join(WAYS), help="ways, with commas between them")
    parser.add_argument("--budget", help="in the place of those named")
    parser.add_argument("--steps", type=int, default=2)
    parser.add_argument("--layers", type=int, default=22)
    parser.add_argument("--batch", type=int, default=2)
    parser.add_argument("--seq", type=int, default=2048)
    parser.add_argument("--folder", help="for the model and for state and weights in files; left out: the system's")
    parser.add_argument("--build", type=Path, default=ROOT / "build" / "release")
    parser.add_argument("--out", type=Path, default=ROOT / "bench" / "results")
    args = parser.parse_args()
    machine = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    with tempfile.TemporaryDirectory(dir=args.folder) as folder:
        text, directory, out = Path(folder) / "kjv.txt", Path(folder) / "llama", Path(folder) / "run.json"
        subprocess.run([ROOT / "scripts" / "kjv", text], check=True, capture_output=True)
        with multiprocessing.Pool(1) as process:  # of its own, which gives its memory back
            parameters = process.apply(make_directory, (directory, text, args.layers))
        command = [args.build / "app" / "remat", "train", "--hf", directory, "--data", text, "--json", out]
        command += ["--batch", args.batch, "--seq", args.seq, "--steps", args.steps]

        def run(*options, limit=resource.RLIM_INFINITY):
            process = subprocess.Popen(
                [*map(str, command), *options],
                stdout=subprocess.DEVNULL,
                stderr=subprocess.PIPE,
                text=True,
                preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_AS, (limit, limit)),
            )
            anonymous = Anonymous(process.pid)
            errors = process.stderr.read()
            most = anonymous.stop()
            return process.wait(), errors, most

        plain_code, plain_errors, _ = run("--plain", limit=machine)
        print(f"plain: exit code {plain_code}, {plain_errors.strip()[-300:]}", flush=True)
        rows = [row for row in measured(args.out) if row["way"] not in args.only.split(",")]
        for way in args.only.split(","):
            budget, options = WAYS[way]
            budget = args.budget or budget
            code, errors, anonymous = run("--budget", budget, *(option.format(folder=folder) for option in options))
            if code != 0:
                raise SystemExit(f"bench: {way} within {budget}: {errors}")
            result = json.loads(out.read_text())
            steps = result["steps"]
            row = {
                "model": "llama-1.1b",
                "way": way,
                "date": datetime.date.today().isoformat(),
                "parameters": parameters,
                "batch": args.batch,
                "seq": args.seq,
                "machine_bytes": machine,
                "plain_exit_code": plain_code,
                "plain_peak_bytes": max(step["report"]["plain_peak_bytes"] for step in steps),
                "peak_bytes": max(step["peak_bytes"] for step in steps),
                "anonymous_bytes": anonymous,
                "budget_bytes": steps[-1]["report"]["budget_bytes"],
                "seconds": [step["seconds"] for step in steps],
                "losses": [step["loss"] for step in steps],
            }
            if "paging" in result:
                row["paging"] = result["paging"]
            rows.append(row)
            print(
                f"{way}, {parameters / 1e9:.2f} billion parameters: plain would take "
                f"{row['plain_peak_bytes'] / 2**30:.1f} GiB, the machine has {machine / 2**30:.1f}, within {budget}: "
                f"{row['peak_bytes'] / 2**30:.2f} GiB, anonymous {anonymous / 2**30:.2f}, {row['seconds'][-1]:.0f} s a step",
                flush=True,
            )
    date = datetime.date.today().isoformat()
    trial = args.layers < 22 or args.budget is not None
    out = args.out if not trial else ROOT / "build" / "bench-trial"
    out.mkdir(parents=True, exist_ok=True)
    head = {"figure": "does-not-fit", "date": date, "trial": trial, "versions": describe(), "protocol": {"pairs": 1}}
    (out / f"{date}-does-not-fit.json").write_text(json.dumps(head | {"rows": rows}, indent=1) + "\n")


if __name__ == "__main__":
    main()
