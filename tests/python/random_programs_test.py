"""A few random programs of each kind from Python; REMAT_FUZZ_PROGRAMS asks for more, REMAT_FUZZ_SEED for others."""

from __future__ import annotations

import os
import time
from functools import partial

import pytest
import random_collectives  # noqa: F401
import random_surroundings  # noqa: F401
import torch
import torch.distributed as dist
from children import in_child
from processes import group, run_on_processes
from random_loops import WithExtra, check_forks, check_iterations, check_loop
from random_programs import SIZE, check

import remat

pytestmark = pytest.mark.usefixtures("one_thread")
FIRST = int(os.environ.get("REMAT_FUZZ_SEED", "1"))


def seeds(usual):
    return range(FIRST, FIRST + int(os.environ.get("REMAT_FUZZ_PROGRAMS", usual)))


def assert_no_problem(check_one, usual):
    """`check_one(seed, counts)` says what is wrong with the program of a seed, or None."""
    counts = {}
    problems = [problem for seed in seeds(usual) if (problem := check_one(seed, counts))]
    assert not problems, f"{len(problems)} programs fail, the first: {problems[0]}; {counts}"


@pytest.mark.parametrize("kind", ["ordinary", "doors", "pointers", "emptied", "settings", "kernels", "modes"])
def test_same_bits_or_an_error_where_the_kind_allows_one(kind):
    assert_no_problem(partial(check, kind), 12)


@pytest.mark.skipif(not dist.is_available(), reason="torch was built without it")
def test_same_bits_with_collectives_on_one_process():
    with group():
        assert_no_problem(partial(check, "collectives"), 12)


def check_collectives(rank):
    # A rank that is refused memory would leave the other waiting.
    assert_no_problem(partial(check, "collectives", budgets=False), 6)


@pytest.mark.skipif(not dist.is_available(), reason="torch was built without it")
def test_same_bits_with_collectives_on_two_processes(tmp_path):
    run_on_processes(check_collectives, tmp_path)


@pytest.mark.parametrize(("check_one", "usual"), [(check_forks, 3), (check_loop, 4), (check_iterations, 6)])
def test_ways_of_running_steps(check_one, usual):
    assert_no_problem(check_one, usual)


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
