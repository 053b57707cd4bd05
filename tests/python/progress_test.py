"""Regions of enabled blocks: where they begin and end, whatever becomes of the blocks' calls."""

from __future__ import annotations

import contextlib
import copy
import warnings

import pytest
import torch
from compare import blocks
from enabled import dropped, same_as, train
from torch import nn

import remat
from remat import _C, progress


class Interrupted(nn.Module):
    """Is interrupted, before it has done anything."""

    def forward(self, x):
        raise KeyboardInterrupt


LEFT = remat.enable(nn.ModuleList([nn.Sequential(Interrupted()), nn.Sequential(Interrupted())]))


def leave_by_interrupt():
    """Leaves an enabled block as Ctrl-C does: modules call no hooks then."""
    with pytest.raises(KeyboardInterrupt):
        LEFT[0](torch.randn(4, 64))


def test_after_an_interrupted_block_a_step_begins():
    leave_by_interrupt()
    assert dropped(blocks(2), train) == 0


def test_after_an_interrupted_block_a_wrapped_model_has_its_step():
    model = remat.wrap(blocks(2), budget="90%")
    leave_by_interrupt()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        train(model)
    assert remat.session_of(model).report().step == 1


def test_a_scope_that_an_interrupted_block_was_in_ends_as_a_whole():
    session = remat.Session()
    with session.step():
        with remat.policy():
            leave_by_interrupt()
        train(blocks(2))
    assert session.report().values_dropped == 0


def test_after_an_interrupted_block_a_scope_is_not_inside_of_it():
    leave_by_interrupt()
    with remat.policy(keep="all"):
        assert progress._here.regions == []
    assert not _C.is_recording()


def test_a_block_that_is_interrupted_in_a_block_ends_with_it():
    class Outer(nn.Module):
        def __init__(self):
            super().__init__()
            self.after = blocks(1)

        def forward(self, x):
            leave_by_interrupt()
            return self.after(x).exp()

    plain = nn.Sequential(Outer(), Outer())
    ours = remat.enable(copy.deepcopy(plain))
    same_as(plain, ours, train)
    assert dropped(ours, train) > 0
    assert not _C.is_recording()


def test_a_block_that_is_interrupted_in_itself_ends():
    class Twice(nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = blocks(1)

        def forward(self, x, again=True):
            if not again:
                raise KeyboardInterrupt
            with contextlib.suppress(KeyboardInterrupt):
                self(x, again=False)
            return self.inner(x)

    train(remat.enable(nn.Sequential(Twice(), Twice())))
    assert not _C.is_recording()


def test_scopes_in_a_block_leave_its_region():
    class Scoped(nn.Module):
        def __init__(self):
            super().__init__()
            self.inner, self.after = blocks(1), blocks(1)

        def forward(self, x):
            with remat.policy(keep="all"):
                x = self.inner(x)
            x = remat.checkpoint(torch.sin, x)
            return self.after(x)

    plain = nn.Sequential(Scoped(), Scoped())
    ours = remat.enable(copy.deepcopy(plain))
    same_as(plain, ours, train)
    without = nn.Sequential(*(block.inner for block in plain), *(block.after for block in plain))
    assert dropped(ours, train) >= dropped(remat.enable(without, blocks=[block.after for block in plain]), train) > 0


class Seen(nn.Module):
    """Notes whether anything records, before and after it has called itself without gradients."""

    def __init__(self, seen):
        super().__init__()
        self.seen, self.inner = seen, nn.Linear(64, 64)

    def forward(self, x, again=True):
        self.seen.append(_C.is_recording())
        if again:
            with torch.no_grad():
                self(x, again=False)
            self.seen.append(_C.is_recording())
        return self.inner(x)


def test_without_gradients_there_are_no_regions():
    seen = []
    model = remat.enable(nn.Sequential(Seen(seen), Seen(seen)))
    for scope in (torch.no_grad, torch.inference_mode):
        with scope():
            model(torch.randn(4, 64))
    assert not any(seen)
    seen.clear()
    model(torch.randn(4, 64))
    assert seen == [True] * 6  # the inner calls are in the outer ones' regions
    assert not _C.is_recording()


def test_compiled_blocks_have_regions_and_their_hooks_are_not_compiled():
    class Outer(nn.Module):
        def __init__(self):
            super().__init__()
            self.inner, self.after = blocks(2, dropout=0.0), nn.Linear(64, 64)

        def forward(self, x):
            return self.after(self.inner(x).exp())

    model = nn.Sequential(Outer(), Outer())
    for outer in model:
        for i, block in enumerate(outer.inner):
            outer.inner[i] = torch.compile(block, backend="eager")
    remat.enable(model, blocks=[*model, *model[0].inner, *model[1].inner])
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        assert dropped(model, train) > 0
        assert dropped(torch.compile(model, backend="eager"), train) > 0
    assert not any("does not know how to trace" in str(each.message) for each in told)
    assert not _C.is_recording()


@pytest.mark.parametrize("compiled_first", ["the model", "another"])
def test_a_model_that_ran_compiled_before_it_was_wrapped_has_its_budget(compiled_first):
    torch._dynamo.reset()
    model, other = blocks(2, dropout=0.0), blocks(2, dropout=0.0)
    compiled = torch.compile(model, backend="eager")
    (compiled if compiled_first == "the model" else torch.compile(other, backend="eager"))(torch.randn(4, 64))
    remat.wrap(model, budget=1000)
    with pytest.raises(remat.BudgetError):
        compiled(torch.randn(4, 64))


def test_a_model_that_ran_compiled_before_it_was_enabled_has_regions():
    model = blocks(4, dropout=0.0)
    compiled = torch.compile(model, backend="eager")
    train(compiled)
    remat.enable(model, blocks=list(model))
    assert dropped(compiled, train) > 0
