"""Ways to write to a tensor that are no operators: apply_, map_, DLPack, arrays of parameters. Python's own are seen."""

from __future__ import annotations

import contextlib

import numpy
import pytest
import torch
from compare import blocks, run, same_bits
from scopes import Dropping, loss_of

import remat


def by_apply(tensor):
    tensor.detach().apply_(lambda element: element * 3)


def by_map(tensor):
    tensor.detach().map_(torch.full_like(tensor, 2.0), lambda a, b: a * b)


def by_array(tensor):
    tensor.detach().numpy()[:] *= 3


def by_dlpack(tensor):
    torch.from_dlpack(tensor.detach().__dlpack__()).numpy()[:] *= 3


WRITES = [by_apply, by_map, by_array, by_dlpack]
TARGETS = ["activation", "random", "parameter", "input"]


def outcome_or_error(model, program, scope):
    try:
        return run(model, program, scope, 1)
    except remat.Error as error:
        assert "modified" in str(error) or "written" in str(error), error
        return None


@pytest.mark.parametrize("when", ["before it is read", "after it is read"])
@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("write", WRITES)
def test_plains_bits_or_an_error(write, target, when):
    def program(model):
        x = torch.randn(16, 64)
        hidden = model[0](x).exp()
        noise = torch.bernoulli(torch.full_like(hidden, 0.5))
        tensors = {"activation": hidden, "random": noise, "parameter": model[1][0].weight, "input": x}
        if when == "before it is read":
            write(tensors[target])
        loss = loss_of(model[1]((hidden * noise * x).sin()).cos())
        if when == "after it is read":
            write(tensors[target])
        del tensors, hidden, noise
        loss.backward()
        return loss.detach()

    model = blocks(2)
    plain = run(model, program, contextlib.nullcontext, 1)
    ours = outcome_or_error(model, program, Dropping())
    assert ours is None or all(same_bits(a, b) for a, b in zip(plain, ours, strict=True))


@pytest.mark.parametrize("look", [lambda t: t.detach().numpy().mean(), lambda t: torch.from_dlpack(t.detach()).sum()])
def test_a_look_at_a_parameter_is_no_write(look):
    def program(model):
        loss = loss_of(model(torch.randn(16, 64)))
        for parameter in model.parameters():
            look(parameter)
        loss.backward()
        return loss.detach()

    model = blocks(3)
    plain = run(model, program, contextlib.nullcontext, 2)
    dropping = Dropping()
    ours = run(model, program, dropping, 2)
    assert all(same_bits(a, b) for a, b in zip(plain, ours, strict=True))
    assert dropping.dropped > 0


def test_the_doors_are_what_they_were_outside_of_steps():
    x = torch.arange(4.0)
    assert x.numpy().tolist() == [0, 1, 2, 3]
    assert x.apply_(lambda element: element + 1).tolist() == [1, 2, 3, 4]
    assert x.map_(x.clone(), lambda a, b: a + b).tolist() == [2, 4, 6, 8]
    assert torch.from_dlpack(x).tolist() == [2, 4, 6, 8]
    assert torch.Tensor.numpy.__name__ == "numpy"
