"""remat.compile(activation_memory_budget=...): where the compiler cuts blocks into forward and backward."""

from __future__ import annotations

import dataclasses
import gc
import inspect
import random
import shutil
import weakref

import pytest
import torch
from compare import same_bits
from partitions import Block, Net, assert_same, saved_bytes, smallest, train  # noqa: F401
from scopes import loss_of
from torch import nn
from torch._dynamo.utils import counters
from torch.utils.flop_counter import FlopCounterMode

import remat
from remat import partition_choice

pytestmark = pytest.mark.skipif(shutil.which("g++") is None, reason="compiling needs g++")


@pytest.mark.parametrize("dropout", [0.0, 0.3])
def test_of_cuts_with_the_same_bits_one_is_chosen(dropout, smallest, one_thread):
    """With several threads what is fused otherwise is shared out otherwise, and rounds otherwise."""
    x = torch.randn(8, 4, 16, 16)
    saved, chosen = (saved_bytes(model, x) for model in assert_same(lambda: Net(dropout), train))
    assert chosen < saved


def test_a_cut_with_other_bits_is_not_chosen(smallest, monkeypatch):
    """Where nothing saves random numbers, torch 2.13 on the CPU draws others in backward (pytorch/pytorch#190758)."""
    monkeypatch.setattr(partition_choice, "_save_random_numbers", lambda other: other)
    x = torch.randn(8, 4, 16, 16)
    saved, chosen = (saved_bytes(model, x) for model in assert_same(lambda: Net(0.3), train))
    assert chosen == saved


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


class Counted(nn.Module):
    """Its gradients are torch 2.13's, which saves for backward what the graph has written to since, and not those of
    the same graph copied."""

    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(8, 8))
        self.register_buffer("calls", torch.zeros((), dtype=torch.int64))

    def forward(self, x):
        self.calls += 1
        return self.layers(x).sin() + x / self.calls


def test_the_usual_code_is_that_of_the_first_cut():
    gradients = []
    for share in (None, "fastest"):
        torch.compiler.reset()
        torch.manual_seed(0)
        model = nn.Sequential(nn.Sequential(Counted(), Counted()))
        remat.compile(model, activation_memory_budget=share)
        x = torch.randn(16, 8, requires_grad=True)
        loss_of(model(x)).backward()
        gradients.append([x.grad, *(parameter.grad for parameter in model.parameters())])
    assert all(map(same_bits, *gradients))


@pytest.mark.parametrize(("share", "graphs"), [(0.5, 2), ("fastest", 20)])
def test_many_models_of_one_class_are_compiled(share, graphs, monkeypatch):
    """With a number they share their code."""
    monkeypatch.setattr(partition_choice, "_SHARES", (1.0, 0.1))
    torch.compiler.reset()
    counters.clear()
    models = [remat.compile(Net(), activation_memory_budget=share, dynamic=False, backend="aot_eager") for _ in range(10)]
    for model in models:
        loss_of(model(torch.randn(8, 4, 16, 16))).backward()
    runs = len(partition_choice._SHARES) if share == "fastest" else 1
    assert counters["aot_autograd"]["total"] == graphs * runs  # the first input needs no gradient
    other = remat.compile(Net(), activation_memory_budget=0.3, dynamic=False, backend="aot_eager")
    loss_of(other(torch.randn(8, 4, 16, 16))).backward()
    assert counters["aot_autograd"]["total"] == graphs * runs + 2


def test_a_choice_for_one_model_is_none_for_another(smallest):
    models = [remat.compile(Net(), "80%", activation_memory_budget="fastest", dynamic=False) for _ in range(2)]
    x = torch.randn(8, 4, 16, 16)
    train(models[0])
    assert saved_bytes(models[0], x) < saved_bytes(models[1], x)


@dataclasses.dataclass
class Result:
    value: torch.Tensor


class Boxed(Block):
    def forward(self, x, *, scale):
        return Result(super().forward(x, scale=scale))


class BoxedNet(Net):
    def __init__(self, dropout):
        super().__init__()
        self.blocks = nn.ModuleList(Boxed(dropout) for _ in range(2))

    def forward(self, x):
        for block in self.blocks:
            x = block(x, scale=0.5).value
        return x


def test_results_of_any_kind_are_compared(smallest):
    assert_same(lambda: BoxedNet(0.3), train)


def test_each_graph_of_a_block_has_a_choice_of_its_own(smallest):
    """Dropout comes with the second mode, when the first has long been tried."""

    def both(model):
        return train(model.eval(), steps=3) + train(model.train(), steps=4)

    assert_same(lambda: Net(0.3), both)


def test_the_users_code_has_no_part_in_a_trial():
    class Counting(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = nn.Linear(8, 8)

        def forward(self, x):
            note(random.random())
            return self.layer(x).sigmoid()

    @torch._dynamo.disable
    def note(value):
        noted.append(value)

    def steps(share):
        torch.compiler.reset()
        random.seed(0)
        noted.clear()
        model = nn.Sequential(nn.Sequential(Counting(), Counting()))
        remat.compile(model, activation_memory_budget=share, backend="aot_eager")
        for layer in model.modules():
            layer.register_forward_hook(lambda *call: note(len(call)))
        with FlopCounterMode(display=False) as flops:
            for _ in range(3):
                loss_of(model(torch.randn(4, 8))).backward()
        return list(noted), flops.get_total_flops()

    noted = []
    assert steps(None) == steps("fastest")


def test_a_model_that_is_gone_waits_for_no_choice():
    torch.compiler.reset()
    model = remat.compile(Net(), activation_memory_budget="fastest", backend="aot_eager")
    loss_of(model(torch.randn(8, 4, 16, 16))).backward()
    block = weakref.ref(model.blocks[0])
    del model
    gc.collect()
    torch.compiler.reset()
    gc.collect()
    assert block() is None


def test_what_a_trial_took_is_freed():
    torch.compiler.reset()
    model = nn.Sequential(nn.Sequential(*(Narrow(256) for _ in range(2))))
    remat.compile(model, activation_memory_budget="fastest", backend="aot_eager")
    x, held = torch.randn(4, 8), []
    gc.collect()
    gc.disable()
    try:
        for _ in range(4):
            loss_of(model(x)).backward()
            held.append(remat.memory.current())
    finally:
        gc.enable()
    assert held[2] <= held[1] <= held[0] and held[3] == held[2]


@pytest.mark.parametrize("share", [None, 0.8, "fastest"])
def test_options_are_torch_compiles(share):
    def keep_all(guards):
        asked.append(len(guards))
        return [True] * len(guards)

    torch.compiler.reset()
    asked = []
    model = remat.compile(Net(), activation_memory_budget=share, options={"guard_filter_fn": keep_all}, backend="aot_eager")
    train(model, steps=2)
    assert asked
    model = Net()
    for options in ({"options": {"bogus": 1}}, {"mode": "nonsense"}, {"backend": "nonsense"},
                    {"mode": "default", "options": {"epilogue_fusion": True}}):  # fmt: skip
        with pytest.raises(Exception, match="bogus|nonsense|mode"):
            remat.compile(model, activation_memory_budget=share, **options)
        with pytest.raises(remat.Error, match="not wrapped"):
            remat.session_of(model)
        assert all(block._compiled_call_impl is None for block in model.blocks)


def test_a_model_without_blocks_and_several_ranks_have_no_fastest(tmp_path):
    with pytest.raises(remat.Error, match=r"^\[compile\] .* this Linear has none"):
        remat.compile(nn.Linear(8, 8), activation_memory_budget="fastest")
    with pytest.raises(remat.Error, match=r'^\[compile\] .* does not go with mode="reduce-overhead"'):
        remat.compile(Net(), activation_memory_budget="fastest", mode="reduce-overhead")
    torch.distributed.init_process_group("gloo", init_method=f"file://{tmp_path}/meet", rank=0, world_size=1)
    try:
        with pytest.raises(remat.Error, match=r"^\[compile\] .* differ between ranks"):
            remat.compile(Net(), activation_memory_budget="fastest")
    finally:
        torch.distributed.destroy_process_group()


class Narrow(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.up, self.down = nn.Linear(8, width), nn.Linear(width, 8)

    def forward(self, x):
        return x + self.down(self.up(x).sigmoid())


@pytest.mark.parametrize("share", [None, "fastest"])
def test_each_kind_of_block_has_as_many_versions_as_a_function(share):
    graphs = []

    def backend(graph, inputs):
        graphs.append(graph)
        return graph

    torch.compiler.reset()
    model = nn.Sequential(nn.Sequential(*(Narrow(width) for width in range(4, 24))))
    remat.compile(model, activation_memory_budget=share, backend=backend)
    x = torch.randn(4, 8)
    loss_of(model(x)).backward()
    versions = 20 if "recompile_limit" in inspect.signature(torch.compile).parameters else 8
    assert len(graphs) == (1 if share is None else 5) * versions


@pytest.mark.parametrize("share", ["quickest", 1.5, -0.1, True, float("nan")])
def test_what_is_no_share_is_an_error(share):
    model = Net()
    with pytest.raises(remat.Error, match=r"^\[compile\] activation_memory_budget=.* number from 0 to 1"):
        remat.compile(model, activation_memory_budget=share)
    with pytest.raises(remat.Error, match="not wrapped"):
        remat.session_of(model)
