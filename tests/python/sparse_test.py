"""Sparse tensors that share their values with a dense one, which is written to later."""

from __future__ import annotations

import contextlib

import pytest
import torch
from compare import blocks, run, same_bits
from scopes import Dropping, assert_exact_when_dropped, loss_of

import remat

INDICES = torch.arange(32).repeat(2, 1)


def coo(values):
    return torch.sparse_coo_tensor(INDICES, values, (32, 32), check_invariants=False)


def csr(values):
    return torch.sparse_csr_tensor(torch.arange(33), torch.arange(32), values, (32, 32), check_invariants=False)


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize("make", [coo, csr])
@pytest.mark.parametrize("write", [lambda v: v.mul_(3), lambda v: v.data.fill_(2), lambda v: v.numpy().fill(7), None])
def test_values_that_are_written_to(make, write):
    def program(model):
        values = torch.rand(32)
        sparse = make(values)
        loss = loss_of(model[1](torch.sparse.mm(sparse, model[0](torch.randn(32, 64)).exp()).sin()))
        if write is not None:
            write(values)
        loss.backward()
        return loss.detach()

    model = blocks(2)
    if write is None:
        assert_exact_when_dropped(model, program)
        return
    plain = run(model, program, contextlib.nullcontext, 1)
    try:
        ours = run(model, program, Dropping(), 1)
    except remat.Error as error:
        assert "shares its values" in str(error)
        return
    assert all(same_bits(a, b) for a, b in zip(plain, ours, strict=True))
