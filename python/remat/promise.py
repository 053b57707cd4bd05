"""Logits that are made when somebody reads them, and that a cross-entropy reads in tiles.

A head's product is promised: its result is a tensor without numbers. What only passes it on (a view, a cast,
log_softmax) is promised too. A cross-entropy of it takes the log-probabilities of its targets from tiles, and the
gradient that it gives is promised in turn: where it comes to the head's products as it is, they are made in tiles. Any
other operator has the numbers made, by the operators that were promised, with the bits that these would have given.
Autograd is above all this: its graph, and the order in which it adds, are those of plain PyTorch.

Nobody can write to numbers that a promise still is to be made of: where an operator writes, or gives an alias that
others may write to, all that is promised of the product is made before.
"""

from __future__ import annotations

import contextlib
import dataclasses
import math
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch.utils._python_dispatch import _pop_mode, _push_mode
from torch.utils._pytree import tree_flatten, tree_unflatten

from remat import _C
from remat.device import META
from remat.errors import Error
from remat.hooks import never_compiled
from remat.tiles import TileChoice

aten = torch.ops.aten

_SAMPLE = 256  # numbers, of each part of a product

RULES: dict[Any, Callable[..., Any]] = {}
"""By operators, what gives their results where they can wait, or tiles give them; it gives None where numbers have to
be made."""
RESHAPES = (aten.view.default, aten._unsafe_view.default, aten._reshape_alias.default)


class LateError(Error):
    """What was promised would have other bits now."""


def _refuse(what: str, instead: str) -> None:
    raise LateError(
        "[head] the logits were not computed when the model was called, since its loss is made in tiles, and "
        f'{what}; {instead}, or have them whole: head="whole" in remat.wrap(), remat.enable() or RematCallback'
    )


class Operands:
    """What a head's product is of, as long as it, or a gradient of its loss, is to be made.

    Args:
        input: (tokens, width).
        weight: (width, classes), as a product takes it.
        bias: (classes).
    """

    def __init__(self, input: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None) -> None:
        self.input, self.transposed, self.bias = input, weight, bias
        self._versions, self._sample = self._present_versions(), self._present_sample()
        self._circumstances = _C.product_circumstances()

    def _present_versions(self) -> list[int]:
        parts = (self.input, self.transposed, self.bias)
        return [each._version for each in parts if each is not None and not each.is_inference()]

    def _present_sample(self) -> list[torch.Tensor]:
        """Some of the numbers, of all columns: writes to `weight.data` make no new version."""
        parts = [self.input.detach().view(-1), self.transposed.detach().t().reshape(-1)]
        if self.bias is not None:
            parts.append(self.bias.detach())
        width = self.input.shape[1]
        found = []
        for each in parts:
            step = max(each.numel() // _SAMPLE, 1)
            while math.gcd(step, width) > 1:
                step += 1
            found.append(each[::step].clone().view(torch.uint8))
        return found

    def check(self) -> None:
        """Raises LateError where the product would have other bits than when it was promised."""
        same = all(map(torch.equal, self._present_sample(), self._sample))
        if not same or self._present_versions() != self._versions:
            _refuse(
                "the head's weights or its input have changed since",
                "read outputs.logits before the optimizer's step, and so gradients of logits (logits.grad, a hook's "
                "grad_output)",
            )
        if _C.product_circumstances() != self._circumstances:
            _refuse(
                "threads, or settings of PyTorch's libraries, are others than then",
                "read outputs.logits and call backward() under those that the model was called with",
            )


class Product:
    """A head's product: what its promises have in common.

    Args:
        operands: used for what does not change.
        choose: is told what was chosen for its loss.
    """

    def __init__(self, operands: Operands, choose: Callable[[TileChoice], None]) -> None:
        input, weight, bias = operands.input, operands.transposed, operands.bias
        self.needs = tuple(each is not None and each.requires_grad for each in (input, weight, bias))
        self.shape = (input.shape[0], weight.shape[1])
        self.dtype, self.device = input.dtype, input.device
        self._promised: weakref.WeakSet[Promised] = weakref.WeakSet()
        self._choose = choose
        self._chosen: TileChoice | None = None
        self._was_read = False

    def choose(self, choice: TileChoice) -> None:
        self._chosen = choice
        self._choose(choice)

    def is_read_by(self, name: str) -> None:
        """What is called so has the numbers made."""
        if self._chosen is None:
            self.choose(TileChoice(0, 0, f"{name} reads the logits"))
        elif not (self._chosen.is_whole or self._was_read):
            self._was_read = True
            reason = f"{self._chosen.reason}; {name} had the logits made too"
            self.choose(dataclasses.replace(self._chosen, reason=reason))

    def add(self, promise: Promised) -> None:
        self._promised.add(promise)

    def make_promised(self) -> None:
        """Makes what was promised of it, and somebody still holds."""
        for promise in list(self._promised):
            promise.made()


@contextlib.contextmanager
def _below_everything() -> Iterator[None]:
    """As where operators were promised: below autograd and autocast, where no mode sees them."""
    modes: list[Any] = []
    with contextlib.ExitStack() as stack:
        if torch.is_inference_mode_enabled():  # others may read the numbers outside of it
            stack.enter_context(torch.inference_mode(False))
            stack.enter_context(torch.no_grad())
        stack.enter_context(torch._C._AutoDispatchBelowADInplaceOrView())
        stack.enter_context(torch._C._DisableAutocast())
        stack.enter_context(torch._C.DisableTorchFunction())
        try:
            while torch._C._len_torch_dispatch_stack() > 0:
                modes.append(_pop_mode())
            yield
        finally:
            while modes:
                _push_mode(modes.pop())


class Promised:
    """The numbers of a tensor: a call that makes them, and, when somebody has asked, they themselves.

    Args:
        operands: where the call is a head's product.
    """

    def __init__(
        self,
        product: Product,
        function: Any,
        arguments: tuple[Any, ...],
        keywords: dict[str, Any],
        operands: Operands | None = None,
    ) -> None:
        self.product = product
        self.function = function
        self._call: tuple[tuple[Any, ...], dict[str, Any]] | None = (arguments, keywords)
        self._made: torch.Tensor | None = None
        # Until the numbers are made: whoever reads them may have changed them since.
        self.operands = operands
        self.losses: list[Any] = []  # of log-probabilities: what tiles have made of them
        self.gradients: Any = None  # of the gradient of a loss: what tiles will make of it
        product.add(self)

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
            with _below_everything():
                if self.operands is not None:
                    self.operands.check()
                numbers = [each.made() if isinstance(each, Promised) else each for each in arguments]
                self._made = self.function(*numbers, **keywords)
            self._call = self.operands = self.gradients = None
            self.losses = []
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
            device=promise.product.device,
        )
        tensor.promise = promise
        return tensor

    @classmethod
    @never_compiled
    def __torch_function__(
        cls, function: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        with torch._C.DisableTorchFunctionSubclass():
            if function == torch.Tensor.data.__set__:
                raise Error(
                    "[head] the .data of logits cannot be set while their loss may be made in tiles; go on with another "
                    'tensor, or have them whole: head="whole" in remat.wrap(), remat.enable() or RematCallback'
                )
            if function is torch.Tensor.__deepcopy__:  # its memo is by addresses, and the alias goes
                return _whole(args[0], function).clone()
            if function in _DETACHES:  # it is kept where the weights change
                for each in (*args, *(kwargs or {}).values()):
                    _read(each, function)
            elif function in _OF_MEMORY:  # what no operator does
                args = tuple(_whole(each, function) if isinstance(each, PromisedTensor) else each for each in args)
            return function(*args, **(kwargs or {}))

    @classmethod
    @never_compiled
    def __torch_dispatch__(
        cls, function: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        if not function._schema.is_mutable:
            promised = _promised(function, args, kwargs)
            if promised is not None:
                return promised
        return _run(function, args, kwargs)


_DETACHES = (torch.Tensor.detach, torch.detach)
_OF_MEMORY = {
    torch.Tensor.__array__,
    torch.Tensor.__dlpack__,
    torch.Tensor.__reduce_ex__,
    torch.Tensor.__repr__,
    torch.Tensor.data.__get__,
    torch.Tensor.data_ptr,
    torch.Tensor.item,
    torch.Tensor.numpy,
    torch.Tensor.storage,
    torch.Tensor.tolist,
    torch.Tensor.untyped_storage,
}


def _read(tensor: PromisedTensor, function: Any) -> torch.Tensor:
    """Its numbers, for a method of tensors."""
    if not tensor.promise.is_made():
        tensor.promise.product.is_read_by(f"Tensor.{function.__name__}".replace("__get__", "data"))
    return tensor.promise.made()


def _whole(tensor: PromisedTensor, function: Any) -> torch.Tensor:
    """An alias of its numbers, without a history."""
    numbers = _read(tensor, function)
    tensor.promise.product.make_promised()
    return numbers.detach()


def _gives_access(function: Any) -> bool:
    """Does it write, or give what may be written to?"""
    schema = function._schema
    return schema.is_mutable or function in RESHAPES or any(each.alias_info is not None for each in schema.returns)


def _run(function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """The operator, on numbers that are made for it."""
    given, structure = tree_flatten((args, kwargs))
    promised = [each for each in given if isinstance(each, PromisedTensor)]
    for each in promised:
        if not each.promise.is_made():
            each.promise.product.is_read_by(function._schema.name)
    if _gives_access(function):
        for each in promised:
            each.promise.product.make_promised()
    owners: dict[int, PromisedTensor] = {}
    for each in promised:
        owners.setdefault(id(each.promise.made()), each)
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
    if first.promise.is_made():
        return None
    if function in RESHAPES or function is aten.t.default:
        return waiting(function, args, function(as_meta(first), *args[1:]))
    return None


def waiting(function: Any, args: tuple[Any, ...], like: torch.Tensor, **keywords: Any) -> PromisedTensor:
    """The result of an operator, promised. `like`: a tensor of its layout."""
    product = next(each.promise.product for each in args if isinstance(each, PromisedTensor))
    parts = tuple(each.promise if isinstance(each, PromisedTensor) else each for each in args)
    return PromisedTensor(Promised(product, function, parts, keywords), like)
