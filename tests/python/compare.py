"""Runs a training program plain and with remat, and compares every bit that it leaves."""

from __future__ import annotations

import contextlib
import copy
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

import torch
from torch import nn
from torch.utils._pytree import tree_leaves

Program = Callable[[nn.Module], Any]


def blocks(count: int = 6, width: int = 64, dropout: float = 0.1, norm: bool = False) -> nn.Sequential:
    """A chain of blocks with random numbers in it and, with `norm`, buffers that forward writes to."""

    def block() -> nn.Sequential:
        layers = [nn.Linear(width, 4 * width), nn.GELU(), nn.Dropout(dropout), nn.Linear(4 * width, width)]
        if norm:
            layers.append(nn.BatchNorm1d(width))
        return nn.Sequential(*layers)

    return nn.Sequential(*(block() for _ in range(count)))


def same_bits(a: torch.Tensor | None, b: torch.Tensor | None) -> bool:
    """Equal to the bit; NaNs of the same bits are equal, 0 and -0 are not."""
    if a is None or b is None:
        return a is b
    if a.shape != b.shape or a.dtype != b.dtype:
        return False
    if a.is_sparse:
        return same_bits(a.coalesce().indices(), b.coalesce().indices()) and same_bits(
            a.coalesce().values(), b.coalesce().values()
        )
    a, b = (t.detach().resolve_conj().resolve_neg().contiguous() for t in (a, b))
    return torch.equal(a.reshape(-1).view(torch.uint8), b.reshape(-1).view(torch.uint8))


def outcome(model: nn.Module, result: Any) -> list[torch.Tensor | None]:
    """Everything that must be the same: results, gradients, parameters, buffers and the generator's state."""
    state = [p.grad for p in model.parameters()] + list(model.parameters()) + list(model.buffers())
    return [t for t in tree_leaves(result) if isinstance(t, torch.Tensor)] + state + [torch.get_rng_state()]


def run(
    model: nn.Module, program: Program, scope: Callable[[], AbstractContextManager[Any]], steps: int, seed: int = 11
) -> list[torch.Tensor | None]:
    model = copy.deepcopy(model)
    torch.manual_seed(seed)
    results = []
    for _ in range(steps):
        with scope():
            results.append(program(model))
    return outcome(model, results)


def assert_exact(
    model: nn.Module, program: Program, scope: Callable[[], AbstractContextManager[Any]], steps: int = 1
) -> None:
    """`program(model)` does a forward and a backward pass, and returns tensors. `scope`: what remat adds around it."""
    assert_same(run(model, program, contextlib.nullcontext, steps), run(model, program, scope, steps))


def assert_same(plain: list[torch.Tensor | None], ours: list[torch.Tensor | None]) -> None:
    assert len(plain) == len(ours)
    different = [i for i, (a, b) in enumerate(zip(plain, ours)) if not same_bits(a, b)]
    assert not different, f"{len(different)} of {len(plain)} tensors differ, the first is number {different[0]}"
