"""A model for tests of sharded data parallelism, and the ways of remat in which they train it."""

from __future__ import annotations

import contextlib
import time

import torch
import torch.distributed as dist
from compare import same_bits
from scopes import Dropping
from torch import nn

import remat

WIDTH, BATCH, STEPS = 32, 512, 4

# "plain" is among them: two plain runs must agree, or the comparison would show nothing.
WAYS = ("plain", "none", "100%", "60%", "60% online", "60% verify", "60% agreed", "dropping")


class Block(nn.Module):
    """Reads its input twice, as residual blocks do, and may write to its sum in place, as some of them do."""

    def __init__(self, in_place: bool):
        super().__init__()
        self.norm = nn.LayerNorm(WIDTH)
        self.layers = nn.Sequential(nn.Linear(WIDTH, 4 * WIDTH), nn.GELU(), nn.Dropout(0.1), nn.Linear(4 * WIDTH, WIDTH))
        self.in_place = in_place

    def forward(self, x):
        y = self.layers(self.norm(x).sin())
        return y.add_(x).tanh_() if self.in_place else x * 2 + y


def blocks_to_shard():
    torch.manual_seed(3)
    return nn.Sequential(nn.Linear(WIDTH, WIDTH), *(Block(in_place=i % 2 == 1) for i in range(5)))


def scope_of(how):
    """What goes around each step, and the session that it belongs to."""
    if how == "plain":
        return contextlib.nullcontext, None
    if how == "dropping":
        dropping = Dropping()
        return dropping, dropping.session
    budget, _, option = how.partition(" ")
    options = {
        "online": {"planner": "online"},
        "verify": {"verify": True},
        "agreed": {"process_group": dist.group.WORLD},
    }.get(option, {})
    session = remat.Session(budget=None if budget == "none" else budget, **options)
    return session.step, session


def check_report(session, must_drop):
    if session is None:
        return
    report = session.report()
    assert report.completed
    assert report.peak_bytes <= report.budget_bytes
    assert report.values_dropped > 0 or not must_drop


def bytes_alive():
    """Tensor bytes that are alive when gloo's threads have let go of what they sent and received."""
    found = [remat.memory.current("cpu")]
    while len(found) < 10 or len(set(found[-10:])) > 1:
        time.sleep(0.01)
        found.append(remat.memory.current("cpu"))
    return found[-1]


def check_forward_bytes(found, droppable):
    """Of the bytes that each way held at the end of forward: with nothing dropped they are plain's and the generator
    states', before the input and five dropouts; with everything dropped a share `droppable` of plain's is gone."""
    states = 6 * torch.get_rng_state().nbytes
    assert found["none"] <= 1.01 * found["plain"] + states, found
    assert found["dropping"] <= (1 - droppable) * found["plain"] + states, found


def compare_with_plain(train, name, rank, ways=WAYS):
    """`train(how)` returns what is left of some steps of this rank, and what it wrote to a log."""
    plain, plain_log = train("plain")
    for how in ways:
        ours, log = train(how)
        different = sum(not same_bits(a, b) for a, b in zip(plain, ours, strict=True))
        assert not different, f"{name}, {how}: {different} of {len(plain)} tensors differ on rank {rank}"
        assert log == plain_log, f"{name}, {how}: rank {rank} communicated {log}, in plain {plain_log}"
