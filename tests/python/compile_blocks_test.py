"""remat.compile(): which modules it compiles, and what it refuses."""

from __future__ import annotations

import re
import warnings

import pytest
import torch
from scopes import loss_of
from torch import nn

import remat


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(16, 64), nn.GELU(), nn.Linear(64, 16))

    def forward(self, x):
        return x + self.layers(x)


class ByName(nn.Module):
    """Blocks that no list holds."""

    def __init__(self):
        super().__init__()
        self.blocks = nn.ModuleDict({"first": Block(), "second": Block()})

    def forward(self, x):
        for block in self.blocks.values():
            x = block(x)
        return x


def tower():
    return nn.Sequential(nn.Sequential(Block(), Block()))


def compiled(model):
    """The modules that torch.compile was asked for."""
    return [module for module in model.modules() if module._compiled_call_impl is not None]


def test_blocks_may_be_named():
    model = ByName()
    blocks = list(model.blocks.values())
    with warnings.catch_warnings():
        warnings.simplefilter("error", RuntimeWarning)
        assert remat.compile(model, "60%", blocks=iter(blocks), backend="eager") is model
    assert compiled(model) == blocks
    loss_of(model(torch.randn(4, 16))).backward()


def test_blocks_that_are_not_the_models_are_an_error():
    model = tower()
    with pytest.raises(remat.Error, match=r"^\[compile\] Block is not a module of this Sequential; give its own"):
        remat.compile(model, blocks=[model[0][0], Block()])
    with pytest.raises(remat.Error, match=r"^\[compile\] blocks names no module"):
        remat.compile(model, blocks=[])
    assert not compiled(model)


def test_what_is_no_list_of_blocks_that_can_be_called_is_an_error():
    model = nn.Sequential(nn.ModuleList([Block(), Block()]))
    with pytest.raises(remat.Error, match=r"^\[compile\] a ModuleList has no forward\(\).* remat.compile\(model, blocks="):
        remat.compile(model, blocks=[model[0]])
    with pytest.raises(remat.Error, match=r"^\[compile\] blocks is a Block; give a list"):
        remat.compile(model, blocks=model[0][0])
    scripted = nn.Sequential(torch.jit.script(nn.Linear(2, 2)))
    with pytest.raises(remat.Error, match=r"^\[compile\] 1 of the blocks are modules of TorchScript"):
        remat.compile(scripted, blocks=list(scripted))


@pytest.mark.parametrize("options", [{"budget": "garbage"}, {"budget": "70%", "mode": "nonsense"}])
def test_a_bad_option_leaves_the_budget_that_there_was(options):
    model = remat.compile(tower(), 1000, backend="eager")
    calls = [block._compiled_call_impl for block in model[0]]
    session = remat.session_of(model)
    with pytest.raises((remat.Error, RuntimeError)):
        remat.compile(model, **options)
    with pytest.raises(remat.Error):
        remat.wrap(model, "garbage")
    assert remat.session_of(model) is session
    assert all(block._compiled_call_impl is call for block, call in zip(model[0], calls))
    with pytest.raises(remat.BudgetError, match=r"of remat\.compile\(Sequential\) is out of memory"):
        loss_of(model(torch.randn(64, 16))).backward()


@pytest.mark.parametrize("share", [None, 0.5])
def test_blocks_may_be_lazy(share):
    blocks = (nn.Sequential(nn.LazyLinear(16), nn.ReLU()) for _ in range(3))
    model = remat.compile(nn.Sequential(nn.Sequential(*blocks)), activation_memory_budget=share, backend="aot_eager")
    loss_of(model(torch.randn(4, 16))).backward()
    assert all(parameter.grad is not None for parameter in model.parameters())


def test_a_budget_for_a_model_without_blocks_is_warned_of():
    with pytest.warns(RuntimeWarning, match=r"^\[compile\] ByName has no repeated blocks .* blocks=\[\.\.\.\]\)"):
        model = remat.compile(ByName(), "60%", backend="eager")
    assert compiled(model) == [model]
    with warnings.catch_warnings():
        warnings.simplefilter("error", RuntimeWarning)
        remat.compile(model, backend="eager")  # again, and without a budget


@pytest.mark.parametrize("compile_whole", [torch.compile, lambda model: (model.compile(), model)[1]])
def test_a_model_that_is_compiled_as_a_whole_is_an_error(compile_whole):
    model = compile_whole(tower())
    with pytest.raises(remat.Error, match=r"^\[compile\] this \w+ has been compiled as a whole"):
        remat.compile(model, "60%")


def test_a_name_is_the_sessions():
    model = remat.compile(tower(), 1000, name="the tower", backend="eager")
    with pytest.raises(remat.BudgetError, match="of the tower is out of memory"):
        loss_of(model(torch.randn(64, 16))).backward()


def test_an_unknown_option_is_told_with_those_that_are_known():
    with pytest.raises(TypeError, match=re.escape("[compile] there is no option fullgrah; there are ")) as caught:
        remat.compile(tower(), fullgrah=True)
    assert all(name in str(caught.value) for name in ("fullgraph", "dynamic", "planner", "pack"))


def test_a_process_group_that_comes_later_ends_the_choice(tmp_path, caplog):
    torch.compiler.reset()
    model = remat.compile(tower(), activation_memory_budget="fastest", backend="aot_eager")
    torch.distributed.init_process_group("gloo", init_method=f"file://{tmp_path}/meet", rank=0, world_size=1)
    try:
        with caplog.at_level("INFO", "remat.compile"):
            for _ in range(4):
                loss_of(model(torch.randn(4, 16))).backward()
    finally:
        torch.distributed.destroy_process_group()
    assert caplog.text.count("a process group, which came later") == 1
    assert caplog.text.count("runs with activation_memory_budget 1.0") == 2  # the first input needs no gradient
