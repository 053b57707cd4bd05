"""Collectives in random programs: on one process a sum changes nothing, but what gathers, scatters and broadcasts still
writes. The kind "collectives" of random_programs.py."""

from __future__ import annotations

import contextlib

import torch
import torch.distributed as dist
from random_programs import SIZE, Machine, instruction


@instruction("collectives")
def reduced_in_place(m: Machine) -> None:
    x = m.pick() @ m.weights[0]
    y = x.detach() if m.choices.random() < 0.5 else x
    with contextlib.nullcontext() if y is not x else torch.no_grad():
        work = dist.all_reduce(y, op=dist.ReduceOp.SUM, async_op=m.choices.random() < 0.5)
    if work is not None:
        work.wait()
    m.pool.append(x.sin() * x)


@instruction("collectives")
def gathered(m: Machine) -> None:
    x = m.pick()
    outs = [m.pick().detach() * 0.5 for _ in range(dist.get_world_size())]  # an operator's results, overwritten
    if m.choices.random() < 0.5:
        dist.all_gather(outs, x.detach().contiguous())
    else:
        joined = torch.cat(outs) * 1.0
        dist.all_gather_into_tensor(joined, x.detach().contiguous())
        outs = list(joined.chunk(dist.get_world_size()))
    m.pool.append((sum(outs) * m.weights[1]).sin() * x)


@instruction("collectives")
def scattered(m: Machine) -> None:
    x = m.pick()
    out = m.pick().detach() * 0.25
    dist.reduce_scatter(out, [x.detach().contiguous() * (i + 1) for i in range(dist.get_world_size())])
    m.pool.append((out @ m.weights[2]).cos() * out)


@instruction("collectives")
def exchanged(m: Machine) -> None:
    x = m.pick()
    out = m.pick().detach() * 0.125
    dist.all_to_all_single(out, x.detach().contiguous().sin())
    m.pool.append((out * m.weights[0]).tanh())


@instruction("collectives")
def broadcast(m: Machine) -> None:
    x = m.pick() * m.weights[1]
    dist.broadcast(x.detach(), m.choices.randrange(dist.get_world_size()))
    m.pool.append(x.exp().tanh())


@instruction("collectives")
def functional(m: Machine) -> None:
    from torch.distributed import _functional_collectives as functions

    x = m.pick() @ m.weights[0]
    group = dist.group.WORLD
    kind = m.choices.randrange(4)
    if kind == 0:
        y = functions.all_reduce(x.detach(), "sum", group)
    elif kind == 1:
        y = functions.all_gather_tensor(x.detach().contiguous(), 0, group)[:SIZE]
    elif kind == 2:
        name = group.group_name
        y = torch.ops._c10d_functional.all_reduce(x.detach(), "sum", name)
        y = torch.ops._c10d_functional.wait_tensor(y)
    else:
        y = functions.broadcast(x.detach(), 0, group)
    m.pool.append((y * x).sin() * y)


@instruction("collectives")
def differentiable(m: Machine) -> None:
    import torch.distributed.nn

    x = m.pick() @ m.weights[2]
    if m.choices.random() < 0.5:
        y = torch.distributed.nn.functional.all_reduce(x.clone())
    else:
        y = sum(torch.distributed.nn.functional.all_gather(x.contiguous()))
    m.pool.append(y.sin() * y)
