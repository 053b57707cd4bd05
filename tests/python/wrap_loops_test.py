"""remat.wrap: loops whose backward passes come late, fail early, or go around the results."""

from __future__ import annotations

import pytest
import torch
from compare import blocks
from torch import nn
from wrapped import batch, both

import remat
from remat import _C


def test_a_loop_whose_calls_are_one_ahead_has_every_backward_in_a_step():
    in_a_step = []

    def loop(model):
        in_a_step.clear()
        result = model(batch())
        for _ in range(20):
            result, last = model(batch()), result
            in_a_step.append(_C.is_recording())
            last.square().mean().backward()

    both(loop, budget="90%", make=lambda: blocks(2))
    assert in_a_step == 20 * [True]


def test_a_backward_that_fails_as_it_comes_to_the_result_ends_the_step_at_the_next_call():
    def hook(_):
        raise ValueError("mine")

    model = remat.wrap(blocks(2))
    held = model(batch())
    held.register_hook(hook)
    for number in (1, 2):
        with pytest.raises(ValueError, match="mine"):
            held.sum().backward()
        model(batch()).square().mean().backward()
        assert (remat.session_of(model).report().step, remat.session_of(model).report().completed) == (number + 1, True)


class Shifts(nn.Module):
    """Saves nothing for its backward."""

    def __init__(self):
        super().__init__()
        self.shift = nn.Parameter(torch.ones(64))

    def forward(self, x):
        return x + self.shift


def test_a_model_that_saves_nothing_has_its_loss_in_the_step():
    model = remat.wrap(Shifts())
    for number in (1, 2):
        result = model(batch())
        assert result.exp().sum().item() > 0  # for a log: what that has saved is gone
        assert _C.is_recording()
        result.exp().sum().backward()
        assert not _C.is_recording()
        assert (remat.session_of(model).report().step, remat.session_of(model).report().completed) == (number, True)


def test_a_step_ends_with_the_graph_of_its_result_though_that_is_held():
    model = remat.wrap(blocks(2))
    for number in (1, 2):
        result = model(batch())
        assert _C.is_recording()
        result.detach_()
        assert not _C.is_recording()
        assert (remat.session_of(model).report().step, remat.session_of(model).report().completed) == (number, False)


def test_a_backward_of_another_model_in_the_step_makes_the_next_result_older():
    """The teacher's is held until it is assigned anew: in vain, whatever comes of results that wait for no backward."""
    teacher, student = remat.wrap(blocks(2)), remat.wrap(blocks(2))
    for _ in range(6):
        target = teacher(batch())
        (student(batch()) - target.detach()).square().mean().backward()
    del target
    assert remat.session_of(teacher).report().step == 5
    first, second = teacher(batch()), teacher(batch())  # a question of its own
    first.sum().backward()
    second.sum().backward()
    assert remat.session_of(teacher).report().step == 6
