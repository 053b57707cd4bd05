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
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_flatten, tree_unflatten

from remat import _C
from remat.errors import Error
from remat.tiles import TileChoice, last_tile_choice

aten = torch.ops.aten

_IGNORED = -100  # a target, as TiledHead tells them from each other no more
_FEWEST_TOKENS = 208  # fewer are one tile
_RESHAPES = (aten.view.default, aten._unsafe_view.default, aten._reshape_alias.default)


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
        self._versions = self._present_versions()
        self.promised: weakref.WeakSet[Promised] = weakref.WeakSet()
        self._choose = choose
        self._chosen: TileChoice | None = None

    def choose(self, choice: TileChoice) -> None:
        self._chosen = choice
        self._choose(choice)

    def is_read_by(self, function: Any) -> None:
        """An operator has the numbers made."""
        name = function._schema.name
        if self._chosen is None:
            self.choose(TileChoice(0, 0, f"{name} reads the logits"))
        elif not self._chosen.is_whole:
            self.choose(dataclasses.replace(self._chosen, reason=f"{self._chosen.reason}; {name} had the logits made too"))

    def _present_versions(self) -> list[int]:
        parts = (self.input, self.transposed, self.bias)
        return [each._version for each in parts if each is not None and not each.is_inference()]

    def check(self) -> None:
        """Raises Error where the product would have other bits than when it was promised."""
        if self._present_versions() != self._versions:
            raise Error(
                "[head] the logits were not computed when the model was called, since its loss is made in tiles, and the "
                "head's weights or its input have changed since; read outputs.logits before the optimizer's step, or "
                'have them whole: head="whole" in remat.wrap() or remat.enable()'
            )


class Promised:
    """The numbers of a tensor: a call that makes them, and, when somebody has asked, they themselves."""

    def __init__(self, product: Product, function: Any, arguments: tuple[Any, ...], keywords: dict[str, Any]) -> None:
        self.product = product
        self.function = function
        self._call: tuple[tuple[Any, ...], dict[str, Any]] | None = (arguments, keywords)
        self._made: torch.Tensor | None = None
        self.losses: list[TiledLoss] = []  # of log-probabilities
        self.gradients: Gradients | None = None  # of the gradient of a loss
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
        for each in {id(t.promise.product): t.promise.product for t in given if isinstance(t, PromisedTensor)}.values():
            for promise in list(each.promised):
                promise.made()
    for each in given:
        if isinstance(each, PromisedTensor) and not each.promise.is_made():
            each.promise.product.is_read_by(function)
    owners = {id(each.promise.made()): each for each in given if isinstance(each, PromisedTensor)}
    args, kwargs = tree_unflatten([each.promise.made() if isinstance(each, PromisedTensor) else each for each in given], structure)
    results, structure = tree_flatten(function(*args, **kwargs))
    for each in owners.values():
        if each.promise.made().shape != each.shape:
            raise Error(f"[head] {function} changes the shape of logits in place; change that of a copy of them")
    return tree_unflatten([owners.get(id(each), each) for each in results], structure)


def _as_meta(tensor: torch.Tensor) -> torch.Tensor:
    return torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype, device="meta")


class TiledLoss:
    """An nll_loss of promised log-probabilities."""

    def __init__(self, head: _C.TiledHead, target: torch.Tensor, reduction: int, ignore_index: int) -> None:
        ignored = target == ignore_index
        self.head = head
        self._asked = (target, target._version, reduction, ignore_index)
        self._reduction = reduction
        self._targets = target.new_zeros(target.shape, dtype=torch.long).masked_fill_(ignored, _IGNORED)
        self.result = aten.nll_loss_forward(self._picked(), self._targets, None, reduction, _IGNORED)

    def _picked(self) -> torch.Tensor:
        return self.head.log_probabilities.unsqueeze(1)

    def is_of(self, target: torch.Tensor, reduction: int, ignore_index: int) -> bool:
        mine, version, *others = self._asked
        same = mine.data_ptr() == target.data_ptr() and mine.shape == target.shape and mine.dtype == target.dtype
        return same and mine._version == version and others == [reduction, ignore_index]

    def gradients(self, gradient: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        """Of the head's input, weight and bias, of that of the loss."""
        of_picked = aten.nll_loss_backward(
            gradient, self._picked(), self._targets, None, self._reduction, _IGNORED, self.result[1]
        )
        return self.head.gradients(of_picked.squeeze(1))


class Gradients:
    """Those that one gradient of a loss gives: made together, and handed out one by one."""

    def __init__(self, loss: TiledLoss, gradient: torch.Tensor, of: Promised) -> None:
        self.of = of  # the log-probabilities
        self._loss, self._gradient = loss, gradient
        self._made: list[torch.Tensor | None] | None = None

    def take(self, which: int) -> torch.Tensor | None:
        """0: of the input, 1: of the weight, 2: of the bias. None where it was taken before."""
        if self._made is None:
            self._made = list(self._loss.gradients(self._gradient))
        taken, self._made[which] = self._made[which], None
        return taken


def _promised(function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """The result of an operator that can wait, or that tiles give; None where numbers have to be made."""
    special = _SPECIAL.get(function)
    if special is not None:
        return special(*args, **kwargs)
    first = args[0]
    if not isinstance(first, PromisedTensor):
        return None
    if function in (aten.detach.default, aten.alias.default):
        return PromisedTensor(first.promise, first)
    if function in _RESHAPES or function is aten.t.default:
        return _waiting(function, args, function(_as_meta(first), *args[1:]))
    return None


def _waiting(function: Any, args: tuple[Any, ...], like: torch.Tensor, **keywords: Any) -> PromisedTensor:
    product = next(each.promise.product for each in args if isinstance(each, PromisedTensor))
    parts = tuple(each.promise if isinstance(each, PromisedTensor) else each for each in args)
    return PromisedTensor(Promised(product, function, parts, keywords), like)


def _cast(tensor: Any, **keywords: Any) -> PromisedTensor | None:
    """_to_copy(), to another type."""
    if not isinstance(tensor, PromisedTensor) or tensor.promise.is_made() or "dtype" not in keywords:
        return None
    if any(value != _CAST_KEYWORDS.get(name, value) for name, value in keywords.items()):
        return None
    dtype = {"dtype": keywords["dtype"]}
    return _waiting(aten._to_copy.default, (tensor,), aten._to_copy.default(_as_meta(tensor), **dtype), **dtype)


def _log_softmax(logits: Any, dimension: int, half_to_float: bool) -> PromisedTensor | None:
    root = logits.promise.through(*_RESHAPES, aten._to_copy.default)
    if not root.waits_for(*_PRODUCTS) or logits.dim() != 2 or dimension not in (1, -1) or half_to_float:
        return None
    return _waiting(aten._log_softmax.default, (logits, dimension, half_to_float), _as_meta(logits))


def _loss(probabilities: Any, target: Any, weight: Any, reduction: int, ignore_index: int) -> Any:
    """nll_loss(), in tiles where these have its bits."""
    if not isinstance(probabilities, PromisedTensor) or not probabilities.promise.waits_for(aten._log_softmax.default):
        return None
    promise, product = probabilities.promise, probabilities.promise.product
    if weight is not None or target.dim() != 1 or target.dtype not in (torch.long, torch.uint8):
        return None
    tokens, classes = product.input.shape[0], product.transposed.shape[1]
    logits = promise.source.through(*_RESHAPES)
    if logits.waits_for(aten._to_copy.default):
        logits = logits.source.through(*_RESHAPES)  # one cast
    wider = (product.input.dtype, torch.float32)
    if not logits.waits_for(*_PRODUCTS) or probabilities.shape != (tokens, classes) or target.shape != (tokens,):
        return None
    if probabilities.dtype not in wider:
        return None
    product.check()
    places = target.long().masked_fill(target == ignore_index, 0)
    head = _C.TiledHead.make(
        product.input.detach(),
        product.transposed.t().detach(),
        None if product.bias is None else product.bias.detach(),
        places,
        probabilities.dtype,
        product.needs,
    )
    product.choose(last_tile_choice())
    if head is None:
        return None
    loss = TiledLoss(head, target, reduction, ignore_index)
    promise.losses.append(loss)
    return loss.result


def _gradient_of_loss(
    gradient: Any, probabilities: Any, target: Any, weight: Any, reduction: int, ignore_index: int, total: Any
) -> PromisedTensor | None:
    if not isinstance(probabilities, PromisedTensor) or isinstance(gradient, PromisedTensor) or weight is not None:
        return None
    for loss in probabilities.promise.losses:
        if loss.is_of(target, reduction, ignore_index):
            arguments = (gradient, probabilities, target, weight, reduction, ignore_index, total)
            promised = _waiting(aten.nll_loss_backward.default, arguments, _as_meta(probabilities))
            promised.promise.gradients = Gradients(loss, gradient, probabilities.promise)
            return promised
    return None


def _gradient_of_log_softmax(gradient: Any, probabilities: Any, dimension: int, dtype: torch.dtype) -> PromisedTensor | None:
    if not isinstance(gradient, PromisedTensor) or not isinstance(probabilities, PromisedTensor):
        return None
    found = gradient.promise.gradients
    if found is None or not gradient.promise.waits_for(aten.nll_loss_backward.default) or found.of is not probabilities.promise:
        return None
    arguments = (gradient, probabilities, dimension, dtype)
    return _waiting(aten._log_softmax_backward_data.default, arguments, _as_meta(gradient).to(dtype))


def _gradients_behind(promise: Promised, shape: torch.Size, dtype: torch.dtype) -> Gradients | None:
    """Of a promised gradient of a product's result, where nothing but the loss gives it."""
    product, gradient = promise.product, promise.through(*_RESHAPES, aten._to_copy.default)
    if not gradient.waits_for(aten._log_softmax_backward_data.default) or dtype != product.input.dtype:
        return None
    if shape != (product.input.shape[0], product.transposed.shape[1]):
        return None
    return gradient.source.gradients


def _is_same(a: torch.Tensor, b: torch.Tensor) -> bool:
    """The same numbers at the same place."""
    return a.data_ptr() == b.data_ptr() and a.shape == b.shape and a.stride() == b.stride() and a.dtype == b.dtype


def _product_of_gradient(left: Any, right: Any) -> torch.Tensor | None:
    """mm(), for the gradient of a product's input or weight."""
    if not isinstance(left, PromisedTensor) or isinstance(right, PromisedTensor):
        return None
    product, promise = left.promise.product, left.promise
    if promise.waits_for(aten.t.default):
        found = _gradients_behind(promise.source, left.shape[::-1], left.dtype)
        return found.take(1) if found is not None and _is_same(right, product.input) else None
    found = _gradients_behind(promise, left.shape, left.dtype)
    return found.take(0) if found is not None and _is_same(right, product.transposed.t()) else None


def _sum_of_gradient(tensor: Any, dimensions: Any, keepdim: bool = False, **keywords: Any) -> torch.Tensor | None:
    """sum(), for the gradient of a product's bias."""
    if not isinstance(tensor, PromisedTensor) or list(dimensions or ()) != [0] or keywords:
        return None
    found = _gradients_behind(tensor.promise, tensor.shape, tensor.dtype)
    if found is None:
        return None
    sums = found.take(2)
    return sums.unsqueeze(0) if sums is not None and keepdim else sums


_CAST_KEYWORDS = {
    "layout": torch.strided,
    "device": torch.device("cpu"),
    "pin_memory": None,
    "non_blocking": False,
    "memory_format": None,
}  # and others are for the numbers
_PRODUCTS = (aten.mm.default, aten.addmm.default)
_SPECIAL = {
    aten._to_copy.default: _cast,
    aten._log_softmax.default: _log_softmax,
    aten.nll_loss_forward.default: _loss,
    aten.nll_loss_backward.default: _gradient_of_loss,
    aten._log_softmax_backward_data.default: _gradient_of_log_softmax,
    aten.mm.default: _product_of_gradient,
    aten.sum.dim_IntList: _sum_of_gradient,
}


class PromisingMode(TorchDispatchMode):
    """While it is entered, large products are promised.

    Args:
        smallest: bytes of a result that is promised, at least.
        goes_on: whether the call that it was entered for is there still: an interrupt calls no hooks.
        choose: see Product.
    """

    def __init__(self, smallest: int, goes_on: Callable[[], bool], choose: Callable[[TileChoice], None]) -> None:
        super().__init__()
        self._smallest, self._goes_on, self._choose = smallest, goes_on, choose
        self._known: _C.KnownMode | None = None

    def __enter__(self) -> PromisingMode:
        self._known = _C.KnownMode()
        return super().__enter__()

    def __exit__(self, *of_exception: Any) -> None:
        super().__exit__(*of_exception)
        self._known.end()

    def __torch_dispatch__(
        self, function: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        if function in _PRODUCTS and not kwargs and self._goes_on() and self._may_wait(*args[-2:], *args[:-2]):
            bias = None if function is aten.mm.default else args[0]
            product = Product(args[-2], args[-1], bias, self._choose)
            like = torch.empty(product.input.shape[0], product.transposed.shape[1], dtype=args[-1].dtype, device="meta")
            return PromisedTensor(Promised(product, function, args, {}), like)
        return function(*args, **(kwargs or {}))

    def _may_wait(self, input: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None = None) -> bool:
        parts = [input, weight] if bias is None else [input, weight, bias]
        for each in parts:
            if type(each) not in (torch.Tensor, torch.nn.Parameter) or each.device.type != "cpu" or each.dtype != input.dtype:
                return False
        tokens, classes = input.shape[0], weight.shape[1]
        return (
            tokens >= _FEWEST_TOKENS
            and tokens * classes * input.element_size() >= self._smallest
            and input.is_floating_point()
            and input.is_contiguous()
            and weight.t().is_contiguous()
            and (bias is None or bias.shape == (classes,))
            and any(each.requires_grad for each in parts)
        )
