"""Memory that others write to between forward and backward: plain's bits or a remat.Error, never something else."""

from __future__ import annotations

import contextlib

import numpy
import pytest
import torch
from compare import blocks, run, same_bits
from scopes import Dropping, assert_exact_when_dropped, loss_of

import remat


def exact_or_refused(model, program, verify=False):
    """Same bits as plain, or remat.Error."""
    plain = run(model, program, contextlib.nullcontext, 1)
    scope = Dropping()
    scope.session = remat.Session(verify=verify)
    try:
        ours = run(model, program, scope, 1)
    except (remat.Error, remat.InternalError) if verify else remat.Error:
        return
    assert all(same_bits(a, b) for a, b in zip(plain, ours, strict=True))


def write_to_input(x, y):
    x.numpy()[:] = 7


def write_to_data(x, y):
    x.data.fill_(7)


def write_to_detached(x, y):
    x.detach().mul_(3)


def write_to_result(x, y):
    y.detach().numpy()[:] *= 2


def write_to_result_data(x, y):
    y.data.add_(1)


def write_by_set(x, y):
    x.set_(torch.full_like(x, 2.0))


def write_by_data_assignment(x, y):
    x.data = torch.full_like(x, 3.0)


def write_by_dlpack(x, y):
    torch.from_dlpack(x.__dlpack__()).fill_(9)


def resize_to_nothing(x, y):
    x.resize_(0)


WRITES = [
    write_to_input, write_to_data, write_to_detached, write_to_result, write_to_result_data, write_by_set,
    write_by_data_assignment, write_by_dlpack, resize_to_nothing,
]  # fmt: skip


@pytest.mark.parametrize("write", WRITES)
@pytest.mark.parametrize("operator", ["linear", "exp", "product"])
def test_a_write_between_forward_and_backward(write, operator):
    data = numpy.random.default_rng(1).standard_normal((32, 64)).astype(numpy.float32)

    def program(model):
        x = torch.from_numpy(data.copy())
        y = model[0](x * 1) if operator == "exp" else model[0](x)
        if operator == "product":
            y = y * x
        y = y.exp() if operator == "exp" else y
        loss = loss_of(model[1](y))
        write(x, y)
        loss.backward()
        return loss.detach()

    def plain_or_error(model):
        try:
            return program(model)
        except (remat.Error, remat.InternalError):
            raise
        except RuntimeError as error:
            assert "modified by an inplace operation" in str(error)
            return torch.zeros(()), *(setattr(p, "grad", None) for p in model.parameters())

    # An activation that is written to through a pointer is found by comparing what is recomputed, which takes time.
    exact_or_refused(blocks(2), plain_or_error, verify=write is write_to_result)


def test_arrays_reused_for_every_batch():
    buffer = numpy.zeros((32, 64), dtype=numpy.float32)

    def program(model):
        draw = numpy.random.default_rng(2)
        losses = []
        for _ in range(3):
            buffer[:] = draw.standard_normal((32, 64))
            loss = loss_of(model(torch.from_numpy(buffer)))
            loss.backward()
            losses.append(loss.detach())
        return losses

    assert_exact_when_dropped(blocks(3), program)


def test_a_factory_filled_through_its_array():
    def program(model):
        x = torch.empty(32, 64)
        x.numpy()[:] = numpy.random.default_rng(2).standard_normal((32, 64))
        mask = torch.zeros(32, 64)
        mask.numpy()[:, ::2] = 1
        loss = loss_of(model[1]((model[0](x) * mask).exp()))
        loss.backward()
        return loss.detach()

    assert_exact_when_dropped(blocks(2), program)


def test_results_looked_at_and_copied_as_arrays():
    def program(model):
        y = model[0](torch.randn(32, 64))
        seen = torch.from_numpy(y.detach().numpy().copy()) + torch.tensor(y.tolist()) + y.detach().sum().item()
        loss = loss_of(model[1](y + seen))
        loss.backward()
        return loss.detach()

    assert_exact_when_dropped(blocks(2), program)


def test_an_activation_changed_through_its_array_before_it_is_used():
    def program(model):
        y = model[0](torch.randn(32, 64))
        y.detach().numpy()[:] *= 0.5
        loss = loss_of(model[1](y.exp()))
        loss.backward()
        return loss.detach()

    exact_or_refused(blocks(2), program)


def test_parameters_written_through_data_between_forward_and_backward():
    def program(model):
        y = model(torch.randn(32, 64))
        for parameter in model.parameters():
            parameter.data.mul_(0.5)
        loss = loss_of(y)
        loss.backward()
        return loss.detach()

    exact_or_refused(blocks(2), program)
