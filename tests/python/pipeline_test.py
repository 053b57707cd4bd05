"""torch.distributed.pipelining: several micro-batches are in flight, and their backward passes come in another order."""

from __future__ import annotations

import functools

import pytest
import torch
import torch.distributed as dist
from processes import run_on_processes
from scopes import loss_of
from sharding import STEPS, WIDTH, Block, check_report, compare_with_plain, scope_of
from torch import nn

pytestmark = pytest.mark.skipif(not dist.is_available(), reason="torch was built without it")

MICRO_BATCHES, BATCH = 4, 512


def stages_of(schedule, rank):
    """Each process has a stage of two blocks, or two such stages where the schedule interleaves them."""
    from torch.distributed.pipelining import PipelineStage

    count = 4 if schedule in ("Interleaved1F1B", "InterleavedZeroBubble") else 2
    torch.manual_seed(3)
    modules = [nn.Sequential(Block(in_place=False), Block(in_place=True)) for _ in range(count)]
    own = range(rank, count, 2)
    return [PipelineStage(modules[i], i, count, torch.device("cpu")) for i in own], [modules[i] for i in own]


def train(schedule, rank, how):
    from torch.distributed import pipelining

    stages, modules = stages_of(schedule, rank)
    make = getattr(pipelining, "Schedule" + schedule)
    several = len(stages) > 1
    run = make(stages if several else stages[0], MICRO_BATCHES, loss_fn=lambda y, target: loss_of(y - target))
    parameters = [p for module in modules for p in module.parameters()]
    optimizer = torch.optim.AdamW(parameters, lr=0.01)
    torch.manual_seed(5)
    scope, session = scope_of(how)
    results = []
    for _ in range(STEPS):
        optimizer.zero_grad()
        x, target = torch.randn(MICRO_BATCHES * BATCH, WIDTH), torch.randn(MICRO_BATCHES * BATCH, WIDTH)
        losses = []
        with scope():
            run.step(*([x] if rank == 0 else []), **({"target": target, "losses": losses} if rank == 1 else {}))
        results += [loss.detach() for loss in losses]
        check_report(session, must_drop=how not in ("none", "100%"))
        optimizer.step()
    return [*results, *(t for p in parameters for t in (p.detach(), p.grad)), torch.get_rng_state()], []


def compare(schedule, rank):
    ways = ("plain", "none", "100%", "60%", "50%", "60% online", "60% verify", "dropping")
    compare_with_plain(functools.partial(train, schedule, rank), schedule, rank, ways)


@pytest.mark.parametrize("schedule", ["GPipe", "1F1B", "Interleaved1F1B", "InterleavedZeroBubble"])
def test_two_processes(tmp_path, schedule):
    run_on_processes(functools.partial(compare, schedule), tmp_path)
