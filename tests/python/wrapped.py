"""Runs a training loop on a plain and on a wrapped model."""

from __future__ import annotations

import copy

import torch
from compare import blocks, outcome, same_bits

import remat
from remat import _C


def batch():
    return torch.randn(128, 64)


def both(loop, budget="50%", make=blocks):
    """Runs `loop(model)` on a plain model and on a wrapped one: same bits, and no step left. Returns the session."""
    torch.manual_seed(3)
    model = make()
    results = []
    for wrapped in (False, True):
        ours = copy.deepcopy(model)
        if wrapped:
            assert remat.wrap(ours, budget=budget) is ours
        torch.manual_seed(11)
        results.append(outcome(ours, loop(ours)))
    assert len(results[0]) == len(results[1])
    assert all(same_bits(a, b) for a, b in zip(*results))
    assert not _C.is_recording()
    return remat.session_of(ours)
