#!/usr/bin/env python3
"""Measures remat on models whose blocks are compiled one by one; writes bench/results/<date>-compiled.json.

  bench/compiled.py [MODEL ...] [--pairs 9] [--batch MODEL=N ...] [--build build/release] [--out bench/results]

Everything is compared with the same compiled blocks without remat, in interleaved pairs of steps as in bench/peers.py:
torch.compile's own activation_memory_budget at 0.8, 0.5, 0.3 and 0.1, remat within the peak of each of these, within 50
and 25 % of the compiled model's activation peak, and with nothing dropped: on the compiler's usual cut into forward and
backward, and on those with its bits that are the fastest within that peak. Other models of the same day stay in the file.
"""

import argparse
import os
import sys

from peers import Results, parse
from worker import Protocol

MODELS = ("gpt", "bert", "resnet", "mlp")
SHARES = (50, 25)  # percent of the activation peak
CLOSE = 1.02


def dropout_errors():
    """How far a block's gradients are from those of budget 1, relatively, for each activation_memory_budget: without
    dropout, and with it."""
    import torch
    import torch._functorch.config
    from torch import nn

    class Block(nn.Module):
        def __init__(self, p):
            super().__init__()
            self.layers = nn.Sequential(
                nn.Dropout(p), nn.LayerNorm(256), nn.Linear(256, 1024), nn.GELU(), nn.Linear(1024, 256), nn.Dropout(p)
            )

        def forward(self, x):
            return x + self.layers(x)

    rows = []
    for p in (0.0, 0.1):
        for budget in (1.0, 0.5, 0.1):
            torch.compiler.reset()
            torch.manual_seed(0)
            block, x = Block(p), torch.randn(512, 256)
            torch._functorch.config.activation_memory_budget = budget
            torch.compile(block)(x).pow(2).mean().backward()
            gradients = [parameter.grad for parameter in block.parameters()]
            if budget == 1.0:
                exact = gradients
            error = max(((g - e).norm() / e.norm()).item() for g, e in zip(gradients, exact))
            rows.append({"dropout": p, "memory_budget": budget, "gradient_error": error})
    return rows


def points_of(peers):
    """The peaks within which remat is measured. Says in each of `peers`, rows of one model, which of them is its own."""
    measured = [row for row in peers if "error" not in row]
    plain = max(row["plain_activation_peak_bytes"] for row in measured)
    points = [plain * share // 100 for share in SHARES]
    for row in sorted(measured, key=lambda row: row["activation_peak_bytes"]):
        peak = row["activation_peak_bytes"]
        near = [point for point in points if point <= peak <= CLOSE * point]
        row["remat_within_bytes"] = max(near, default=peak)
        if not near:
            points.append(peak)
    return sorted(points)


def measure(results, model, only_fastest):
    """The rows of one model into the file, each group as it is done."""
    import peer_variants

    def rows_of(variants):
        return results.bench.rows(model, variants, plain=peer_variants.BLOCKS)

    if only_fastest:
        rows = [row for row in results.of(model) if not row["variant"].startswith(peer_variants.REMAT_FASTEST)]
        names = (peer_variants.REMAT_FASTEST,)
    else:
        rows = rows_of([(name,) for name in peer_variants.BLOCK_BUDGETS])
        names = (peer_variants.REMAT_BLOCKS, peer_variants.REMAT_FASTEST)
    points = points_of([row for row in rows if row["variant"] in peer_variants.BLOCK_BUDGETS])
    for name in names:
        new = rows_of([(name,), *((name, point) for point in points)])
        results.replace(model, rows, new)
        rows = rows + new


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--fastest", action="store_true", help="the fastest cuts alone, beside the day's other rows")
    args = parse(parser, MODELS, Protocol.pairs)
    os.environ["OMP_WAIT_POLICY"] = "passive"
    sys.path.insert(0, str(args.build / "python"))
    dropout = dropout_errors()
    for row in dropout:
        print("dropout {dropout}, memory budget {memory_budget}: gradients {gradient_error:.1%} off".format(**row), flush=True)
    results = Results(args, "compiled", dropout=dropout)
    for model in args.models:
        print(model, flush=True)
        measure(results, model, args.fastest)


if __name__ == "__main__":
    main()
