"""Random ways of running steps: forks between and inside them, and loops over a wrapped model of every kind."""

from __future__ import annotations

import contextlib
import random

import torch
from children import in_child
from compare import blocks, same_bits
from random_programs import SIZE, run
from torch import nn

import remat
from remat import _C

# ---- forks ----


def check_forks(seed: int, counts: dict[str, int]) -> str | None:
    """Steps of a session with forks between and inside them; what went wrong in a child, or nothing."""
    counts["programs"] = counts.get("programs", 0) + 1
    choices = random.Random(f"forks {seed}")
    plain = [run("ordinary", seed + i) for i in range(6)]
    session = remat.Session("60%", planner=choices.choice(["auto", "online"]))

    def expect(i: int) -> None:
        ours = run("ordinary", seed + i, session.step)
        assert all(same_bits(a, b) for a, b in zip(plain[i], ours, strict=True)), f"step {i} has other bits"

    def work_on() -> None:  # what the parent would have done
        for i in range(3, 6):
            with contextlib.suppress(remat.BudgetError):
                expect(i)

    def load() -> None:  # what a worker of a DataLoader does
        assert not _C.is_recording()
        batch = torch.stack([torch.randn(SIZE, SIZE) for _ in range(500)])
        assert batch.sum().isfinite()
        assert not _C.is_recording()

    def begin_anew() -> None:
        with contextlib.suppress(remat.BudgetError):
            ours = run("ordinary", seed, remat.Session("70%").step)
            assert all(same_bits(a, b) for a, b in zip(plain[0], ours, strict=True))

    for i in range(3):
        with contextlib.suppress(remat.BudgetError):
            expect(i)
        if choices.random() < 0.5:
            if problem := in_child(choices.choice([work_on, load, begin_anew])):
                return f"forks, program {seed}: {problem}"
        if choices.random() < 0.5:
            with contextlib.suppress(remat.BudgetError), session.step():
                x = torch.randn(SIZE, SIZE, requires_grad=True)
                y = x.sin() * x
                if problem := in_child(choices.choice([load, begin_anew])):
                    return f"forks, program {seed}: {problem}"
                y.sum().backward()
    counts["same"] = counts.get("same", 0) + 1
    return None


# ---- wrapped models whose results never get a backward ----


class WithExtra(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.body = blocks(2, width=SIZE, dropout=0.1, norm=True)

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        y = self.body(x)
        return y.square().mean(), y.detach(), y * 2


def loop(model: nn.Module, seed: int, calls: int) -> list[torch.Tensor | None]:
    """Calls of a model in every way that loops have; what is to be compared."""
    choices = random.Random(f"loop {seed}")
    torch.manual_seed(seed)
    held: list[torch.Tensor] = []
    seen: list[torch.Tensor | None] = []
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


def problem_of(program: str, expected: list[torch.Tensor | None], found: list[torch.Tensor | None]) -> str | None:
    """What is wrong with what a wrapped model left, beside what plain did, or nothing."""
    different = [i for i, (a, b) in enumerate(zip(expected, found, strict=True)) if not same_bits(a, b)]
    if different:
        return f"{program}: tensors {different} of {len(found)} differ"
    if _C.is_recording():
        return f"{program} left a step in progress"
    return None


def check_loop(seed: int, counts: dict[str, int]) -> str | None:
    """What is wrong with a loop over a wrapped model, or nothing."""
    counts["programs"] = counts.get("programs", 0) + 1
    torch.manual_seed(seed)
    plain, ours = WithExtra(), WithExtra()
    ours.load_state_dict(plain.state_dict())
    remat.wrap(ours, budget=random.Random(seed).choice(["60%", "100%", "1GiB"]))
    expected = loop(plain, seed, 30)
    try:
        found = loop(ours, seed, 30)
    except remat.BudgetError:
        counts["too little"] = counts.get("too little", 0) + 1
        return None
    finally:
        remat.unwrap(ours)
    if problem := problem_of(f"loops, program {seed}", expected, found):
        return problem
    counts["same"] = counts.get("same", 0) + 1
    return None


# ---- iterations that hold results of wrapped models ----

ITERATIONS = 40
MOST_IN_A_STEP = 34  # a step takes no more than 32 calls after its first backward


def steps_of(models: list[nn.Module]) -> int:
    """How many have ended."""
    steps = 0
    for model in models:
        with contextlib.suppress(remat.Error):
            steps += remat.session_of(model).report().step
    return steps


def iterate(models: list[nn.Module], seed: int, steps: list[int]) -> list[torch.Tensor | None]:
    """Calls of some models, the same in every iteration; what is to be compared. `steps`: how many have ended, after
    each iteration."""
    choices = random.Random(f"iterations {seed}")
    actions = ["backward", *choices.choices(["backward", "held", "late", "kept", "evaluated"], k=choices.randrange(4))]
    calls = [(choices.choice(models), action) for action in actions]
    choices.shuffle(calls)
    torch.manual_seed(seed)
    held: list[torch.Tensor | None] = [None] * len(calls)
    seen: list[torch.Tensor | None] = []
    for i in range(ITERATIONS):
        losses = []
        for slot, (model, action) in enumerate(calls):
            if action == "kept" and i > 0:  # the first one's, until the end
                continue
            with torch.set_grad_enabled(action != "evaluated"):
                loss = model(torch.randn(32, SIZE))[0]
            if action == "backward":
                losses.append(loss)
            if action == "late" and i > 0:  # the last iteration's
                losses.append(held[slot])
            held[slot] = loss
        for loss in losses:
            loss.backward()
            seen.append(loss.detach())
        steps.append(steps_of(models))
    return seen + [p.grad for model in models for p in model.parameters()] + [torch.get_rng_state()]


def check_iterations(seed: int, counts: dict[str, int]) -> str | None:
    """What is wrong with iterations that call two wrapped models, or nothing."""
    counts["programs"] = counts.get("programs", 0) + 1
    torch.manual_seed(seed)
    plain, ours = ([WithExtra(), WithExtra()] for _ in range(2))
    choices = random.Random(seed)
    for before, model in zip(plain, ours, strict=True):
        model.load_state_dict(before.state_dict())
        remat.wrap(model, budget=choices.choice(["90%", "100%", "1GiB"]))
    steps: list[int] = []
    expected = iterate(plain, seed, [])
    try:
        found = iterate(ours, seed, steps)
    except remat.BudgetError:
        counts["too little"] = counts.get("too little", 0) + 1
        return None
    finally:
        for model in ours:
            remat.unwrap(model)
    if problem := problem_of(f"iterations, program {seed}", expected, found):
        return problem
    if steps[-1] == steps[-1 - MOST_IN_A_STEP]:
        return f"iterations, program {seed}: a step that does not end, {steps} had ended after each"
    counts["same"] = counts.get("same", 0) + 1
    return None


CHECKS = {"forks": check_forks, "loops": check_loop, "iterations": check_iterations}
