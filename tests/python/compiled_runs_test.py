"""Compiled blocks over a whole run: hundreds of steps leave nothing behind, and the compiler's cache is as without remat."""

from __future__ import annotations

import gc
import shutil
from pathlib import Path

import pytest
import torch
from scopes import loss_of
from torch import nn
from torch._dynamo.utils import counters

import remat
from remat import partition_choice

pytestmark = pytest.mark.skipif(shutil.which("g++") is None, reason="compiling needs g++")


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.LayerNorm(32), nn.Linear(32, 64), nn.GELU(), nn.Dropout(0.1), nn.Linear(64, 32))

    def forward(self, x):
        return x + self.layers(x)


def tower():
    torch.manual_seed(0)
    return nn.Sequential(nn.Sequential(*(Block() for _ in range(4))))


def train(model, steps):
    optimizer = torch.optim.Adam(model.parameters(), 1e-3)
    torch.manual_seed(1)
    for _ in range(steps):
        loss = loss_of(model(torch.randn(64, 32)))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return loss.detach()


def resident_bytes():
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * 4096


@pytest.mark.parametrize("share", [None, "fastest"])
def test_500_steps_leave_nothing_behind(share, monkeypatch):
    torch.compiler.reset()
    monkeypatch.setattr(partition_choice, "_SHARES", (1.0, 0.1))
    model = remat.compile(tower(), budget="60%", activation_memory_budget=share, dynamic=False)
    train(model, 20)
    gc.collect()
    before = remat.memory.current(), len(gc.get_objects()), resident_bytes()
    train(model, 500)
    gc.collect()
    report = remat.session_of(model).report()
    assert report.peak_bytes <= report.budget_bytes
    assert report.values_dropped > 0 or share == "fastest"  # whose cuts save little enough
    assert remat.memory.current() <= before[0]
    assert len(gc.get_objects()) < before[1] + 500  # one for each step is a leak
    assert resident_bytes() < before[2] + 500 * 16_000


def test_the_compilers_cache_is_as_without_remat(tmp_path, monkeypatch):
    """What was compiled without remat is found with it, and nothing else is written there; and the other way round."""

    def compile_and_train(model):
        torch.compiler.reset()
        counters.clear()
        loss = train(model, 3)
        files = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
        return loss, files, counters["inductor"]["fxgraph_cache_miss"]

    def without(model):
        for block in model[0]:
            block.compile(dynamic=False)
        return model

    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path))
    plain_loss, plain_files, misses = compile_and_train(without(tower()))
    assert misses > 0 and plain_files
    loss, files, misses = compile_and_train(remat.compile(tower(), budget="60%", dynamic=False))
    assert misses == 0 and torch.equal(loss, plain_loss)
    assert files == plain_files
