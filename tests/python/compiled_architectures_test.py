"""Architectures of Hugging Face's transformers whose blocks are compiled one by one: the bits of the same compiled blocks
without remat, and budgets that hold. The quick run takes one; REMAT_ALL=1 takes all."""

from __future__ import annotations

import contextlib
import os
import shutil

import pytest
import torch
from compare import outcome, same_bits
from torch import nn

import remat

pytest.importorskip("transformers", reason="transformers is not installed: pip install transformers")
from architectures import ARCHITECTURES, make  # noqa: E402

np = pytest.importorskip("numpy")
pytestmark = pytest.mark.skipif(shutil.which("g++") is None, reason="compiling needs g++")
NAMES = list(ARCHITECTURES) if os.environ.get("REMAT_ALL") else ["llama"]


def train(model: nn.Module, inputs: dict, scope, steps: int = 4) -> list[torch.Tensor | None]:
    for parameter in model.parameters():
        parameter.grad = torch.zeros_like(parameter)  # there before a step begins: budgets are of activations alone
    torch.manual_seed(11)
    np.random.seed(11)
    losses = []
    for _ in range(steps):
        with scope():
            loss = model(**inputs).loss
            loss.backward()
        losses.append(loss.detach())
    return outcome(model, losses)


def compiled(name: str) -> tuple[nn.Module, dict]:
    torch.compiler.reset()
    model, inputs = make(name)
    return remat.unwrap(remat.compile(model)), inputs


@pytest.mark.parametrize("name", NAMES)
def test_an_architecture_of_compiled_blocks_has_the_same_bits(name):
    try:
        plain = train(*compiled(name), contextlib.nullcontext)
    except torch._dynamo.exc.TorchDynamoException as error:
        pytest.skip(f"torch.compile does not compile it: {type(error).__name__}")

    def assert_same(ours):
        assert all(same_bits(a, b) for a, b in zip(plain, ours, strict=True))

    if any(not same_bits(a, b) for a, b in zip(plain, train(*compiled(name), contextlib.nullcontext))):
        pytest.skip("two plain runs differ")
    session = remat.Session(budget="70%")  # a third is what one block of these needs at once
    ours = train(*compiled(name), session.step)
    assert_same(ours)
    assert_same(train(*compiled(name), remat.policy))
    report = session.report()
    assert report.values_dropped > 0 and report.peak_bytes <= report.budget_bytes
    assert any(op["name"].startswith("compiled::") for op in session.graph()["operators"])
