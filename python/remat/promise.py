"""Logits that are made when somebody reads them, and that a cross-entropy reads in tiles.

A head's product is promised: its result is a tensor without numbers. What only passes it on (a view, a cast,
log_softmax) is promised too. A cross-entropy of it takes the log-probabilities of its targets from tiles, and the
gradient that it gives is promised in turn: where it comes to the head's products as it is, they are made in tiles. Any
other operator has the numbers made, by the operators that were promised, with the bits that these would have given.
Autograd is above all this: its graph, and the order in which it adds, are those of plain PyTorch.
"""

from __future__ import annotations

import dataclasses
import weakref
from collections.abc import Callable
from typing import Any

import torch
from torch.utils._pytree import tree_flatten, tree_unflatten

from remat.device import META
from remat.errors import Error
from remat.tiles import TileChoice

aten = torch.ops.aten

_SAMPLE = 256  # numbers, of each part of a product

RULES: dict[Any, Callable[..., Any]] = {}
"""By operators, what gives their results where they can wait, or tiles give them; it gives None where numbers have to
be made."""
RESHAPES = (aten.view.default, aten._unsafe_view.default, aten._reshape_alias.default)


class Product:
    """A head's product: what its promises have in common.

    Args:
        input: (tokens, width).
        weight: (width, classes), as a product takes it.
        bias: (classes).
        choose: is told what was chosen for its loss.
    """

    def __init__(
        self,
        input: torch.Tensor,
        weight: torch.Tensor,
        bias: torch.Tensor | None,
        choose: Callable[[TileChoice], None],
    ) -> None:
        self.needs = tuple(each is not None and each.requires_grad for each in (input, weight, bias))
        self.input, self.transposed, self.bias = input, weight, bias
        self._versions, self._sample = self._present_versions(), self._present_sample()
        self.promised: weakref.WeakSet[Promised] = weakref.WeakSet()
        self._choose = choose
        self._chosen: TileChoice | None = None
        self._was_read = False

    def choose(self, choice: TileChoice) -> None:
        self._chosen = choice
        self._choose(choice)

    def is_read_by(self, function: Any) -> None:
        """An operator has the numbers made."""
        name = function._schema.name
        if self._chosen is None:
            self.choose(TileChoice(0, 0, f"{name} reads the logits"))
        elif not (self._chosen.is_whole or self._was_read):
            self._was_read = True
            reason = f"{self._chosen.reason}; {name} had the logits made too"
            self.choose(dataclasses.replace(self._chosen, reason=reason))

    def _present_versions(self) -> list[int]:
        parts = (self.input, self.transposed, self.bias)
        return [each._version for each in parts if each is not None and not each.is_inference()]

    def _present_sample(self) -> list[torch.Tensor]:
        """Some of the numbers: writes to `weight.data` make no new version."""
        parts = (self.input.detach().view(-1), self.transposed.detach().t().reshape(-1))
        return [each[:: max(each.numel() // _SAMPLE, 1)].clone().view(torch.uint8) for each in parts]

    def check(self) -> None:
        """Raises Error where the product would have other bits than when it was promised."""
        same = all(map(torch.equal, self._present_sample(), self._sample))
        if not same or self._present_versions() != self._versions:
            raise Error(
                "[head] the logits were not computed when the model was called, since its loss is made in tiles, and "
                "the head's weights or its input have changed since; read outputs.logits before the optimizer's step, or "
                'have them whole: head="whole" in remat.wrap() or remat.enable()'
            )


class Promised:
    """The numbers of a tensor: a call that makes them, and, when somebody has asked, they themselves."""

    def __init__(
        self, product: Product, function: Any, arguments: tuple[Any, ...], keywords: dict[str, Any]
    ) -> None:
        self.product = product
        self.function = function
        self._call: tuple[tuple[Any, ...], dict[str, Any]] | None = (arguments, keywords)
        self._made: torch.Tensor | None = None
        self.losses: list[Any] = []  # of log-probabilities: what tiles have made of them
        self.gradients: Any = None  # of the gradient of a loss: what tiles will make of it
        product.promised.add(self)

    @property
    def source(self) -> Promised | None:
        """What the numbers will be made of; None where that is no promise, or they are there."""
        arguments = () if self._call is None else self._call[0]
        return next((each for each in arguments if isinstance(each, Promised)), None)

    def is_made(self) -> bool:
        return self._call is None

    def waits_for(self, *functions: Any) -> bool:
        """Are the numbers not there yet, and will one of these make them?"""
        return self._call is not None and self.function in functions

    def through(self, *functions: Any) -> Promised:
        """The promise that this one is of, by calls of these alone."""
        promise = self
        while promise.waits_for(*functions) and promise.source is not None:
            promise = promise.source
        return promise

    def made(self) -> torch.Tensor:
        if self._made is None:
            arguments, keywords = self._call
            if self.source is None:
                self.product.check()
            numbers = [each.made() if isinstance(each, Promised) else each for each in arguments]
            with torch._C._DisableAutocast():  # it has cast before
                self._made = self.function(*numbers, **keywords)
            self._call = None
        return self._made


class PromisedTensor(torch.Tensor):
    """A tensor of which the numbers may be only promised."""

    promise: Promised

    @staticmethod
    def __new__(cls, promise: Promised, like: torch.Tensor) -> PromisedTensor:
        tensor = torch.Tensor._make_wrapper_subclass(
            cls,
            like.shape,
            strides=like.stride(),
            storage_offset=like.storage_offset(),
            dtype=like.dtype,
            device=promise.product.input.device,
        )
        tensor.promise = promise
        return tensor

    @classmethod
    def __torch_function__(
        cls, function: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        with torch._C.DisableTorchFunctionSubclass():
            if function in _OF_MEMORY:  # what no operator does
                args = tuple(_whole(each) if isinstance(each, PromisedTensor) else each for each in args)
            return function(*args, **(kwargs or {}))

    @classmethod
    def __torch_dispatch__(
        cls, function: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        if not function._schema.is_mutable:
            promised = _promised(function, args, kwargs)
            if promised is not None:
                return promised
        return _run(function, args, kwargs)


_OF_MEMORY = {
    torch.Tensor.__array__,
    torch.Tensor.__deepcopy__,
    torch.Tensor.__dlpack__,
    torch.Tensor.__reduce_ex__,
    torch.Tensor.__repr__,
    torch.Tensor.data.__get__,
    torch.Tensor.data_ptr,
    torch.Tensor.detach,
    torch.Tensor.item,
    torch.Tensor.numpy,
    torch.Tensor.storage,
    torch.Tensor.tolist,
    torch.Tensor.untyped_storage,
}


def _whole(tensor: PromisedTensor) -> torch.Tensor:
    """Its numbers, without a history."""
    return tensor.promise.made().detach()


def _run(function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """The operator, on numbers that are made for it."""
    given, structure = tree_flatten((args, kwargs))
    if function._schema.is_mutable:  # what was promised of the numbers that are to change
        for each in given:
            for promise in list(each.promise.product.promised) if isinstance(each, PromisedTensor) else ():
                promise.made()
    for each in given:
        if isinstance(each, PromisedTensor) and not each.promise.is_made():
            each.promise.product.is_read_by(function)
    owners = {id(each.promise.made()): each for each in given if isinstance(each, PromisedTensor)}
    numbers = [each.promise.made() if isinstance(each, PromisedTensor) else each for each in given]
    args, kwargs = tree_unflatten(numbers, structure)
    results, structure = tree_flatten(function(*args, **kwargs))
    for each in owners.values():
        if each.promise.made().shape != each.shape:
            raise Error(f"[head] {function} changes the shape of logits in place; change that of a copy of them")
    return tree_unflatten([owners.get(id(each), each) for each in results], structure)


def as_meta(tensor: torch.Tensor) -> torch.Tensor:
    return torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype, device=META)


def _promised(function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """The result of an operator that can wait, or that tiles give; None where numbers have to be made."""
    rule = RULES.get(function)
    if rule is not None:
        return rule(*args, **kwargs)
    first = args[0]
    if not isinstance(first, PromisedTensor):
        return None
    if function in (aten.detach.default, aten.alias.default):
        return PromisedTensor(first.promise, first)
    if function in RESHAPES or function is aten.t.default:
        return waiting(function, args, function(as_meta(first), *args[1:]))
    return None


def waiting(function: Any, args: tuple[Any, ...], like: torch.Tensor, **keywords: Any) -> PromisedTensor:
    """The result of an operator, promised. `like`: a tensor of its layout."""
    product = next(each.promise.product for each in args if isinstance(each, PromisedTensor))
    parts = tuple(each.promise if isinstance(each, PromisedTensor) else each for each in args)
    return PromisedTensor(Promised(product, function, parts, keywords), like)
