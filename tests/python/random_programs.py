"""Random training steps that do what only Python can: collectives, writes behind PyTorch's back, forks, odd wrapped loops.

A program is a kind and a seed. It runs plain and under remat, and leaves the same bits, or an error of remat's where
its kind allows one. The C++ programs (tests/fuzz) hold the ordinary operators.
"""

from __future__ import annotations

import contextlib
import ctypes
import random
import threading
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

import torch
from compare import same_bits
from torch import nn

import remat
from remat import _C

SIZE = 12  # rows and columns of every tensor of a program
Instruction = Callable[["Machine"], None]
INSTRUCTIONS: dict[str, list[Instruction]] = {}
REFUSABLE = {"doors", "emptied", "pointers"}  # memory changes behind remat's back: an error is as good as the same bits


def instruction(*kinds: str) -> Callable[[Instruction], Instruction]:
    def add(function: Instruction) -> Instruction:
        for kind in kinds:
            INSTRUCTIONS.setdefault(kind, []).append(function)
        return function

    return add


class Machine:
    """One run of a program: weights, and a pool of square tensors that instructions take from and add to."""

    def __init__(self, kind: str, seed: int) -> None:
        self.kind = kind
        self.choices = random.Random(f"{kind} {seed}")
        self.generator = torch.Generator().manual_seed(seed)
        self.weights = [nn.Parameter(self.fresh() * 0.3) for _ in range(3)]
        self.inputs = [self.fresh() for _ in range(2)]
        self.pool = [*self.inputs, self.inputs[0] @ self.weights[0]]
        self.refills: list[Callable[[], object]] = []  # before backward
        self.modes: list[Callable[[], AbstractContextManager[Any]]] = []  # around backward
        self.observations: list[Callable[[], object]] = []  # after backward, of what must be as in plain
        self.closing: list[Callable[[], object]] = []  # at the end, whatever happened
        self.calls = 0  # of a user's functions
        self.changed_late = False  # settings: backward has others than the step began with
        self.listing: list[str] = []

    def fresh(self) -> torch.Tensor:
        return torch.randn(SIZE, SIZE, generator=self.generator)

    def pick(self) -> torch.Tensor:
        """Mostly a late one, so that programs get deep."""
        n = len(self.pool)
        return self.pool[max(self.choices.randrange(n), self.choices.randrange(n))]

    def refill(self) -> None:
        for fill in self.refills:
            fill()
        self.refills.clear()

    def backward(self, loss: torch.Tensor) -> None:
        with contextlib.ExitStack() as modes:
            for mode in self.modes:
                modes.enter_context(mode())
            loss.backward()

    def close(self) -> None:
        for undo in reversed(self.closing):
            undo()
        self.closing.clear()

    def forward(self, length: int) -> torch.Tensor:
        own = INSTRUCTIONS.get(self.kind, [])
        for _ in range(length):
            usual = not own or self.choices.random() < (0.85 if self.kind in REFUSABLE else 0.6)
            chosen = self.choices.choice(INSTRUCTIONS["ordinary"] if usual else own)
            self.listing.append(chosen.__name__)
            chosen(self)
            if len(self.pool) > 6:
                del self.pool[self.choices.randrange(2, len(self.pool) - 1)]
        losses = [t.float().mean() for t in self.pool[2:] if t.requires_grad]
        return torch.stack(losses).sum() if losses else (self.weights[0] * 1).sum()


@instruction("ordinary")
def product(m: Machine) -> None:
    m.pool.append(m.pick() @ m.choices.choice(m.weights))


@instruction("ordinary")
def elementwise(m: Machine) -> None:
    x = m.pick()
    m.pool.append(m.choices.choice([torch.sin, torch.tanh, torch.sigmoid, nn.functional.gelu])(x) * m.pick())


@instruction("ordinary")
def normalized(m: Machine) -> None:
    m.pool.append(nn.functional.layer_norm(m.pick(), (SIZE,)))


@instruction("ordinary")
def dropped_out(m: Machine) -> None:
    m.pool.append(nn.functional.dropout(m.pick(), 0.3))


@instruction("ordinary")
def in_place(m: Machine) -> None:
    x = m.pick() * 1.5
    m.pool.append(m.choices.choice([torch.Tensor.relu_, torch.Tensor.sigmoid_, torch.Tensor.tanh_])(x))


# ---- doors: ways that Python opens to a tensor's memory ----


def write(m: Machine, x: torch.Tensor) -> None:
    """Through one of the doors that remat can see being opened."""
    door = m.choices.randrange(5)
    m.listing.append(f"  door {door}")
    if door == 0:
        x.detach().numpy()[m.choices.randrange(SIZE)] *= 2
    elif door == 1:
        x.detach().apply_(lambda number: number * 0.5 + 0.25)
    elif door == 2:
        x.detach().map_(m.inputs[1], lambda a, b: a + 0.5 * b)
    elif door == 3:
        torch.from_dlpack(x.detach()).mul_(0.5)
    else:
        torch.utils.dlpack.from_dlpack(torch.utils.dlpack.to_dlpack(x.detach())).add_(0.125)


@instruction("doors")
def write_activation(m: Machine) -> None:
    x = m.pick() @ m.weights[0]
    y = x.sin() * x
    write(m, x)
    m.pool += [y * y, x.cos()]


@instruction("doors")
def write_random(m: Machine) -> None:
    noise = torch.rand_like(m.pick().detach())
    y = m.pick() * m.weights[1] * noise
    write(m, noise)
    m.pool.append((y * noise).tanh())


@instruction("doors")
def write_input(m: Machine) -> None:
    x = m.choices.choice(m.inputs)
    m.pool.append((x @ m.weights[0]).sin() * x.cos())
    write(m, x)


@instruction("doors")
def write_parameter(m: Machine) -> None:
    w = m.choices.choice(m.weights)
    m.pool.append((m.pick() @ w.sin()).tanh() * w)
    write(m, w)


# ---- pointers: what nothing but verify promises to find ----


def write_unseen(m: Machine, x: torch.Tensor) -> None:
    door = m.choices.randrange(4)
    m.listing.append(f"  pointer {door}")
    if door == 0:
        numbers = ctypes.cast(x.data_ptr(), ctypes.POINTER(ctypes.c_float))
        numbers[m.choices.randrange(x.numel())] += 1.0
    elif door == 1:
        x.untyped_storage()[2] = m.choices.randrange(256)  # some low bits of the first number
    elif door == 2:
        thread = threading.Thread(target=lambda: x.data.mul_(0.75))
        thread.start()
        thread.join()
    else:
        x.data.add_(0.125)


@instruction("pointers")
def point_at_anything(m: Machine) -> None:
    x = m.choices.choice([m.pick() @ m.weights[0], *m.inputs, *m.weights, torch.rand_like(m.inputs[0])])
    y = (x.sin() * x) @ m.weights[1]
    write_unseen(m, x)
    m.pool += [y * y, y.cos() * x]


# ---- storages that are emptied after forward and filled before backward, as FSDP2 does with parameters ----


@instruction("emptied")
def emptied(m: Machine) -> None:
    leaf = m.choices.random() < 0.6
    x = m.choices.choice(m.weights) if leaf else m.pick() @ m.weights[0]
    y = (x.sin() * x) @ m.inputs[0]
    m.pool.append(y.tanh() * y)
    storage = x.untyped_storage()
    if storage.size() == 0:
        return
    numbers, size = x.tolist(), storage.size()  # .numpy() would make it a storage of fixed size
    factor = 0.5 if m.choices.random() < 0.25 else 1.0
    versioned = m.choices.random() < 0.3

    def fill() -> None:
        if storage.size() != 0:
            return
        storage.resize_(size)
        quiet = contextlib.nullcontext() if versioned else torch.autograd._unsafe_preserve_version_counter(x)
        with torch.no_grad(), quiet:
            x.copy_(torch.tensor(numbers) * factor)

    storage.resize_(0)
    if leaf and m.choices.random() < 0.5:  # the next layer's forward needs it again
        fill()
    else:
        m.refills.append(fill)
        if leaf:  # nothing reads it before
            m.pool.append(m.pick() * 1)
        m.refill() if m.choices.random() < 0.3 or leaf else None


# ---- running them ----


def run(
    kind: str, seed: int, scope: Callable[[], AbstractContextManager[Any]] = contextlib.nullcontext, steps: int = 1
) -> list[torch.Tensor | None]:
    """What the last of some equal steps leaves."""
    for _ in range(steps):
        machine = Machine(kind, seed)
        torch.manual_seed(seed)
        try:
            with scope():
                loss = machine.forward(machine.choices.randrange(4, 20))
                machine.refill()
                machine.pool.clear()
                machine.backward(loss)
            observed = [observe() for observe in machine.observations]
        finally:
            machine.close()
    state = [p.grad for p in machine.weights] + [p.detach() for p in machine.weights] + machine.inputs
    seen = torch.frombuffer(bytearray(repr([machine.calls, *observed]).encode()), dtype=torch.uint8)
    return [loss.detach(), *state, torch.get_rng_state(), seen]


@contextlib.contextmanager
def dropping(session: Any) -> Any:
    with session.step(), remat.policy():
        yield


def settings(kind: str, budgets: bool = True) -> dict[str, tuple[Callable[[], AbstractContextManager[Any]], int]]:
    """Names of the ways of remat, scopes and numbers of steps."""
    verified = remat.Session(verify=True)
    ways: dict[str, tuple[Callable[[], AbstractContextManager[Any]], int]] = {
        "everything dropped, verified": (lambda: dropping(verified), 1)
    }
    if kind == "pointers":
        return ways
    free, all_planned = remat.Session(), remat.Session(planner="drop-all")
    ways["everything dropped"] = (lambda: dropping(free), 1)
    ways["everything dropped, planned"] = (all_planned.step, 3)
    if budgets:
        budget, planned = remat.Session(budget="60%", planner="online"), remat.Session("60%")
        ways["60 %"] = (budget.step, 2)
        ways["60 %, planned"] = (planned.step, 3)
    return ways


def check(kind: str, seed: int, counts: dict[str, int], budgets: bool = True) -> str | None:
    """What is wrong with this program under remat, or nothing. Without `budgets` no step is refused."""
    failed = None
    plain: list[torch.Tensor | None] = []
    try:
        plain = run(kind, seed)
    except RuntimeError as error:
        failed = str(error).splitlines()[0]
    counts["programs"] = counts.get("programs", 0) + 1
    for name, (scope, steps) in settings(kind, budgets).items():
        what = f"program {seed} of the kind '{kind}', {name}: "
        try:
            ours = run(kind, seed, scope, steps)
        except remat.BudgetError:
            counts["too little"] = counts.get("too little", 0) + 1
            continue
        except remat.Error as error:
            if failed is None and kind not in REFUSABLE:
                return what + f"refused: {error}"
            counts["refused"] = counts.get("refused", 0) + 1
            continue
        except remat.InternalError as error:
            if kind not in REFUSABLE or "verified" not in name or "written to" not in str(error):
                return what + f"internal error: {error}"
            counts["found by verify"] = counts.get("found by verify", 0) + 1
            continue
        except RuntimeError as error:
            if failed is None:
                return what + f"{type(error).__name__} where plain goes on: {error}"
            continue
        if failed is not None:
            return what + f"goes on where plain fails: {failed}"
        different = [i for i, (a, b) in enumerate(zip(plain, ours, strict=True)) if not same_bits(a, b)]
        if different:
            machine = Machine(kind, seed)
            with contextlib.suppress(Exception):
                machine.forward(machine.choices.randrange(4, 20))
            machine.close()
            return what + f"tensors {different} of {len(plain)} differ; " + ", ".join(machine.listing)
        counts["same"] = counts.get("same", 0) + 1
    if _C.is_recording():
        return f"program {seed} of the kind '{kind}' left a step in progress"
    return None
