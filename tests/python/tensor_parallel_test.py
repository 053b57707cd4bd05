"""DTensor: tensors that wrap their local part. What is dropped and replayed is the parts, with the operators on them."""

from __future__ import annotations

import functools

import pytest
import torch
import torch.distributed as dist
from processes import run_on_processes
from scopes import loss_of
from sharding import BATCH, STEPS, WIDTH, Block, bytes_alive, check_report, compare_with_plain, scope_of
from torch import nn

import remat

pytestmark = pytest.mark.skipif(not dist.is_available(), reason="torch was built without it")

PLACE = 16  # tokens in a sequence


def parallel(row, model, mesh):
    """Splits the products of each block over the mesh; "sequence": and what lies between them over the tokens."""
    from torch.distributed.tensor import Replicate, Shard
    from torch.distributed.tensor.parallel import (
        ColwiseParallel,
        PrepareModuleInput,
        RowwiseParallel,
        SequenceParallel,
        parallelize_module,
    )

    for block in model[1:]:
        plan = {"layers.0": ColwiseParallel(), "layers.3": RowwiseParallel()}
        if row == "sequence":
            plan = {
                "norm": SequenceParallel(),
                "layers": PrepareModuleInput(
                    input_layouts=Shard(1), desired_input_layouts=Replicate(), use_local_output=False
                ),
                "layers.0": ColwiseParallel(use_local_output=False),
                "layers.3": RowwiseParallel(output_layouts=Shard(1), use_local_output=False),
            }
        parallelize_module(block, mesh, plan)
    return model


def model_of(row, mesh):
    from torch.distributed.fsdp import fully_shard

    torch.manual_seed(3)
    model = nn.Sequential(nn.Linear(WIDTH, WIDTH), *(Block(in_place=False) for _ in range(4)))
    parallel(row, model, mesh["split"])
    if row == "sharded too":
        for block in model[1:]:
            fully_shard(block, mesh=mesh["shard"])
        fully_shard(model, mesh=mesh["shard"])
    return model


def local(tensor):
    from torch.distributed.tensor import DTensor

    return tensor.to_local() if isinstance(tensor, DTensor) else tensor


def forward(row, model, mesh, x):
    from torch.distributed.tensor import DTensor, Replicate, Shard

    if row != "sequence":
        return model(x)
    x = DTensor.from_local(model[0](x), mesh["split"], [Replicate()]).redistribute(placements=[Shard(1)])
    return model[1:](x).full_tensor()


def train(row, rank, how):
    from torch.distributed.device_mesh import init_device_mesh

    shape = (dist.get_world_size() // 2, 2)
    mesh = init_device_mesh("cpu", shape, mesh_dim_names=("shard", "split"))
    model = model_of(row, mesh)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01, foreach=False)
    torch.manual_seed(5 + rank // 2)
    scope, session = scope_of(how)
    losses = []
    for _ in range(STEPS):
        optimizer.zero_grad()
        with scope():
            loss = loss_of(forward(row, model, mesh, torch.randn(BATCH // PLACE, PLACE, WIDTH)))
            loss.backward()
        losses.append(loss.detach())
        check_report(session, must_drop=how not in ("none", "100%"))
        optimizer.step()
    state = [local(t) for p in model.parameters() for t in (p.detach(), p.grad)]
    return [*losses, *state, torch.get_rng_state()], []


def compare(row, rank):
    ways = ("plain", "none", "100%", "80%", "60%", "80% online", "80% verify", "dropping")
    compare_with_plain(functools.partial(train, row, rank), row, rank, ways)


@pytest.mark.parametrize("row", ["tensor", "sequence"])
def test_two_processes(tmp_path, row):
    run_on_processes(functools.partial(compare, row), tmp_path)


def test_four_processes(tmp_path):
    run_on_processes(functools.partial(compare, "sharded too"), tmp_path, 4)


def end_of_forward(row):
    """Bytes that a step holds at the end of its forward pass: plain, with nothing and with everything dropped."""
    from torch.distributed.device_mesh import init_device_mesh

    mesh = init_device_mesh("cpu", (1, 2), mesh_dim_names=("shard", "split"))
    remat.memory.start_accounting("cpu")
    found = {}
    for how in 2 * ("plain", "none", "dropping"):  # the second time, when all caches are filled
        torch.manual_seed(3)
        model = nn.Sequential(nn.Linear(WIDTH, WIDTH), *(Block(in_place=False) for _ in range(4)))
        if row is not None:
            parallel(row, model, mesh["split"])
        scope, _ = scope_of(how)
        x = torch.randn(BATCH // PLACE, PLACE, WIDTH)
        before = bytes_alive()
        with scope():
            loss = loss_of(forward(row or "tensor", model, mesh, x))
            found[how] = bytes_alive() - before
            loss.backward()
        del loss
    return found


def little_is_held(rank):
    """What collectives gave cannot be computed again: where tokens are split, it is more of what is saved."""
    states = 4 * torch.get_rng_state().nbytes
    whole = end_of_forward(None)
    for row, share in {"tensor": 0.9, "sequence": 0.8}.items():
        part = end_of_forward(row)
        assert part["none"] <= part["plain"] + states + 1024, f"{row}, nothing dropped: {part}"
        dropped, of_whole = (1 - each["dropping"] / each["plain"] for each in (part, whole))
        assert dropped >= share * of_whole, f"{row}: {dropped:.3f} of the bytes are dropped, of the whole {of_whole:.3f}"


def test_nearly_as_much_is_dropped_as_of_the_whole_model(tmp_path):
    run_on_processes(little_is_held, tmp_path)
