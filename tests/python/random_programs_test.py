"""Random programs from Python: some of each kind; REMAT_FUZZ_PROGRAMS asks for more, REMAT_FUZZ_SEED for others."""

from __future__ import annotations

import contextlib
import os
import time
from datetime import timedelta

import pytest
import torch
import torch.distributed as dist
from random_loops import WithExtra, check_forks, check_loop
from random_programs import SIZE, check, in_child
from torch import multiprocessing

import remat

FIRST = int(os.environ.get("REMAT_FUZZ_SEED", "1"))


def seeds(usual):
    return range(FIRST, FIRST + int(os.environ.get("REMAT_FUZZ_PROGRAMS", usual)))


def problems_of(kind, usual):
    counts, problems = {}, []
    for seed in seeds(usual):
        problem = check(kind, seed, counts)
        if problem is not None:
            problems.append(problem)
    print(kind, counts, f"{len(problems)} problems")
    return problems


@contextlib.contextmanager
def group():
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    try:
        yield
    finally:
        dist.destroy_process_group()


@pytest.fixture(autouse=True)
def _one_thread():
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.mark.parametrize("kind", ["ordinary", "doors", "pointers", "emptied"])
def test_same_bits_or_an_error_where_the_kind_allows_one(kind):
    problems = problems_of(kind, 40)
    assert not problems, f"{len(problems)} programs fail, the first: {problems[0]}"


@pytest.mark.skipif(not dist.is_available(), reason="torch was built without it")
def test_same_bits_with_collectives_on_one_process():
    with group():
        problems = problems_of("collectives", 40)
    assert not problems, f"{len(problems)} programs fail, the first: {problems[0]}"


def rank_of_two(rank, path, queue):
    torch.set_num_threads(1)
    dist.init_process_group("gloo", f"file://{path}", rank=rank, world_size=2, timeout=timedelta(seconds=60))
    try:
        counts = {}
        for seed in seeds(12):
            # A rank that is refused memory would leave the other waiting.
            problem = check("collectives", seed, counts, budgets=False)
            if problem is not None:
                queue.put(f"rank {rank}: {problem}")
                return
        queue.put("")
    except BaseException as error:  # what one rank throws leaves the other waiting
        queue.put(f"rank {rank}: {type(error).__name__}: {error}")
    finally:
        dist.destroy_process_group()


@pytest.mark.skipif(not dist.is_available(), reason="torch was built without it")
def test_same_bits_with_collectives_on_two_processes(tmp_path):
    context = multiprocessing.get_context("spawn")
    queue = context.Queue()
    workers = [context.Process(target=rank_of_two, args=(r, tmp_path / "store", queue)) for r in range(2)]
    for worker in workers:
        worker.start()
    results = [queue.get(timeout=240) for _ in workers]
    for worker in workers:
        worker.join()
    assert results == ["", ""]


@pytest.mark.parametrize(("check_one", "usual"), [(check_forks, 6), (check_loop, 8)])
def test_ways_of_running_steps(check_one, usual):
    counts = {}
    problems = [problem for seed in seeds(usual) if (problem := check_one(seed, counts))]
    assert not problems, problems


def test_evaluation_of_a_wrapped_model_does_not_grow():
    model = remat.wrap(WithExtra(), budget="1GiB")
    loss, _, extra = model(torch.randn(256, SIZE))
    del loss, extra  # never differentiated
    model.eval()
    sizes = []
    with torch.no_grad():
        for _ in range(40):
            model(torch.randn(256, SIZE))
            sizes.append(remat.memory.current())
    remat.unwrap(model)
    assert sizes[-1] <= sizes[5], f"{sizes[-1] - sizes[5]} bytes more after 35 batches"


def test_a_hanging_child_is_found():
    assert in_child(lambda: time.sleep(5), seconds=0.2) == "the child hung"
    assert in_child(lambda: None) is None
    assert in_child(lambda: 1 / 0) is not None
