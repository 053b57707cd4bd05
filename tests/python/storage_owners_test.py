"""Python objects of storages, which PyTorch makes where a tensor is asked for its storage."""

from __future__ import annotations

import pytest
import torch
from compare import same_bits
from scopes import loss_of
from torch import nn

import remat


def steps(look, budget):
    """Of a model whose layers' results `look` is called with: the reports, and the gradients."""
    torch.manual_seed(0)
    model = nn.Sequential(*(nn.Sequential(nn.Linear(256, 256), nn.GELU()) for _ in range(8)))
    for layer in model:
        layer.register_forward_hook(lambda module, args, result: look(result))
    remat.wrap(model, budget)
    reports = []
    for _ in range(4):
        model.zero_grad(set_to_none=False)
        loss_of(model(torch.randn(512, 256))).backward()
        reports.append(remat.session_of(model).report())
    return reports, [parameter.grad for parameter in model.parameters()]


def look_at_storage(tensor):
    assert tensor.untyped_storage().nbytes() == tensor.nbytes


def test_what_was_asked_for_its_storage_is_dropped_as_others_are():
    """A profiler's hooks ask how large storages are."""
    _, expected = steps(lambda tensor: None, None)
    reports, gradients = steps(look_at_storage, "50%")
    assert all(report.values_dropped > 0 and report.peak_bytes <= report.budget_bytes for report in reports)
    assert all(map(same_bits, gradients, expected))


def test_a_storage_in_hands_is_kept():
    held = []
    _, expected = steps(lambda tensor: None, None)
    reports, gradients = steps(lambda tensor: held.append(tensor.untyped_storage()), "100%")
    assert all(map(same_bits, gradients, expected))
    with pytest.raises(remat.BudgetError):
        steps(lambda tensor: held.append(tensor.untyped_storage()), "50%")
