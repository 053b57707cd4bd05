"""Kernels that are registered over PyTorch's operators, or removed, after remat has seen the operators."""

from __future__ import annotations

import contextlib

import pytest
import torch
from scopes import Dropping, assert_exact_when_dropped, loss_of
from torch import nn

import remat

pytestmark = pytest.mark.filterwarnings("ignore:.*previously registered kernel")
calls = []


@contextlib.contextmanager
def python_silu(name="silu", key="CPU"):
    """In its place a Python function that gives something else with every call."""

    def silu(x):
        calls.append(name)
        return x * torch.reciprocal(1 + torch.exp(-x)) * (1 + 0.01 * len(calls))

    with torch.library._scoped_library("aten", "IMPL") as library:
        library.impl(name, silu, key, allow_override=True)
        yield


def layers(count=5):
    return nn.ModuleList(nn.Linear(48, 48) for _ in range(count))


def forward(model, activation=nn.functional.silu):
    x = torch.randn(48, 48)
    for layer in model:
        x = torch.tanh(activation(layer(x)))
    return x


def test_a_kernel_registered_between_two_steps_runs_once():
    scope, model = Dropping(), layers()

    def step(ours):
        torch.manual_seed(0)
        model.zero_grad()
        with scope() if ours else contextlib.nullcontext():
            loss = loss_of(forward(model))
            loss.backward()
        return [loss.detach(), *(p.grad for p in model.parameters())]

    step(ours=True)
    with python_silu():
        calls.clear()
        ours = step(ours=True)
        assert len(calls) == len(model)
        calls.clear()
        plain = step(ours=False)
    assert all(map(torch.equal, plain, ours))
    dropped = scope.dropped
    assert all(map(torch.equal, step(ours=False), step(ours=True)))
    assert scope.dropped - dropped > len(model), "the operator's own kernel is repeated again"


@pytest.mark.parametrize("when", ["for some layers", "from the middle to backward", "before backward", "in backward"])
def test_a_kernel_registered_within_a_step(when):
    def program(model):
        calls.clear()
        with contextlib.ExitStack() as kernels:
            x = forward(model[:2])
            if when == "for some layers":
                with python_silu():
                    x = forward(model[2:]) * x
            else:
                if when == "from the middle to backward":
                    kernels.enter_context(python_silu())
                x = forward(model[2:]) * x
                if when == "before backward":
                    kernels.enter_context(python_silu())
            if when == "in backward":
                x.register_hook(lambda g: kernels.enter_context(python_silu()) and None)
            loss = loss_of(x)
            loss.backward()
        return loss.detach(), torch.tensor(len(calls))

    assert_exact_when_dropped(layers(), program)


@contextlib.contextmanager
def python_sin(key):
    def sin(keys, x):
        calls.append("sin")
        return torch.ops.aten.cos(x.resolve_neg().resolve_conj()) + len(calls)

    with torch.library._scoped_library("aten", "IMPL") as library:
        library.impl("sin", sin, key, with_keyset=True, allow_override=True)
        yield


KEYS_BEFORE_A_DEVICE = ["ADInplaceOrView", "BackendSelect", "Negative", "Conjugate"]


def flagged(x, key):
    """Of values that `x` stands for with the flag that the kernels at `key` are called for."""
    if key == "Negative":
        return torch.complex(x, x).conj().imag
    return torch.complex(x, x).conj() if key == "Conjugate" else x


@pytest.mark.parametrize("key", KEYS_BEFORE_A_DEVICE)
def test_a_kernel_that_stands_before_those_of_a_device_runs_once(key):
    def program(model):
        calls.clear()
        x = forward(model)
        with python_sin(key):
            x = x * flagged(x, key).detach().sin().real
        assert len(calls) == 1
        loss = loss_of(x)
        loss.backward()
        assert len(calls) == 1
        return loss.detach()

    assert_exact_when_dropped(layers(), program)


@pytest.mark.parametrize("key", KEYS_BEFORE_A_DEVICE)
def test_a_kernel_before_those_of_a_device_that_is_registered_before_backward_is_not_called(key):
    """Where PyTorch's own cannot be called past it, the replay is refused."""
    torch.manual_seed(0)
    model = layers(1)

    def step():
        calls.clear()
        model.zero_grad()
        torch.manual_seed(1)
        x = forward(model)
        x = torch.view_as_real(flagged(x, key).sin() * 1j) if key == "Conjugate" else flagged(x, key).sin()
        loss = loss_of(x * x)
        del x
        with python_sin(key):
            loss.backward()
        assert not calls
        return [p.grad for p in model.parameters()]

    plain = step()
    if key in ("Negative", "Conjugate"):
        with pytest.raises(remat.Error, match=r"aten::sin cannot be repeated"), Dropping()():
            step()
    else:
        with Dropping()():
            ours = step()
        assert all(map(torch.equal, plain, ours))


def test_a_factory_with_a_kernel_of_python_runs_once():
    def rand(keys, size, **options):
        calls.append("rand")
        return torch.full(size, float(len(calls)))

    def program(model):
        calls.clear()
        with torch.library._scoped_library("aten", "IMPL") as library:
            library.impl("rand", rand, "BackendSelect", with_keyset=True, allow_override=True)
            x = forward(model)
            x = x * torch.rand(48, 48) * x.exp()
        loss = loss_of(x)
        loss.backward()
        assert len(calls) == 1
        return loss.detach()

    assert_exact_when_dropped(layers(), program)


@contextlib.contextmanager
def python_elu():
    """celu() calls elu() from its kernel."""

    def elu(x, alpha=1, scale=1, input_scale=1):
        calls.append("elu")
        return torch.where(x > 0, x, torch.expm1(x * input_scale) * alpha) * scale * (1 + 0.01 * len(calls))

    with torch.library._scoped_library("aten", "IMPL") as library:
        library.impl("elu", elu, "CPU", allow_override=True)
        yield


def test_a_kernel_that_another_operator_calls_runs_once():
    def program(model):
        calls.clear()
        with python_elu():
            x = forward(model, lambda x: nn.functional.celu(x).sin())
        loss = loss_of(x)
        loss.backward()
        assert len(calls) == len(model)
        return loss.detach()

    assert_exact_when_dropped(layers(), program)


def test_a_replay_that_would_call_a_function_registered_since_is_refused():
    with pytest.raises(remat.Error, match=r"aten::celu cannot be repeated: .* an operator that it calls"), Dropping()():
        loss = loss_of(forward(layers(), lambda x: nn.functional.celu(x).sin()))
        with python_elu():
            loss.backward()


def test_the_parts_of_an_operator_that_was_removed_within_a_step_are_repeated():
    """Its function calls x * 2, which is recorded in its place."""

    def step():
        torch.manual_seed(0)
        with torch.library._scoped_library("remat_removed", "DEF") as library:
            library.define("twice(Tensor x) -> Tensor")
            library.impl("twice", lambda x: x * 2, "CPU")
            remat.repeatable("remat_removed::twice")
            x = torch.randn(32, 32, requires_grad=True)
            with torch.no_grad():
                factor = torch.ops.remat_removed.twice(x)
            loss = (x * factor.sin()).sum()
            del factor
        loss.backward()
        return x.grad

    plain = step()
    scope = Dropping()
    with scope():
        ours = step()
    assert torch.equal(plain, ours)
    assert scope.dropped > 0


def test_an_operator_defined_anew_is_another_operator():
    """As by a cell of a notebook that is run again."""
    for factor in (2.0, 3.0, 4.0):
        with torch.library._scoped_library("remat_anew", "DEF") as library:
            library.define("scaled(Tensor x) -> Tensor" if factor < 4 else "scaled(Tensor x, float by=4.0) -> Tensor")
            library.impl("scaled", lambda x, by=factor: x * by, "CPU")

            def program(model):
                with torch.no_grad():
                    scale = torch.ops.remat_anew.scaled(torch.randn(48, 48))  # noqa: B023
                loss = loss_of(forward(model) * scale.sin() * scale)
                loss.backward()
                return loss.detach(), scale

            assert_exact_when_dropped(layers(), program)
