#!/usr/bin/env python3
"""Trains a Llama of 1.1 billion parameters that plain PyTorch cannot train on a machine of 24 GiB; writes
bench/results/<date>-does-not-fit.json.

  bench/does_not_fit.py [--budget 16GiB] [--steps 2] [--layers 22] [--batch 2] [--seq 2048] [--build build/release]
                        [--out bench/results]

The model has TinyLlama's shape and weights from a seed, in float32, and is trained by AdamW on windows of one text, with
`remat train --hf`: once in plain, which may take as much address space as the machine has memory, and once within the
budget, with --optimizer-in-backward. The row has what plain would have taken as remat counted it, what was taken, and the
seconds of each step. Fewer layers are a trial.
"""

import argparse
import datetime
import json
import multiprocessing
import os
import resource
import subprocess
import tempfile
from pathlib import Path

from machine import ROOT, describe
from tokenizer import save_tokenizer


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


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--budget", default="16GiB")
    parser.add_argument("--steps", type=int, default=2)
    parser.add_argument("--layers", type=int, default=22)
    parser.add_argument("--batch", type=int, default=2)
    parser.add_argument("--seq", type=int, default=2048)
    parser.add_argument("--build", type=Path, default=ROOT / "build" / "release")
    parser.add_argument("--out", type=Path, default=ROOT / "bench" / "results")
    args = parser.parse_args()
    machine = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    with tempfile.TemporaryDirectory() as folder:
        text, directory, out = Path(folder) / "kjv.txt", Path(folder) / "llama", Path(folder) / "run.json"
        subprocess.run([ROOT / "scripts" / "kjv", text], check=True, capture_output=True)
        with multiprocessing.Pool(1) as process:  # of its own, which gives its memory back
            parameters = process.apply(make_directory, (directory, text, args.layers))
        command = [args.build / "app" / "remat", "train", "--hf", directory, "--data", text, "--json", out]
        command += ["--batch", args.batch, "--seq", args.seq, "--steps", args.steps]

        def run(*options, limit=resource.RLIM_INFINITY):
            return subprocess.run(
                [*map(str, command), *options],
                capture_output=True,
                text=True,
                preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_AS, (limit, limit)),
            )

        plain = run("--plain", limit=machine)
        print(f"plain: exit code {plain.returncode}, {plain.stderr.strip()[-300:]}", flush=True)
        within = run("--budget", args.budget, "--optimizer-in-backward")
        if within.returncode != 0:
            raise SystemExit(f"bench: within {args.budget}: {within.stderr}")
        steps = json.loads(out.read_text())["steps"]
    row = {
        "model": "llama-1.1b",
        "parameters": parameters,
        "batch": args.batch,
        "seq": args.seq,
        "machine_bytes": machine,
        "plain_exit_code": plain.returncode,
        "plain_peak_bytes": max(step["report"]["plain_peak_bytes"] for step in steps),
        "peak_bytes": max(step["peak_bytes"] for step in steps),
        "budget_bytes": steps[-1]["report"]["budget_bytes"],
        "seconds": [step["seconds"] for step in steps],
        "losses": [step["loss"] for step in steps],
    }
    print(
        f"{parameters / 1e9:.2f} billion parameters: plain would take {row['plain_peak_bytes'] / 2**30:.1f} GiB, the machine has "
        f"{machine / 2**30:.1f}, within {args.budget}: {row['peak_bytes'] / 2**30:.1f} GiB, "
        f"{row['seconds'][-1]:.0f} s a step"
    )
    date = datetime.date.today().isoformat()
    trial = args.layers < 22
    out = args.out if not trial else ROOT / "build" / "bench-trial"
    out.mkdir(parents=True, exist_ok=True)
    head = {"figure": "does-not-fit", "date": date, "trial": trial, "versions": describe(), "protocol": {"pairs": 1}}
    (out / f"{date}-does-not-fit.json").write_text(json.dumps(head | {"rows": [row]}, indent=1) + "\n")


if __name__ == "__main__":
    main()
