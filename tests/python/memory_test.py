"""Long runs: nothing piles up, whether shapes stay or change. REMAT_LONG_RUNS=1 takes 1,000 steps and more."""

from __future__ import annotations

import gc
import os

import pytest
import torch
from compare import blocks
from scopes import loss_of

import remat

SANITIZED = "REMAT_SANITIZE" in os.environ  # which keeps memory that was freed, and all blocks come from malloc
STEPS = 1000 if os.environ.get("REMAT_LONG_RUNS") else 60


def resident_bytes() -> int:
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def growth(step, warm_up, steps):
    """Tensor bytes and resident bytes that `steps` steps add, after a warm-up; of a sanitizer's none are counted."""
    for i in range(warm_up):
        step(i)
    gc.collect()
    tensors, resident = remat.memory.current("cpu"), resident_bytes()
    for i in range(warm_up, warm_up + steps):
        step(i)
    gc.collect()
    return remat.memory.current("cpu") - tensors, 0 if SANITIZED else resident_bytes() - resident


@pytest.mark.parametrize("kind", ["auto", "online", "policy", "checkpoint", "wrap"])
def test_steps_of_one_shape(kind):
    model = blocks(4, norm=True)
    optimizer = torch.optim.AdamW(model.parameters())
    session = remat.Session(budget="70%", planner="online" if kind == "online" else "auto")
    scope = remat.policy if kind in ("policy", "checkpoint") else session.step
    if kind == "wrap":
        remat.wrap(model, budget="90%")
        scope = torch.enable_grad

    def step(_):
        optimizer.zero_grad()
        if kind == "checkpoint":
            loss_of(remat.checkpoint(model, torch.randn(128, 64))).backward()
        else:
            with scope():
                loss_of(model(torch.randn(128, 64))).backward()
        optimizer.step()

    tensors, resident = growth(step, 20, STEPS)
    assert tensors <= 0
    assert resident < 8 << 20


@pytest.mark.parametrize("kind", ["auto", "online"])
def test_steps_of_changing_shapes(kind):
    model = blocks(4)
    session = remat.Session(budget=remat.memory.current("cpu") + (64 << 20), planner=kind)

    def step(i):
        model.zero_grad()
        with session.step():
            loss_of(model(torch.randn(16 + 7 * (i * 37 % 101), 64))).backward()

    tensors, resident = growth(step, 101, STEPS)
    assert tensors <= 0
    assert resident < 24 << 20


def test_sessions_come_and_go():
    model = blocks(2)

    def step(_):
        model.zero_grad()
        with remat.Session(budget="90%").step():
            loss_of(model(torch.randn(32, 64))).backward()

    tensors, resident = growth(step, 20, STEPS)
    assert tensors <= 0
    assert resident < 8 << 20


def test_graphs_that_never_run_backward_are_freed():
    model = blocks(2)
    session = remat.Session()

    def step(_):
        with session.step(), remat.policy():
            loss_of(model(torch.randn(32, 64)))

    tensors, resident = growth(step, 20, STEPS)
    assert tensors <= 0
    assert resident < 8 << 20


@pytest.fixture
def limited():
    remat.memory.start_accounting()
    yield
    remat.memory.set_limit(None)


def test_a_standing_limit_holds_for_every_session_until_it_is_taken_away(limited):
    device = remat.memory.limit("cpu")
    assert device > 1 << 20
    remat.memory.set_limit(device + 1, "cpu")
    assert remat.memory.limit("cpu") == device  # no more than there is
    most = remat.memory.current("cpu") + (1 << 20)
    remat.memory.set_limit(most, "cpu")
    assert remat.memory.limit("cpu") == most
    with pytest.raises(remat.BudgetError) as caught, remat.Session(device="cpu").step():
        torch.empty(2 << 20, dtype=torch.uint8)
    assert caught.value.budget_bytes == most
    remat.memory.set_limit(None, "cpu")
    assert remat.memory.limit("cpu") == device
    with remat.Session(device="cpu").step():
        torch.empty(2 << 20, dtype=torch.uint8)


@pytest.mark.parametrize("bytes", [0, -1])
def test_a_limit_of_nothing_is_an_error(bytes, limited):
    with pytest.raises(remat.Error, match=r"\[set_limit\]"):
        remat.memory.set_limit(bytes, "cpu")


def test_in_a_step_the_limit_is_its_budget(limited):
    budget = remat.memory.current("cpu") + (1 << 20)
    with remat.Session(budget=budget, device="cpu").step():
        assert remat.memory.limit("cpu") == budget
    assert remat.memory.limit("cpu") > budget


@pytest.mark.skipif(SANITIZED, reason="sanitizers get every block through malloc")
def test_what_freed_tensors_leave_is_cached_and_can_be_given_back(limited):
    remat.memory.release_cached("cpu")
    before = remat.memory.cached("cpu")
    size = 3 << 20
    tensor = torch.empty(size, dtype=torch.uint8)
    assert remat.memory.cached("cpu") == before
    del tensor
    assert remat.memory.cached("cpu") >= before + size
    remat.memory.release_cached("cpu")
    assert remat.memory.cached("cpu") == before
