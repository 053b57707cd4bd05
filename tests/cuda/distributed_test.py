"""DistributedDataParallel and FSDP2 over Gloo, with a device for each process where there are enough."""

import warnings

import cuda_devices
import pytest
import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import nn
from torch.distributed import fsdp
from torch.nn.parallel import DistributedDataParallel
from training import in_step, same_bits

import remat

RANKS, STEPS = 2, 4


def blocks(device):
    torch.manual_seed(0)
    layers = (nn.Sequential(nn.Linear(128, 512), nn.GELU(), nn.Dropout(0.1), nn.Linear(512, 128)) for _ in range(6))
    return nn.Sequential(*layers).to(device)


def replicated(device):
    return DistributedDataParallel(blocks(device), device_ids=[device.index])


def sharded(device):
    model = blocks(device)
    for block in model:
        fsdp.fully_shard(block)
    return fsdp.fully_shard(model)


def local(tensor):
    return (tensor.to_local() if hasattr(tensor, "to_local") else tensor).detach().cpu()


def train(build, rank, budget):
    """Losses, gradients and parameters after some steps, and the last report."""
    device = torch.device("cuda", torch.cuda.current_device())
    model = build(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    session = None if budget is None else remat.Session(budget, device=device, process_group=dist.group.WORLD)
    losses = []
    for step in range(STEPS):
        torch.manual_seed(10 * rank + step)
        x = torch.randn(512, 128).to(device)
        optimizer.zero_grad()
        with in_step(session):
            loss = model(x).square().mean()
            loss.backward()
        optimizer.step()
        losses.append(loss.detach().cpu())
    return [*losses, *(local(t) for p in model.parameters() for t in (p, p.grad))], session and session.report()


def run_rank(rank, build, store):
    cuda_devices.load()
    torch.cuda.set_device(rank % torch.cuda.device_count())
    warnings.simplefilter("ignore")
    dist.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=RANKS)
    plain, _ = train(build, rank, None)
    ours, report = train(build, rank, "60%")
    assert same_bits(ours, plain)
    assert report.peak_bytes <= report.budget_bytes < report.plain_peak_bytes
    assert report.decided_by == "auto"
    assert report.ops_replayed > 0
    dist.destroy_process_group()


@pytest.mark.parametrize("build", [replicated, sharded])
def test_ranks_train_as_without_budgets(tmp_path, build):
    mp.spawn(run_rank, args=(build, tmp_path / "store"), nprocs=RANKS)
