"""Inputs of a compiled graph for a trial of it: what is known of each since it was compiled, made again."""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from typing import Any

import torch
from torch import nn

from remat.device import HOST

_MOST_HELD_BYTES = 64 << 20  # of integers among the inputs, whose contents are kept until the cuts are tried


def can_be_made_again(value: Any) -> bool:
    if not isinstance(value, torch.Tensor):
        return isinstance(value, (int, torch.SymInt))
    if type(value) not in (torch.Tensor, nn.Parameter) or value.layout != torch.strided or value.is_inference():
        return False
    return value.is_floating_point() or value.is_complex() or value.nbytes <= _MOST_HELD_BYTES


class Input:
    """What another call of a graph needs to know of an input: a number, the contents of integers, and of other tensors
    what they are and, as long as they live, where their contents are. Those that are gone become normal noise."""

    def __init__(self, value: Any) -> None:
        self._value: Any = value.node.hint if isinstance(value, torch.SymInt) else value
        self.symbolic = isinstance(value, torch.SymInt)
        self.parameter = isinstance(value, nn.Parameter)
        self.device = value.device if isinstance(value, torch.Tensor) else torch.device(HOST)
        if isinstance(value, torch.Tensor):
            self._size, self._stride = _numbers(value.shape), _numbers(value.stride())
            self._dtype = value.dtype
            self._requires_grad = value.requires_grad
            random = value.is_floating_point() or value.is_complex()
            self._value = None if random else value.detach().clone()
            self._living = weakref.ref(value) if random else None

    def make(self) -> Any:
        if self._value is not None:
            return self._value.clone() if isinstance(self._value, torch.Tensor) else self._value
        once = [1 if stride == 0 else size for size, stride in zip(self._size, self._stride)]
        tensor = torch.empty_strided(once, self._stride, dtype=self._dtype, device=self.device)
        living = self._living()
        if living is not None and self._is_as_compiled(living):
            tensor.copy_(living.detach().as_strided(once, self._stride))
        else:
            tensor.normal_()
        return tensor.expand(self._size).requires_grad_(self._requires_grad)

    def _is_as_compiled(self, living: torch.Tensor) -> bool:
        """Whether the code may read it: since then it may have been given another type or size, or no contents."""
        if living.layout != torch.strided or (living.dtype, living.device) != (self._dtype, self.device):
            return False
        if (tuple(living.shape), living.stride()) != (self._size, self._stride):
            return False
        extent = sum((size - 1) * stride for size, stride in zip(self._size, self._stride)) + 1 if living.numel() else 0
        return (living.storage_offset() + extent) * living.element_size() <= living.untyped_storage().nbytes()


def _numbers(sizes: Sequence[Any]) -> tuple[int, ...]:
    return tuple(size.node.hint if isinstance(size, torch.SymInt) else size for size in sizes)
