"""Functions of TorchScript: they run the recorded operators, and share their lists with them."""

from __future__ import annotations

import torch
from compare import blocks
from scopes import assert_exact_when_dropped, loss_of


@torch.jit.script
def flips(x: torch.Tensor) -> torch.Tensor:
    dims = [0]
    y = x.exp().flip(dims).sin()
    dims[0] = 1
    return y * x.flip(dims).exp().sin()


@torch.jit.script
def longer(x: torch.Tensor) -> torch.Tensor:
    dims: list[int] = []
    y = x
    for dim in range(2):
        dims.append(dim)
        y = y * x.exp().sum(dims, keepdim=True).sin()
    return y


def program_with(function):
    def program(model):
        loss = loss_of(function(model(torch.randn(32, 64))).cos())
        loss.backward()
        return loss.detach()

    return program


def test_a_list_that_the_script_changes_after_the_call():
    assert_exact_when_dropped(blocks(2), program_with(flips), steps=4)


def test_a_list_that_becomes_longer_after_the_call():
    assert_exact_when_dropped(blocks(2), program_with(longer), steps=4)
