"""Architectures of Hugging Face's transformers, unmodified: the same bits, and budgets that hold.

The quick run takes one of each kind; REMAT_ALL=1 takes all.
"""

from __future__ import annotations

import contextlib
import copy
import os
from typing import Any

import pytest
import torch
from compare import assert_same
from scopes import Reporting
from torch import nn

import remat

pytest.importorskip("transformers", reason="transformers is not installed: pip install transformers")
import architectures  # noqa: E402
from architectures import ARCHITECTURES, QUICK, make  # noqa: E402

BUDGETS = {"efficientnet": "60%"}  # whose first block alone needs 46 %
NAMES = list(ARCHITECTURES) if os.environ.get("REMAT_ALL") else QUICK


def train(model: nn.Module, *args: Any) -> list[torch.Tensor | None]:
    return architectures.train(copy.deepcopy(model), *args)


@pytest.mark.parametrize("name", NAMES)
def test_an_architecture_has_the_same_bits(name):
    model, inputs = make(name)
    assert_same(train(model, inputs, contextlib.nullcontext, 1), train(model, inputs, remat.policy, 1))

    scope = Reporting(remat.Session(budget=BUDGETS.get(name, "40%")))
    assert_same(train(model, inputs, contextlib.nullcontext, 3), train(model, inputs, scope, 3))
    for report in scope.reports[1:]:
        assert report.completed
        assert report.values_dropped + report.values_packed > 0
        assert report.peak_bytes <= report.budget_bytes < report.plain_peak_bytes
        if name != "opt":  # which leaves layers out by chance
            assert report.plan is not None, "the step followed no plan"
