"""Inputs of a compiled graph, made again for a trial."""

from __future__ import annotations

import pytest
import torch

from remat.partition_input import Input, can_be_made_again


def assert_like(made, tensor):
    assert (made.shape, made.stride(), made.dtype) == (tensor.shape, tensor.stride(), tensor.dtype)
    assert made.requires_grad == tensor.requires_grad and made.is_leaf
    assert made.untyped_storage().data_ptr() != tensor.untyped_storage().data_ptr()


LAYOUTS = {
    "contiguous": lambda t: t,
    "transposed": lambda t: t.mT,
    "with gaps": lambda t: t[:, ::2].mT,
    "expanded": lambda t: t[:, :1].expand(6, 8),
    "a slice": lambda t: t[2:, 3:],
    "empty": lambda t: t[:0],
}


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.complex64])
def test_a_tensor_that_lives_is_copied(layout, dtype):
    tensor = LAYOUTS[layout](torch.randn(6, 8, dtype=dtype)).detach().requires_grad_()
    made = Input(tensor).make()
    assert_like(made, tensor)
    assert torch.equal(made, tensor)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_one_that_is_gone_becomes_noise(layout):
    tensor = LAYOUTS[layout](torch.randn(6, 8)).detach()
    described, shape, stride = Input(tensor), tensor.shape, tensor.stride()
    del tensor
    made = described.make()
    assert (made.shape, made.stride()) == (shape, stride)
    assert not made.numel() or made.std() > 0


def test_integers_are_kept_as_they_were():
    tensor = torch.arange(6)
    described = Input(tensor)
    tensor.zero_()
    assert described.make().tolist() == [0, 1, 2, 3, 4, 5]


def changed_type(parameter):
    parameter.data = parameter.data.bfloat16()


def changed_size(parameter):
    parameter.data = torch.zeros(3, 3)


def changed_strides(parameter):
    parameter.data = parameter.data.t().contiguous().t()


def emptied(parameter):
    parameter.untyped_storage().resize_(0)


@pytest.mark.parametrize("change", [changed_type, changed_size, changed_strides, emptied])
def test_what_was_changed_since_becomes_noise(change):
    parameter = torch.nn.Parameter(torch.zeros(4, 4))
    described = Input(parameter)
    change(parameter)
    made = described.make()
    assert (made.shape, made.stride(), made.dtype, made.device.type) == ((4, 4), (4, 1), torch.float32, "cpu")
    assert made.requires_grad and made.detach().std() > 0


def test_what_has_no_memory_of_its_own_kind_cannot_be_made():
    assert can_be_made_again(torch.zeros(2)) and can_be_made_again(3)
    assert not can_be_made_again(torch.zeros(2).to_sparse()) and not can_be_made_again(1.5)
