"""Threads that train on CUDA devices at the same time, each with its own session."""

import threading

import pytest
import torch
from training import Step, blocks, inputs, same_bits

import remat


def step_on(device):
    x = inputs(device)
    return Step(blocks(4, dropout=0.0).to(device), lambda model: model(x).square().mean())


def run_at_once(works):
    results, errors = [None] * len(works), []

    def run(index):
        try:
            results[index] = works[index]()
        except BaseException as error:  # shown by the thread that waits
            errors.append(error)

    threads = [threading.Thread(target=run, args=(index,)) for index in range(len(works))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]
    return results


@pytest.mark.devices(2)
def test_a_session_for_each_device(device, either_way):
    steps = [step_on(f"cuda:{index}") for index in range(2)]
    plain = [step() for step in steps]

    def work(step, place):
        session = remat.Session(device=place, budget="50%")
        left = [step(session) for _ in range(5)]
        return left, session.report()

    done = run_at_once([lambda: work(steps[0], "cuda:0"), lambda: work(steps[1], "cuda:1")])
    for expected, (left, report) in zip(plain, done):
        assert all(same_bits(values, expected) for values in left)
        assert report.ops_replayed > 0
        assert report.peak_bytes <= report.budget_bytes


def test_a_step_beside_a_thread_that_is_plain(device):
    steps = [step_on(device) for _ in range(2)]
    plain = [step() for step in steps]
    session = remat.Session(device=device, budget="80%")
    done = run_at_once([lambda: [steps[0](session) for _ in range(4)], lambda: [steps[1]() for _ in range(4)]])
    for expected, left in zip(plain, done):
        assert all(same_bits(values, expected) for values in left)


SECOND = pytest.param(1, marks=pytest.mark.devices(2))


@pytest.mark.parametrize("index", [0, SECOND])
def test_a_thread_of_its_own_for_the_step(device, index):
    """The current device is a thread's: the session knows its own."""
    step = step_on(f"cuda:{index}")
    plain = step()
    session = remat.Session(device=f"cuda:{index}", budget="50%")
    for _ in range(3):
        (left,) = run_at_once([lambda: step(session)])
        assert same_bits(left, plain)
    assert session.report().ops_replayed > 0
