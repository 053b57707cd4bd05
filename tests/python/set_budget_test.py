"""Budgets that change while a training runs: by set_budget(), and by the memory that is left."""

from __future__ import annotations

import copy
import threading

import pytest
import torch
import torch.distributed as dist
from compare import assert_exact, blocks
from processes import run_on_processes
from scopes import loss_of
from sharding import BATCH, WIDTH, blocks_to_shard
from torch.nn.parallel import DistributedDataParallel

import remat


def train(model):
    loss = model(torch.randn(256, 64)).square().mean()
    loss.backward()
    return loss.detach()


@pytest.fixture
def system(tmp_path, monkeypatch):
    """Files of /proc and /sys; the function leaves so many bytes in the group of the process."""
    monkeypatch.setenv("REMAT_SYSTEM_ROOT", str(tmp_path))
    group = tmp_path / "sys/fs/cgroup/job"
    group.mkdir(parents=True)
    (tmp_path / "proc/self").mkdir(parents=True)
    (tmp_path / "proc/self/cgroup").write_text("0::/job\n")
    (group / "memory.max").write_text(f"{2**40}\n")

    def leave(count):
        remat.memory.release_cached()
        (group / "memory.current").write_text(f"{2**40 - count}\n")

    return leave


def test_each_step_has_the_budget_that_was_set_and_the_same_bits():
    session = remat.Session(budget="80%")
    model = blocks(norm=True)
    budgets = iter(["50%", "90%", None, "40%"])

    def step():
        if session.budget_bytes is not None:
            session.set_budget(next(budgets))
        return session.step()

    assert_exact(model, train, step, steps=5)
    report = session.report()
    assert report.peak_bytes <= report.budget_bytes
    assert report.values_dropped > 0
    assert report.budget_reason == "set_budget(): was device limit"


def test_one_that_is_too_small_leaves_the_one_before_in_force():
    session = remat.Session(budget="80%")
    model = blocks()
    for _ in range(2):
        with session.step():
            train(model)
    before = session.budget_bytes
    with pytest.raises(remat.BudgetError, match=r"80%, stays in force") as refused:
        session.set_budget(session.report().baseline_bytes + 1000)
    needed = refused.value.needed_bytes
    assert refused.value.lower_bound_bytes <= needed < before
    assert session.budget_bytes == before
    session.set_budget(needed)
    with session.step():
        train(model)
    assert session.report().peak_bytes <= session.report().budget_bytes == needed


def test_within_a_step_it_is_an_error():
    session = remat.Session(budget="80%")
    with session.step():
        with pytest.raises(remat.Error, match="a step of this session is in progress"):
            session.set_budget("50%")
    with pytest.raises(remat.Error, match="has no meaning"):
        session.set_budget(3.5)
    thread = threading.Thread(target=session.set_budget, args=("1GiB",))
    thread.start()
    thread.join()
    assert session.budget_bytes == 2**30


def test_a_wrapped_model_has_it_in_its_copies():
    model = remat.wrap(blocks(), budget="80%")
    for _ in range(2):
        train(model)
    remat.session_of(model).set_budget("1GiB")
    train(model)
    assert remat.session_of(model).report().budget_bytes == 2**30
    again = copy.deepcopy(model)
    train(again)
    assert remat.session_of(again).report().budget_bytes == 2**30


def test_pressure_follows_what_is_left(system):
    system(2**33)
    session = remat.Session(budget="pressure")
    model = blocks(norm=True)
    assert_exact(model, train, session.step, steps=2)
    plain = session.report()
    assert plain.values_dropped == 0
    assert plain.available_bytes == 2**33
    system(plain.plain_activation_peak_bytes // 2)
    assert_exact(model, train, session.step, steps=1)
    report = session.report()
    assert report.values_dropped > 0
    assert report.budget_reason.startswith("lowered from ")
    assert report.budget_bytes < plain.plain_peak_bytes
    assert "are left in" in str(report)


def test_pressure_is_for_steps_alone():
    with pytest.raises(remat.Error, match=r'\[fit\] the budget "pressure"'):
        remat.fit(lambda size: None, [1], "pressure")
    session = remat.Session()
    with session.step():
        train(blocks())
    with pytest.raises(remat.Error, match=r'\[plan\] the budget "pressure"'):
        remat.make_plan(session.graph(), "pressure")


def change_on_all(rank):
    """set_budget() on all ranks: what one is refused all are, and all keep theirs; else one plan for all."""
    remat.memory.start_accounting("cpu")
    ballast = torch.empty((rank << 20), dtype=torch.uint8)
    model = DistributedDataParallel(blocks_to_shard())
    session = remat.Session(budget="80%", process_group=dist.group.WORLD)
    for _ in range(3):
        with session.step():
            loss_of(model(torch.randn(BATCH, WIDTH))).backward()
    enough = session.report().peak_bytes
    sizes = torch.tensor([float(enough)])
    dist.all_reduce(sizes, dist.ReduceOp.MIN)
    with pytest.raises(remat.BudgetError) as caught:
        session.set_budget(int(sizes) if rank == 0 else session.report().baseline_bytes + 1000)
    assert ("rank 1 cannot do with its new budget" in str(caught.value)) == (rank == 0)
    dist.all_reduce(torch.ones(4))  # the group can go on to be used
    with session.step():
        loss_of(model(torch.randn(BATCH, WIDTH))).backward()
    assert session.report().budget_reason == ""
    session.set_budget(2 * enough)
    with session.step():
        loss_of(model(torch.randn(BATCH, WIDTH))).backward()
    assert session.report().budget_bytes == 2 * enough
    assert session.report().values_dropped == 0
    with pytest.raises(remat.Error, match='"pressure" is for one process'):
        session.set_budget("pressure")
    del ballast


@pytest.mark.skipif(not dist.is_available(), reason="torch was built without it")
def test_several_processes_change_it_together(tmp_path):
    run_on_processes(change_on_all, tmp_path)
