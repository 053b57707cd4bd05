"""Architectures of Hugging Face's transformers whose blocks are compiled one by one: the bits of the same compiled blocks
without remat, and budgets that hold. The quick run takes one; REMAT_ALL=1 takes all."""

from __future__ import annotations

import contextlib
import os
import shutil

import pytest
import torch
from compare import assert_same, same_bits
from torch import nn

import remat

pytest.importorskip("transformers", reason="transformers is not installed: pip install transformers")
from architectures import ARCHITECTURES, make, train  # noqa: E402

pytestmark = pytest.mark.skipif(shutil.which("g++") is None, reason="compiling needs g++")
# What one block of these needs at once is a third. A block of EfficientNet's is more of the whole; ALBERT's layers are one
# module, so that the model is compiled as a whole, which leaves nothing to save.
BUDGETS = {"efficientnet": "90%", "albert": None}
NAMES = list(ARCHITECTURES) if os.environ.get("REMAT_ALL") else ["llama"]
STEPS = 4


def compiled(name: str) -> tuple[nn.Module, dict]:
    torch.compiler.reset()
    model, inputs = make(name)
    # torch.compile takes a quarter of an hour for Swin's symbolic sizes, most of it in sympy.
    return remat.unwrap(remat.compile(model, dynamic=False if name == "swin" else None)), inputs


# One thread: Falcon's compiled backward corrupts memory with two, without remat too (torch 2.13).
@pytest.mark.usefixtures("one_thread")
@pytest.mark.parametrize("name", NAMES)
def test_an_architecture_of_compiled_blocks_has_the_same_bits(name):
    try:
        plain = train(*compiled(name), contextlib.nullcontext, STEPS)
    except torch._dynamo.exc.TorchDynamoException as error:
        pytest.skip(f"torch.compile does not compile it: {type(error).__name__}")
    if any(not same_bits(a, b) for a, b in zip(plain, train(*compiled(name), contextlib.nullcontext, STEPS))):
        pytest.skip("two plain runs differ")
    session = remat.Session(budget=BUDGETS.get(name, "70%"))
    ours = train(*compiled(name), session.step, STEPS)
    assert_same(plain, ours)
    assert_same(plain, train(*compiled(name), remat.policy, STEPS))
    report = session.report()
    assert report.values_dropped > 0 or name == "albert"
    assert report.peak_bytes <= report.budget_bytes
    assert any(op["name"].startswith("compiled::") for op in session.graph()["operators"])
