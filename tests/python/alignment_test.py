"""Kernels that choose by the address: what a replay copies has the alignment of the original."""

from __future__ import annotations

import numpy
import torch
from compare import assert_exact
from scopes import Dropping
from torch import nn


def at_offset(values, offset):
    """An array whose address is `offset` bytes behind one that is aligned to 64."""
    memory = numpy.zeros(values.nbytes + 128, dtype=numpy.uint8)
    begin = -memory.ctypes.data % 64 + offset
    array = memory[begin : begin + values.nbytes].view(values.dtype).reshape(values.shape)
    array[:] = values
    return torch.from_numpy(array)


def test_a_copied_input_at_every_offset():
    draw = numpy.random.default_rng(3)
    for offset in range(0, 64, 4):
        values = draw.standard_normal((3, 61)).astype(numpy.float32)

        def program(model, values=values, offset=offset):
            x = at_offset(values, offset)
            draws = torch.rand(61)
            products = x.mv(draws).sum() + x[0].dot(x[1]) + x[2].dot(draws)
            loss = (model(draws).exp() * products).sin().square().sum()
            del products
            x.mul_(2)  # a replay of the products reads a copy of what was there
            loss.backward()
            return loss.detach()

        assert_exact(nn.Linear(61, 61), program, Dropping())
