"""remat.compile(activation_memory_budget=...): where the compiler cuts blocks into forward and backward."""

from __future__ import annotations

import copy
import gc
import inspect
import shutil

import pytest
import torch
from scopes import loss_of
from torch import nn

import remat
from remat import partition_choice
pytestmark = pytest.mark.skipif(shutil.which("g++") is None, reason="compiling needs g++")


class Block(nn.Module):
    def __init__(self, dropout):
        super().__init__()
        self.layers = nn.Sequential(
            nn.Conv2d(4, 4, 3, padding=1), nn.BatchNorm2d(4), nn.Sigmoid(), nn.Dropout(dropout), nn.Conv2d(4, 4, 1), nn.GELU()
        )

    def forward(self, x, *, scale):
        return x + self.layers(x) * scale


class Net(nn.Module):
    def __init__(self, dropout=0.0):
        super().__init__()
        self.blocks = nn.ModuleList(Block(dropout) for _ in range(3))

    def forward(self, x):
        for block in self.blocks:
            x = block(x, scale=0.5)
        return x


def saved_bytes(model, x):
    """Of the first block's graph, nothing dropped."""
    with remat.Session(device="cpu").step():
        result = model.blocks[0](x, scale=0.5)
        saved = sum(tensor.nbytes for tensor in result.grad_fn.saved_tensors)
        loss_of(result).backward()
    return saved


def train(model, budget=None, steps=4):
    """The losses, the gradients and buffers after each step, and the generator's state."""
    seen = []
    torch.manual_seed(3)
    for _ in range(steps):
        loss = loss_of(model(torch.randn(8, 4, 16, 16)))
        loss.backward()
        seen += [loss.detach(), *(p.grad.clone() for p in model.parameters()), *(b.clone() for b in model.buffers())]
    return [*seen, torch.get_rng_state()]


@pytest.mark.parametrize("dropout", [0.0, 0.3])
def test_of_cuts_with_the_same_bits_one_is_chosen(dropout, monkeypatch):
    """With dropout a cut that draws again in backward has other bits: torch 2.13 on the CPU gets its masks wrong."""
    torch.compiler.reset()
    torch.manual_seed(0)
    first = Net(dropout)
    second = copy.deepcopy(first)
    monkeypatch.setattr(partition_choice, "_ALIKE", 1e9)  # whatever their times, the one that saves least
    monkeypatch.setattr(partition_choice, "_SHARES", (1.0, 0.1))
    remat.compile(first, dynamic=False)
    remat.compile(second, activation_memory_budget="fastest", dynamic=False)
    assert all(map(torch.equal, train(first), train(second)))
    x = torch.randn(8, 4, 16, 16)
    saved, chosen = (saved_bytes(model, x) for model in (first, second))
    assert chosen < saved if dropout == 0 else chosen == saved


def test_a_share_is_the_compilers():
    torch.compiler.reset()
    torch.manual_seed(0)
    models = [Net() for _ in range(2)]
    x = torch.randn(8, 4, 16, 16)
    for model, share in zip(models, (1, 0.1)):
        remat.compile(model, activation_memory_budget=share, dynamic=False)
    most, least = (saved_bytes(model, x) for model in models)
    assert least < most
    assert torch._functorch.config.activation_memory_budget == 1.0


def test_copies_go_when_the_choice_is_made():
    """And not when the garbage collector comes, in the middle of a step."""

    class Wide(nn.Sequential):
        pass

    torch.compiler.reset()
    model = nn.Sequential(nn.Sequential(*(Wide(nn.Linear(256, 256), nn.Sigmoid()) for _ in range(2))))
    remat.compile(model, activation_memory_budget="fastest", backend="aot_eager")
    x = torch.randn(4, 256)
    gc.collect()
    gc.disable()
    try:
        for _ in range(2):
            loss_of(model(x)).backward()
        held = remat.memory.current()
        gc.collect()
        assert held - remat.memory.current() < 256 * 256 * 4
    finally:
        gc.enable()


def test_a_block_that_cannot_be_tried_stays_as_it_is():
    """A hook of the user's would see calls of copies."""
    torch.compiler.reset()
    model = remat.compile(Net(), activation_memory_budget="fastest", backend="aot_eager")
    model.blocks[1].layers[2].register_forward_hook(lambda *call: None)
    x = torch.randn(8, 4, 16, 16)
    loss_of(model(x)).backward()
    with pytest.warns(RuntimeWarning, match=r"^\[compile\] the cuts of a Block .* 1.0: its Sigmoid has hooks"):
        loss_of(model(x)).backward()
    loss_of(model(x)).backward()


def test_a_model_without_blocks_and_several_ranks_have_no_fastest(tmp_path):
    with pytest.raises(remat.Error, match=r"^\[compile\] .* this Linear has none"):
        remat.compile(nn.Linear(8, 8), activation_memory_budget="fastest")
    torch.distributed.init_process_group("gloo", init_method=f"file://{tmp_path}/meet", rank=0, world_size=1)
    try:
        with pytest.raises(remat.Error, match=r"^\[compile\] .* differ between ranks"):
            remat.compile(Net(), activation_memory_budget="fastest")
    finally:
        torch.distributed.destroy_process_group()


def test_each_kind_of_block_has_as_many_versions_as_a_function():
    class Narrow(nn.Module):
        def __init__(self, width):
            super().__init__()
            self.up, self.down = nn.Linear(8, width), nn.Linear(width, 8)

        def forward(self, x):
            return x + self.down(self.up(x).sigmoid())

    graphs = []

    def backend(graph, inputs):
        graphs.append(graph)
        return graph

    torch.compiler.reset()
    model = nn.Sequential(nn.Sequential(*(Narrow(width) for width in range(4, 24))))
    remat.compile(model, backend=backend)
    x = torch.randn(4, 8)
    loss_of(model(x)).backward()
    assert len(graphs) == (20 if "recompile_limit" in inspect.signature(torch.compile).parameters else 8)


@pytest.mark.parametrize("share", ["quickest", 1.5, -0.1, True, float("nan")])
def test_what_is_no_share_is_an_error(share):
    model = Net()
    with pytest.raises(remat.Error, match=r"^\[compile\] activation_memory_budget=.* number from 0 to 1"):
        remat.compile(model, activation_memory_budget=share)
    with pytest.raises(remat.Error, match="not wrapped"):
        remat.session_of(model)
