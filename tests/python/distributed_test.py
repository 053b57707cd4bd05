"""DistributedDataParallel on two processes."""

from __future__ import annotations

import pytest
import torch
import torch.distributed as dist
from compare import blocks, outcome, same_bits
from processes import run_on_processes
from scopes import Dropping, loss_of
from torch.nn.parallel import DistributedDataParallel

import remat

pytestmark = pytest.mark.skipif(not dist.is_available(), reason="torch was built without it")


def train(rank, how, accumulate=False, unused=False):
    """Three steps of DDP; what it leaves, and how often its hooks ran."""
    torch.manual_seed(3)
    model = blocks(3, norm=True)
    torch.manual_seed(5 + rank)  # each with its own data and masks
    calls = []

    def reduce(state, bucket):
        calls.append(bucket.index())
        return dist.all_reduce(bucket.buffer(), async_op=True).get_future().then(lambda f: f.value()[0] / 2)

    parallel = DistributedDataParallel(model, bucket_cap_mb=0.05, find_unused_parameters=unused)
    parallel.register_comm_hook(None, reduce)
    optimizer = torch.optim.AdamW(parallel.parameters(), lr=0.01)
    if how == "wrapped":
        remat.wrap(model)
    step = {"plain": None, "dropping": Dropping(), "budget": remat.Session(budget="70%").step}.get(how)
    losses = []
    for i in range(3):
        optimizer.zero_grad()
        for micro in range(2 if accumulate else 1):
            context = parallel.no_sync() if accumulate and micro == 0 else torch.enable_grad()
            with context, step() if step else torch.enable_grad():
                x = torch.randn(256, 64)
                y = parallel(x)  # first: it writes to the buffers, which saved values of a block may refer to
                if unused:
                    y = parallel.module[0](x) + 0 * y
                loss = loss_of(y)
                loss.backward()
            losses.append(loss.detach())
        optimizer.step()
    return [t for t in outcome(model, losses) if t is not None], calls


def compare_with_plain(rank):
    for options in ({}, {"accumulate": True}, {"unused": True}):
        plain, plain_calls = train(rank, "plain", **options)
        for how in ("dropping", "budget", "wrapped"):
            ours, calls = train(rank, how, **options)
            if calls != plain_calls:
                raise AssertionError(f"{how} {options}: hooks ran for {calls}, in plain for {plain_calls}")
            different = sum(not same_bits(a, b) for a, b in zip(plain, ours, strict=True))
            if different:
                raise AssertionError(f"{how} {options}: {different} of {len(plain)} tensors differ")


def test_two_processes(tmp_path):
    run_on_processes(compare_with_plain, tmp_path)
