"""fit() and the doctor on an accelerator, the simulated one."""

from __future__ import annotations

import gc
import io
import os
import subprocess
import sys

import pytest
import simulated_device
import torch
from compare import blocks

import remat
from remat import doctor

pytestmark = [
    pytest.mark.skipif(simulated_device.LIBRARY is None, reason="REMAT_SIMULATED_DEVICE names no library"),
    pytest.mark.filterwarnings("ignore:.*run on no real one"),
]
BUDGET = 6 << 20
PATH = {"PYTHONPATH": os.pathsep.join(sys.path)}


@pytest.fixture
def device():
    yield simulated_device.load()
    gc.collect()


def steps_of(device):
    torch.manual_seed(0)
    model = blocks(norm=True).to(device)

    def make_step(batch):
        x = torch.randn(batch, 64, device=device)

        def step():
            model.zero_grad()
            model(x).square().mean().backward()

        return step

    return make_step


def test_fit_finds_what_fits(device):
    make_step = steps_of(device)
    found = remat.fit(make_step, remat.fit_sizes(1, 4096), budget=BUDGET, device=device)
    assert 1 < found.plain.size < found.largest.size < 4096
    assert found.largest.peak_bytes <= BUDGET
    step = make_step(found.plain.size)
    remat.memory.reset_peak(device)
    step()
    assert remat.memory.peak(device) <= BUDGET


def test_the_doctor_tries_it(device):
    states = torch.get_rng_state(), torch.get_device_module(device).get_rng_state(device)
    out = io.StringIO()
    assert doctor.examine(out), out.getvalue()
    assert "trial on simulated:0" in out.getvalue() and out.getvalue().count("same bits as plain") == 3, out.getvalue()
    assert out.getvalue().count("not packed there") == simulated_device.DEVICES, out.getvalue()
    assert torch.equal(states[0], torch.get_rng_state())
    assert torch.equal(states[1], torch.get_device_module(device).get_rng_state(device))


def test_the_doctor_sees_wrong_bits(device, monkeypatch):
    monkeypatch.setattr(doctor.torch, "equal", lambda a, b: a.device.type != "simulated")
    out = io.StringIO()
    assert not doctor.examine(out)
    assert out.getvalue().count("FAILED: gradients") == simulated_device.DEVICES, out.getvalue()


def ends_well(program):
    run = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", program],
        capture_output=True,
        text=True,
        env=os.environ | PATH,
        preexec_fn=lambda: os.sched_setaffinity(0, [min(os.sched_getaffinity(0))]),
    )
    return (run.returncode, run.stderr) == (0, ""), run.stderr


def test_a_process_ends_though_threads_of_the_device_have_seen_its_steps(device):
    """They are autograd's, and live as long as the process."""
    program = """
import simulated_device, torch, remat
device = simulated_device.load()
model = torch.nn.Sequential(*(torch.nn.Linear(64, 64) for _ in range(4))).to(device)
remat.wrap(model, budget="90%")
for _ in range(3):
    model(torch.randn(64, 64, device=device)).square().mean().backward()
"""
    for _ in range(2):
        well, errors = ends_well(program)
        assert well, errors


def test_a_process_ends_after_threads_of_the_device_have_released_callbacks(device):
    """On one core they often do so after backward() has returned: without a wait, four of ten such processes abort."""
    program = """
import simulated_device, torch, remat, time
device = simulated_device.load()
class Callback:
    def __call__(self):
        pass
    def __del__(self):
        time.sleep(0.3)
queue = torch.autograd.Variable._execution_engine.queue_callback
with remat.Session("1GiB", device=device).step():
    x = torch.randn(64, 64, device=device, requires_grad=True)
    y = x * 1
    y.register_hook(lambda grad: queue(Callback()))
    y.sum().backward()
"""
    for _ in range(6):
        well, errors = ends_well(program)
        assert well, errors


def test_a_device_that_takes_memory_elsewhere_is_refused():
    """Some backends call an allocator of their own where PyTorch has one for them: a budget could not be kept."""
    program = """
import simulated_device, torch, remat
device = simulated_device.load()
torch.ops.remat_simulated.set_own_allocator(True)
model, x = torch.nn.Linear(64, 64).to(device), torch.randn(64, 64, device=device)
wrapped = remat.wrap(torch.nn.Linear(64, 64).to(device), "1GiB")
for _ in range(2):
    for ask in (lambda: remat.Session("1GiB", device=device), lambda: wrapped(x)):
        try:
            ask()
        except remat.Error as error:
            assert "simulated" in str(error) and "other than the one that PyTorch has" in str(error), error
        else:
            raise AssertionError("it was taken")
model(x).sum().backward()
"""
    well, errors = ends_well(program)
    assert well, errors


def test_a_device_that_does_not_say_how_much_memory_it_has(device):
    torch.ops.remat_simulated.set_tells_memory(False)
    try:
        step = steps_of(device)(64)
        for budget in (None, "60%", 6 << 20):
            session = remat.Session(budget=budget, device=device)
            for _ in range(3):
                with session.step():
                    step()
            report = session.report()
            assert budget is None or report.peak_bytes <= report.budget_bytes
        assert remat.memory.limit(device) > 1 << 60
        out = io.StringIO()
        assert doctor.examine(out), out.getvalue()
    finally:
        torch.ops.remat_simulated.set_tells_memory(True)


def test_a_device_that_cannot_be_told_of_streams_does_not_end_the_process():
    program = """
import simulated_device, torch, remat
device = simulated_device.load()
torch.ops.remat_simulated.set_records_streams(False)
x = torch.randn(256, 64, device=device, requires_grad=True)
y = torch.randn(256, 64, device=device)
for budget in ("99%", "60%"):
    session = remat.Session(budget, device=device)
    for _ in range(3):
        try:
            with session.step():
                a = torch.ones(256, 64, device=device)
                ((x * a).sin() * y).exp().sum().backward()
        except remat.BudgetError:
            pass
        except RuntimeError as error:
            assert "streams are not recorded" in str(error), error
"""
    well, errors = ends_well(program)
    assert well, errors
