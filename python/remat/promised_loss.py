"""The loss of promised logits: in tiles where these have the bits of the whole."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode, _get_current_dispatch_mode_stack

from remat import _C
from remat.device import HOST, META
from remat.promise import RESHAPES, RULES, Operands, Product, Promised, PromisedTensor, as_meta, waiting
from remat.tiles import TileChoice, last_tile_choice

aten = torch.ops.aten

_IGNORED = -100  # a target, as TiledHead tells them from each other no more
_FEWEST_TOKENS = 208  # fewer are one tile
_CAST_KEYWORDS = {
    "layout": torch.strided,
    "device": torch.device(HOST),
    "pin_memory": None,
    "non_blocking": False,
    "memory_format": None,
}  # and others are for the numbers
_PRODUCTS = (aten.mm.default, aten.addmm.default)


class TiledLoss:
    """An nll_loss of promised log-probabilities."""

    def __init__(
        self, head: _C.TiledHead, operands: Operands, target: torch.Tensor, reduction: int, ignore_index: int
    ) -> None:
        self.head, self.operands = head, operands
        self.target = target.clone()  # writes to `target.data` make no new version
        self._asked = (reduction, ignore_index)
        self._reduction = reduction
        ignored = target.long() == ignore_index  # of bytes, no index is less than 0
        self._targets = target.new_zeros(target.shape, dtype=torch.long).masked_fill_(ignored, _IGNORED)
        self._total_weight: torch.Tensor | None = None

    def make(self) -> tuple[torch.Tensor, torch.Tensor]:
        """The loss and its total weight. The loss is not kept: its graph holds the promise that holds this, a cycle through
        autograd's nodes, which no garbage collector sees."""
        loss, self._total_weight = aten.nll_loss_forward(self._picked(), self._targets, None, self._reduction, _IGNORED)
        return loss, self._total_weight

    @property
    def dtype(self) -> torch.dtype:
        return self.head.log_probabilities.dtype

    def _picked(self) -> torch.Tensor:
        return self.head.log_probabilities.unsqueeze(1)

    def is_of(self, target: torch.Tensor, reduction: int, ignore_index: int) -> bool:
        same = target.dtype == self.target.dtype and target.shape == self.target.shape
        return same and self._asked == (reduction, ignore_index) and torch.equal(target, self.target)

    def gradients(self, gradient: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        """Of the head's input, weight and bias, of that of the loss."""
        of_picked = aten.nll_loss_backward(
            gradient, self._picked(), self._targets, None, self._reduction, _IGNORED, self._total_weight
        )
        return self.head.gradients(of_picked.squeeze(1))


class Gradients:
    """Those that one gradient of a loss gives: made together, and handed out one by one."""

    def __init__(self, loss: TiledLoss, gradient: torch.Tensor, of: Promised) -> None:
        self.of = of  # the log-probabilities
        self.loss, self._gradient = loss, gradient
        self._made: list[torch.Tensor | None] | None = None

    def take(self, which: int) -> torch.Tensor | None:
        """0: of the input, 1: of the weight, 2: of the bias. None where it was taken before."""
        if self._made is None:
            self.loss.operands.check()
            self._made = list(self.loss.gradients(self._gradient))
        taken, self._made[which] = self._made[which], None
        return taken


def _cast(tensor: Any, **keywords: Any) -> PromisedTensor | None:
    """_to_copy(), to another type."""
    if not isinstance(tensor, PromisedTensor) or tensor.promise.is_made() or "dtype" not in keywords:
        return None
    if any(value != _CAST_KEYWORDS.get(name, value) for name, value in keywords.items()):
        return None
    dtype = {"dtype": keywords["dtype"]}
    return waiting(aten._to_copy.default, (tensor,), aten._to_copy.default(as_meta(tensor), **dtype), **dtype)


def _log_softmax(logits: Any, dimension: int, half_to_float: bool) -> PromisedTensor | None:
    root = logits.promise.through(*RESHAPES, aten._to_copy.default)
    if not root.waits_for(*_PRODUCTS) or logits.dim() != 2 or dimension not in (1, -1) or half_to_float:
        return None
    return waiting(aten._log_softmax.default, (logits, dimension, half_to_float), as_meta(logits))


def _loss(probabilities: Any, target: Any, weight: Any, reduction: int, ignore_index: int) -> Any:
    """nll_loss(), in tiles where these have its bits."""
    if not isinstance(probabilities, PromisedTensor) or not probabilities.promise.waits_for(aten._log_softmax.default):
        return None
    promise, product = probabilities.promise, probabilities.promise.product
    if weight is not None or target.dim() != 1 or target.dtype not in (torch.long, torch.uint8):
        return None
    logits = promise.source.through(*RESHAPES)
    if logits.waits_for(aten._to_copy.default):
        logits = logits.source.through(*RESHAPES)  # one cast
    if not logits.waits_for(*_PRODUCTS) or probabilities.shape != product.shape or target.shape != product.shape[:1]:
        return None
    if probabilities.dtype not in (product.dtype, torch.float32):
        return None
    operands = logits.operands
    operands.check()
    places = target.long()
    head = _C.TiledHead.make(
        operands.input.detach(),
        operands.transposed.t().detach(),
        None if operands.bias is None else operands.bias.detach(),
        places.masked_fill(places == ignore_index, 0),
        probabilities.dtype,
        product.needs,
    )
    product.choose(last_tile_choice())
    if head is None:
        return None
    loss = TiledLoss(head, operands, target, reduction, ignore_index)
    promise.losses.append(loss)
    return loss.make()


def _gradient_of_loss(
    gradient: Any, probabilities: Any, target: Any, weight: Any, reduction: int, ignore_index: int, total: Any
) -> PromisedTensor | None:
    if not isinstance(probabilities, PromisedTensor) or isinstance(gradient, PromisedTensor) or weight is not None:
        return None
    for loss in probabilities.promise.losses:
        if loss.is_of(target, reduction, ignore_index):
            gradient = gradient.clone()  # as the target: it is what it is now, whoever writes to it until it is read
            arguments = (gradient, probabilities, loss.target, weight, reduction, ignore_index, total.clone())
            promised = waiting(aten.nll_loss_backward.default, arguments, as_meta(probabilities))
            promised.promise.gradients = Gradients(loss, gradient, probabilities.promise)
            return promised
    return None


def _gradient_of_log_softmax(
    gradient: Any, probabilities: Any, dimension: int, dtype: torch.dtype
) -> PromisedTensor | None:
    if not isinstance(gradient, PromisedTensor) or not isinstance(probabilities, PromisedTensor):
        return None
    found = gradient.promise.gradients
    if found is None or found.of is not probabilities.promise:
        return None
    if not gradient.promise.waits_for(aten.nll_loss_backward.default):
        return None
    arguments = (gradient, probabilities, dimension, dtype)
    return waiting(aten._log_softmax_backward_data.default, arguments, as_meta(gradient).to(dtype))


def _gradients_behind(promise: Promised, shape: torch.Size, dtype: torch.dtype) -> Gradients | None:
    """Of a promised gradient of a product's result, where nothing but the loss gives it, and nothing but the cast of its
    logits was done to it: hooks may cast too."""
    product, gradient = promise.product, promise.through(*RESHAPES)
    is_cast = gradient.waits_for(aten._to_copy.default)
    if is_cast:
        gradient = gradient.source.through(*RESHAPES)
    if not gradient.waits_for(aten._log_softmax_backward_data.default):
        return None
    found = gradient.source.gradients
    if found is None or (shape, dtype) != (product.shape, product.dtype):
        return None
    return found if is_cast is (found.loss.dtype != product.dtype) else None


def _is_same(a: torch.Tensor, b: torch.Tensor) -> bool:
    """The same numbers at the same place."""
    return a.data_ptr() == b.data_ptr() and a.shape == b.shape and a.stride() == b.stride() and a.dtype == b.dtype


def _product_of_gradient(left: Any, right: Any) -> torch.Tensor | None:
    """mm(), for the gradient of a product's input or weight."""
    if not isinstance(left, PromisedTensor) or isinstance(right, PromisedTensor):
        return None
    promise = left.promise
    if promise.waits_for(aten.t.default):
        found = _gradients_behind(promise.source, left.shape[::-1], left.dtype)
        return found.take(1) if found is not None and _is_same(right, found.loss.operands.input) else None
    found = _gradients_behind(promise, left.shape, left.dtype)
    return found.take(0) if found is not None and _is_same(right, found.loss.operands.transposed.t()) else None


def _sum_of_gradient(tensor: Any, dimensions: Any, keepdim: bool = False, **keywords: Any) -> torch.Tensor | None:
    """sum(), for the gradient of a product's bias."""
    if not isinstance(tensor, PromisedTensor) or list(dimensions or ()) != [0] or keywords:
        return None
    found = _gradients_behind(tensor.promise, tensor.shape, tensor.dtype)
    if found is None:
        return None
    sums = found.take(2)
    return sums.unsqueeze(0) if sums is not None and keepdim else sums


class PromisingMode(TorchDispatchMode):
    """While it is entered, large products are promised, unless other modes are below it: they are to see them.

    Args:
        smallest: bytes of a result that is promised, at least.
        goes_on: whether the call that it was entered for is there still: an interrupt calls no hooks.
        choose: see Product.
        note: is told of each product.
    """

    def __init__(
        self,
        smallest: int,
        goes_on: Callable[[], bool],
        choose: Callable[[TileChoice], None],
        note: Callable[[Product], None] = lambda product: None,
    ) -> None:
        super().__init__()
        self._smallest, self._goes_on, self._choose, self._note = smallest, goes_on, choose, note
        self._known: _C.KnownMode | None = None
        self._is_over = False

    def __enter__(self) -> PromisingMode:
        self._known = _C.KnownMode()
        return super().__enter__()

    def __exit__(self, *of_exception: Any) -> None:
        super().__exit__(*of_exception)
        self._known.end()

    def goes_on(self) -> bool:
        return not self._is_over and self._goes_on()

    def leave(self) -> bool:
        """Promises nothing from now on, and leaves the stack of modes; False, to try again later, where another mode is
        above it there: modes are taken off by position."""
        self._is_over = True
        entered = _get_current_dispatch_mode_stack()
        if not any(each is self for each in entered):  # somebody took it for his own
            if self._known is not None:
                self._known.end()
            return True
        if entered[-1] is not self:
            return False
        self.__exit__(None, None, None)
        return True

    def __torch_dispatch__(
        self, function: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        self._known.end()  # PyTorch has taken it off for this call
        try:
            if function in _PRODUCTS and not kwargs and self._promises() and self._may_wait(*args[-2:], *args[:-2]):
                operands = Operands(args[-2], args[-1], None if function is aten.mm.default else args[0])
                product = Product(operands, self._choose)
                self._note(product)
                like = torch.empty(product.shape, dtype=product.dtype, device=META)
                return PromisedTensor(Promised(product, function, args, {}, operands), like)
            return function(*args, **(kwargs or {}))
        finally:
            self._known = _C.KnownMode()

    def _promises(self) -> bool:
        below = _get_current_dispatch_mode_stack()
        return all(isinstance(each, PromisingMode) for each in below) and self.goes_on()

    def _may_wait(self, input: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None = None) -> bool:
        parts = [input, weight] if bias is None else [input, weight, bias]
        for each in parts:
            if type(each) not in (torch.Tensor, torch.nn.Parameter):
                return False
            if each.device.type != HOST or each.dtype != input.dtype:
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


RULES.update(
    {
        aten._to_copy.default: _cast,
        aten._log_softmax.default: _log_softmax,
        aten.nll_loss_forward.default: _loss,
        aten.nll_loss_backward.default: _gradient_of_loss,
        aten._log_softmax_backward_data.default: _gradient_of_log_softmax,
        aten.mm.default: _product_of_gradient,
        aten.sum.dim_IntList: _sum_of_gradient,
    }
)
