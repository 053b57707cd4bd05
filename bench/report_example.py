#!/usr/bin/env python3
"""Writes the report that README.md shows: bench/report_example.py [--out bench/results]

Trains a small GPT-2 of transformers under a budget, in a process of its own, and keeps what its last step's report says as
<date>-report.json. bench/readme_table.py puts it into README.md. Run it on an otherwise idle machine.
"""

import argparse
import datetime
import json
import multiprocessing
import os
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

from machine import ROOT, describe

BUDGET, BATCH, TOKENS, STEPS = "600MiB", 8, 256, 6
SHOWN_OPERATORS = 4


def train():
    import torch
    from transformers import GPT2Config, GPT2LMHeadModel

    import remat

    torch.manual_seed(0)
    config = GPT2Config(vocab_size=8192, n_layer=6, n_embd=384, n_head=6, bos_token_id=None, eos_token_id=None)
    model = remat.wrap(GPT2LMHeadModel(config), budget=BUDGET)
    optimizer = torch.optim.AdamW(model.parameters())
    for _ in range(STEPS):
        tokens = torch.randint(config.vocab_size, (BATCH, TOKENS))
        optimizer.zero_grad()
        model(input_ids=tokens, labels=tokens).loss.backward()
        optimizer.step()
    return str(remat.session_of(model).report()), torch.__version__


def block(report):
    """The report as code, with the operators that took most."""
    lines = report.rstrip().splitlines()
    operators = next(place for place, line in enumerate(lines) if line.startswith("  "))
    shown = lines[: operators + SHOWN_OPERATORS]
    return "\n".join(["```", *shown, *(["  ..."] if len(shown) < len(lines) else []), "```"]) + "\n"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=ROOT / "bench/results")
    out = parser.parse_args().out
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as process:
        report, torch_version = process.submit(train).result()
    today = datetime.date.today().isoformat()
    result = {"figure": "report", "date": today, "trial": False, "versions": {"torch": torch_version} | describe()}
    result |= {"shape": {"batch": BATCH, "tokens": TOKENS}, "budget": BUDGET, "rows": [{"report": report}]}
    (out / f"{today}-report.json").write_text(json.dumps(result, indent=1) + "\n")
    print(report)


if __name__ == "__main__":
    os.environ.setdefault("OMP_WAIT_POLICY", "passive")
    main()
