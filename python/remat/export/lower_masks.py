"""Comparisons, what is chosen by them, and other types than float32. What is true is 1, and false 0."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch.fx import Node

from remat.export.lower_elementwise import broadcast, unary_grad
from remat.export.lowering import LARGEST, Lowering, Missing, constant_buffer, front, lowers
from remat.export.known_values import only_softmax_reads
from remat.export.step import View, whole

# Of a and b; those that are another one of b and a.
_COMPARISONS = {"eq": ("equal", False), "ge": ("not_less", False), "gt": ("greater", False), "le": ("not_less", True), "lt": ("greater", True)}


def _named(node: Node) -> str:
    return str(node.target).split(".")[1]


def number(lowering: Lowering, value: float) -> View:
    """A number as a tensor."""
    return whole(constant_buffer(lowering.step, torch.tensor(float(value)), "", "constant"))


def _floats(lowering: Lowering, view: View) -> View:
    """Integers as floats: whole numbers up to 2^24."""
    if view.buffer.type != "int32":
        return view
    view = lowering.contiguous(view)
    result = lowering.new(view.shape)
    lowering.emit("to_float", [view], [result], dict(n=view.elements))
    return result


def _operand(lowering: Lowering, argument: Any) -> View:
    return _floats(lowering, lowering.view(argument)) if isinstance(argument, Node) else number(lowering, argument)


@lowers(*(f"{name}.{kind}" for name in (*_COMPARISONS, "ne") for kind in ("Scalar", "Tensor")))
def _compare(lowering: Lowering, node: Node) -> View:
    name = _named(node)
    function, swapped = _COMPARISONS["eq" if name == "ne" else name]
    a, b = (_operand(lowering, argument) for argument in node.args[:2])
    shape = node.meta["val"].shape
    result = broadcast(lowering, b if swapped else a, a if swapped else b, shape, function)
    return _not(lowering, result) if name == "ne" else result


def _not(lowering: Lowering, view: View) -> View:
    return broadcast(lowering, view, number(lowering, 0), view.shape, "equal")


def _truths(lowering: Lowering, node: Node) -> list[View]:
    """Arguments, all of which must be masks."""
    sources = [argument for argument in node.args if isinstance(argument, Node)]
    if len(sources) != len(node.args) or any(source.meta["val"].dtype != torch.bool for source in sources):
        raise Missing(str(node.target), "of numbers")
    return [lowering.view(source) for source in sources]


@lowers("logical_not.default", "bitwise_not.default")
def _logical_not(lowering: Lowering, node: Node) -> View:
    return _not(lowering, _truths(lowering, node)[0])


@lowers("logical_and.default", "bitwise_and.Tensor")
def _and(lowering: Lowering, node: Node) -> View:
    return broadcast(lowering, *_truths(lowering, node), node.meta["val"].shape, "mul")


@lowers("logical_or.default", "bitwise_or.Tensor")
def _or(lowering: Lowering, node: Node) -> View:
    a, b = _truths(lowering, node)
    return _where(lowering, a, a, b, node.meta["val"].shape)


# ---- Choosing.


def _where(lowering: Lowering, condition: View, a: View, b: View, shape: Any) -> View:
    from remat.export.lowering import merged

    y = lowering.new(shape)
    parts = (condition, a, b)
    strides = [View(v.buffer, v.layout.expand(y.shape)).strides for v in parts]
    sizes, (sc, s0, s1, _) = merged(y.shape, [*strides, y.strides])
    if len(sizes) > 4:
        raise Missing("aten.where.self", "of tensors with more than four dimensions that do not merge")
    arguments = dict(d=front(sizes, 4, 1), sc=front(sc, 4, 0), s0=front(s0, 4, 0), s1=front(s1, 4, 0))
    alone = [sum(v.buffer is other.buffer for other in parts) == 1 for v in parts]
    pairs = [(i, 0) for i, v in enumerate(parts) if v.elements == y.elements and alone[i]]
    lowering.emit("where", parts, [y], arguments, in_place=pairs)
    return y


@lowers("where.self", "where.ScalarOther", "where.ScalarSelf", "where.Scalar")
def _choose(lowering: Lowering, node: Node) -> View:
    condition, a, b = node.args
    if (bounds := _clamped(condition)) is not None and isinstance(a, Node) and _is_zero(lowering, b):
        x, function, p, q = bounds
        if lowering.view(a).shape == lowering.view(x).shape == tuple(node.meta["val"].shape):
            return unary_grad(lowering, a, x, function, p, q)
    parts = [_operand(lowering, argument) for argument in node.args]
    return _where(lowering, *parts, node.meta["val"].shape)


def _is_zero(lowering: Lowering, argument: Any) -> bool:
    if isinstance(argument, Node):
        tensor = lowering.known.get(argument)
        return tensor is not None and tensor.numel() == 1 and tensor.item() == 0
    return argument == 0


def _clamped(condition: Any) -> tuple[Node, str, float, float] | None:
    """Where a clamp lets its gradient through: its argument, the function, its numbers."""

    def bound(node: Any, name: str) -> Any:
        if isinstance(node, Node) and str(node.target) == f"aten.{name}.Scalar" and node.args[0].meta["val"].is_floating_point():
            return node.args[0], float(node.args[1])
        return None

    if low := bound(condition, "ge"):
        return low[0], "clamp_min", low[1], 0.0
    if high := bound(condition, "le"):
        return high[0], "clamp_max", 0.0, high[1]
    if isinstance(condition, Node) and str(condition.target) == "aten.logical_and.default":
        low, high = bound(condition.args[0], "ge"), bound(condition.args[1], "le")
        if low and high and low[0] is high[0]:
            return low[0], "clamp", low[1], high[1]
    return None


@lowers("masked_fill.Scalar", "masked_fill.Tensor")
def _masked_fill(lowering: Lowering, node: Node) -> View:
    x, mask, value = node.args
    if isinstance(value, Node):
        filled = _operand(lowering, value)
    else:
        if value == -math.inf and only_softmax_reads(node):
            known = lowering.known.get(mask)
            if known is None:
                raise Missing(str(node.target), "with -inf where the step says; write a finite number, as -1e9,")
            if bool(known.all(-1).any()):
                raise Missing(str(node.target), "of all that a softmax reads in a row; leave one number in each")
            value = -LARGEST
        filled = number(lowering, value)
    given = lowering.view(x)
    result = _where(lowering, lowering.view(mask), filled, _floats(lowering, given), node.meta["val"].shape)
    return result if given.buffer.type != "int32" else _whole_numbers(lowering, result)


# ---- Types.


def _whole_numbers(lowering: Lowering, view: View) -> View:
    result = lowering.new(view.shape, "int32")
    lowering.emit("to_int", [view], [result], dict(n=view.elements))
    return result


@lowers("_to_copy.default")
def _to_copy(lowering: Lowering, node: Node) -> View:
    view, to = lowering.view(node.args[0]), node.kwargs.get("dtype") or node.args[0].meta["val"].dtype
    given = node.args[0].meta["val"].dtype
    if to == torch.float32:
        return _floats(lowering, view)
    if to == given or (view.buffer.type == "int32" and to in (torch.int32, torch.int64)):
        return view
    raise Missing(str(node.target), f"from {str(given).removeprefix('torch.')} to {str(to).removeprefix('torch.')}")


@lowers("_assert_tensor_metadata.default")
def _assert_metadata(lowering: Lowering, node: Node) -> None:
    """Of the example, for which it was true."""


@lowers("gather.default")
def _gather(lowering: Lowering, node: Node) -> View:
    """Of a vector: rows of one number."""
    table, index = lowering.whole(node.args[0]), lowering.whole(node.args[2])
    if len(table.shape) != 1 or index.buffer.type != "int32":
        raise Missing(str(node.target), "of more than a vector")
    y = lowering.new(node.meta["val"].shape)
    lowering.emit("embedding", [table, index], [y], dict(n=index.elements, rows=table.shape[0], columns=1, padding=-1))
    return y
