"""Collective communication inside the forward pass: it happens once, and what it writes is held."""

from __future__ import annotations

import contextlib

import pytest
import torch
import torch.distributed as dist
from compare import blocks, outcome, same_bits
from processes import group, run_on_processes
from scopes import Dropping, assert_exact_when_dropped, assert_exact_within, loss_of
from torch import nn

import remat

pytestmark = pytest.mark.skipif(not dist.is_available(), reason="torch was built without it")


class Reduce(torch.autograd.Function):
    """Megatron's: the sum over the processes in forward, nothing in backward."""

    @staticmethod
    def forward(ctx, x):
        dist.all_reduce(x)
        return x

    @staticmethod
    def backward(ctx, gradient):
        return gradient


class AsyncReduce(Reduce):
    @staticmethod
    def forward(ctx, x):
        work = dist.all_reduce(x, async_op=True)
        work.wait()
        return x


def broadcast(x):
    dist.broadcast(x.detach(), 0)
    return x


def gather(x):
    parts = [torch.empty_like(x) for _ in range(dist.get_world_size())]
    dist.all_gather(parts, x.detach())
    return x + parts[0] * 0.5 + parts[-1]


def scatter(x):
    """Into memory that has been read before."""
    total = x.detach() * 2
    y = x * total
    dist.all_reduce(total, async_op=True).wait()
    return y + x * total


def functional(x):
    from torch.distributed import _functional_collectives as collectives

    return x + collectives.wait_tensor(collectives.all_reduce(x.detach() * 3, "sum", dist.group.WORLD))


def functional_list(x):
    """Results that are waited for together, which torch can from 2.15 on."""
    operators = torch.ops._c10d_functional
    sums = operators.all_reduce_coalesced([x.detach() * 3, x.detach() * 5], "sum", dist.group.WORLD.group_name)
    if hasattr(operators, "wait_tensors"):
        sums = operators.wait_tensors(sums)
    else:
        sums = [operators.wait_tensor(s) for s in sums]
    return x * sums[0] + sums[1]


def functional_gradient(x):
    from torch.distributed import _functional_collectives as collectives

    return collectives.all_gather_tensor_autograd(x, 0, dist.group.WORLD)[: x.shape[0]]


def nn_all_reduce(x):
    import torch.distributed.nn.functional

    return torch.distributed.nn.functional.all_reduce(x)


def send(x):
    rank, size = dist.get_rank(), dist.get_world_size()
    buffer = x.detach() * 5
    y = x * buffer
    if size > 1:
        operations = [
            dist.P2POp(dist.isend, x.detach().contiguous(), 1 - rank),
            dist.P2POp(dist.irecv, buffer, 1 - rank),
        ]
        for work in dist.batch_isend_irecv(operations):
            work.wait()
    return y + x * buffer


PROGRAMS = {
    "reduce": Reduce.apply,
    "async_reduce": AsyncReduce.apply,
    "broadcast": broadcast,
    "gather": gather,
    "scatter": scatter,
    "functional": functional,
    "functional_list": functional_list,
    "functional_gradient": functional_gradient,
    "nn_all_reduce": nn_all_reduce,
    "send": send,
}


def around(communicate):
    """Products, which a replay makes again, go into the communication and on from it."""

    def program(model):
        x = torch.randn(64, 64)
        for block in model:
            x = communicate(block(x))
            x = (x * 0.5).sigmoid() * x
        loss = loss_of(x)
        loss.backward()
        return loss.detach()

    return program


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_group_of_one_process(name):
    with group():
        assert_exact_when_dropped(blocks(3), around(PROGRAMS[name]))
        assert_exact_within(blocks(6), around(PROGRAMS[name]), budget="80%")


class Counted:
    """How often this process communicates, by operator."""

    def __init__(self) -> None:
        self.calls: dict[str, int] = {}

    def __enter__(self) -> dict[str, int]:
        self.profile = torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU])
        self.profile.__enter__()
        return self.calls

    def __exit__(self, *error) -> None:
        self.profile.__exit__(*error)
        for event in self.profile.key_averages():
            if event.key.startswith(("c10d::", "_c10d_functional", "fsdp::")) and "wait_tensor" not in event.key:
                self.calls[event.key] = event.count


def train(communicate, rank, scope, steps=3):
    torch.manual_seed(3)
    model = blocks(4)
    torch.manual_seed(5 + rank)
    losses = []
    with Counted() as calls:
        for _ in range(steps):
            with scope():
                losses.append(around(communicate)(model))
    return outcome(model, losses), calls


def check(plain, ours, what):
    different = sum(not same_bits(a, b) for a, b in zip(plain[0], ours[0], strict=True))
    if different:
        raise AssertionError(f"{what}: {different} of {len(plain[0])} tensors differ")
    if plain[1] != ours[1]:
        raise AssertionError(f"{what}: plain communicates {plain[1]}, remat {ours[1]}")


def collectives(rank):
    for name, communicate in PROGRAMS.items():
        plain = train(communicate, rank, contextlib.nullcontext)
        for how, scope in {"dropped": Dropping(), "80%": remat.Session(budget="80%").step}.items():
            check(plain, train(communicate, rank, scope), f"{name} {how}")


def sharded(rank, how):
    from torch.distributed.fsdp import fully_shard

    torch.manual_seed(3)
    model = blocks(4)
    for block in model:
        fully_shard(block)
    fully_shard(model)
    if how == "wrapped":
        remat.wrap(model, budget="60%")
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    torch.manual_seed(5 + rank)
    losses = []
    with Counted() as calls:
        for _ in range(4):
            optimizer.zero_grad()
            loss = loss_of(model(torch.randn(256, 64)))
            loss.backward()
            losses.append(loss.detach())
            optimizer.step()
    report = remat.session_of(model).report() if how == "wrapped" else None
    if report is not None and not 0 < report.peak_bytes <= report.budget_bytes:
        raise AssertionError(f"a peak of {report.peak_bytes} bytes within {report.budget_bytes}")
    if report is not None and report.values_dropped == 0:
        raise AssertionError("nothing was dropped: the test shows nothing")
    return losses + [p.to_local().detach() for p in model.parameters()], calls


def fsdp(rank):
    check(sharded(rank, "plain"), sharded(rank, "wrapped"), "fully_shard")


@pytest.mark.parametrize("body", [collectives, fsdp])
def test_two_processes(tmp_path, body):
    run_on_processes(body, tmp_path)


@pytest.mark.parametrize("operator", [torch.ops.c10d.allreduce_, "_c10d_functional::all_reduce"])
def test_communication_cannot_be_declared_repeatable(operator):
    with pytest.raises(remat.Error, match="communicates with other processes"):
        remat.repeatable(operator)


def test_nothing_is_lost_of_a_linear_layer_behind_a_reduction():
    """The weights of a layer whose result is reduced in place stay what they were."""
    with group():
        layer = nn.Linear(8, 8)
        weights = layer.weight.detach().clone()
        with remat.Session().step(), remat.policy():
            loss_of(Reduce.apply(layer(torch.randn(4, 8)))).backward()
        assert same_bits(layer.weight, weights)
