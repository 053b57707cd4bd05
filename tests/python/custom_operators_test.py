"""Operators that are Python functions: torch.library's."""

from __future__ import annotations

import numpy
import torch
from compare import blocks
from scopes import assert_exact_when_dropped, assert_exact_within, loss_of

calls = []


@torch.library.custom_op("remat_test::impure", mutates_args=())
def impure(x: torch.Tensor) -> torch.Tensor:
    """Gives something else with every call, in a way that nobody sees."""
    calls.append("forward")
    noise = numpy.random.default_rng(len(calls)).random(x.shape, dtype=numpy.float32)
    return x * torch.from_numpy(noise)


def _save(ctx, inputs, output):
    ctx.save_for_backward(output)


def _backward(ctx, gradient):
    calls.append("backward")
    return gradient * ctx.saved_tensors[0].sign()


impure.register_autograd(_backward, setup_context=_save)


def around(operator):
    def program(model):
        calls.clear()
        x = torch.randn(128, 64)
        for block in model:
            x = operator(block(x)).tanh()
        loss = loss_of(x)
        loss.backward()
        assert sorted(calls) == len(model) * ["backward"] + len(model) * ["forward"]
        return loss.detach()

    return program


def test_a_python_operator_runs_once_and_what_it_gave_is_kept():
    assert_exact_when_dropped(blocks(3), around(impure))
    assert_exact_within(blocks(6), around(impure), budget="80%")


def test_a_python_operator_called_by_its_name_runs_once():
    assert_exact_when_dropped(blocks(3), around(torch.ops.remat_test.impure))


def test_a_python_kernel_of_a_declared_operator_runs_once():
    library = torch.library.Library("remat_test_library", "DEF")
    library.define("gate(Tensor x) -> Tensor")
    library.impl("gate", lambda x: impure._init_fn(x), "CPU")

    class Gate(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            y = torch.ops.remat_test_library.gate(x)
            _save(ctx, None, y)
            return y

        backward = staticmethod(_backward)

    assert_exact_when_dropped(blocks(3), around(Gate.apply))
