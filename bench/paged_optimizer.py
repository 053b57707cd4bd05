#!/usr/bin/env python3
"""Measures AdamW with its state in a file beside AdamW as it is; writes bench/results/<date>-paged-optimizer.json.

  bench/paged_optimizer.py [--rounds 3] [--steps 6] [--batch 4] [--seq 512] [--layers 12] [--dir /var/tmp]
                           [--out bench/results]

The model has GPT-2 small's shape (124 million parameters, its usual dropout) and weights from a seed, in float32; data
are random tokens. Each run is a process of its own, and runs follow each other in turn, round by round. A run's time is
the median of its steps but for the first two (forward, backward, update, zero_grad), a ratio the median over the
rounds. Bytes are those of tensors, by remat's count: between steps, and at the peak of the update, where backward is
over before it. Losses and the last step's parameters are compared by a checksum. Fewer rounds or layers are a trial.
"""

import argparse
import datetime
import hashlib
import json
import statistics
import subprocess
import sys
import time
from pathlib import Path

from machine import ROOT, busy_seconds, describe

WARM_UP = 2
VARIANTS = ("resident", "paged", "resident in backward", "paged in backward")


def train(variant, args):
    """What one run measures."""
    import torch
    import transformers

    import remat

    remat.memory.start_accounting()
    torch.manual_seed(0)
    config = transformers.GPT2Config(n_layer=args.layers)
    model = transformers.GPT2LMHeadModel(config).train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    in_backward = variant.endswith("in backward")
    pages = remat.paged(optimizer, dir=args.dir) if variant.startswith("paged") else None
    if in_backward:
        remat.optimizer_in_backward(optimizer)
    seconds, foreign, update_peak = [], [], 0
    for step in range(args.steps):
        tokens = torch.randint(config.vocab_size, (args.batch, args.seq), generator=torch.Generator().manual_seed(step))
        begin, busy, own = time.perf_counter(), busy_seconds(), time.process_time()
        loss = model(input_ids=tokens, labels=tokens).loss
        loss.backward()
        remat.memory.reset_peak()
        optimizer.step()
        update_peak = max(update_peak, remat.memory.peak())
        optimizer.zero_grad() if not in_backward else None
        seconds.append(time.perf_counter() - begin)
        foreign.append(max(0.0, busy_seconds() - busy - (time.process_time() - own)) / seconds[-1])
        last_loss = loss.item()
        del loss
    parameters = list(model.parameters())
    count = sum(parameter.numel() for parameter in parameters)
    digest = hashlib.sha256(repr(last_loss).encode())
    for parameter in parameters:
        digest.update(parameter.detach().numpy().tobytes())
    result = {
        "parameters": count,
        "seconds": seconds,
        "foreign_cores": statistics.median(foreign),
        "bytes_between_steps": remat.memory.current(),
        "bits": digest.hexdigest(),
    }
    if not in_backward:
        result["bytes_at_update"] = update_peak
    if pages is not None:
        report = pages.report()
        result |= {
            "state_bytes": report.paged_bytes,
            "written_bytes_per_step": report.written_bytes / args.steps,
            "write_bytes_per_second": report.written_bytes / report.write_seconds,
            "read_bytes_per_second": report.read_bytes / report.read_seconds,
            "waited_seconds_per_step": report.waited_seconds / args.steps,
        }
    return result


def run(variant, args):
    command = [sys.executable, __file__, "--run", variant, "--dir", args.dir]
    command += ["--steps", args.steps, "--batch", args.batch, "--seq", args.seq, "--layers", args.layers]
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise SystemExit(f"bench: {variant}: {done.stderr}")
    return json.loads(done.stdout.splitlines()[-1])


def row_of(variant, runs, reference):
    """`runs` and `reference` are one for each round."""

    def times(of):
        return [statistics.median(each["seconds"][WARM_UP:]) for each in of]

    ratios = [ours / theirs for ours, theirs in zip(times(runs), times(reference))]
    last = runs[-1]
    row = {
        "variant": variant,
        "seconds": statistics.median(times(runs)),
        "ratio": statistics.median(ratios),
        "ratio_range": [min(ratios), max(ratios)],
        "bytes_per_parameter_between_steps": last["bytes_between_steps"] / last["parameters"],
    }
    if "bytes_at_update" in last:
        row["bytes_per_parameter_at_update"] = last["bytes_at_update"] / last["parameters"]
    return row | {name: value for name, value in last.items() if name not in ("seconds", "parameters")}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=6)
    parser.add_argument("--batch", type=int, default=4)
    parser.add_argument("--seq", type=int, default=512)
    parser.add_argument("--layers", type=int, default=12)
    parser.add_argument("--dir", type=Path, default=Path("/var/tmp"), help="where the state's file is")
    parser.add_argument("--out", type=Path, default=ROOT / "bench" / "results")
    parser.add_argument("--run", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.run:
        print(json.dumps(train(args.run, args)))
        return
    runs = {variant: [] for variant in VARIANTS}
    for _ in range(args.rounds):
        for variant in VARIANTS:
            runs[variant].append(run(variant, args))
    # Backward that frees gradients at once is another loop: each is compared with its own.
    rows = [row_of(each, runs[each], runs[each.replace("paged", "resident")]) for each in VARIANTS]
    if len({each["bits"] for variant in VARIANTS for each in runs[variant]}) != 1:
        raise SystemExit("bench: parameters or losses differ; that is a bug, please report it")
    for row in rows:
        print(
            f"{row['variant']}: {row['seconds']:.2f} s a step, {row['ratio']:.3f} of resident's; "
            f"bytes for each parameter: {row['bytes_per_parameter_between_steps']:.2f} between steps, "
            f"{row.get('bytes_per_parameter_at_update', float('nan')):.2f} at the update"
        )
    date = datetime.date.today().isoformat()
    trial = args.rounds < 3 or args.layers < 12
    result = {
        "figure": "paged-optimizer",
        "date": date,
        "trial": trial,
        "versions": describe(),
        "shape": {"batch": args.batch, "seq": args.seq, "layers": args.layers},
        "protocol": {"pairs": args.rounds},
        "rows": rows,
    }
    out = args.out if not trial else ROOT / "build" / "bench-trial"
    out.mkdir(parents=True, exist_ok=True)
    (out / f"{date}-paged-optimizer.json").write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
