"""Switches of PyTorch that change bits, and that differ between forward and backward."""

from __future__ import annotations

import contextlib
import threading

import pytest
import torch
from compare import blocks
from scopes import assert_exact_when_dropped, loss_of
from torch import nn


@contextlib.contextmanager
def threads(count):
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)


@contextlib.contextmanager
def default_type(dtype):
    before = torch.get_default_dtype()
    torch.set_default_dtype(dtype)
    try:
        yield
    finally:
        torch.set_default_dtype(before)


@contextlib.contextmanager
def flushed():
    torch.set_flush_denormal(True)
    try:
        yield
    finally:
        torch.set_flush_denormal(False)


@contextlib.contextmanager
def bf16_products():
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("medium")
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before)


SWITCHES = {
    "threads": lambda: threads(5),
    "mkldnn": lambda: torch.backends.mkldnn.flags(enabled=False),
    "default type": lambda: default_type(torch.float64),
    "denormal": flushed,
    "precision": bf16_products,
}


class Net(nn.Module):
    """Convolutions, products, sums and numbers near zero."""

    def __init__(self):
        super().__init__()
        self.convolution = nn.Conv2d(3, 16, 3, padding=1)
        self.linear = nn.Linear(16 * 16 * 16, 32)

    def forward(self, x):
        y = self.convolution(x).tanh()
        total = y.square().sum().sqrt()
        y = self.linear(y.flatten(1)).sigmoid()
        tiny = (y * 1e-39).mul(0.7) * 1e38
        noise = torch.rand(32).exp()  # of the default type
        return (y + tiny.sin()) * noise.to(y.dtype).exp() * total.log()


@pytest.mark.parametrize("name", SWITCHES)
@pytest.mark.parametrize("in_backward", [False, True])
def test_replays_run_under_the_settings_of_the_recorded_call(name, in_backward):
    def program(model):
        with contextlib.nullcontext() if in_backward else SWITCHES[name]():
            y = model(torch.randn(16, 3, 16, 16, dtype=torch.float32))
        with SWITCHES[name]() if in_backward else contextlib.nullcontext():
            loss = loss_of(y)
            loss.backward()
        assert loss.isfinite()
        return y.detach(), loss.detach()

    assert_exact_when_dropped(Net(), program)


def test_settings_are_the_users_again_after_backward():
    def program(model):
        with threads(5), torch.backends.mkldnn.flags(enabled=False):
            y = model(torch.randn(16, 3, 16, 16))
        seen = []
        y.register_hook(lambda g: seen.append(torch.get_num_threads()))
        before = torch.get_num_threads()
        loss_of(y).backward()
        assert torch.get_num_threads() == before
        assert seen == [before]
        assert torch.backends.mkldnn.is_available() and torch._C._get_mkldnn_enabled()
        return y.detach()

    assert_exact_when_dropped(Net(), program)


def test_backward_on_another_thread():
    def program(model):
        y = model(torch.randn(64, 64))
        loss = loss_of(y)
        thread = threading.Thread(target=loss.backward)
        thread.start()
        thread.join()
        return loss.detach()

    assert_exact_when_dropped(blocks(), program)


def test_deterministic_algorithms():
    def program(model):
        rows = torch.randint(0, 8, (64,))
        torch.use_deterministic_algorithms(True)
        try:
            y = model[0](torch.randn(64, 64))
            y = torch.zeros(8, 64).index_put((rows,), y, accumulate=True).exp()
        finally:
            torch.use_deterministic_algorithms(False)
        loss = loss_of(model[1](y))
        loss.backward()
        return loss.detach()

    assert_exact_when_dropped(blocks(2), program)
