"""torch.compile inside of a step: what compiled kernels write through pointers is kept. A compiler's run takes seconds,
so there are few."""

from __future__ import annotations

import shutil

import pytest
import torch
from scopes import assert_exact_when_dropped, loss_of
from torch import nn

pytestmark = pytest.mark.skipif(shutil.which("g++") is None, reason="compiling needs g++")


class Net(nn.Module):
    """A convolution that a compiled kernel changes in place, BatchNorm, dropout, and plain layers around."""

    def __init__(self):
        super().__init__()
        self.before = nn.Linear(16, 16)
        self.inner = nn.Sequential(
            nn.Conv2d(3, 8, 3, padding=1), nn.ReLU(), nn.Conv2d(8, 8, 3, padding=1), nn.BatchNorm2d(8), nn.Sigmoid(),
            nn.Dropout(0.2),
        )  # fmt: skip
        self.after = nn.Conv2d(8, 4, 3)

    def forward(self, x, inner):
        y = inner(self.before(x).exp())
        return self.after((y.sigmoid() * y).exp()).tanh()


def compiled(parts, net):
    """Each copy of a model compiles its part once."""
    if id(net.inner) not in parts:
        parts[id(net.inner)] = torch.compile(net.inner)
    return parts[id(net.inner)]


def test_a_compiled_part_is_kept_and_exact():
    parts = {}

    def program(net):
        loss = loss_of(net(torch.randn(4, 3, 16, 16), compiled(parts, net)))
        loss.backward()
        return loss.detach()

    assert_exact_when_dropped(Net(), program, steps=2)
