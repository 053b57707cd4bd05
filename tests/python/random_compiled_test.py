"""Random modules that torch.compile compiles, between operators that it does not: the same bits with and without remat.

A compiler's run takes seconds, so the quick run takes three; REMAT_ALL=1 takes 200, REMAT_FUZZ_PROGRAMS as many as it says.
"""

from __future__ import annotations

import contextlib
import copy
import os
import random
import shutil

import pytest
import torch
from compare import outcome, same_bits
from torch import nn

import remat

pytestmark = pytest.mark.skipif(shutil.which("g++") is None, reason="compiling needs g++")
ROWS, WIDTH = 96, 32
FIRST = int(os.environ.get("REMAT_FUZZ_SEED", "1"))
PROGRAMS = int(os.environ.get("REMAT_FUZZ_PROGRAMS", "200" if os.environ.get("REMAT_ALL") else "3"))
UNARY = [torch.sin, torch.tanh, torch.sigmoid, torch.exp, torch.abs, nn.functional.gelu, nn.functional.silu]


def layer(choices: random.Random) -> nn.Module:
    return choices.choice(
        [
            lambda: nn.Linear(WIDTH, WIDTH),
            lambda: nn.Sequential(nn.Linear(WIDTH, 2 * WIDTH), nn.GELU(), nn.Linear(2 * WIDTH, WIDTH)),
            lambda: nn.LayerNorm(WIDTH),
            lambda: nn.BatchNorm1d(WIDTH),
            lambda: nn.Dropout(0.3),
        ]
    )()


def reversed_rows(x: torch.Tensor) -> torch.Tensor:
    return x.flip(0).contiguous()


def attention(x: torch.Tensor) -> torch.Tensor:
    heads = x.view(3, -1, 4, 8).transpose(1, 2)
    y = nn.functional.scaled_dot_product_attention(heads, heads.tanh(), heads, is_causal=True)
    return y.transpose(1, 2).reshape(ROWS, WIDTH)


def scattered(x: torch.Tensor) -> torch.Tensor:
    rows = torch.arange(ROWS, device=x.device) % 7
    return torch.zeros(7, WIDTH).index_add(0, rows, x)[rows] * 0.1


def changed_in_place(x: torch.Tensor) -> torch.Tensor:
    y = x * 1.5
    y[:, :8].mul_(0.5)
    return y.relu_()


def noisy(x: torch.Tensor) -> torch.Tensor:
    return x + torch.rand_like(x) * torch.randn(WIDTH)


def broken(x: torch.Tensor) -> torch.Tensor:
    torch._dynamo.graph_break()
    return x.cos()


def pooled(x: torch.Tensor) -> torch.Tensor:
    return nn.functional.max_pool1d(x.unsqueeze(0), 3, stride=1, padding=1).squeeze(0)


def narrowed(x: torch.Tensor) -> torch.Tensor:
    return x.to(torch.bfloat16).sin().float()


def reductions(x: torch.Tensor) -> torch.Tensor:
    return x.softmax(-1) * x.var(0, keepdim=True) + x.cumsum(1) * 0.05


FUNCTIONS = [
    reversed_rows, attention, scattered, changed_in_place, noisy, broken, pooled, narrowed, reductions,
]  # fmt: skip


class RandomModule(nn.Module):
    """Some random layers and functions, each of something earlier; it counts its calls in a buffer. Several threads add up
    what is scattered, or was pooled, in any order: plain runs differ."""

    def __init__(self, choices: random.Random) -> None:
        super().__init__()
        self.choices = choices
        self.layers = nn.ModuleList()
        self.program = []  # function, or number of a layer; the inputs' positions
        for position in range(1, choices.randrange(4, 12)):
            a, b = (max(choices.randrange(position), choices.randrange(position)) for _ in range(2))
            kind = choices.random()
            if kind < 0.4:
                self.program.append((len(self.layers), a, b))
                self.layers.append(layer(choices))
            else:
                functions = [f for f in FUNCTIONS if f not in (scattered, pooled) or torch.get_num_threads() == 1]
                self.program.append((choices.choice(UNARY if kind < 0.6 else functions), a, b))
        self.register_buffer("calls", torch.zeros(()))

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        self.calls.add_(1)
        values = [x]
        for function, a, b in self.program:
            y = self.layers[function](values[a]) if isinstance(function, int) else function(values[a])
            values.append(nn.functional.layer_norm(y, (WIDTH,)) * values[b].tanh())
        return values[-1], sum(values).sin()


class Model(nn.Module):
    """Compiled modules, of which one may run twice, with operators of PyTorch's before, between and after."""

    def __init__(self, choices: random.Random) -> None:
        super().__init__()
        self.first = nn.Linear(WIDTH, WIDTH)
        self.inner = nn.ModuleList(RandomModule(choices) for _ in range(choices.randrange(1, 3)))
        self.again = choices.random() < 0.5

    def forward(self, x: torch.Tensor, compiled: list) -> torch.Tensor:
        x = self.first(x).tanh()
        for call in compiled + compiled[:1] * self.again:
            y, rest = call(x)
            x = nn.functional.dropout(y * rest.sigmoid(), 0.1) + x
        return (x.exp() * x).mean()


class Program:
    """A model, compiled once; every run begins with the same parameters and buffers."""

    def __init__(self, seed: int) -> None:
        torch.compiler.reset()
        torch.set_num_threads(1 + seed % 2)
        torch.manual_seed(seed)
        choices = random.Random(f"compiled {seed}")
        self.seed, self.model = seed, Model(choices)
        self.first_state = copy.deepcopy(self.model.state_dict())
        self.compiled = [torch.compile(inner, dynamic=choices.choice([None, False])) for inner in self.model.inner]

    def run(self, scope, steps: int) -> list[torch.Tensor | None]:
        self.model.load_state_dict(self.first_state)
        self.model.zero_grad(set_to_none=True)
        torch.manual_seed(self.seed)
        losses = []
        for _ in range(steps):
            x = torch.randn(ROWS, WIDTH)
            with scope():
                loss = self.model(x, self.compiled)
                loss.backward()
            losses.append(loss.detach())
        return [None if t is None else t.detach().clone() for t in outcome(self.model, losses)]


def check(seed: int, counts: dict[str, int]) -> str | None:
    """What is wrong with the program of `seed` under remat, or nothing."""
    program = Program(seed)
    plain = program.run(contextlib.nullcontext, 4)
    if any(not same_bits(a, b) for a, b in zip(plain, program.run(contextlib.nullcontext, 4))):
        counts["two plain runs differ"] = counts.get("two plain runs differ", 0) + 1
        return None
    verified = remat.Session(verify=True)

    @contextlib.contextmanager
    def everything():
        with verified.step(), remat.policy():
            yield

    sessions = {
        "verified": verified, "drop-all": remat.Session(planner="drop-all"), "90 %": remat.Session("90%"),
        "90 %, online": remat.Session("90%", planner="online"),
    }  # fmt: skip
    for name, session in sessions.items():
        try:
            ours = program.run(everything if session is verified else session.step, 4)
        except remat.BudgetError:
            counts["too little"] = counts.get("too little", 0) + 1
            continue
        different = [i for i, (a, b) in enumerate(zip(plain, ours, strict=True)) if not same_bits(a, b)]
        if different:
            return f"program {seed}, {name}: tensors {different} of {len(plain)} differ"
        report = session.report()
        counts["same"] = counts.get("same", 0) + 1
        counts["dropped"] = counts.get("dropped", 0) + report.values_dropped
        if report.budget_bytes and report.peak_bytes > report.budget_bytes:
            return f"program {seed}, {name}: {report.peak_bytes} bytes of {report.budget_bytes}"
    return None


@pytest.mark.usefixtures("one_thread")  # which restores the number of threads
def test_random_compiled_modules_have_the_same_bits():
    counts: dict[str, int] = {}
    problems = [problem for seed in range(FIRST, FIRST + PROGRAMS) if (problem := check(seed, counts))]
    assert not problems, f"{len(problems)} programs fail, the first: {problems[0]}; {counts}"
    assert counts["same"] >= PROGRAMS and counts["dropped"] > 0, counts
