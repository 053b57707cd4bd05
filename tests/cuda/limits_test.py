"""Budgets on CUDA devices: what is allocated and what PyTorch's caching allocator reserves stay under them."""

import gc
import os
import subprocess
import sys

import pytest
import torch
from training import BATCH, Gpt, Step, block_step, same_bits

import remat

MIB = 1 << 20
BUDGET = 30 * MIB  # of 104 MiB that plain PyTorch reserves
MOST_TRIES = 4


def forget(step):
    step.model.zero_grad()
    gc.collect()
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats()


@pytest.mark.parametrize("dropout", [0.0, 0.1])
def test_bytes_limit_what_is_allocated_and_what_is_reserved(device, either_way, dropout):
    step = block_step(device, dropout)
    plain = step()
    assert torch.cuda.max_memory_allocated() > 2 * BUDGET
    forget(step)
    session = remat.Session(device=device, budget=BUDGET)
    for index in range(10):
        torch.cuda.reset_peak_memory_stats()
        assert same_bits(step(session), plain)
        report = session.report()
        assert report.budget_bytes == BUDGET
        assert 0 < report.peak_bytes <= torch.cuda.max_memory_allocated() <= BUDGET
        assert torch.cuda.max_memory_reserved() <= BUDGET
        assert report.reserved_peak_bytes == torch.cuda.max_memory_reserved()
        assert report.ops_replayed > 0
        if index > 0:
            assert report.decided_by == "auto"


def test_budgets_between_what_plain_allocates_and_what_it_reserves_hold(device):
    """There nothing has to be dropped for the tensors' sake, but for the blocks that they leave unused."""
    tokens = torch.randint(100, (8, 65)).to(device)
    model = Gpt(width=128).to(device)
    step = Step(model, lambda gpt: gpt(tokens).float().square().mean())
    plain = step()
    allocated, reserved = torch.cuda.max_memory_allocated(), torch.cuda.max_memory_reserved()
    assert reserved > allocated + 4 * MIB
    for budget in range(allocated + MIB, reserved, 2 * MIB):
        forget(step)
        session = remat.Session(device=device, budget=budget)
        for _ in range(4):
            assert same_bits(step(session), plain)
            assert session.report().reserved_peak_bytes <= budget


@pytest.mark.parametrize("budget", ["60%", "40%", "25%"])
def test_percentages_limit_what_is_allocated(device, budget):
    step = block_step(device)
    plain = step()
    plain_peak = torch.cuda.max_memory_allocated()
    forget(step)
    session = remat.Session(device=device, budget=budget)
    for index in range(5):
        torch.cuda.reset_peak_memory_stats()
        assert same_bits(step(session), plain)
        report = session.report()
        if index > 0:
            assert report.peak_bytes <= report.budget_bytes < plain_peak
            assert torch.cuda.max_memory_reserved() <= report.budget_bytes + 20 * MIB
            assert report.decided_by == "auto"


def test_a_budget_too_small_is_refused_with_one_that_does(device):
    step = block_step(device)
    plain = step()
    forget(step)
    budget = 8 * MIB
    for tries in range(MOST_TRIES):
        session = remat.Session(device=device, budget=budget)
        try:
            assert same_bits(step(session), plain)
            break
        except remat.BudgetError as error:
            assert isinstance(error, torch.OutOfMemoryError)
            assert error.budget_bytes == budget
            assert error.needed_bytes > budget
            budget = error.needed_bytes
        forget(step)
    else:
        pytest.fail(f"{MOST_TRIES} tries were too few; the last budget was {budget}")
    assert tries > 0
    assert torch.cuda.max_memory_reserved() <= budget


def test_memory_is_back_after_steps_and_refusals(device, either_way):
    step = block_step(device)
    step()  # what cuBLAS allocates once
    forget(step)
    before = torch.cuda.memory_allocated(), remat.memory.current(device)
    session = remat.Session(device=device, budget=BUDGET)
    for budget in (BUDGET, 8 * MIB, BUDGET):
        session = remat.Session(device=device, budget=budget)
        for _ in range(3):
            try:
                step(session)
                assert budget == BUDGET
            except remat.BudgetError:
                assert budget < BUDGET
            forget(step)
            assert (torch.cuda.memory_allocated(), remat.memory.current(device)) == before


def test_a_limit_of_pytorchs_own_is_there_again(device):
    step = block_step(device)
    plain = step()
    forget(step)
    torch.cuda.set_per_process_memory_fraction(0.5)
    session = remat.Session(device=device, budget=BUDGET)
    assert same_bits(step(session), plain)
    assert torch.cuda.get_per_process_memory_fraction() == 0.5
    total = torch.cuda.get_device_properties(device).total_memory
    with pytest.raises(torch.OutOfMemoryError):
        torch.empty(total * 3 // 4, dtype=torch.uint8, device=device)
    torch.cuda.set_per_process_memory_fraction(1.0)
    torch.empty(total * 3 // 4, dtype=torch.uint8, device=device)


def test_outside_of_steps_memory_runs_out_as_ever(device):
    remat.Session(device=device, budget=BUDGET)
    total = torch.cuda.get_device_properties(device).total_memory
    with pytest.raises(torch.OutOfMemoryError, match="CUDA out of memory") as raised:
        torch.empty(2 * total, dtype=torch.uint8, device=device)
    assert not isinstance(raised.value, remat.BudgetError)


def test_a_full_device_is_made_room_on(device):
    """The budget is larger than what others have left of the device."""
    step = block_step(device)
    plain = step()
    forget(step)
    free, total = torch.cuda.mem_get_info(device)
    others = torch.empty(free - 40 * MIB, dtype=torch.uint8, device=device)
    session = remat.Session(device=device, budget=total)
    for _ in range(3):
        assert same_bits(step(session), plain)
    assert session.report().ops_replayed > 0
    del others


def run_in_a_process(program, **environment):
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), **environment}
    subprocess.run([sys.executable, "-c", program], check=True, timeout=300, env=environment)


@pytest.mark.parametrize("device", ["cuda", pytest.param("cuda:1", marks=pytest.mark.devices(2))])
def test_sessions_can_be_made_before_cuda_is_initialized(device):
    run_in_a_process(f"""
import remat, torch
session = remat.Session(device="{device}", budget="50%")
import cuda_devices
cuda_devices.load()
from training import Step, blocks, inputs, same_bits
x = inputs("{device}")
step = Step(blocks().to("{device}"), lambda model: model(x).square().mean())
plain = step()
assert all(same_bits(step(session), plain) for _ in range(3))
assert session.report().ops_replayed > 0
""")


@pytest.mark.xfail(
    reason="in some runs the second step is refused at 30 MiB, with 8 MiB of tensors in what is reserved", strict=False
)
def test_expandable_segments_keep_to_the_budget(device):
    program = f"""
import gc, torch, cuda_devices
device = cuda_devices.load()
import remat
from training import block_step, same_bits
step = block_step(device)
plain = step()
step.model.zero_grad()
gc.collect()
torch.cuda.empty_cache()
session = remat.Session(device=device, budget={BUDGET})
for _ in range(4):
    torch.cuda.reset_peak_memory_stats()
    assert same_bits(step(session), plain)
    assert session.report().peak_bytes <= {BUDGET}
    assert torch.cuda.max_memory_reserved() <= {BUDGET}
assert session.report().decided_by == "auto"
"""
    run_in_a_process(program, PYTORCH_ALLOC_CONF="expandable_segments:True")


def test_large_batches_of_few_tensors(device):
    """Of large blocks more is lost between tensors: what is reserved still keeps to the budget."""
    step = block_step(device, 0.0)
    x = torch.randn(4 * BATCH, 64).to(device)
    step.loss = lambda model: model(x).square().mean()
    plain = step()
    plain_peak = torch.cuda.max_memory_reserved()
    forget(step)
    budget = plain_peak * 2 // 5
    session = remat.Session(device=device, budget=budget)
    for _ in range(4):
        torch.cuda.reset_peak_memory_stats()
        assert same_bits(step(session), plain)
        assert torch.cuda.max_memory_reserved() <= budget
