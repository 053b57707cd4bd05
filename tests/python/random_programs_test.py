"""Random programs from Python: some of each kind; REMAT_FUZZ_PROGRAMS asks for more, REMAT_FUZZ_SEED for others."""

from __future__ import annotations

import contextlib
import os
import random
import time
from datetime import timedelta

import pytest
import torch
import torch.distributed as dist
from compare import blocks, same_bits
from random_programs import SIZE, check, in_child, run
from torch import multiprocessing, nn

import remat
from remat import _C

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


# ---- forks ----


def forking_program(seed):
    """Steps of a session with forks between and inside them; what went wrong in a child, or nothing."""
    choices = random.Random(f"forks {seed}")
    plain = [run("ordinary", seed + i) for i in range(6)]
    session = remat.Session("60%", planner=choices.choice(["auto", "online"]))

    def expect(i):
        ours = run("ordinary", seed + i, session.step)
        assert all(same_bits(a, b) for a, b in zip(plain[i], ours, strict=True)), f"step {i} has other bits"

    def work_on():  # what the parent would have done
        for i in range(3, 6):
            with contextlib.suppress(remat.BudgetError):
                expect(i)

    def load():  # what a worker of a DataLoader does
        assert not _C.is_recording()
        batch = torch.stack([torch.randn(SIZE, SIZE) for _ in range(500)])
        assert batch.sum().isfinite()
        assert not _C.is_recording()

    def begin_anew():
        with contextlib.suppress(remat.BudgetError):
            ours = run("ordinary", seed, remat.Session("70%").step)
            assert all(same_bits(a, b) for a, b in zip(plain[0], ours, strict=True))

    for i in range(3):
        with contextlib.suppress(remat.BudgetError):
            expect(i)
        if choices.random() < 0.5:
            if problem := in_child(choices.choice([work_on, load, begin_anew])):
                return problem
        if choices.random() < 0.5:
            with contextlib.suppress(remat.BudgetError), session.step():
                x = torch.randn(SIZE, SIZE, requires_grad=True)
                y = x.sin() * x
                if problem := in_child(choices.choice([load, begin_anew])):
                    return problem
                y.sum().backward()
    return None


# ---- wrapped models whose results never get a backward ----


class WithExtra(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = blocks(2, width=SIZE, dropout=0.1, norm=True)

    def forward(self, x):
        y = self.body(x)
        return y.square().mean(), y.detach(), y * 2


def loop(model, seed, calls):
    """Calls of a model in every way that loops have; what is to be compared."""
    choices = random.Random(f"loop {seed}")
    torch.manual_seed(seed)
    held, seen = [], []
    for _ in range(calls):
        x = torch.randn(32, SIZE)
        kind = choices.randrange(7)
        if kind < 2:
            loss, extra, _ = model(x)
            loss.backward()
            seen += [loss.detach(), extra]
        elif kind == 2:  # evaluation, the results dropped or held
            with torch.no_grad():
                seen.append(model(x)[0])
        elif kind == 3:  # no backward: the results go
            model(x)
        elif kind == 4:  # no backward: a result is held for a log, for a while
            held = [*held[-1:], model(x)[choices.randrange(3)]]
        elif kind == 5:  # an exception between forward and backward
            with contextlib.suppress(KeyError):
                results = model(x)
                raise KeyError(results[0].item())
        else:  # backward of a second result
            results = model(x)
            (results[0] + results[2].sum()).backward()
            seen.append(results[1])
        if choices.random() < 0.3:
            model.zero_grad()
    return seen + [p.grad for p in model.parameters()] + list(model.buffers()) + [torch.get_rng_state()]


def test_wrapped_models_whose_results_get_no_backward():
    for seed in seeds(8):
        torch.manual_seed(seed)
        plain = WithExtra()
        ours = WithExtra()
        ours.load_state_dict(plain.state_dict())
        remat.wrap(ours, budget=random.Random(seed).choice(["60%", "100%", "1GiB"]))
        expected = loop(plain, seed, 30)
        try:
            found = loop(ours, seed, 30)
        except remat.BudgetError:
            remat.unwrap(ours)
            continue
        different = [i for i, (a, b) in enumerate(zip(expected, found, strict=True)) if not same_bits(a, b)]
        assert not different, f"program {seed}: tensors {different} of {len(found)} differ"
        remat.unwrap(ours)
        assert not _C.is_recording()


def test_a_hanging_child_is_found():
    assert in_child(lambda: time.sleep(5), seconds=0.2) == "the child hung"
    assert in_child(lambda: None) is None
    assert in_child(lambda: 1 / 0) is not None
