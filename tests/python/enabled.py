"""Trains models whose blocks are enabled."""

from __future__ import annotations

import torch
from compare import outcome, same_bits

import remat


def dropped(model, run):
    """How many values a step without a budget drops: those of the regions."""
    session = remat.Session()
    with session.step():
        run(model)
    return session.report().values_dropped


def train(model):
    model(torch.randn(16, 64)).square().mean().backward()


def same_as(plain, ours, run, steps=2):
    results = []
    for model in (plain, ours):
        torch.manual_seed(11)
        for _ in range(steps):
            run(model)
        results.append(outcome(model, []))
    assert len(results[0]) == len(results[1])
    assert all(same_bits(a, b) for a, b in zip(*results))
