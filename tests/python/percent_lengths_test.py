"""Budgets in percent on batches whose lengths change: no step is refused because it is larger than those before it, and
its own plain peak is what the share is of.

The quick run takes one training of each kind of lengths; REMAT_ALL=1 takes both shares and six seeds.
"""

from __future__ import annotations

import contextlib
import functools
import os
import random

import pytest
import torch
from compare import same_bits
from torch import nn

import remat

STEPS, ROWS, WIDTH, WORDS = 40, 8, 32, 97


def uniform(rng: random.Random) -> list[int]:
    return [rng.randint(12, 96) for _ in range(STEPS)]


def growing(rng: random.Random) -> list[int]:
    return sorted(uniform(rng))


def shrinking(rng: random.Random) -> list[int]:
    return sorted(uniform(rng), reverse=True)


def bimodal(rng: random.Random) -> list[int]:
    return [rng.choice((16, 80)) + rng.randint(0, 8) for _ in range(STEPS)]


def one_giant(rng: random.Random) -> list[int]:
    lengths = [rng.randint(8, 16) for _ in range(STEPS)]
    lengths[rng.randint(1, STEPS - 1)] = 160
    return lengths


KINDS = [uniform, growing, shrinking, bimodal, one_giant]
ALL = os.environ.get("REMAT_ALL")
CASES = [
    (lengths, seed, share, ("wrap", "session")[(index // 2 + seed + share // 20) % 2])
    for index, lengths in enumerate(KINDS)
    for seed in range(6)
    for share in (50, 70)
    if ALL or (seed, share) == (1, (50, 70)[index % 2])  # the first batch is a short one
]


def batches(lengths: list[int], rng: random.Random) -> list[torch.Tensor]:
    """Each is padded to its longest example."""
    made = []
    for longest in lengths:
        tokens = torch.zeros(ROWS, longest, dtype=torch.int64)
        for row in range(ROWS):
            length = longest if row == 0 else rng.randint(4, longest)
            tokens[row, :length] = torch.tensor([rng.randint(1, WORDS - 1) for _ in range(length)])
        made.append(tokens)
    return made


def trained(steps: list[torch.Tensor], share: int | None = None, way: str = "wrap") -> tuple[list, list]:
    """The loss of each step and the weights in the end, and what the steps took."""
    torch.manual_seed(0)
    layer = nn.TransformerEncoderLayer(WIDTH, 4, 4 * WIDTH, batch_first=True)
    model = nn.Sequential(nn.Embedding(WORDS, WIDTH), nn.TransformerEncoder(layer, 3), nn.Linear(WIDTH, WORDS))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    session = None
    if share is not None:
        if way == "wrap":
            remat.wrap(model, f"{share}%")
        else:
            session = remat.Session(f"{share}%")
    losses, reports = [], []
    for tokens in steps:
        optimizer.zero_grad()
        with session.step() if session else contextlib.nullcontext():
            loss = model(tokens).logsumexp(-1).mean()
            loss.backward()
        losses.append(loss.detach())
        del loss
        optimizer.step()
        if share is not None:
            reports.append((session or remat.session_of(model)).report())
    return [*losses, *(parameter.detach() for parameter in model.parameters())], reports


@pytest.fixture(autouse=True)
def one_thread():
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@functools.lru_cache(maxsize=1)
def plain_training(lengths, seed):
    rng = random.Random(seed)
    steps = batches(lengths(rng), rng)
    return steps, trained(steps)[0]


@pytest.mark.parametrize(("lengths", "seed", "share", "way"), CASES)
def test_no_step_is_refused_for_its_length(lengths, seed, share, way):
    steps, plain = plain_training(lengths, seed)
    ours, reports = trained(steps, share, way)
    assert all(same_bits(a, b) for a, b in zip(plain, ours, strict=True))
    assert any(report.values_dropped > 0 for report in reports)
    largest = 0
    for step, report in enumerate(reports):
        assert report.peak_bytes <= report.budget_bytes, step
        if step == 0:  # what it needs, if not enough can be evicted
            largest = report.plain_activation_peak_bytes
            continue
        largest = max(largest, report.plain_activation_peak_bytes)
        limit = report.budget_bytes - report.baseline_bytes
        assert limit <= share * largest / 100, f"step {step} of {len(steps[step][0])} tokens"
