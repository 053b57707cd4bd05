"""Python kernels that are told from PyTorch's own by where they are registered: for autocast, for a whole device, in
files whose names look like PyTorch's."""

from __future__ import annotations

import contextlib

import pytest
import torch
from scopes import assert_exact_when_dropped, loss_of, scaled_by
from torch import nn

pytestmark = pytest.mark.filterwarnings("ignore:.*previously registered kernel")
calls = []


def below_autograd(x):
    """Another result with every call; nothing in it is recorded."""
    calls.append("kernel")
    autocast = torch._C.DispatchKeySet(torch._C.DispatchKey.AutocastCPU)
    with torch._C._AutoDispatchBelowAutograd(), torch._C._ExcludeDispatchKeyGuard(autocast):
        return torch.cos(x.detach()) * (1 + 0.01 * len(calls))


def around(operator, scope=contextlib.nullcontext, expected=4):
    """Layers with `operator` between them, whose result autograd alone saves."""

    scaled = scaled_by(operator)

    def program(model):
        calls.clear()
        x = torch.randn(48, 48)
        with scope():
            for layer in model:
                x = torch.tanh(scaled(layer(x)).exp())
            loss = loss_of(x)
            loss.backward()
        assert len(calls) == expected
        return loss.detach()

    return program


def layers():
    return nn.ModuleList(nn.Linear(48, 48) for _ in range(4))


@contextlib.contextmanager
def kernel_for(namespace, name, key, library=torch.library._scoped_library):
    with library(namespace, "IMPL") as registered:
        registered.impl(name, below_autograd, key, allow_override=True)
        yield


@pytest.mark.parametrize("enabled", [True, False])
def test_a_kernel_for_autocast_runs_once(enabled):
    @contextlib.contextmanager
    def scope():
        with kernel_for("aten", "erf", "AutocastCPU"), torch.autocast("cpu", torch.bfloat16, enabled=enabled):
            yield

    assert_exact_when_dropped(layers(), around(torch.erf, scope, expected=4 if enabled else 0))


def test_a_kernel_for_autocast_that_was_registered_before_backward_is_not_called():
    def program(model):
        calls.clear()
        with torch.autocast("cpu", torch.bfloat16):
            x = torch.randn(48, 48)
            for layer in model:
                x = torch.erf(layer(x)).exp()
            loss = loss_of(x)
            del x
            with kernel_for("aten", "erf", "AutocastCPU"):
                loss.backward()
        assert not calls
        return loss.detach()

    assert_exact_when_dropped(layers(), program)


@contextlib.contextmanager
def fallback():
    with torch.library._scoped_library("_", "IMPL") as library:
        library.fallback(lambda operator, x: below_autograd(x), "CPU")
        yield


def test_a_fallback_for_a_device_runs_once():
    with torch.library._scoped_library("remat_places", "DEF") as library:
        library.define("without_kernel(Tensor x) -> Tensor")
        assert_exact_when_dropped(layers(), around(torch.ops.remat_places.without_kernel, fallback))




@pytest.mark.parametrize("file", ["/home/me/mytorch/csrc/kernels.py", "/x/aten/src/ATen/more.py", "/x/a.cpp:1/more.py"])
def test_a_kernel_from_a_folder_that_is_named_as_one_of_pytorch_runs_once(file):
    names = {"torch": torch}  # the dispatcher shows the file in which a library is made
    exec(compile("def made(*args): return torch.library.Library(*args)", file, "exec"), names)

    @contextlib.contextmanager
    def library(*args):
        made = names["made"](*args)
        try:
            yield made
        finally:
            made._destroy()

    with kernel_for("aten", "erf", "CPU", library):
        assert file in torch._C._dispatch_dump("aten::erf")
    assert_exact_when_dropped(layers(), around(torch.erf, lambda: kernel_for("aten", "erf", "CPU", library)))
