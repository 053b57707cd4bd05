"""Sessions of several processes that agree: what one of them is refused all are told of, and one plan is followed."""

from __future__ import annotations

import contextlib
import functools
import gc
import json
import os
import signal
import threading
import time
from datetime import timedelta

import pytest
import torch
import torch.distributed as dist
from compare import same_bits
from processes import group, run_on_processes
from scopes import loss_of
from sharding import BATCH, WIDTH, blocks_to_shard
from torch.nn.parallel import DistributedDataParallel

import remat

pytestmark = pytest.mark.skipif(not dist.is_available(), reason="torch was built without it")

BALLAST = 1 << 20


def model_of(kind):
    """One for each step that fails: neither engine has a way back out of a backward pass that was left in the middle."""
    if kind == "ddp":
        return DistributedDataParallel(blocks_to_shard())
    from torch.distributed import fsdp

    model = blocks_to_shard()
    for block in model[1:]:
        fsdp.fully_shard(block)
    return fsdp.fully_shard(model)


def step_of(model, batch=BATCH, passes=None):
    loss = loss_of(model(torch.randn(batch, WIDTH)))
    if passes is not None:
        passes.append("backward")
    loss.backward()
    return loss.detach()


def allocate_in_backward(model, count):
    """`count` bytes, halfway through each backward pass."""

    def allocate(grad):
        torch.empty(count, dtype=torch.uint8)

    def watch(module, args, result):
        result.register_hook(allocate)

    getattr(model, "module", model)[3].register_forward_hook(watch)


def step_as_any_other(session):
    with session.step():
        dist.all_reduce(torch.ones(4))


def refused_and_told(session, step, rank, refused_rank):
    """A step that is refused memory on one rank, and therefore on all. Returns the bytes that it needs there."""
    begin = time.monotonic()
    with pytest.raises(remat.BudgetError) as caught, session.step():
        step()
    took = torch.tensor([time.monotonic() - begin])
    dist.all_reduce(took, dist.ReduceOp.MAX)  # the group can go on to be used
    assert took.item() < 30, "the others waited"
    told = f"rank {refused_rank} is out of memory" in str(caught.value)
    assert told == (rank != refused_rank), caught.value
    needed = torch.tensor([float(caught.value.needed_bytes)])
    most = needed.clone()
    dist.all_reduce(most, dist.ReduceOp.MAX)
    assert needed == most, "every rank names the refused one's number"
    return caught.value.needed_bytes


def one_with_less_memory(kind, rank):
    remat.memory.start_accounting("cpu")
    model = model_of(kind)
    everything = remat.Session()
    with everything.step(), remat.policy():  # all dropped
        step_of(model)
    least = everything.report().peak_bytes - everything.report().baseline_bytes
    # The second rank has memory for something else. Its forward pass runs out of it, or its backward pass.
    ballast = torch.empty(BALLAST if rank == 1 else 0, dtype=torch.uint8)
    for share, in_backward in ((0.05, 0), (2, 4 * least)):
        # The model before must not count as alive now and be collected in the middle of the step: that would be room.
        model = None
        gc.collect()
        model = model_of(kind)
        if rank == 1:
            allocate_in_backward(model, in_backward)
        budget = torch.tensor([remat.memory.current("cpu") + share * least], dtype=torch.float64)
        dist.broadcast(budget, 1)
        session = remat.Session(budget=int(budget), process_group=dist.group.WORLD)
        passes = []
        assert refused_and_told(session, lambda: step_of(model, passes=passes), rank, 1) > budget
        assert rank != 1 or passes == (["backward"] if in_backward else [])
    model = model_of(kind)
    session = remat.Session(budget=int(budget), process_group=dist.group.WORLD)
    for _ in range(2):
        with session.step():
            step_of(model)  # without that allocation it fits
    del ballast


@pytest.mark.parametrize("kind", ["ddp", "fsdp2"])
def test_one_with_less_memory(tmp_path, kind):
    run_on_processes(functools.partial(one_with_less_memory, kind), tmp_path)


def two_steps(rank, session=None):
    model = model_of("fsdp2")
    torch.manual_seed(rank)
    losses = []
    for _ in range(2):
        model.zero_grad()
        with session.step() if session else contextlib.nullcontext():
            losses.append(step_of(model))
    return [*losses, *(p.grad.to_local() for p in model.parameters())]


def a_budget_of_the_error(rank):
    """A loop that sets its budget to the number of each error completes, on all ranks with the same bits as plain."""
    remat.memory.start_accounting("cpu")
    plain = two_steps(rank)
    ballast = torch.empty(BALLAST * rank, dtype=torch.uint8)
    budget = 1 << 20
    for _ in range(30):
        session = remat.Session(budget=budget, process_group=dist.group.WORLD)
        try:
            ours = two_steps(rank, session)
        except remat.BudgetError as error:
            budget = error.needed_bytes
            gc.collect()  # what is left of its model
        else:
            assert session.report().peak_bytes <= budget
            assert all(same_bits(a, b) for a, b in zip(plain, ours, strict=True))
            break
    else:
        pytest.fail("no budget of an error was enough")
    assert budget > 1 << 20
    del ballast


def refused_as_it_begins(rank):
    remat.memory.start_accounting("cpu")
    model = model_of("ddp")
    ballast = torch.empty(BALLAST * rank, dtype=torch.uint8)
    budget = remat.memory.current("cpu") + (8 * BALLAST if rank == 0 else -BALLAST // 2)
    refused_and_told(remat.Session(budget=budget, process_group=dist.group.WORLD), lambda: step_of(model), rank, 1)
    del ballast


def refused_after_the_last_collective(rank):
    remat.memory.start_accounting("cpu")
    session = remat.Session(budget=remat.memory.current("cpu") + BALLAST, process_group=dist.group.WORLD)

    def step():
        dist.all_reduce(torch.ones(4))
        return torch.empty(3 * BALLAST * rank, dtype=torch.uint8)

    refused_and_told(session, step, rank, 1)


def one_plan(rank):
    remat.memory.start_accounting("cpu")
    model = model_of("fsdp2")
    torch.manual_seed(rank)
    session = remat.Session(budget="70%", process_group=dist.group.WORLD)
    for _ in range(6):
        with session.step():
            x = torch.randn(BATCH, WIDTH)
            loss_of(model(x)).backward()
    assert session.report().values_dropped > 0
    plans = [None, None]
    dist.all_gather_object(plans, session.plan().to_json())
    first, second = (json.loads(plan) for plan in plans)
    assert first["actions"] == second["actions"]
    assert first["predicted_seconds"] == second["predicted_seconds"]


def other_graphs(rank):
    """Ranks that compute other things between the same collectives plan for themselves."""
    torch.manual_seed(rank)
    model = model_of("ddp")
    session = remat.Session(budget="60%", process_group=dist.group.WORLD)
    for step in range(6):
        with session.step():
            x = torch.randn(BATCH, WIDTH)
            for _ in range((step % 3) * rank):
                x = x.sin()
            loss_of(model(x)).backward()
        assert session.report().completed


def told_and_going_on(rank):
    """What one rank catches inside its step is raised again by every further collective, and as the step ends."""
    remat.memory.start_accounting("cpu")
    session = remat.Session(budget=remat.memory.current("cpu") + BALLAST, process_group=dist.group.WORLD)
    with pytest.raises(remat.BudgetError), session.step():
        if rank == 1:
            torch.empty(3 * BALLAST, dtype=torch.uint8)
        for _ in range(2):
            with pytest.raises(remat.BudgetError, match="rank 1 is out of memory"):
                dist.all_reduce(torch.ones(4))
    step_as_any_other(session)


def buffers_of_collectives(rank):
    """Gloo's own buffers are in the budget: there is room for them, or the step is refused on all ranks."""
    remat.memory.start_accounting("cpu")
    full, half = torch.ones(BALLAST // 4), torch.ones(BALLAST // 8)
    collectives = [
        lambda: dist.all_gather([torch.empty_like(half), torch.empty_like(half)], half),
        lambda: dist.reduce_scatter(torch.empty_like(half), list(full.chunk(2))),
        lambda: dist.all_to_all(list(torch.empty_like(full).chunk(2)), list(full.chunk(2))),
        lambda: dist.distributed_c10d.all_reduce_coalesced([full.clone(), half.clone()]),
        lambda: dist.all_reduce(torch.sparse_coo_tensor(torch.arange(BALLAST // 16)[None], half[: BALLAST // 16] + 0)),
    ]
    for i, collective in enumerate(collectives):
        refused = completed = 0
        for eighths in range(0, 80, 8):
            budget = remat.memory.current("cpu") + eighths * BALLAST // 8 + 1000
            session = remat.Session(budget=budget, process_group=dist.group.WORLD)
            try:
                with session.step():
                    collective()
            except remat.BudgetError:
                refused += 1
            else:
                completed += 1
                assert session.report().peak_bytes <= session.report().budget_bytes, (i, eighths)
        assert refused > 0 and completed > 0, (i, refused, completed)


def sparse_gradients(rank):
    """Collectives of sparse tensors are seen, too."""
    remat.memory.start_accounting("cpu")
    session = remat.Session(budget=remat.memory.current("cpu") + BALLAST, process_group=dist.group.WORLD)

    def step():
        if rank == 1:
            torch.empty(3 * BALLAST, dtype=torch.uint8)
        dist.all_reduce(torch.sparse_coo_tensor([[0, 1]], [1.0, 2.0], (4,)))

    refused_and_told(session, step, rank, 1)


def groups_that_overlap(rank):
    """Ranks have been in other numbers of groups before, of the same names."""
    for members in ([0, 1], [1, 2]):
        group_of_two = dist.new_group(members)
        if rank in members:
            session = remat.Session(process_group=group_of_two)
            with session.step():
                dist.all_reduce(torch.ones(4), group=group_of_two)


def test_groups_that_overlap(tmp_path):
    run_on_processes(groups_that_overlap, tmp_path, 3)


def a_slow_rank(rank):
    """The ranks wait as long as their group does."""
    group_of_two = dist.new_group([0, 1], timeout=timedelta(seconds=2))
    session = remat.Session(process_group=group_of_two)
    if rank == 1:
        time.sleep(12)
        return
    begin = time.monotonic()
    with pytest.raises(remat.Error, match="cannot agree"), session.step():
        pass
    assert time.monotonic() - begin < 10


def an_interrupt(rank):
    """Ctrl-C while the ranks wait for each other is raised when they have met."""
    session = remat.Session(process_group=dist.group.WORLD)
    with pytest.raises(KeyboardInterrupt if rank == 0 else remat.Error, match="" if rank == 0 else "rank 0 left"), session.step():
        if rank == 0:
            threading.Timer(1, signal.raise_signal, [signal.SIGINT]).start()
        else:
            time.sleep(4)
        dist.all_reduce(torch.ones(4))
        if rank == 1:
            dist.all_reduce(torch.ones(4))
    step_as_any_other(session)


def a_child(rank):
    """A forked child that drops the session does not wait for threads that are its parent's."""
    session = remat.Session(process_group=dist.group.WORLD)
    step_as_any_other(session)
    child = os.fork()
    if child == 0:
        del session
        gc.collect()
        os._exit(7)
    begin = time.monotonic()
    while time.monotonic() < begin + 20:
        ended, status = os.waitpid(child, os.WNOHANG)
        if ended:
            break
        time.sleep(0.05)
    else:
        os.kill(child, signal.SIGKILL)
        pytest.fail("the child hangs")
    assert os.waitstatus_to_exitcode(status) == 7
    step_as_any_other(session)


def sessions_that_go(rank):
    """Connections end while one of their threads is about to release an object of Python."""
    for _ in range(20):
        session = remat.Session(process_group=dist.group.WORLD)
        step = session.step()
        torch._C._stash_obj_in_tls("remat", object())
        step.end()
        torch._C._stash_obj_in_tls("remat", None)  # now the work of the last exchange has the only reference
        del step, session


def other_collectives(rank):
    alone = dist.new_group([0])
    session = remat.Session(process_group=dist.group.WORLD)
    with pytest.raises(remat.Error, match="same collectives in the same order"), session.step():
        if rank == 0:
            dist.all_reduce(torch.ones(4), group=alone)
    step_as_any_other(session)


def an_exception_of_ones_own(rank):
    session = remat.Session(process_group=dist.group.WORLD)
    with pytest.raises(ValueError if rank == 1 else remat.Error, match="mine|rank 1 left step 1"), session.step():
        if rank == 1:
            raise ValueError("mine")
        dist.all_reduce(torch.ones(4))
    step_as_any_other(session)


def one_is_killed(rank):
    session = remat.Session(process_group=dist.group.WORLD)
    step_as_any_other(session)
    if rank == 1:
        os._exit(0)
    begin = time.monotonic()
    with pytest.raises(remat.Error, match=r"\[ranks\] rank 0 cannot agree with the others"), session.step():
        dist.all_reduce(torch.ones(4))
    assert time.monotonic() - begin < 10
    raise RuntimeError("rank 0 was told")


def test_one_is_killed(tmp_path):
    with pytest.raises(AssertionError, match="rank 0 was told"):
        run_on_processes(one_is_killed, tmp_path)


@pytest.mark.parametrize(
    "body",
    [
        a_budget_of_the_error,
        refused_as_it_begins,
        refused_after_the_last_collective,
        one_plan,
        other_graphs,
        told_and_going_on,
        buffers_of_collectives,
        sparse_gradients,
        a_slow_rank,
        an_interrupt,
        a_child,
        sessions_that_go,
        other_collectives,
        an_exception_of_ones_own,
    ],
    ids=lambda body: body.__name__,
)
def test_two_processes(tmp_path, body):
    run_on_processes(body, tmp_path)


def test_what_is_refused(tmp_path):
    with pytest.raises(remat.Error, match="init_process_group"):
        remat.Session(process_group=object())
    with group():
        with pytest.raises(remat.Error, match="use a group that this process belongs to"):
            remat.Session(process_group=object())
        with remat.Session(process_group=dist.group.WORLD).step():  # of one process
            pass
        with pytest.raises(remat.Error, match=r"remat\.Session"):
            remat.wrap(torch.nn.Linear(2, 2), process_group=dist.group.WORLD)
