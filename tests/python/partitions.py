"""A model whose blocks may be cut in several places, and what compares the cuts."""

from __future__ import annotations

import copy

import pytest
import torch
from scopes import loss_of
from torch import nn

import remat
from remat import partition_budget, partition_choice


class Block(nn.Module):
    def __init__(self, dropout):
        super().__init__()
        self.layers = nn.Sequential(
            nn.Conv2d(4, 4, 3, padding=1), nn.BatchNorm2d(4), nn.Sigmoid(), nn.Dropout(dropout), nn.Conv2d(4, 4, 1), nn.GELU()
        )

    def forward(self, x, *, scale):
        return x + self.layers(x) * scale


class Net(nn.Module):
    def __init__(self, dropout=0.0):
        super().__init__()
        self.blocks = nn.ModuleList(Block(dropout) for _ in range(3))

    def forward(self, x):
        for block in self.blocks:
            x = block(x, scale=0.5)
        return x


def saved_bytes(model, x):
    """Of the first block's graph, nothing dropped."""
    with remat.Session(device="cpu").step():
        result = model.blocks[0](x, scale=0.5)
        saved = sum(tensor.nbytes for tensor in result.grad_fn.saved_tensors)
        loss_of(result).backward()
    return saved


def train(model, steps=5):
    """The losses, the gradients and buffers after each step, and the generator's state."""
    seen = []
    torch.manual_seed(3)
    for _ in range(steps):
        loss = loss_of(model(torch.randn(8, 4, 16, 16)))
        loss.backward()
        seen += [loss.detach(), *(p.grad.clone() for p in model.parameters()), *(b.clone() for b in model.buffers())]
    return [*seen, torch.get_rng_state()]


@pytest.fixture
def smallest(monkeypatch):
    """Whatever the times, the cut that saves least is taken of those with the same bits."""
    torch.compiler.reset()
    monkeypatch.setattr(partition_budget, "_ALIKE", 1e9)
    monkeypatch.setattr(partition_choice, "_SHARES", (1.0, 0.1))
    torch.manual_seed(0)


def assert_same(make, train_both):
    """Trains what make() gives, compiled as usual and on the fastest cuts. Returns both."""
    first = make()
    second = copy.deepcopy(first)
    remat.compile(first, dynamic=False)
    remat.compile(second, activation_memory_budget="fastest", dynamic=False)
    assert all(map(torch.equal, train_both(first), train_both(second)))
    return first, second
