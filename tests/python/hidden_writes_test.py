"""Ways to write to a tensor that are no operators: apply_, map_, DLPack, arrays of parameters. Python's own are seen."""

from __future__ import annotations

import contextlib
import ctypes
import subprocess
import sys
import threading

import pytest
import torch
from compare import blocks, run, same_bits
from scopes import Dropping, assert_exact_when_dropped, loss_of

import remat


def by_apply(tensor):
    tensor.detach().apply_(lambda element: element * 3)


def by_map(tensor):
    tensor.detach().map_(torch.full_like(tensor, 2.0), lambda a, b: a * b)


def by_array(tensor):
    tensor.detach().numpy()[:] *= 3


def by_dlpack(tensor):
    torch.from_dlpack(tensor.detach().__dlpack__()).numpy()[:] *= 3


def on_another_thread(write):
    def written(tensor):
        thread = threading.Thread(target=write, args=(tensor,))
        thread.start()
        thread.join()

    return written


WRITES = [by_apply, by_map, by_array, by_dlpack]
WRITES += [on_another_thread(write) for write in WRITES]
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


@pytest.mark.parametrize("held", [True, False])
@pytest.mark.parametrize("scope", [Dropping, lambda: remat.Session().step])
@pytest.mark.parametrize("target", ["activation", "random", "mask", "view of a parameter", "parameter", "input"])
def test_data_that_is_replaced_after_it_was_saved(target, scope, held):
    """Where the saved tensor is the very tensor, as in plain, it is read as it is now; else there is an error."""

    def program(model):
        x, weight = torch.randn(16, 64), model[1][0].weight
        hidden = model[0](x).exp()
        noise = torch.rand(16, 64)
        mask = (noise > 0.5) * 2.0
        view = weight[:1, :]
        tensors = {
            "activation": hidden,
            "random": noise,
            "mask": mask,
            "view of a parameter": view,
            "parameter": weight,
            "input": x,
        }
        loss = loss_of((hidden.sin() * noise * mask * x * view).sin() + hidden * (weight[:16] * 1.5).cos())
        chosen = tensors[target]
        before = chosen.data
        chosen.data = torch.full_like(chosen, 0.25)
        if not held:
            del tensors, hidden, noise, mask, view, x, chosen
        loss.backward()
        if target == "parameter":
            weight.data = before
        return loss.detach()

    model = blocks(2)
    plain = run(model, program, contextlib.nullcontext, 1)
    try:
        ours = run(model, program, scope(), 1)
    except remat.Error as error:
        assert ".data" in str(error) and target not in ("parameter", "input"), error
        return
    assert all(same_bits(a, b) for a, b in zip(plain, ours, strict=True))


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


BOUND_EARLIER = """
import sys, torch
from torch.utils.dlpack import to_dlpack
apply_, map_, numpy = torch.Tensor.apply_, torch.Tensor.map_, torch.Tensor.numpy
original = torch.Tensor.__dlpack__
torch.Tensor.__dlpack__ = lambda self, *args, **kwargs: original(self, *args, **kwargs)  # until remat is there
import remat
torch.Tensor.__dlpack__ = original

WRITES = {
    "to_dlpack": lambda x: torch.from_dlpack(to_dlpack(x)).mul_(1.5),
    "__dlpack__": lambda x: torch.from_dlpack(x).mul_(1.5),
    "apply_": lambda x: apply_(x, lambda element: element * 1.5),
    "map_": lambda x: map_(x, x.clone(), lambda a, b: a * 1.5),
    "numpy": lambda x: numpy(x).__imul__(1.5),
}

def step(write):
    torch.manual_seed(0)
    x = torch.randn(8, 8, requires_grad=True)
    y = x.exp()
    for _ in range(3):
        y = y.sin() * y
        write(y.detach())
    y.sum().backward()
    return x.grad

for name, write in WRITES.items():
    plain = step(write)
    session = remat.Session()
    with session.step(), remat.policy():
        ours = step(write)
    print(name, torch.equal(plain, ours), session.report().values_dropped > 0)
"""


def test_doors_that_were_taken_hold_of_before_remat_was_imported():
    done = subprocess.run([sys.executable, "-c", BOUND_EARLIER], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    names = ("to_dlpack", "__dlpack__", "apply_", "map_", "numpy")
    assert done.stdout.splitlines() == [f"{name} True True" for name in names]


def poke(tensor, contents):
    """As an extension writes: nothing of PyTorch's is called."""
    ctypes.memmove(tensor.data_ptr(), contents.contiguous().data_ptr(), contents.numel() * contents.element_size())


def padded(x, read_between):
    """Operators write to a part of what a factory made, a pointer to another."""
    pad = torch.zeros(16, 64)
    if read_between:
        x = x + pad
    pad[:4] = x.detach()[:4]
    poke(pad[8:], x.detach()[8:])
    return x * pad


def written_again_and_again(x, read_between):
    pad = torch.zeros(16, 64)
    for row in range(8):
        pad[row] = x.detach()[row]
        if read_between:
            x = x + pad
        poke(pad[8 + row], x.detach()[row])
    return x * pad


@pytest.mark.parametrize("read_between", [False, True])
@pytest.mark.parametrize("fill", [padded, written_again_and_again])
def test_what_operators_and_pointers_fill_together(fill, read_between):
    def program(model):
        loss_of(model[1](fill(model[0](torch.randn(16, 64)), read_between))).backward()

    try:
        assert_exact_when_dropped(blocks(2), program, steps=1)
    except remat.Error as error:
        assert read_between and "modified in place" in str(error)


@pytest.mark.parametrize(
    "overwrite",
    [
        lambda r: torch.cumsum(r, 0, out=r),
        lambda r: torch.exp(r, out=r),
        lambda r: r.fill_(r[3, 3]),
        lambda r: r.bernoulli_(r.abs().clamp(max=1)),
    ],
)
def test_what_overwrites_a_random_tensor_reads_it_too(overwrite):
    def program(model):
        x = model[0](torch.randn(8, 64))
        r = torch.rand(8, 64)
        overwrite(r)
        loss_of(model[1](x * r)).backward()

    assert_exact_when_dropped(blocks(2), program, steps=1)


@pytest.mark.parametrize("look", [torch.conj, lambda x: x.mH, lambda x: x.conj().imag, torch._neg_view])
@pytest.mark.parametrize("make", [torch.zeros_like, torch.ones_like, lambda x: x.new_zeros(x.shape)])
def test_factories_for_tensors_that_are_conjugated_or_negated_lazily(make, look):
    def program(model):
        x = model[0](torch.randn(64, 64))
        loss_of(model[1](x * make(look(torch.complex(x, x.sin()))).real)).backward()

    assert_exact_when_dropped(blocks(2), program, steps=1)
