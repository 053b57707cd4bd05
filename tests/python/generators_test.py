"""Operators that draw from more than one generator: the state of one is kept for replays."""

from __future__ import annotations

import pytest
import torch
from scopes import assert_exact_when_dropped, loss_of, scaled_by
from torch import nn

import remat

library = torch.library.Library("remat_draws", "DEF")
library.define("both(Tensor x, Generator? a, Generator? b) -> Tensor")
library.define("one(Tensor x, *, Generator? generator=None) -> Tensor")
calls = []


def both(x, a, b):
    calls.append("both")
    with torch._C._AutoDispatchBelowAutograd():  # where draws are not recorded by themselves
        return x + torch.rand(x.shape, generator=a) * torch.rand(x.shape, generator=b)


def one(x, generator=None):
    """From the default one, too."""
    calls.append("one")
    with torch._C._AutoDispatchBelowAutograd():
        return x + torch.rand(x.shape, generator=generator) * torch.rand(x.shape)


for name, kernel in (("both", both), ("one", one)):
    library.impl(name, kernel, "CPU")
    remat.repeatable(f"remat_draws::{name}")

first, second = torch.Generator(), torch.Generator()
OPERATORS = {
    "two": lambda x: torch.ops.remat_draws.both(x, first, second),
    "one twice": lambda x: torch.ops.remat_draws.both(x, first, first),
    "one and the default": lambda x: torch.ops.remat_draws.one(x, generator=first),
    "the default": lambda x: torch.ops.remat_draws.one(x),
    "the default by name": lambda x: torch.ops.remat_draws.one(x, generator=torch.default_generator),
}


@pytest.mark.parametrize("kind", OPERATORS)
def test_an_operator_with_several_generators(kind):
    """Its result is saved by autograd alone."""

    scaled = scaled_by(OPERATORS[kind])

    def program(model):
        first.manual_seed(1)
        second.manual_seed(2)
        calls.clear()
        x = torch.randn(48, 48)
        for layer in model:
            x = torch.tanh(scaled(layer(x)).exp())
        loss = loss_of(x)
        loss.backward()
        assert len(calls) == len(model) or "default" in kind and "one and" not in kind
        return loss.detach(), first.get_state(), second.get_state()

    assert_exact_when_dropped(nn.ModuleList(nn.Linear(48, 48) for _ in range(4)), program)
