"""Architectures of Hugging Face's transformers, unmodified: the same bits, and budgets that hold.

The quick run takes one of each kind; REMAT_ALL=1 takes all.
"""

from __future__ import annotations

import contextlib
import copy
import os
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

import pytest
import torch
from compare import outcome, same_bits
from torch import nn

import remat

pytest.importorskip("transformers", reason="transformers is not installed: pip install transformers")
from architectures import ARCHITECTURES, QUICK, make  # noqa: E402

np = pytest.importorskip("numpy")
BUDGETS = {"efficientnet": "60%"}  # whose first block alone needs 46 %
NAMES = list(ARCHITECTURES) if os.environ.get("REMAT_ALL") else QUICK


def train(
    model: nn.Module, inputs: dict[str, Any], scope: Callable[[], AbstractContextManager[Any]], steps: int
) -> list[torch.Tensor | None]:
    model = copy.deepcopy(model)
    for parameter in model.parameters():
        parameter.grad = torch.zeros_like(parameter)  # there before a step begins: budgets are of activations alone
    torch.manual_seed(11)
    np.random.seed(11)  # masks of wav2vec2
    losses = []
    for _ in range(steps):
        with scope():
            loss = model(**inputs).loss
            loss.backward()
        losses.append(loss.detach())
    return outcome(model, losses)


def assert_same(plain: list[torch.Tensor | None], ours: list[torch.Tensor | None]) -> None:
    assert len(plain) == len(ours)
    different = [i for i, (a, b) in enumerate(zip(plain, ours)) if not same_bits(a, b)]
    assert not different, f"{len(different)} of {len(plain)} tensors differ, the first is number {different[0]}"


@pytest.mark.parametrize("name", NAMES)
def test_an_architecture_has_the_same_bits(name):
    model, inputs = make(name)
    assert_same(train(model, inputs, contextlib.nullcontext, 1), train(model, inputs, remat.policy, 1))

    session = remat.Session(budget=BUDGETS.get(name, "40%"))
    reports = []

    @contextlib.contextmanager
    def step():
        with session.step():
            yield
        reports.append(session.report())

    assert_same(train(model, inputs, contextlib.nullcontext, 3), train(model, inputs, step, 3))
    for report in reports[1:]:
        assert report.completed
        assert report.values_dropped + report.values_packed > 0
        assert report.peak_bytes <= report.budget_bytes < report.plain_peak_bytes
        if name != "opt":  # which leaves layers out by chance
            assert report.plan is not None, "the step followed no plan"
