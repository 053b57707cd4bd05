#!/usr/bin/env python3
"""What an audit takes, beside as many runs of the script alone: a GPT-2 of some million parameters, 5 steps, 5 ways.

    PYTHONPATH=build/release/python .venv/bin/python bench/audit.py [--trial]

Writes bench/results/DATE-audit.json. CPU seconds are compared as well as those of the clock: others on the machine do not
change them much. --trial: a smaller model, nothing is written.
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import subprocess
import sys
import tempfile
import textwrap
import time
from pathlib import Path

import torch

import machine

SCRIPT = """
    import sys, torch
    from transformers import GPT2Config, GPT2LMHeadModel

    layers, width, tokens, steps = map(int, sys.argv[1:])
    model = GPT2LMHeadModel(GPT2Config(n_layer=layers, n_embd=width, n_head=4, vocab_size=2000, n_positions=tokens))
    optimizer = torch.optim.AdamW(model.parameters())
    for step in range(steps):
        tokens_of_batch = torch.randint(0, 2000, (4, tokens))
        optimizer.zero_grad()
        model(tokens_of_batch, labels=tokens_of_batch).loss.backward()
        optimizer.step()
    print(sum(parameter.numel() for parameter in model.parameters()))
"""
WAYS = ["checkpoint", "sac", "offload", "enable"]


def taken(words: list[str]) -> tuple[float, float, str]:
    """Seconds of the clock, CPU seconds of the process and its children, and what it wrote."""
    before, began = os.times(), time.perf_counter()
    run = subprocess.run([sys.executable, *words], capture_output=True, text=True)
    if run.returncode != 0:
        raise SystemExit(run.stdout + run.stderr)
    after = os.times()
    cpu = after.children_user + after.children_system - before.children_user - before.children_system
    return time.perf_counter() - began, cpu, run.stdout


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--trial", action="store_true", help="a smaller model, nothing is written")
    options = parser.parse_args()
    steps = 5
    shape = ["2", "64", "32"] if options.trial else ["6", "256", "128"]
    with tempfile.TemporaryDirectory() as folder:
        script = Path(folder) / "train.py"
        script.write_text(textwrap.dedent(SCRIPT))
        alone = taken([str(script), *shape, str(steps)])
        words = ["-m", "remat", "audit", str(script), "--steps", str(steps), "--json", f"{folder}/out.json"]
        audit = taken([*words, "--ways", ",".join(WAYS), "--", *shape, str(steps)])
        found = json.loads((Path(folder) / "out.json").read_text())
        ways = {row["way"]: {key: row[key] for key in ("status", "peak_bytes", "seconds")} for row in found["rows"]}
        runs = 2 + len(WAYS)
        row = {
            "parameters": int(alone[2]),
            "steps": steps,
            "runs": runs,
            "script_seconds": alone[0],
            "script_cpu_seconds": alone[1],
            "audit_seconds": audit[0],
            "audit_cpu_seconds": audit[1],
            "ratio": audit[0] / (runs * alone[0]),
            "cpu_ratio": audit[1] / (runs * alone[1]),
            "compared": found["compared"],
            "same": found["same"],
            "ways": ways,
        }
    date = datetime.date.today().isoformat()
    result = {"figure": "audit", "date": date, "trial": options.trial,
              "versions": {"torch": torch.__version__, **machine.describe()}, "rows": [row]}  # fmt: skip
    print(json.dumps(result, indent=1))
    if not options.trial:
        path = machine.ROOT / "bench/results" / f"{date}-audit.json"
        path.write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
