"""The tensors in what a wrapped model returned."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping
from types import MemberDescriptorType, MethodDescriptorType, ModuleType
from typing import Any

import torch
from torch import nn
from torch._subclasses.fake_tensor import FakeTensor
from torch._subclasses.functional_tensor import FunctionalTensor
from torch.utils.hooks import unserializable_hook

_DEEPEST = 6  # of results in results, such as the layers of a cache

unseen_by_torch_functions = torch._C.DisableTorchFunction
"""While it is entered, what remat asks tensors is seen by no ``__torch_function__`` of theirs, and no mode of a user's,
which might take it for the model's."""


def _attributes_of(part: Any) -> list[Any]:
    """What is stored in an object: dataclasses, caches, records with slots. Nothing of its own is asked for that, such as
    __getattr__(), which may raise anything."""
    found: list[Any] = []
    with contextlib.suppress(Exception):  # there is none, or a property stands in its place
        stored = object.__getattribute__(part, "__dict__")
        found += stored.values() if isinstance(stored, dict) else ()
    for kind in type(part).__mro__:
        for slot in vars(kind).values() if "__slots__" in vars(kind) else ():
            if isinstance(slot, MemberDescriptorType):
                with contextlib.suppress(AttributeError):  # nothing is in it
                    found.append(slot.__get__(part))
    return found


def _inside(part: Any) -> list[Any]:
    with contextlib.suppress(Exception):  # of a collection that fails to say what is in it
        for kind in (dict, list, tuple, set, frozenset):  # whose own methods are called, not those of a subclass
            if issubclass(type(part), kind):
                children = dict.values(part) if kind is dict else kind.__iter__(part)
                return [child for child in children] + _attributes_of(part)  # not list(), which asks for its length
        if issubclass(type(part), Mapping) and isinstance(getattr(type(part), "values", None), MethodDescriptorType):
            return [child for child in part.values()]  # a class in C, of which nothing else can be asked
        if isinstance(part, (type, nn.Module, ModuleType)):
            return []
    return _attributes_of(part)


def _outside_of_jvp(tensor: torch.Tensor) -> torch.Tensor:
    """Inside of torch.func.jvp(): the tensor that is left when jvp() has returned, of which this is a wrapper."""
    functions = torch._C._functorch
    if not functions.is_functorch_wrapped_tensor(tensor):
        return tensor
    interpreter = functions.peek_interpreter_stack()
    if interpreter is None or interpreter.key() != functions.TransformType.Jvp:
        return tensor
    return functions.get_unwrapped(tensor)


def tensors_in(result: Any) -> list[torch.Tensor]:
    """The tensors of a model's result that backward may come to, in whatever it keeps them."""
    found: list[torch.Tensor] = []
    seen: dict[int, Any] = {}  # held: of what is made when it is asked for, another one would get the same address
    pending = [(result, 0)]
    while pending:
        part, depth = pending.pop()
        if id(part) in seen or depth > _DEEPEST:
            continue
        seen[id(part)] = part
        if issubclass(type(part), torch.Tensor):
            tensor = _outside_of_jvp(part)
            if tensor.requires_grad and not isinstance(tensor, (FakeTensor, FunctionalTensor)):  # torch.export's
                found.append(tensor)
            continue
        pending.extend((child, depth + 1) for child in _inside(part))
    return found


_register_hook = torch.Tensor.register_hook


def add_hook(tensor: torch.Tensor, hook: Callable[[torch.Tensor], None]) -> None:
    """Of which nothing is said where the tensor is written to a file. It is no call of a method that a subclass of
    tensors, or whoever has replaced the one of `torch.Tensor`, takes for the user's."""
    with unseen_by_torch_functions():
        _register_hook(tensor, unserializable_hook(hook))
