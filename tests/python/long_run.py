"""Many models in one process for thousands of steps, with budgets and shapes that change and failures in between.

In Python and not in C++, since 24 different models are short here, and since a torch-function mode makes any call of a
forward pass fail without the recorder noticing the mode. Allocations fail by budgets that are too small: the error
then comes from within whatever operator, replay or gradient happens to allocate.

Each model has a plain twin with the same parameters. A step that completes leaves the same bits in both; one that fails
leaves nothing behind.
"""

from __future__ import annotations

import collections
import copy
import dataclasses
import os
import random
import time
from collections.abc import Callable
from typing import Any

import torch
from compare import same_bits
from torch import nn
from torch.overrides import TorchFunctionMode

import remat
from remat import _C

Batch = Callable[[random.Random], torch.Tensor]


class InjectedError(Exception):
    """What a failing operator throws."""


class FailingCall(TorchFunctionMode):
    """The call number `at` of torch's functions fails."""

    def __init__(self, at: int) -> None:
        super().__init__()
        self.left = at

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.left -= 1
        if self.left == 0:
            raise InjectedError
        return func(*args, **(kwargs or {}))


# ---- models ----


class Apply(nn.Module):
    """A function of parts."""

    def __init__(self, function: Callable[..., torch.Tensor], **parts: nn.Module) -> None:
        super().__init__()
        self.function = function
        self.parts = nn.ModuleDict(parts)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.function(x, **self.parts)


class Squares(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        y = x * x
        ctx.save_for_backward(x, y)
        return y * y

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> torch.Tensor:
        x, y = ctx.saved_tensors
        return gradient * 4 * x * y


def perceptron(*sizes: int, activation: Callable[[], nn.Module] = nn.GELU) -> nn.Sequential:
    layers: list[nn.Module] = []
    for a, b in zip(sizes, sizes[1:], strict=False):
        layers += [nn.Linear(a, b), activation()]
    return nn.Sequential(*layers)


def rows(width: int = 24) -> Batch:
    return lambda r: torch.randn(r.choice([4, 9, 16]), width)


def sequences(width: int = 24) -> Batch:
    return lambda r: torch.randn(r.choice([2, 4]), r.choice([6, 11, 16]), width)


def images() -> Batch:
    return lambda r: torch.randn(r.choice([2, 3, 5]), 3, *r.choice([(8, 8), (12, 12), (8, 16)]))


def tokens() -> Batch:
    return lambda r: torch.randint(40, (r.choice([2, 3]), r.choice([5, 12])))


def convolutions(norm: Callable[[int], nn.Module], inplace: bool = True) -> nn.Sequential:
    def block(a: int, b: int) -> list[nn.Module]:
        return [nn.Conv2d(a, b, 3, padding=1), norm(b), nn.ReLU(inplace=inplace)]

    return nn.Sequential(*block(3, 8), *block(8, 8), nn.MaxPool2d(2), *block(8, 16))


def encoder(first: bool) -> nn.Module:
    layer = nn.TransformerEncoderLayer(24, 4, 48, dropout=0.1, batch_first=True, norm_first=first)
    return nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)


def penalized(x: torch.Tensor, net: nn.Module) -> torch.Tensor:
    x = x.detach().requires_grad_()
    (gradient,) = torch.autograd.grad(net(x).sum(), x, create_graph=True)
    return (gradient.norm(2, dim=1) - 1).square()


def mixture(x: torch.Tensor, gate: nn.Module, a: nn.Module, b: nn.Module) -> torch.Tensor:
    weights = gate(x).softmax(-1)
    first = weights[:, 0] > weights[:, 1]
    y = torch.zeros_like(x)
    y[first] = a(x[first]) * weights[first, :1]
    y[~first] = b(x[~first]) * weights[~first, 1:2]
    return y


def cast(x: torch.Tensor, net: nn.Module) -> torch.Tensor:
    with torch.autocast("cpu", torch.bfloat16):
        return net(x)


def attention(x: torch.Tensor, qkv: nn.Module) -> torch.Tensor:
    q, k, v = qkv(x).chunk(3, -1)
    return nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)


def through(x: torch.Tensor, **parts: nn.Module) -> torch.Tensor:
    """One part after another; of what recurrent ones return, the sequence."""
    for part in parts.values():
        x = part(x)
        x = x[0] if isinstance(x, tuple) else x
    return x


def unet(x: torch.Tensor, down: nn.Module, low: nn.Module, up: nn.Module, out: nn.Module) -> torch.Tensor:
    a = down(x).relu()
    b = up(low(nn.functional.avg_pool2d(a, 2)).relu())
    return out(torch.cat([a, b], 1))


def residual(x: torch.Tensor, **parts: nn.Module) -> torch.Tensor:
    for part in parts.values():
        x = x + part(x)
    return x


def checkpointed(x: torch.Tensor, **parts: nn.Module) -> torch.Tensor:
    for part in parts.values():
        x = remat.checkpoint(part, x) if _C.is_recording() else part(x)
    return x


MODELS: dict[str, tuple[Callable[[], nn.Module], Batch]] = {
    "mlp": (lambda: perceptron(24, 64, 64, 8), rows()),
    "deep mlp": (lambda: perceptron(*[24] * 14, activation=nn.Tanh), rows()),
    "in place": (lambda: perceptron(24, 48, 48, 24, activation=lambda: nn.ReLU(inplace=True)), rows()),
    "dropout": (lambda: Apply(through, a=perceptron(24, 48), b=nn.Dropout(0.4), c=nn.Linear(48, 8)), rows()),
    "residual": (lambda: Apply(residual, **{f"p{i}": perceptron(24, 48, 24) for i in range(5)}), rows()),
    "normalized": (lambda: Apply(through, a=nn.Linear(24, 48), b=nn.BatchNorm1d(48), c=nn.LayerNorm(48)), rows()),
    "convolutions": (lambda: convolutions(nn.BatchNorm2d), images()),
    "group norm": (lambda: convolutions(lambda n: nn.GroupNorm(4, n), inplace=False), images()),
    "instance norm": (lambda: convolutions(lambda n: nn.InstanceNorm2d(n, affine=True)), images()),
    "u-net": (
        lambda: Apply(
            unet,
            down=nn.Conv2d(3, 8, 3, padding=1),
            low=nn.Conv2d(8, 8, 3, padding=1),
            up=nn.ConvTranspose2d(8, 8, 2, stride=2),
            out=nn.Conv2d(16, 3, 1),
        ),
        images(),
    ),
    "separable": (
        lambda: nn.Sequential(
            nn.Conv2d(3, 9, 3, groups=3), nn.Conv2d(9, 8, 1), nn.Hardswish(), nn.AdaptiveAvgPool2d(2)
        ),
        images(),
    ),
    "lstm": (lambda: Apply(through, a=nn.LSTM(24, 20, 2, batch_first=True), b=nn.Linear(20, 8)), sequences()),
    "two-way lstm": (lambda: Apply(through, a=nn.LSTM(24, 12, bidirectional=True), b=nn.Linear(24, 8)), sequences()),
    "gru": (lambda: Apply(through, a=nn.GRU(24, 20, 2, dropout=0.2), b=nn.Linear(20, 8)), sequences()),
    "rnn": (lambda: Apply(through, a=nn.RNN(24, 20, nonlinearity="relu"), b=nn.Linear(20, 8)), sequences()),
    "encoder": (lambda: encoder(False), sequences()),
    "encoder, norm first": (lambda: encoder(True), sequences()),
    "attention": (lambda: Apply(attention, qkv=nn.Linear(24, 72)), sequences()),
    "language model": (
        lambda: Apply(through, a=nn.Embedding(40, 24, padding_idx=0), b=encoder(True), c=nn.Linear(24, 40)),
        tokens(),
    ),
    "mixture": (
        lambda: Apply(mixture, gate=nn.Linear(24, 2), a=perceptron(24, 48, 24), b=perceptron(24, 48, 24)),
        rows(),
    ),
    "autocast": (lambda: Apply(cast, net=perceptron(24, 64, 64, 8)), rows()),
    "custom function": (lambda: Apply(lambda x, net: Squares.apply(net(x)), net=perceptron(24, 32, 8)), rows()),
    "gradient penalty": (lambda: Apply(penalized, net=perceptron(24, 48, 48, 1, activation=nn.Softplus)), rows()),
    "checkpointed": (lambda: Apply(checkpointed, **{f"p{i}": perceptron(24, 64, 24) for i in range(4)}), rows()),
}


# ---- steps ----


@dataclasses.dataclass
class Member:
    """A model with its plain twin, and how its steps run at the moment."""

    plain: nn.Module
    ours: nn.Module
    batch: Batch
    session: Any = None  # None: wrapped
    left: int = 0  # steps until that changes
    sessions: int = 0


@dataclasses.dataclass
class Summary:
    """What came of a run."""

    counts: collections.Counter[str]
    current_bytes: list[int]  # remat's account, from time to time, between steps
    resident_bytes: list[int]  # the process's, at the same times
    threads: list[int]
    problems: list[str]


def train(model: nn.Module, x: torch.Tensor, seed: int, fail_at: int = 0, fail_in: int = -1) -> torch.Tensor:
    """Forward and backward; `fail_at`: the call that fails, `fail_in`: the parameter whose gradient does."""
    torch.manual_seed(seed)
    hook = None
    if fail_in >= 0:
        parameters = list(model.parameters())

        def fail(gradient: torch.Tensor) -> None:
            raise InjectedError

        hook = parameters[fail_in % len(parameters)].register_hook(fail)
    try:
        if fail_at > 0:
            with FailingCall(fail_at):
                loss = model(x).float().square().mean()
        else:
            loss = model(x).float().square().mean()
        loss.backward()
    finally:
        if hook is not None:
            hook.remove()
    return loss.detach()


def change(member: Member, r: random.Random) -> None:
    """Another budget, planner or way of beginning steps."""
    if member.session is None and member.sessions > 0:
        remat.unwrap(member.ours)
    member.left = r.randrange(2, 12)
    member.sessions += 1
    budget = r.choice([None, "90%", "70%", "60%", "50%", "40%", "bytes"])
    if budget == "bytes":
        budget = remat.memory.current() + r.choice([20_000, 60_000, 200_000, 10**9])
    if r.random() < 0.2:
        member.session = None
        remat.wrap(member.ours, budget=budget)
    else:
        member.session = remat.Session(
            budget=budget, planner=r.choice(["auto", "auto", "online"]), verify=r.random() < 0.3
        )


def step(member: Member, name: str, r: random.Random, summary: Summary) -> None:
    if member.left == 0:
        change(member, r)
    member.left -= 1
    x, seed = member.batch(r), r.randrange(1 << 30)
    fail_at = r.randrange(1, 30) if r.random() < 0.15 else 0
    fail_in = r.randrange(100) if r.random() < 0.1 else -1
    completed = False
    try:
        if member.session is None:
            ours = train(member.ours, x, seed, fail_at, fail_in)
        else:
            with member.session.step():
                ours = train(member.ours, x, seed, fail_at, fail_in)
        completed = True
    except InjectedError:
        summary.counts["injected failures"] += 1
    except remat.BudgetError:
        summary.counts["refused for memory"] += 1
    except Exception as error:
        summary.problems.append(f"{name}: {type(error).__name__}: {error}")
    if not completed:  # buffers may have been written to
        member.left = 0 if member.session is None else member.left
        member.ours.load_state_dict(member.plain.state_dict())
        member.ours.zero_grad()
        return
    summary.counts["completed"] += 1
    expected = train(member.plain, x, seed)
    pairs = [(ours, expected)]
    pairs += [(a.grad, b.grad) for a, b in zip(member.ours.parameters(), member.plain.parameters(), strict=True)]
    pairs += list(zip(member.ours.buffers(), member.plain.buffers(), strict=True))
    different = [i for i, (a, b) in enumerate(pairs) if not same_bits(a, b)]
    if different:
        summary.problems.append(f"{name}: tensors {different} of {len(pairs)} have other bits")
    with torch.no_grad():
        for a, b in zip(member.ours.parameters(), member.plain.parameters(), strict=True):
            for p in (a, b):
                if p.grad is not None:
                    p -= 0.01 * p.grad.clamp(-1, 1)
                    p.grad = None
            if different:
                a.copy_(b)


def threads() -> int:
    return len(os.listdir("/proc/self/task"))


def resident() -> int:
    with open("/proc/self/statm", encoding="ascii") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def run(steps: int, seed: int = 1, looks: int = 20, most_problems: int = 10) -> Summary:
    """So many steps over all models; `looks`: how often memory and threads are noted."""
    torch.manual_seed(seed)
    r = random.Random(seed)
    summary = Summary(collections.Counter(), [], [], [], [])
    members: dict[str, Member] = {}
    for name, (make, batch) in MODELS.items():
        plain = make()
        members[name] = Member(plain, copy.deepcopy(plain), batch)
    train(perceptron(24, 8), torch.randn(4, 24), 1)  # starts PyTorch's own threads
    every = max(len(members), steps // looks)
    for i in range(steps):
        name = list(members)[i % len(members)] if i < 2 * len(members) else r.choice(list(members))
        step(members[name], name, r, summary)
        if len(summary.problems) >= most_problems:
            break
        if (i + 1) % every == 0:
            summary.current_bytes.append(remat.memory.current())
            summary.resident_bytes.append(resident())
            summary.threads.append(threads())
    for member in members.values():
        if member.session is None and member.sessions > 0:
            remat.unwrap(member.ours)
        member.session = None
    end = time.monotonic() + 10  # a plan that is being searched for is given up soon
    while threads() > summary.threads[0] and time.monotonic() < end:
        time.sleep(0.05)
    summary.threads.append(threads())
    return summary
