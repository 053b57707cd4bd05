"""Operators whose threads write to the same elements: they give other bits in every run, and are kept."""

from __future__ import annotations

import pytest
import torch
from torch import nn

import remat


def accumulate(x, index):
    return torch.zeros(10).index_put((index,), x, accumulate=True)


def put(x, index):
    return torch.zeros(10).put(index, x, accumulate=True)


def copy(x, index):
    return torch.zeros(10).index_copy(0, index, x)


@pytest.mark.parametrize("operator", [accumulate, put, copy])
@pytest.mark.parametrize(("elements", "threads", "kept"), [(1_000_000, 2, True), (1_000_000, 1, False), (50, 2, False)])
def test_kept_where_threads_may_race(operator, elements, threads, kept):
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    weight = nn.Parameter(torch.ones(elements))
    index = torch.randint(0, 10, (elements,))
    session = remat.Session()
    try:
        with session.step(), remat.policy():
            operator(torch.rand(elements) * weight, index).sin().sum().backward()
    finally:
        torch.set_num_threads(before)
    names = [replayed.name for replayed in session.report().replayed]
    assert any("index" in name or "put" in name for name in names) != kept
