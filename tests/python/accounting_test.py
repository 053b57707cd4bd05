"""What is counted: tensors older than the session, and nothing of what has failed."""

from __future__ import annotations

import copy
import json
import subprocess
import sys

import numpy
import pytest
import torch
from torch import nn

import remat
from remat import _C

OLDER = """
import json, torch, remat
model = torch.nn.Linear(512, 512)
optimizer = torch.optim.Adam(model.parameters())
x = torch.randn(4, 512)
model(x).sum().backward()
optimizer.step()
session = remat.Session()
with session.step():
    model(x).sum().backward()
print(json.dumps(session.report().baseline_bytes))
"""


def test_gradients_and_optimizer_state_that_are_older_than_the_session_count():
    run = subprocess.run([sys.executable, "-c", OLDER], check=True, capture_output=True, text=True)
    parameters = (512 * 512 + 512) * 4
    assert 4 * parameters <= json.loads(run.stdout) < 4 * parameters + 64 * 1024  # with a gradient and Adam's two


class Failing(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x.clone()

    @staticmethod
    def backward(ctx, gradient):
        raise ValueError("no gradient today")


def failing_step(session: remat.Session, model: nn.Module, x: torch.Tensor) -> None:
    with session.step():
        model(Failing.apply(x)).sum().backward()


def test_a_backward_that_fails_leaves_no_gradients_on_their_way():
    torch.manual_seed(1)
    model = nn.Sequential(nn.Linear(64, 64), nn.GELU())
    for parameter in model.parameters():
        parameter.grad = torch.zeros_like(parameter)
    x = torch.randn(1024, 64, requires_grad=True)
    session = remat.Session()
    before = remat.memory.current("cpu")
    with pytest.raises(ValueError, match="no gradient today"):
        failing_step(session, model, x)
    assert remat.memory.current("cpu") == before


def test_operators_are_not_looked_at_when_a_wrapped_models_step_is_over():
    model = remat.wrap(nn.Sequential(nn.Linear(8, 8), nn.GELU()))
    model(torch.randn(2, 8)).sum().backward()
    assert remat.session_of(model).report().completed
    torch.ones(2)  # the first operator after backward finds it out
    assert not _C.is_watching_operators()


@pytest.mark.parametrize("use", [lambda t: t.view(2, -1), lambda t: t + 1, lambda t: t.detach()])
@pytest.mark.parametrize(
    "make",
    [
        lambda: torch.from_numpy(numpy.zeros(1 << 18, dtype=numpy.float32)),
        lambda: torch.frombuffer(bytearray(1 << 20), dtype=torch.float32),
        lambda: torch.zeros(1 << 18).share_memory_(),
    ],
)
def test_memory_from_elsewhere_counts_whatever_touches_it(make, use):
    session = remat.Session()
    before = remat.memory.current("cpu")
    with session.step():
        tensor = make()
        result = use(tensor)
        assert remat.memory.current("cpu") - before >= 1 << 20
    del tensor, result
    assert remat.memory.current("cpu") == before


def test_deep_copies_count():
    remat.Session()
    weights = {"a": torch.zeros(1 << 16), "b": torch.zeros(1 << 10)}
    before = remat.memory.current("cpu")
    copies = [copy.deepcopy(weights) for _ in range(3)]
    assert remat.memory.current("cpu") - before == 3 * sum(w.nbytes for w in weights.values())
    del copies
    assert remat.memory.current("cpu") == before


def test_a_tensor_moved_to_shared_memory_counts_on():
    remat.Session()
    tensor = torch.zeros(1 << 18)
    before = remat.memory.current("cpu")
    tensor.share_memory_()
    assert remat.memory.current("cpu") == before


def alone(code):
    """Runs it in a process where nothing has been counted."""
    code = "import torch, remat\nolder = torch.ones(250)\n" + code
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_the_first_question_starts_accounting():
    alone("assert remat.memory.current('cpu') >= 1000")
    alone("before = remat.memory.current('cpu'); new = torch.ones(25); assert remat.memory.peak('cpu') == before + 100")
    alone("remat.memory.reset_peak('cpu'); assert remat.memory.peak('cpu') >= 1000")


def test_a_peak_of_what_was_not_counted_is_an_error():
    alone(
        "try: remat.memory.peak('cpu')\n"
        "except remat.Error as error: assert 'nothing has been counted so far' in str(error)\n"
        "else: assert False"
    )
