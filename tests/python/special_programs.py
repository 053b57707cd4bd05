"""Trains small models with special operators (src/operators/special_operator.h), plain and with remat, and prints what
came of it as JSON. tests/python/special_operators_test.py runs it with and without what remat knows of them.

    python special_programs.py NAME..."""

from __future__ import annotations

import contextlib
import gc
import json
import sys

import torch
import torch.distributed as dist
from compare import run, same_bits
from processes import group
from scopes import Reporting, loss_of
from torch import nn

import remat


def batch_norm():
    def block(inputs):
        return nn.Sequential(nn.Conv2d(inputs, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU())

    model = nn.Sequential(*(block(inputs) for inputs in (3, 8, 8, 8)))
    return model, lambda model: model(torch.randn(4, 3, 32, 32))


def collectives():
    def gathered(x):
        parts = [torch.empty_like(x) for _ in range(dist.get_world_size())]
        dist.all_gather(parts, x.detach())
        return x + parts[0] * 0.5

    def forward(model):
        x = torch.randn(256, 64)
        for layer in model:
            x = gathered(layer(x)).sigmoid() * x
        return x

    return nn.Sequential(*(nn.Linear(64, 64) for _ in range(6))), forward


def compiled_code():
    @torch.compile
    def gate(x):
        return (x.sigmoid() * x).tanh() * 0.5

    def forward(model):
        x = torch.randn(512, 64)
        for layer in model:
            x = gate(layer(x)).sin()
        return x

    return nn.Sequential(*(nn.Linear(64, 64) for _ in range(6))), forward


def recurrent():
    def forward(model):
        first, layers, last = model
        return last(layers(first(torch.randn(32, 16, 64)).exp())[0].sin()).exp().tanh()

    return nn.ModuleList([nn.Linear(64, 64), nn.LSTM(64, 64, num_layers=2), nn.Linear(64, 256)]), forward


def softmax_in_place():
    model = nn.Sequential(nn.Linear(32, 32), nn.Tanh(), nn.Linear(32, 2048))
    return model, lambda model: torch.log_softmax(model(torch.randn(64, 32)), 1)[:, 3]


MODELS = {made.__name__: made for made in (batch_norm, collectives, compiled_code, recurrent, softmax_in_place)}


def alive():
    gc.collect()
    return remat.memory.current()


def measure(name):
    model, forward = MODELS[name]()

    held = []

    def program(model):
        before = remat.memory.current()
        loss = loss_of(forward(model))
        held.append(remat.memory.current() - before)
        loss.backward()
        return loss.detach()

    def trained(scope):
        """What three steps leave behind, and the bytes that it takes, with all else that they left alive."""
        before = alive()
        try:
            found = run(model, program, scope, steps=3)
        except remat.BudgetError:
            found = None
        return found, alive() - before

    remat.memory.start_accounting()
    run(model, program, contextlib.nullcontext, steps=1)  # code is compiled, and held
    plain, plain_left = trained(contextlib.nullcontext)
    found = {"same": True, "left": 0}
    for budget in (None, "90%"):
        reporting = Reporting(remat.Session(budget=budget, device="cpu"))

        @contextlib.contextmanager
        def step(reporting=reporting, budget=budget):
            with reporting(), remat.policy() if budget is None else contextlib.nullcontext():
                yield

        ours, left = trained(step)
        found["same"] &= ours is None or (len(ours) == len(plain) and all(map(same_bits, ours, plain)))
        found["left"] = max(found["left"], left - plain_left)
        if budget is None:
            found["held"] = held[-1]
            found["peak"] = reporting.reports[-1].activation_peak_bytes
        else:
            found["refused"] = ours is None
            found["within"] = all(r.peak_bytes <= r.budget_bytes for r in reporting.reports)
    return found


if __name__ == "__main__":
    torch.set_num_threads(1)
    with group() if dist.is_available() else contextlib.nullcontext():
        print(json.dumps({name: measure(name) for name in sys.argv[1:]}))
