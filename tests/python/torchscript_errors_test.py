"""Errors of remat that come by TorchScript's interpreter arrive as what they are."""

from __future__ import annotations

import pytest
import torch
from wrapped import batch

import remat


@torch.jit.script
def scripted(x: torch.Tensor, w: torch.Tensor):
    for _ in range(4):
        x = torch.tanh(x @ w) * torch.sigmoid(x)
    return x.square().sum()


@torch.jit.script
def fails(x: torch.Tensor):
    return x.view(3, 5)


def refusals(x, w):
    """Where steps of ever more memory are refused, until one completes."""
    where = []
    for extra in range(1, 40):
        x.grad = w.grad = None
        session = remat.Session(budget=remat.memory.current("cpu") + extra * x.nbytes, planner="online")
        loss = None
        try:
            with session.step():
                loss = scripted(x, w)
                loss.backward()
            return where
        except remat.BudgetError as error:
            assert error.budget_bytes > 0 and str(error).startswith("[budget]")
            where.append("forward" if loss is None else "backward")
    raise AssertionError("nothing completes")


def test_a_refusal_in_torchscripts_forward_or_backward_is_a_budget_error():
    x, w = (torch.randn(128, 128, requires_grad=True) for _ in range(2))
    for _ in range(3):
        scripted(x, w).backward()  # the interpreter profiles and compiles
    x.grad = w.grad = None
    where = refusals(x, w)
    assert "forward" in where and "backward" in where
    with pytest.raises(RuntimeError, match="TorchScript interpreter"):  # its own errors are as before
        fails(torch.ones(2))


def test_a_refusal_in_torchscripts_backward_of_a_wrapped_model_is_a_budget_error():
    class Model(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.w = torch.nn.Parameter(torch.randn(64, 64))

        def forward(self, x):
            return scripted(x, self.w)

    model, x = Model(), batch()
    seen = []
    for _ in range(3):
        model(x).backward()
    for extra in range(1, 40):
        model.zero_grad()
        remat.wrap(model, budget=remat.memory.current("cpu") + extra * x.nbytes // 2, planner="online")
        loss = None
        try:
            loss = model(x)
            loss.backward()
            break
        except remat.BudgetError:
            seen.append("forward" if loss is None else "backward")
    assert "forward" in seen and "backward" in seen
    remat.unwrap(model)


def test_an_error_of_remat_in_torchscripts_backward_is_remats():
    x, w = (torch.randn(128, 128, requires_grad=True) for _ in range(2))
    for _ in range(3):
        scripted(x, w).backward()
    with pytest.raises(remat.Error, match="modified"), remat.Session().step(), remat.policy():
        loss = scripted(x, w.exp() * 1e-3)
        with torch.no_grad():
            w.data.view(-1)
            x.add_(1)
        loss.backward()
