#!/usr/bin/env python3
"""Ways to save memory of many projects, audited on three models: whose bits are plain's, and what they take.

    PYTHONPATH=build/release/python .venv/bin/python bench/audits.py [MODEL...] [--only WAY] [--skip WAY] [--trial]

Writes bench/results/DATE-audits.json, of which bench/readme_table.py makes docs/audits.md; models that are not asked for
stay as they are in that file. What bench/audits.txt lists and is not there yet is installed first, without what it needs,
into build/audited-packages: torch stays the one that is tested. Each way is `remat.audit()`'s, so that each run is a process
of its own. --trial: writes to build/bench-trial.
"""

from __future__ import annotations

import argparse
import datetime
import importlib.metadata
import json
import os
import re
import shutil
import subprocess
import sys
from dataclasses import asdict

import torch

import machine
import remat
from audited_training import STEPS
from remat.audit.hints import hint
from remat.audit.processes import keep_server

MODELS = ["gpt2", "resnet", "lora"]
MODULES = [
    "peft",
    "lightning.fabric.strategies.fsdp",
    *(f"transformers.models.{name}.modeling_{name}" for name in ("gpt2", "llama", "resnet")),
]
TEXTS = ["gpt2", "lora"]
LIMIT = 600.0  # seconds for each run
PACKAGES = machine.ROOT / "build/audited-packages"
LISTED = machine.ROOT / "bench/audits.txt"
HERE = machine.ROOT / "bench"

# The project's package, the way, the function of audited_ways.py or one of the audit's own ways, models.
WAYS = [
    ("torch", "checkpoint, each block", "torch_checkpoint", MODELS),
    ("torch", "checkpoint, reentrant", "torch_reentrant", MODELS),
    ("torch", "selective checkpointing, products saved", "torch_selective", MODELS),
    ("torch", "save_on_cpu", "offload", MODELS),
    ("torch", "linear_cross_entropy, in chunks", "torch_loss", TEXTS),
    ("torch", "compile", "compile", MODELS),
    ("torch", "compile, activation_memory_budget 0.5", "compile:0.5", MODELS),
    ("transformers", "activation_checkpointing_enable", "transformers_checkpoint", MODELS),
    ("transformers", "the same, offload=True", "transformers_offload", TEXTS),
    ("accelerate", "activation_checkpointing of FSDP2", "accelerate_checkpoint", MODELS),
    ("lightning", "activation_checkpointing_policy of FSDP", "lightning_checkpoint", MODELS),
    ("deepspeed", "checkpointing.checkpoint, each block", "deepspeed_checkpoint", MODELS),
    ("fairscale", "checkpoint_wrapper", "fairscale_checkpoint", MODELS),
    ("torchtitan", "FullAC", "torchtitan_checkpoint", MODELS),
    ("torchtitan", "SelectiveAC", "torchtitan_selective", MODELS),
    ("torch-remat", "checkpoint, each block", "torch_remat_checkpoint", MODELS),
    ("torch-remat", "the same, with a hook that keeps the generator's state", "torch_remat_with_hook", MODELS),
    ("trl", "selective checkpointing, attention saved", "trl_selective", TEXTS),
    ("trl", "OffloadActivations", "trl_offload", TEXTS),
    ("trl", "the loss in chunks of 512 words", "trl_loss", TEXTS),
    ("cut-cross-entropy", "linear_cross_entropy, torch_compile", "cut_cross_entropy_loss", TEXTS),
    ("liger-kernel", "LigerFusedLinearCrossEntropyLoss", "liger_loss", TEXTS),
    ("streambp", "StreamModel", "streambp", TEXTS),
    ("remat", "enable", "enable", MODELS),
    ("remat", "linear_cross_entropy", "remat_loss", TEXTS),
    ("remat", "budget 70 % of the activations", "remat:70%", MODELS),
    ("remat", "budget 40 % of the activations", "remat:40%", MODELS),
    ("remat", "budget 25 % of the activations", "remat:25%", MODELS),
    ("remat", "the same, with head=\"tiles\"", "remat_head", TEXTS),
]
BUILT_IN = re.compile(r"offload|enable|(compile|remat)(:.*)?")


def place(function: str) -> str:
    """What remat.audit() takes."""
    return function if BUILT_IN.fullmatch(function) else f"{HERE / 'audited_ways.py'}:{function}"


def install() -> None:
    """What is listed, unless it is there: the list itself lies beside it."""
    mark = PACKAGES / "audits.txt"
    if mark.exists() and mark.read_text() == LISTED.read_text():
        return
    shutil.rmtree(PACKAGES, ignore_errors=True)
    words = ["install", "--no-deps", "--target", str(PACKAGES), "--requirement", str(LISTED)]
    done = subprocess.run([sys.executable, "-m", "pip", *words], stdout=subprocess.DEVNULL)
    if done.returncode != 0:
        raise SystemExit("audits: pip could not install what bench/audits.txt lists; see what it says above")
    mark.write_text(LISTED.read_text())


def version_of(package: str) -> str:
    if package == "remat":
        return remat.__version__
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return ""


def audit(model: str, ways: list[tuple[str, str, str, list[str]]]) -> list[dict[str, object]]:
    """The rows of one model."""
    result = remat.audit(
        HERE / "audited_training.py",
        {function: place(function) for _, _, function, _ in ways},
        steps=STEPS,
        arguments=[model],
        timeout=LIMIT,
        progress=lambda words: print(f"  {words}", flush=True),
    )
    print(result, flush=True)
    plain = result.row("plain")
    rows = []
    for package, name, function, _ in ways:
        row = result.row(function)
        rows.append({
            "model": model,
            "package": package,
            "version": version_of(package),
            "way": name,
            "status": row.status,
            "compared": row.compared,
            "differing": row.differing,
            "first": asdict(row.first) if row.first else None,
            "operator": row.operator,
            "hint": hint(row) if row.status == "differs" else None,
            "error": row.error and row.error.replace(f"{machine.ROOT}/", ""),
            "peak_bytes": row.peak_bytes,
            "plain_peak_bytes": plain.peak_bytes,
            "seconds": row.seconds,
            "plain_seconds": plain.seconds,
            "noise": result.noise,
        })  # fmt: skip
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="*", metavar="MODEL", help=f"{', '.join(MODELS)} (default: all)")
    parser.add_argument("--only", metavar="WAY", default="", help="those whose function's name begins so; a trial")
    parser.add_argument("--skip", metavar="WAY", help="leave out those whose function's name begins so")
    parser.add_argument("--trial", action="store_true", help="write to build/bench-trial")
    options = parser.parse_args()
    if wrong := set(options.models) - set(MODELS):
        parser.error(f"no model '{wrong.pop()}'; there are {', '.join(MODELS)}")
    install()
    sys.path.append(str(PACKAGES))
    known = os.environ.get("PYTHONPATH", "")
    os.environ["PYTHONPATH"] = f"{known}{os.pathsep if known else ''}{PACKAGES}"
    os.environ.setdefault("OMP_WAIT_POLICY", "passive")

    trial = options.trial or bool(options.only)
    date = datetime.date.today().isoformat()
    folder = machine.ROOT / ("build/bench-trial" if trial else "bench/results")
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{date}-audits.json"
    head = {
        "figure": "audits",
        "date": date,
        "trial": trial,
        "versions": {"torch": torch.__version__, "threads": torch.get_num_threads(), **machine.describe()},
        "protocol": {"steps": STEPS, "seed": 0},
    }
    with keep_server(MODULES):
        for model in options.models or MODELS:
            print(model, flush=True)
            ways = [way for way in WAYS if model in way[3] and way[2].startswith(options.only)]
            if options.skip:
                ways = [way for way in ways if not way[2].startswith(options.skip)]
            measured = audit(model, ways)
            rows = json.loads(path.read_text())["rows"] if path.exists() else []
            rows = sorted([row for row in rows if row["model"] != model] + measured, key=lambda row: MODELS.index(row["model"]))
            path.write_text(json.dumps({**head, "rows": rows}, indent=1) + "\n")


if __name__ == "__main__":
    main()
