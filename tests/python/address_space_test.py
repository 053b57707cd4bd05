"""Processes that may map so much and no more (`ulimit -v`, as batch systems set it): sessions keep within it."""

from __future__ import annotations

import os
import re
import subprocess
import sys

import pytest

TRAIN = """
import resource, sys
import torch
from torch import nn
import remat

budget, spare, rows = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
torch.manual_seed(0)
model = nn.Sequential(*[layer for _ in range(24) for layer in (nn.Linear(128, 128), nn.GELU())])
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
if spare:
    remat.memory.start_accounting()
    mapped = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (mapped + spare, mapped + spare))
    remat.wrap(model, budget=None if budget == "device" else budget)
for _ in range(2):
    loss = model(torch.randn(rows, 128)).square().mean()  # 24 KiB of activations for each
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    print(loss.item().hex())
print(sum(each.double().sum() for each in model.parameters()).item().hex())
"""


def train(budget, spare, rows=16384):
    done = subprocess.run(
        [sys.executable, "-c", TRAIN, budget, str(spare), str(rows)],
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    return done.stdout.split(), done.stderr


@pytest.fixture(scope="module")
def plain():
    return train("", 0)[0]


@pytest.mark.parametrize("budget", ["device", "pressure", "64GiB"])
def test_steps_fit_what_may_be_mapped(budget, plain):
    found, errors = train(budget, 320 << 20)
    assert found == plain, errors


def test_what_cannot_fit_is_refused_with_numbers():
    _, errors = train("64GiB", 60 << 20, rows=65536)
    assert re.search(r"the device's limit, .* or ulimit may have lowered, is|than there is: give [\d.]+ MiB", errors), errors
