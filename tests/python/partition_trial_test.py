"""remat.compile(activation_memory_budget="fastest"): the trial of a graph's cuts."""

from __future__ import annotations

import re
import shutil
import signal
import threading
import time

import pytest
import torch
from partitions import Net, assert_same, smallest, train  # noqa: F401
from scopes import loss_of
from torch import nn

import remat
from remat import partition_choice, partition_trial

pytestmark = pytest.mark.skipif(shutil.which("g++") is None, reason="compiling needs g++")


class Residual(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(
            nn.Conv2d(32, 32, 1, bias=False), nn.BatchNorm2d(32), nn.ReLU(),
            nn.Conv2d(32, 32, 3, padding=1, bias=False), nn.BatchNorm2d(32),
        )  # fmt: skip

    def forward(self, x):
        return (self.layers(x) + x).relu()


def test_gradients_have_the_strides_of_the_usual_cut(smallest, monkeypatch):
    """Of the blocks' inputs: code that is not compiled may compute otherwise from others."""
    monkeypatch.setattr(partition_choice, "_SHARES", (1.0, 0.8))
    given = partition_trial._with_gradient_of

    def noted(tensor, stride):
        found = given(tensor, stride)
        if found is not tensor:
            restrided.append(stride)
        return found

    def run(share):
        torch.compiler.reset()
        torch.manual_seed(0)
        blocks = nn.ModuleList(Residual() for _ in range(2))
        model = nn.Sequential(nn.Conv2d(4, 32, 3, padding=1), nn.Sequential(*blocks))
        remat.compile(model, activation_memory_budget=share, dynamic=False)
        strides = []

        def note(module, args, result):
            result.register_hook(lambda gradient: strides.append(gradient.stride()))

        model[0].register_forward_hook(note)
        return train(model), strides

    restrided = []
    monkeypatch.setattr(partition_trial, "_with_gradient_of", noted)
    (expected, usual), (found, strides) = run(None), run("fastest")
    assert all(map(torch.equal, expected, found)) and usual == strides
    assert len(restrided) == 3  # in the steps after the second, for the first block: the other's input is compiled code's


def test_a_graph_that_cannot_be_tried_stays_as_it_is(monkeypatch, caplog):
    def fail(graph, check_stop):
        raise ValueError("no such luck")

    torch.compiler.reset()
    monkeypatch.setattr(partition_trial.TriedGraph, "_try", fail)
    model = remat.compile(Net(), activation_memory_budget="fastest", backend="aot_eager")
    train(model)
    assert re.search(r"\[compile\] the cuts of graph \[\d/\d\] could not be tried: it stays at 1.0: no such luck", caplog.text)


def test_an_interrupt_leaves_the_generator_and_the_choice(monkeypatch):
    torch.compiler.reset()
    model = remat.compile(Net(), activation_memory_budget="fastest", backend="aot_eager")
    x = torch.randn(8, 4, 16, 16)
    for _ in range(2):
        loss_of(model(x)).backward()
    run, runs = partition_trial.TriedGraph._run, []

    def interrupted(graph, share, seed):
        runs.append(share)
        if len(runs) == 2:
            signal.pthread_kill(threading.main_thread().ident, signal.SIGINT)
            time.sleep(0.5)
        return run(graph, share, seed)

    state = torch.get_rng_state()
    monkeypatch.setattr(partition_trial.TriedGraph, "_run", interrupted)
    with pytest.raises(KeyboardInterrupt):
        model(x)
    count = len(runs)
    time.sleep(0.5)
    assert count == len(runs) < 10, "the trial goes on"
    assert torch.equal(state, torch.get_rng_state())
    loss_of(model(x)).backward()
    assert len(runs) >= 10


class Small(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner, self.outer = nn.Linear(3, 3), nn.Linear(3, 3)

    def forward(self, x):
        y = self.inner(x)
        z = torch.softmax(y.tanh() * y.sigmoid(), -1)
        variance = (z * y).var(-1, keepdim=True) + 1e-5
        return x * 0.9 + self.outer(nn.functional.gelu(y * variance.rsqrt()) * z)


def test_few_elements_are_compared_often(smallest):
    """Those of one input may be alike by chance."""

    def train_small(model):
        seen = []
        torch.manual_seed(1)
        for _ in range(60):
            x = torch.randn(2, 3, requires_grad=True)
            model(x).pow(2).sum().backward()
            seen += [x.grad, *(p.grad.clone() for p in model.parameters())]
        return seen

    torch.manual_seed(3)  # with which those of the first input are alike
    assert_same(lambda: nn.Sequential(nn.Sequential(*(Small() for _ in range(3)))), train_small)


class WithView(Residual):
    """Code that is not compiled adds a gradient to that of its input."""

    def forward(self, x):
        return (self.layers(x) + x).relu(), x.view(x.shape[0], -1)


class WithViewNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem = nn.Conv2d(4, 32, 3, padding=1)
        self.bias = nn.Parameter(torch.zeros(32, 1, 1))
        self.blocks = nn.ModuleList(WithView() for _ in range(2))

    def forward(self, x):
        x = self.stem(x) + self.bias
        for block in self.blocks:
            x, _ = block(x)
        return x


def test_a_view_of_an_input_hides_no_strides(smallest, monkeypatch):
    monkeypatch.setattr(partition_choice, "_SHARES", (1.0, 0.8))
    assert_same(WithViewNet, train)
