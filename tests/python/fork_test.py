"""Children of fork(): sessions work in them, and steps stay the parent's."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
import traceback

import pytest
import torch
from compare import blocks, same_bits
from torch import nn

import remat
from remat import _C

LONGEST = 60  # seconds; a child that hangs is killed

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork here")


def in_child(work):
    """Runs `work()` in a child, where it must return True. (On one thread: after a fork OpenMP has no others, with
    plain torch as well.)"""
    child = os.fork()
    if child == 0:
        code = 1
        try:
            signal.alarm(LONGEST)
            torch.set_num_threads(1)
            code = 0 if work() is True else 2
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(code)
    deadline = time.monotonic() + LONGEST
    while True:
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            break
        if time.monotonic() > deadline:
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
            pytest.fail("the child hangs")
        time.sleep(0.01)
    assert os.waitstatus_to_exitcode(status) == 0


def step_of(model, x, session=None):
    """Gradients of a step, or of plain."""
    model.zero_grad()
    torch.manual_seed(5)
    if session is None:
        model(x).square().mean().backward()
    else:
        with session.step():
            model(x).square().mean().backward()
    return [p.grad.clone() for p in model.parameters()]


def deep():
    """Enough operators for a search that takes a while."""
    return blocks(24), torch.randn(512, 64)


def test_a_session_goes_on_in_a_child_that_was_forked_while_it_searched_for_plans():
    model, x = deep()
    torch.set_num_threads(1)  # the child must be able to repeat what the parent did
    try:
        plain = step_of(model, x)
        session = remat.Session(budget="50%")
        for _ in range(2):
            step_of(model, x, session)  # from now on there is a search on another thread

        def work():
            for _ in range(3):
                assert all(same_bits(a, b) for a, b in zip(step_of(model, x, session), plain))
            report = session.report()
            assert report.completed and report.plan is not None and report.values_dropped > 0
            return report.peak_bytes <= report.budget_bytes

        in_child(work)
        assert work()
    finally:
        torch.set_num_threads(os.cpu_count())


def test_a_session_that_a_child_does_not_use_ends_there():
    model, x = deep()
    session = remat.Session(budget="50%")
    for _ in range(2):
        step_of(model, x, session)

    def work():
        nonlocal session
        session = None
        return True

    in_child(work)


def records_nothing(held):
    def work():
        assert not _C.is_recording()
        before = remat.memory.current("cpu")
        made = torch.ones(held, requires_grad=True).exp()  # passes the parent's limit
        made.sum().backward()
        assert remat.memory.limit("cpu") > before + 4 * held
        return not _C.is_recording()

    return work


@pytest.mark.usefixtures("one_thread")  # the child must be able to repeat what the parent did
def test_a_child_of_an_open_step_records_nothing_and_has_no_limit():
    model, x = deep()
    session = remat.Session(budget="50%")
    step_of(model, x, session)
    plain = step_of(model, x)
    model.zero_grad()
    torch.manual_seed(5)
    with session.step() as step:
        loss = model(x).square().mean()
        in_child(records_nothing(1 << 24))

        def own_step():
            assert step.has_ended()
            gradients = step_of(model, x, session)
            step.end()
            return len(gradients) == len(plain) and session.report().step == 3

        in_child(own_step)

        def ends_the_parents():  # as where `with` is left by an exception
            step.end(completed=False)
            loss.backward()
            return all(same_bits(p.grad, g) for p, g in zip(model.parameters(), plain))

        in_child(ends_the_parents)
        loss.backward()
    assert session.report().completed
    assert all(same_bits(p.grad, g) for p, g in zip(model.parameters(), plain))


def test_a_child_on_fewer_threads_does_not_wait_for_those_that_are_not_there():
    model, x = deep()
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        model(x)
        with remat.Session().step(), remat.policy():
            loss = model(x).square().mean()

        def work():
            with pytest.raises(remat.Error, match="ran on 2 threads in the process that this one was forked from"):
                loss.backward()
            return True

        in_child(work)
        loss.backward()
    finally:
        torch.set_num_threads(before)


def test_a_child_of_a_wrapped_models_step_begins_its_own():
    model, x = deep()
    remat.wrap(model, budget="60%")
    model(x).square().mean().backward()
    out = model(x)
    in_child(records_nothing(1 << 24))

    def work():
        for _ in range(2):
            model(x).square().mean().backward()
            assert not _C.is_recording()
        return remat.session_of(model).report().completed

    in_child(work)
    out.square().mean().backward()
    assert remat.session_of(model).report().step == 2


class Recorded(torch.utils.data.Dataset):
    """Samples that say whether their process recorded them, and which do not fit the step's budget."""

    def __len__(self):
        return 8

    def __getitem__(self, index):
        torch.ones(1 << 24)
        return torch.tensor([float(index), float(_C.is_recording())])


@pytest.mark.parametrize("persistent", [False, True])
def test_workers_of_a_loader_that_start_in_a_step_have_none(persistent):
    model = nn.Sequential(nn.Linear(2, 64), nn.ReLU(), nn.Linear(64, 64))
    loader = torch.utils.data.DataLoader(
        Recorded(),
        batch_size=4,
        num_workers=2,
        multiprocessing_context="fork",
        persistent_workers=persistent,
        timeout=LONGEST,
    )
    session = remat.Session(budget=remat.memory.current("cpu") + (8 << 20))
    for _ in range(2):
        with session.step():
            for batch in loader:
                assert batch[:, 1].eq(0).all()
                model(batch).sum().backward()
    assert session.report().completed


def test_a_fork_of_a_thread_beside_a_step_leaves_it_alone():
    """Forks while another thread's step is in the middle of its operators."""
    import threading

    model, x = deep()
    plain = step_of(model, x)
    stop, errors = threading.Event(), []

    def train():
        session = remat.Session(budget="60%")
        ours = blocks(24)
        ours.load_state_dict(model.state_dict())
        try:
            while not stop.is_set():
                torch.manual_seed(5)
                ours.zero_grad()
                with session.step():
                    ours(x).square().mean().backward()
        except BaseException as error:
            errors.append(error)

    thread = threading.Thread(target=train)
    thread.start()
    try:
        for _ in range(10):
            time.sleep(0.02)
            in_child(records_nothing(1 << 24))
    finally:
        stop.set()
        thread.join()
    assert not errors and plain


ONLY_A_SESSION = """
import os, signal, torch, remat
torch.set_num_threads(2)
session = remat.Session()
child = os.fork()
if child == 0:
    signal.alarm(30)
    torch.ones(1 << 22).add_(1).sum().item()
    os._exit(0)
print("status", os.waitpid(child, 0)[1])
"""


def test_a_process_that_has_only_made_a_session_has_children_with_threads():
    run = subprocess.run([sys.executable, "-c", ONLY_A_SESSION], capture_output=True, text=True, timeout=120)
    assert run.stdout.strip() == "status 0", run.stdout + run.stderr
