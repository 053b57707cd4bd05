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
from torch.nn.attention.flex_attention import flex_attention
from torch.utils.checkpoint import checkpoint

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


class Cached(nn.Module):
    """Writes to buffers: a counter, and with `whole` a cache of all results."""

    def __init__(self, whole):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(32, 32))
        self.register_buffer("calls", torch.zeros((), dtype=torch.int64))
        self.register_buffer("cache", torch.zeros(512, 32))
        self.whole = whole

    def forward(self, x):
        y = self.layers(x).exp().sin()
        with torch.no_grad():
            self.calls.add_(1)
            if self.whole:
                self.cache.copy_(y)
        return y.sigmoid() * y.cos() + x


class Checkpointed(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = nn.Linear(32, 32)
        self.blocks = nn.ModuleList(Block() for _ in range(4))

    def forward(self, x):
        x = self.first(x)
        for block in self.blocks:
            x = checkpoint(block, x, use_reentrant=False)
        return x


def outcomes(model, rows, budget, steps=5):
    """Of each step "done", or the percentage that its refusal names."""
    torch.compiler.reset()
    torch.manual_seed(0)
    remat.compile(model, budget)
    results = []
    for _ in range(steps):
        model.zero_grad()
        try:
            loss_of(model(torch.randn(rows, 32))).backward()
            results.append("done")
        except remat.BudgetError as error:
            results.append(error.needed_percent)
    gc.collect()
    return results


def writing(whole):
    return nn.Sequential(nn.Sequential(*(Cached(whole) for _ in range(8))))


def test_a_block_that_counts_its_calls_saves_no_more():
    assert outcomes(writing(whole=False), 512, "60%") == ["done"] * 5


@pytest.mark.parametrize(("make", "rows"), [(lambda: writing(whole=True), 512), (Checkpointed, 64)])
def test_a_refusal_for_want_of_memory_to_record_an_operator_names_what_works(make, rows):
    """Copies of what blocks write to, and states of a generator, are as large as what the steps compute."""
    first, *others = outcomes(make(), rows, "60%")
    assert first == "done"
    assert len(set(others)) == 1 and others[0] is not None
    # Plans follow the times of a step, which a busy machine changes: one may need more, and says so.
    again = outcomes(make(), rows, f"{others[0]:g}%")
    more = [share for share in again if share != "done"]
    assert not more or (len(more) == 1 and outcomes(make(), rows, f"{more[0]:g}%") == ["done"] * 5)


class Attentive(nn.Module):
    """Its attention is one graph for remat, whose kernel allocates through PyTorch's C interface."""

    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(32, 64), nn.GELU(), nn.Linear(64, 32))

    def forward(self, x):
        heads = x.detach().view(2, -1, 2, 16).transpose(1, 2)
        with torch.no_grad():
            y = flex_attention(heads, heads, heads)
        return x + self.layers(x + y.transpose(1, 2).reshape(-1, 32))


def test_a_kernel_that_is_refused_memory_raises_a_budget_error():
    blocks = nn.Sequential(*(Attentive() for _ in range(4)))
    *_, last = outcomes(nn.Sequential(blocks), 1024, "34%")
    assert last not in ("done", None)


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
