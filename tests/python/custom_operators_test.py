"""Operators that are Python functions: torch.library's."""

from __future__ import annotations

import threading

import numpy
import pytest
import torch
from compare import blocks
from scopes import Dropping, assert_exact_when_dropped, assert_exact_within, loss_of

import remat

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


def _gate(name, body):
    """A Python operator that counts its calls."""

    @torch.library.custom_op(f"remat_test::{name}", mutates_args=())
    def gate(x: torch.Tensor) -> torch.Tensor:
        calls.append("forward")
        return body(x)

    gate.register_autograd(_backward, setup_context=_save)
    return gate


def dropped_calls(operator):
    """Of a chain of three, with everything dropped that can be."""
    calls.clear()
    with Dropping()():
        x = torch.randn(128, 64)
        for block in blocks(3):
            x = operator(block(x)).tanh()
        loss_of(x).backward()
    return calls.count("forward")


def around_any(operator):
    def program(model):
        x = torch.randn(128, 64)
        for block in model:
            x = operator(block(x)).tanh()
        loss = loss_of(x)
        loss.backward()
        return loss.detach()

    return program


@pytest.mark.parametrize("spelling", ["object", "packet", "overload", "text"])
def test_a_python_operator_that_is_declared_repeatable_is_repeated(spelling):
    gate = _gate(f"declared_{spelling}", lambda x: (x * 2).sigmoid() * torch.rand_like(x))
    packet = getattr(torch.ops.remat_test, f"declared_{spelling}")
    named = {"object": gate, "packet": packet, "overload": packet.default, "text": f"remat_test::declared_{spelling}"}
    assert dropped_calls(gate) == 3
    remat.repeatable(named[spelling])
    assert dropped_calls(gate) > 3
    assert_exact_when_dropped(blocks(3), around_any(gate))
    assert_exact_within(blocks(6), around_any(gate), budget="60%")
    remat.not_repeatable(named[spelling])
    assert dropped_calls(gate) == 3
    assert_exact_when_dropped(blocks(3), around_any(gate))


def test_a_python_operator_is_repeated_while_other_threads_need_the_interpreter():
    """A replay that took the interpreter's lock under the tape's would wait for ever."""
    gate = _gate("locked", lambda x: torch.from_numpy(numpy.tanh(x.numpy())))
    remat.repeatable(gate)
    busy = threading.Event()

    def turn():
        while not busy.is_set():
            sum(range(1000))

    others = [threading.Thread(target=turn) for _ in range(2)]
    for other in others:
        other.start()
    try:
        assert_exact_within(blocks(6), around_any(gate), budget="60%")
    finally:
        busy.set()
        for other in others:
            other.join()


def test_a_python_operator_that_writes_without_saying_so_is_held():
    """Through the memory that NumPy sees: no version count tells."""

    def lie(x):
        y = x.clone().sin()
        x.numpy()[...] *= 0.5
        return y

    gate = _gate("lying", lie)
    remat.repeatable(gate)  # which is not true
    assert_exact_when_dropped(blocks(3), around_any(gate))
    assert dropped_calls(gate) == 3


def test_a_python_operator_under_autocast():
    gate = _gate("product", lambda x: (x @ x.T @ x * 0.01).float())
    remat.repeatable(gate)

    def program(model):
        with torch.autocast("cpu", torch.bfloat16):
            x = torch.randn(128, 64)
            for block in model:
                x = gate(block(x).float()).tanh()
            loss = loss_of(x)
        loss.backward()
        return loss.detach()

    assert_exact_when_dropped(blocks(3), program)


def test_a_python_kernel_for_cuda_says_nothing_of_the_cpus():
    """PyTorch has some itself, where Triton is there: that of aten::bmm, from 2.14 on."""
    library = torch.library.Library("aten", "IMPL")
    library.impl("softshrink", lambda x, width=0.5: x, "CUDA")  # nothing has called it here before
    session = remat.Session(device="cpu")
    with session.step():
        torch.nn.functional.softshrink(torch.randn(64, 64, requires_grad=True).exp()).exp().sum().backward()
    assert "aten::softshrink" in [operator["name"] for operator in session.graph()["operators"]]
    library._destroy()


@pytest.mark.parametrize("operator", ["remat_test::none_such", 3, torch.sin])
def test_what_is_no_operator_cannot_be_declared(operator):
    for declare in (remat.repeatable, remat.not_repeatable):
        with pytest.raises(remat.Error, match=r"^\[operators\] .*no .*operator"):
            declare(operator)
