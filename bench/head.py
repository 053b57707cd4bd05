#!/usr/bin/env python3
"""Measures heads in tiles beside plain PyTorch; writes bench/results/<date>-head.json, of which bench/readme_table.py
makes the tables of docs/tiles.md. Ten minutes.

  bench/head.py [--tokens 4096] [--width 1024] [--classes 32000] [--pairs 5] [--threads 2] [--build build/release]
                [--out bench/results] [--only VARIANT] [--models gpt2 llama]

The head alone, and models that `remat train` trains within budgets (bench/head_models.py). Of the head alone:
Each variant is a process of its own: plain, remat's, torch.nn.functional.linear_cross_entropy in its tiles where this torch has
it, and plain compiled by Inductor with its chunker of losses. Steps of forward and backward are taken in turns with plain's;
times are medians of pairs. Bytes are the largest that were alive above inputs, weights and their gradients.
"""

import argparse
import datetime
import json
import os
import statistics
import subprocess
import sys
import time
from pathlib import Path

import head_models
import machine

VARIANTS = ("remat", "torch tiles", "inductor chunks")


def loss_of(variant, torch):
    """The loss as a function of input, weight and target; raises where this torch cannot do it."""
    functional = torch.nn.functional

    def plain(x, weight, target):
        return functional.cross_entropy(functional.linear(x, weight), target)

    if variant == "plain":
        return plain
    if variant == "remat":
        import remat

        return remat.linear_cross_entropy
    if variant == "torch tiles":
        options = torch.nn.LinearCrossEntropyOptions(batch_chunk_size=192)
        return lambda *inputs: functional.linear_cross_entropy(*inputs, options=options)
    import torch._inductor.config as config

    config.auto_chunker.enable = True
    return torch.compile(plain)


def serve(args):
    """A process of one variant: a step for each line of input, and its figures as a line of output."""
    import torch

    import remat

    torch.set_num_threads(args.threads)
    remat.memory.start_accounting()
    loss = loss_of(args.serve, torch)
    torch.manual_seed(0)
    x = torch.randn(args.tokens, args.width, requires_grad=True)
    weight = (torch.randn(args.classes, args.width) * 0.02).requires_grad_()
    target = torch.randint(0, args.classes, (args.tokens,))
    for _ in sys.stdin:
        x.grad = weight.grad = None
        before = remat.memory.current()
        remat.memory.reset_peak()
        began, cpu = time.perf_counter(), time.process_time()
        value = loss(x, weight, target)
        value.backward()
        row = {
            "seconds": time.perf_counter() - began,
            "cpu_seconds": time.process_time() - cpu,
            "bytes": remat.memory.peak() - before - x.grad.nbytes - weight.grad.nbytes,
            "bits": hash_of(torch, value, x.grad, weight.grad),
        }
        print(json.dumps(row), flush=True)


def hash_of(torch, *tensors):
    """Numbers that differ where bits do."""
    return [int(tensor.detach().reshape(-1).view(torch.int32).to(torch.int64).mul_(31).sum()) for tensor in tensors]


class Variant:
    def __init__(self, name, args):
        options = [f"--{key}={getattr(args, key)}" for key in ("tokens", "width", "classes", "threads")]
        environment = os.environ | {"OMP_WAIT_POLICY": "passive", "PYTHONPATH": str(args.build / "python")}
        self.process = subprocess.Popen(
            [sys.executable, __file__, "--serve", name, *options],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment,
        )  # fmt: skip

    def step(self):
        self.process.stdin.write("\n")
        self.process.stdin.flush()
        line = self.process.stdout.readline()
        if not line:
            raise RuntimeError(f"[head] the variant ended with code {self.process.wait()}; see its messages above")
        return json.loads(line)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.stdin.close()
        self.process.wait()


def measure(name, args):
    with Variant("plain", args) as plain, Variant(name, args) as other:
        first = other.step()
        plain.step()
        busy, began = machine.busy_seconds(), time.monotonic()
        pairs = [(plain.step(), other.step()) for _ in range(args.pairs)]
        used = sum(row["cpu_seconds"] for pair in pairs for row in pair)
        foreign = (machine.busy_seconds() - busy - used) / (time.monotonic() - began)
    logits = args.tokens * args.classes * 4
    return {
        "variant": name,
        "logits_bytes": logits,
        "plain_bytes": max(row["bytes"] for row, _ in pairs),
        "bytes": max(row["bytes"] for _, row in pairs),
        "first_bytes": first["bytes"],
        "first_seconds": first["seconds"],
        "plain_seconds": statistics.median(row["seconds"] for row, _ in pairs),
        "seconds": statistics.median(row["seconds"] for _, row in pairs),
        "ratio": statistics.median(b["seconds"] / a["seconds"] for a, b in pairs),
        "cpu_ratio": statistics.median(b["cpu_seconds"] / a["cpu_seconds"] for a, b in pairs),
        "same_bits": all(a["bits"] == b["bits"] for a, b in pairs),
        "foreign": foreign,
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, default in (("tokens", 4096), ("width", 1024), ("classes", 32000), ("pairs", 5), ("threads", 2)):
        parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument("--build", type=Path, default=machine.ROOT / "build/release")
    parser.add_argument("--out", type=Path, default=machine.ROOT / "bench/results")
    parser.add_argument("--only", choices=VARIANTS, help="one variant of the head alone, beside plain")
    parser.add_argument("--models", nargs="*", choices=head_models.MODELS, default=list(head_models.MODELS))
    parser.add_argument("--serve", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.serve:
        return serve(args)
    rows = []
    print("variant            time  CPU time  bytes, share of logits (first call)  same bits  foreign cores")
    for name in [args.only] if args.only else VARIANTS:
        try:
            row = measure(name, args)
        except RuntimeError as error:
            rows.append({"variant": name, "error": str(error)})
            print(f"{name:16} {error}")
            continue
        rows.append(row)
        print(
            "{variant:16} {ratio:5.2f} x {cpu_ratio:6.2f} x  {bytes:,} ".format(**row)
            + f"{row['bytes'] / row['logits_bytes']:.3f} ({row['first_bytes'] / row['logits_bytes']:.3f})"
            + "  {same_bits}  {foreign:.2f}".format(**row),
            flush=True,
        )
    models = []
    for name in args.models:
        for row in head_models.measure(name, args.build):
            models.append(row)
            share = 100 * row.get("activation_peak_bytes", 0) / row.get("plain_activation_peak_bytes", 1)
            print(f"{name}, {row['variant']}: ", row.get("error", f"{share:.1f} %, {row.get('ratio', 0):.2f} x"), flush=True)
    import torch

    shape = {name: getattr(args, name) for name in ("tokens", "width", "classes", "threads")}
    date = datetime.date.today().isoformat()
    versions = {"torch": torch.__version__, **machine.describe()}
    trial = args.only is not None or len(args.models) < len(head_models.MODELS)
    document = {"figure": "head", "date": date, "trial": trial, "versions": versions, "protocol": {"pairs": args.pairs}}
    document |= {"shape": shape, "rows": rows, "models": models}
    path = args.out / f"{date}-head.json"
    path.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
    print(path)


if __name__ == "__main__":
    main()
