"""Sessions that share a pool's bytes."""

from __future__ import annotations

import copy
import os
import pickle
import signal
import threading
import time

import pytest
import torch
from children import in_child
from compare import blocks, same_bits

import remat

MIB = 1 << 20


class Training:
    """A model whose step leaves nothing behind but gradients, with those of plain."""

    def __init__(self, batch: int = 128, count: int = 3) -> None:
        self.model = blocks(count, dropout=0.0)
        self.x = torch.randn(batch, 64)
        self.step(self.model)
        self.plain = [p.grad.clone() for p in self.model.parameters()]

    def step(self, model) -> None:
        for p in self.model.parameters():
            if p.grad is not None:
                p.grad.zero_()
        model(self.x).square().mean().backward()

    def has_plains_bits(self) -> bool:
        return all(same_bits(p.grad, grad) for p, grad in zip(self.model.parameters(), self.plain, strict=True))

    def run(self, session: remat.Session) -> remat.Report:
        with session.step():
            self.step(self.model)
        assert self.has_plains_bits()
        report = session.report()
        assert report.peak_bytes <= report.budget_bytes
        return report


def plain_bytes(training: Training) -> int:
    session = remat.Session()
    return [training.run(session) for _ in range(2)][1].plain_activation_peak_bytes


def join(threads: list[threading.Thread]) -> None:
    for thread in threads:
        thread.join(120)
    assert not any(thread.is_alive() for thread in threads), "threads wait for each other"


class Holding:
    """A thread that keeps a step of a session open until leave()."""

    def __init__(self, session: remat.Session) -> None:
        self._begun, self._leave = threading.Event(), threading.Event()
        self._thread = threading.Thread(target=self._hold, args=(session,), daemon=True)
        self._thread.start()
        assert self._begun.wait(60)

    def _hold(self, session: remat.Session) -> None:
        with session.step():
            self._begun.set()
            self._leave.wait(60)

    def leave(self) -> None:
        self._leave.set()
        join([self._thread])


def wait_for(pool: remat.Pool, waiting: int) -> None:
    end = time.monotonic() + 60
    while pool.waiting != waiting:
        assert time.monotonic() < end, f"{pool.waiting} wait, not {waiting}"
        time.sleep(0.001)


def test_wrapped_models_in_turn_have_all_that_is_free():
    actor, learner = Training(), Training(256)
    taken = plain_bytes(learner)
    pool = remat.Pool(remat.memory.current("cpu") + taken * 3 // 4)
    models = [remat.wrap(each.model, budget=pool) for each in (actor, learner)]
    for _ in range(4):
        actor.step(models[0])
        with torch.no_grad():
            models[1](actor.x)  # no step: as a reference would
        learner.step(models[1])
        assert actor.has_plains_bits() and learner.has_plains_bits()
    for model in models:
        report = remat.session_of(model).report()
        assert report.budget_bytes == pool.bytes
        assert report.granted_bytes == pool.bytes - report.baseline_bytes
        assert report.waited_seconds == 0
        assert report.peak_bytes <= pool.bytes
    assert remat.session_of(models[1]).report().values_dropped > 0
    assert pool.running == 0


def test_threads_share_it():
    trainings = [Training(64 * (1 + i % 3), 2 + i % 2) for i in range(4)]
    pool = remat.Pool(remat.memory.current("cpu") + 2 * max(plain_bytes(each) for each in trainings))
    reports, errors = [], []

    def work(training: Training) -> None:
        try:
            session = remat.Session(budget=pool)
            reports.extend(training.run(session) for _ in range(12))
        except BaseException as error:
            errors.append(error)

    remat.memory.reset_peak("cpu")
    threads = [threading.Thread(target=work, args=(each,), daemon=True) for each in trainings]
    for thread in threads:
        thread.start()
    join(threads)
    assert not errors
    assert len(reports) == 48
    assert all(report.granted_bytes > 0 for report in reports)
    assert any(report.waited_seconds > 0 for report in reports), "first steps run alone"
    assert remat.memory.peak("cpu") <= pool.bytes
    assert (pool.running, pool.waiting) == (0, 0)


def test_ctrl_c_ends_a_wait():
    ours, theirs = Training(), Training()
    pool = remat.Pool(remat.memory.current("cpu") + 64 * MIB)
    sessions = [remat.Session(budget=pool) for _ in range(2)]
    holding = Holding(sessions[1])  # a first step, which runs alone

    def interrupt() -> None:
        wait_for(pool, 1)
        os.kill(os.getpid(), signal.SIGINT)

    thread = threading.Thread(target=interrupt)
    thread.start()
    with pytest.raises(KeyboardInterrupt):
        sessions[0].step()
    join([thread])
    assert (pool.running, pool.waiting) == (1, 0)
    holding.leave()
    assert ours.run(sessions[0]).waited_seconds == 0
    assert theirs.run(sessions[1]).completed


def test_other_threads_run_while_one_waits():
    training = Training()
    pool = remat.Pool(remat.memory.current("cpu") + 64 * MIB)
    holding = Holding(remat.Session(budget=pool))
    session = remat.Session(budget=pool)
    reports = []
    thread = threading.Thread(target=lambda: reports.append(training.run(session)))
    thread.start()
    wait_for(pool, 1)  # which runs Python meanwhile
    holding.leave()
    join([thread])
    assert reports[0].waited_seconds > 0
    assert "after waiting" in str(reports[0])


def test_a_step_that_fails_gives_its_bytes_back():
    pool = remat.Pool(remat.memory.current("cpu") + 64 * MIB)
    session = remat.Session(budget=pool)
    with pytest.raises(ValueError, match="the user's"), session.step():
        raise ValueError("the user's")
    with pytest.raises(remat.BudgetError, match="the pool has"), session.step():
        torch.empty(128 * MIB, dtype=torch.uint8)
    assert (pool.running, pool.waiting) == (0, 0)


def test_a_step_inside_another_does_not_wait_for_it():
    pool = remat.Pool("1GiB")
    outer, inner = (remat.Session(budget=pool) for _ in range(2))
    with outer.step(), pytest.raises(remat.Error, match="in progress"):
        inner.step()
    assert (pool.running, pool.waiting) == (0, 0)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork")
def test_a_child_has_none_of_its_parents_steps():
    training = Training()
    pool = remat.Pool(remat.memory.current("cpu") + 64 * MIB)
    holding = Holding(remat.Session(budget=pool))

    def step() -> None:
        torch.set_num_threads(1)
        assert (pool.running, pool.waiting) == (0, 0)
        assert training.run(remat.Session(budget=pool)).waited_seconds == 0

    problem = in_child(step)
    assert pool.running == 1
    holding.leave()
    assert problem is None


def test_copies_are_the_same_pool():
    pool = remat.Pool("64MiB")
    assert copy.copy(pool) is pool and copy.deepcopy(pool) is pool
    with pytest.raises(TypeError, match="cannot be pickled"):
        pickle.dumps(pool)
    assert (pool.bytes, repr(pool)) == (64 * MIB, f"remat.Pool({64 * MIB})")


def test_is_made_of_bytes():
    for budget in ("40%", "pressure", None, remat.Pool("1GiB")):
        with pytest.raises(remat.Error, match=r"\[pool\].*give bytes"):
            remat.Pool(budget)
    with pytest.raises(remat.Error, match=r"\[pool\] a budget of \[\]"):
        remat.Pool([])
