"""FSDP2: `fully_shard` empties the storages of parameters between the passes of their layer, and fills them again."""

from __future__ import annotations

import contextlib
import functools

import pytest
import torch
import torch.distributed as dist
from compare import same_bits
from processes import run_on_processes
from scopes import loss_of
from sharding import (
    BATCH,
    STEPS,
    WAYS,
    WIDTH,
    blocks_to_shard,
    bytes_alive,
    check_forward_bytes,
    check_report,
    compare_with_plain,
    scope_of,
)

import remat

pytestmark = pytest.mark.skipif(not dist.is_available(), reason="torch was built without it")


FORWARD_BYTES = {}  #: that the last forward pass of each way left, above its step's begin


def sharded(row):
    from torch.distributed import device_mesh, fsdp

    model = blocks_to_shard()
    options = {
        "reshard to two": {"reshard_after_forward": 2},
        "not resharded": {"reshard_after_forward": False},
        "offload": {"offload_policy": fsdp.CPUOffloadPolicy(pin_memory=False)},
        "bfloat16": {"mp_policy": fsdp.MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)},
    }.get(row, {})
    if row == "hybrid":
        options["mesh"] = device_mesh.init_device_mesh("cpu", (2, 2), mesh_dim_names=("replicate", "shard"))
    for block in model[1:]:
        fsdp.fully_shard(block, **options)
    return fsdp.fully_shard(model, **options)


def logging_collectives(log):
    """The collectives that FSDP2 calls from now on write to `log`. Returns what they were."""
    originals = {}
    for name in ("all_gather_single", "reduce_scatter_single", "all_reduce"):
        originals[name] = getattr(dist, name)

        def logged(*args, _name=name, _original=originals[name], **kwargs):
            tensors = [t for t in (*args, *kwargs.values()) if isinstance(t, torch.Tensor)]
            log.append((_name, [t.nbytes for t in tensors]))
            return _original(*args, **kwargs)

        setattr(dist, name, logged)
    return originals


def train(row, rank, how):
    model = sharded(row)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    torch.manual_seed(5 + rank)
    scope, session = scope_of(how)
    micro_batches = 3 if row == "accumulation" else 1
    losses, log = [], []
    remat.memory.start_accounting("cpu")
    originals = logging_collectives(log)
    for step in range(STEPS):
        optimizer.zero_grad()
        measured = row == "default" and step == STEPS - 1
        before = bytes_alive() if measured else 0
        with scope():
            for micro in range(micro_batches):
                model.set_requires_gradient_sync(micro == micro_batches - 1)
                loss = loss_of(model(torch.randn(BATCH, WIDTH)))
                if measured:
                    FORWARD_BYTES[how] = bytes_alive() - before
                loss.backward()
                losses.append(loss.detach())
        check_report(session, must_drop=how not in ("none", "100%"))
        optimizer.step()
    for name, original in originals.items():
        setattr(dist, name, original)
    assert log, "no collective was seen: the log shows nothing"
    state = [t.to_local() for p in model.parameters() for t in (p, p.grad)]
    return [*losses, *state, torch.get_rng_state()], log


def compare(row, rank):
    compare_with_plain(functools.partial(train, row, rank), row, rank, (*WAYS, "40%"))
    if row == "default":
        check_forward_bytes(FORWARD_BYTES, 0.85)


@pytest.mark.parametrize("row", ["default", "not resharded", "accumulation", "offload", "bfloat16"])
def test_two_processes(tmp_path, row):
    run_on_processes(functools.partial(compare, row), tmp_path)


@pytest.mark.parametrize("row", ["reshard to two", "hybrid"])
def test_four_processes(tmp_path, row):
    run_on_processes(functools.partial(compare, row), tmp_path, 4)


def train_without_session(how):
    """In a process that has had no session: nothing has started remat's accounts but what `how` does."""
    from torch.distributed import fsdp

    model = blocks_to_shard()
    policy = fsdp.MixedPrecisionPolicy(
        param_dtype=torch.bfloat16, reduce_dtype=torch.float32, cast_forward_inputs=True
    )
    if how == "enable":
        remat.enable(model, blocks=list(model))
    for block in model:
        fsdp.fully_shard(block, mp_policy=policy)
    fsdp.fully_shard(model, mp_policy=policy)
    if how == "enable when sharded":
        remat.enable(model, blocks=list(model))
    torch.manual_seed(5)
    results = []
    for _ in range(STEPS):
        model.zero_grad()
        with remat.policy() if how == "policy" else contextlib.nullcontext():
            loss = loss_of(model(torch.randn(BATCH, WIDTH)))
        loss.backward()
        results += [loss.detach(), *(p.grad.to_local() for p in model.parameters())]
    return results


def compare_without_session(how, rank):
    assert not remat.accounting.counts()
    ours = train_without_session(how)
    plain = train_without_session("none")
    assert all(same_bits(a, b) for a, b in zip(plain, ours, strict=True))


@pytest.mark.parametrize("how", ["enable", "enable when sharded", "policy"])
def test_casts_without_a_session(tmp_path, how):
    run_on_processes(functools.partial(compare_without_session, how), tmp_path)
