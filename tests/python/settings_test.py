"""Switches of PyTorch that change bits, and that differ between forward and backward."""

from __future__ import annotations

import contextlib
import threading

import pytest
import torch
from compare import blocks
from scopes import Dropping, assert_exact_when_dropped, loss_of
from torch import nn

import remat


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


PRECISIONS = {
    "generic": torch.backends,
    "oneDNN": torch.backends.mkldnn,
    "products": torch.backends.mkldnn.matmul,
    "convolutions": torch.backends.mkldnn.conv,
}


def inherited_precisions():
    """Of products and convolutions, as they follow what is set above them."""
    seen = []
    for owner in (torch.backends, torch.backends.mkldnn):
        for value in ("ieee", "bf16", "tf32"):
            owner.fp32_precision = value
            seen += [torch.backends.mkldnn.matmul.fp32_precision, torch.backends.mkldnn.conv.fp32_precision]
    return seen


@pytest.mark.parametrize("within", ["bf16", "ieee", "none"])
@pytest.mark.parametrize("owner", PRECISIONS)
def test_inherited_precision_is_inherited_again_after_a_replay(owner, within):
    def program(model):
        for each in reversed(PRECISIONS.values()):
            each.fp32_precision = "none"
        try:
            PRECISIONS[owner].fp32_precision = within
            y = model(torch.randn(16, 3, 16, 16))
            torch.backends.fp32_precision = "ieee" if within == "bf16" else "bf16"
            loss = loss_of(y)
            loss.backward()
            seen = inherited_precisions()
        finally:
            for each in reversed(PRECISIONS.values()):
                each.fp32_precision = "none"
        return y.detach(), torch.frombuffer(bytearray(repr(seen).encode()), dtype=torch.uint8)

    assert_exact_when_dropped(Net(), program)


def test_inherited_precision_is_inherited_again_where_a_replay_fails():
    model, x = blocks(2), torch.randn(64, 64)
    torch.backends.fp32_precision = "bf16"
    with remat.policy():
        y = loss_of(model(x))
    torch.backends.fp32_precision = "ieee"
    x.data.mul_(2)
    with pytest.raises(remat.Error, match="cannot be repeated"):
        y.backward()
    try:
        assert inherited_precisions() == [v for v in ("ieee", "bf16", "tf32") for _ in range(2)] * 2
    finally:
        for each in reversed(PRECISIONS.values()):
            each.fp32_precision = "none"


class Seen:
    """What another thread sees of the settings of the process while it is watching."""

    def __init__(self):
        self.settings, self.watching, self.ended = set(), False, False
        self.thread = threading.Thread(target=self.look)
        self.thread.start()

    def look(self):
        while not self.ended:
            watching = self.watching
            now = torch.tensor([1.0]).dtype, torch._C._get_mkldnn_enabled(), torch.backends.mkldnn.matmul.fp32_precision
            if watching and self.watching:
                self.settings.add(now)

    def end(self):
        self.ended = True
        self.thread.join()


@pytest.mark.parametrize("name", ["mkldnn", "default type", "precision"])
def test_other_threads_see_no_setting_of_a_replay(name):
    """Once they have been seen to run operators, what a replay would have to set for them is kept. (No layer here reads
    the default type.)"""
    model, seen, scope = blocks(6, width=256, dropout=0), Seen(), Dropping()
    try:
        for step in range(4):
            with scope():
                with SWITCHES[name]():
                    loss = loss_of(model(torch.randn(256, 256, dtype=torch.float32)))
                expected = torch.get_default_dtype(), True, torch.backends.mkldnn.matmul.fp32_precision
                seen.watching = step > 0
                loss.backward()
                seen.watching = False
    finally:
        seen.end()
    assert seen.settings <= {expected}
    assert scope.dropped > 0 or name == "mkldnn", "all but products are repeated"


def test_factories_are_repeated_in_the_default_type_that_they_had():
    def program(model):
        with default_type(torch.float64):
            noise = torch.rand(64, 64).exp() * torch.full((64, 64), 0.5).exp()
            ramp = (torch.arange(64) / 7).sin()
        loss = loss_of(model((noise * ramp).float()))
        loss.backward()
        return loss.detach(), noise, ramp

    assert_exact_when_dropped(blocks(2), program)


def test_threads_that_begin_after_a_replay_have_the_number_that_they_have_in_plain():
    def program(model):
        numbers = []

        def forward():
            torch.set_num_threads(3)
            numbers.append(loss_of(model(torch.randn(64, 64))))

        before = torch.get_num_threads()
        thread = threading.Thread(target=forward)
        thread.start()
        thread.join()
        torch.set_num_threads(before)
        loss = loss_of(model(torch.randn(64, 64)))
        with threads(2):
            pass
        thread = threading.Thread(target=torch.set_num_threads, args=(5,))
        thread.start()
        thread.join()
        loss.backward()
        thread = threading.Thread(target=lambda: numbers.append(torch.get_num_threads()))
        thread.start()
        thread.join()
        torch.set_num_threads(before)
        return loss.detach(), torch.tensor(numbers[-1])

    assert_exact_when_dropped(blocks(2), program)
