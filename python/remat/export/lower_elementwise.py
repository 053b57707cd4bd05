"""Functions of single elements."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch.fx import Node

from remat.export.lowering import Lowering, Missing, front, lowers, merged
from remat.export.step import View

# As the enumerations of runtime/c/remat_kernels.h.
UNARY = {
    name: number
    for number, name in enumerate(
        "scale shift hardtanh gelu_tanh gelu_erf silu sigmoid tanh hardswish hardsigmoid leaky_relu elu exp log sqrt "
        "rsqrt reciprocal abs sign square softplus power clamp clamp_min clamp_max".split()
    )
}
BINARY = {name: number for number, name in enumerate("add sub mul div equal greater not_less".split())}
_PLAIN = ("silu", "sigmoid", "tanh", "hardswish", "hardsigmoid", "exp", "log", "sqrt", "rsqrt", "reciprocal", "abs")


def unary(lowering: Lowering, x: View, function: str, p: float = 0.0, q: float = 0.0) -> View:
    x = lowering.contiguous(x)
    y = lowering.new(x.shape)
    arguments = dict(n=x.elements, function=UNARY[function], p=float(p), q=float(q))
    lowering.emit("unary", [x], [y], arguments, in_place=[(0, 0)])
    return y


def broadcast(lowering: Lowering, a: View, b: View, shape: Sequence[int], function: str, scale: float = 1.0) -> View:
    y = lowering.new(shape)
    strides = [View(v.buffer, v.layout.expand(y.shape)).strides for v in (a, b)]
    sizes, (s0, s1, _) = merged(y.shape, [*strides, y.strides])
    if len(sizes) > 4:
        raise Missing("aten." + function, "of tensors with more than four dimensions that do not merge")
    arguments = dict(function=BINARY[function], d=front(sizes, 4, 1), s0=front(s0, 4, 0), s1=front(s1, 4, 0), scale=scale)
    pairs = [(i, 0) for i, v in enumerate((a, b)) if v.elements == y.elements and a.buffer is not b.buffer]
    lowering.emit("binary", [a, b], [y], arguments, in_place=pairs)
    return y


def _binary(lowering: Lowering, node: Node, function: str, scale: float = 1.0) -> View:
    a, b = lowering.view(node.args[0]), lowering.view(node.args[1])
    return broadcast(lowering, a, b, node.meta["val"].shape, function, scale)


def _scaled(lowering: Lowering, node: Node, factor: float) -> View:
    """By a number: within a product, where that is all that is done with its result."""
    made = lowering.sole_product(node.args[0])
    view = lowering.view(node.args[0])
    if made is not None:
        made.arguments["scale"] *= float(torch.tensor(factor, dtype=torch.float32))
        return view
    # What is repeated is scaled once.
    layout = view.layout
    for d, stride in enumerate(view.strides):
        if stride == 0 and layout.shape[d] > 1:
            layout = layout.narrow(d, 0, 1)
    result = unary(lowering, View(view.buffer, layout), "scale", factor)
    return View(result.buffer, result.layout.expand(view.shape))


def _is_number(argument: Any) -> bool:
    return not isinstance(argument, Node)


@lowers("add.Tensor", "add.Scalar", "sub.Tensor", "sub.Scalar")
def _add(lowering: Lowering, node: Node) -> View:
    name = _named(node)
    alpha = float(node.kwargs.get("alpha", 1))
    if _is_number(node.args[1]):
        return unary(lowering, lowering.view(node.args[0]), "shift", (alpha if name == "add" else -alpha) * node.args[1])
    return _binary(lowering, node, name, alpha)


@lowers("rsub.Scalar")
def _rsub(lowering: Lowering, node: Node) -> View:
    return unary(lowering, unary(lowering, lowering.view(node.args[0]), "scale", -1.0), "shift", node.args[1])


@lowers("mul.Tensor", "mul.Scalar", "div.Tensor", "div.Scalar")
def _mul(lowering: Lowering, node: Node) -> View:
    name = _named(node)
    if _is_number(node.args[1]):
        factor = node.args[1] if name == "mul" else 1.0 / node.args[1] if node.args[1] else math.inf
        return _scaled(lowering, node, factor)
    return _binary(lowering, node, name)


@lowers("neg.default")
def _neg(lowering: Lowering, node: Node) -> View:
    return unary(lowering, lowering.view(node.args[0]), "scale", -1.0)


@lowers("pow.Tensor_Scalar")
def _pow(lowering: Lowering, node: Node) -> View:
    """Whole exponents and halves: by squares."""
    x, exponent = lowering.view(node.args[0]), float(node.args[1])
    if exponent in (0.0, 1.0):
        return x if exponent else _filled(lowering, x.shape, 1.0)
    if abs(exponent) > 8 or not (2 * exponent).is_integer():
        raise Missing(str(node.target), f"with the exponent {node.args[1]}")
    name = {2: "square", 0.5: "sqrt", -0.5: "rsqrt", -1: "reciprocal"}.get(exponent, "power")
    return unary(lowering, x, name, exponent if name == "power" else 0.0)


def _named(node: Node) -> str:
    return str(node.target).split(".")[1]


@lowers(*(f"{name}.default" for name in _PLAIN), "sign.default", "sgn.default")
def _function(lowering: Lowering, node: Node) -> View:
    return unary(lowering, lowering.view(node.args[0]), _named(node).replace("sgn", "sign"))


def _parameters(node: Node, at: int) -> tuple[str, float, float]:
    """The function of an operator or of its backward one, and its numbers, which begin at argument `at`."""
    name = _named(node).removesuffix("_backward")
    if name in _PLAIN:
        return name, 0.0, 0.0
    if name == "gelu":
        return ("gelu_tanh" if node.kwargs.get("approximate", "none") == "tanh" else "gelu_erf"), 0.0, 0.0
    defaults = {"hardtanh": [-1.0, 1.0], "leaky_relu": [0.01], "elu": [1.0, 1.0, 1.0], "softplus": [1.0, 20.0]}[name]
    numbers = list(node.args[at:])[: len(defaults)]
    numbers += defaults[len(numbers) :]
    if name == "elu" and numbers[1:] != [1, 1]:
        raise Missing(str(node.target), "with scales")
    return name, numbers[0], numbers[1] if name in ("hardtanh", "softplus") else 0.0


@lowers("clamp.default", "clamp_min.default", "clamp_max.default")
def _clamp(lowering: Lowering, node: Node) -> View:
    low, high = (node.args[i] if len(node.args) > i else None for i in (1, 2))
    if _named(node) == "clamp_max":
        low, high = None, low
    x = lowering.view(node.args[0])
    if low is not None and high is not None:
        return unary(lowering, x, "clamp", low, high)
    return unary(lowering, x, "clamp_max", 0.0, high) if low is None else unary(lowering, x, "clamp_min", low)


@lowers("gelu.default", "hardtanh.default", "leaky_relu.default", "elu.default", "softplus.default")
def _function_with_numbers(lowering: Lowering, node: Node) -> View:
    return unary(lowering, lowering.view(node.args[0]), *_parameters(node, 1))


@lowers(
    *(f"{name}_backward.default" for name in ("gelu", "hardtanh", "leaky_relu", "softplus")),
    *(f"{name}_backward.default" for name in ("silu", "sigmoid", "tanh", "hardswish", "hardsigmoid")),
)
def _function_backward(lowering: Lowering, node: Node) -> View:
    return unary_grad(lowering, node.args[0], node.args[1], *_parameters(node, 2))


@lowers("elu_backward.default")
def _elu_backward(lowering: Lowering, node: Node) -> View:
    dy, alpha, scale, input_scale, is_result, x = node.args
    if scale != 1 or input_scale != 1 or is_result:
        raise Missing(str(node.target), "with scales, or in place")
    return unary_grad(lowering, dy, x, "elu", alpha, 0.0)


def unary_grad(lowering: Lowering, dy: Node, x: Node, function: str, p: float, q: float) -> View:
    views = [lowering.whole(dy), lowering.whole(x)]
    dx = lowering.new(views[0].shape)
    if (made := lowering.sole_product(dy)) is not None:
        sizes = {name: size for name, size in made.arguments.items() if name != "relu"}
        arguments = dict(sizes, function=UNARY[function], p=float(p), q=float(q))
        lowering.emit_after(made, "matmul_unary_grad", views[1], dx, arguments)
        return dx
    arguments = dict(n=dx.elements, function=UNARY[function], p=float(p), q=float(q))
    lowering.emit("unary_grad", views, [dx], arguments, in_place=[(0, 0), (1, 0)])
    return dx


@lowers("relu.default")
def _relu(lowering: Lowering, node: Node) -> View:
    made = lowering.sole_producer(node.args[0])
    if made is not None and made.kernel in ("conv2d", "matmul") and not made.arguments["relu"]:
        made.arguments["relu"] = 1
        return lowering.view(node.args[0])
    x = lowering.whole(node.args[0])
    y = lowering.new(x.shape)
    lowering.emit("relu", [x], [y, None], dict(n=x.elements), in_place=[(0, 0)])
    return y


@lowers("threshold_backward.default")
def _relu_backward(lowering: Lowering, node: Node) -> View:
    if node.args[2] != 0:
        raise Missing(str(node.target), "with a threshold")
    dy, y = lowering.whole(node.args[0]), lowering.whole(node.args[1])
    dx = lowering.new(dy.shape)
    lowering.emit("relu_grad", [dy, y], [dx], dict(n=dx.elements), in_place=[(0, 0), (1, 0)])
    return dx


@lowers("native_dropout.default")
def _dropout(lowering: Lowering, node: Node) -> list[Any]:
    """The mask is a number of the place in the step: its bits are made again where they are needed."""
    x, probability, train = lowering.whole(node.args[0]), node.args[1], node.args[2]
    if not train or probability == 0:
        return [x, dict(n=x.elements, keep=2**32 - 1, site=0, scale=1.0)]
    site = sum(1 for o in lowering.step.operators if o.kernel == "dropout" and o.phase == "forward")
    arguments = dict(n=x.elements, keep=min(2**32 - 1, round((1 - probability) * 2**32)), site=site,
                     scale=0.0 if probability == 1 else 1 / (1 - probability))  # fmt: skip
    return [_dropped(lowering, x, arguments), arguments]


@lowers("native_dropout_backward.default")
def _dropout_backward(lowering: Lowering, node: Node) -> View:
    arguments = lowering.values[node.args[1]]
    x = lowering.whole(node.args[0])
    return x if arguments["scale"] == 1.0 else _dropped(lowering, x, arguments)


def _dropped(lowering: Lowering, x: View, arguments: dict[str, Any]) -> View:
    y = lowering.new(x.shape)
    lowering.emit("dropout", [x, lowering.counter()], [y], arguments, in_place=[(0, 0)])
    return y


_FILLED: dict[str, float] = {"ones": 1.0, "ones_like": 1.0, "zeros": 0.0, "zeros_like": 0.0, "empty_like": 0.0, "new_zeros": 0.0}


@lowers(
    *(f"{name}.default" for name in _FILLED), "full.default", "full_like.default", "fill.Scalar", "scalar_tensor.default"
)
def _fill(lowering: Lowering, node: Node) -> View:
    name = _named(node)
    number = _FILLED[name] if name in _FILLED else node.args[0 if name == "scalar_tensor" else 1]
    return _filled(lowering, node.meta["val"].shape, float(number))


def _filled(lowering: Lowering, shape: Sequence[int], number: float) -> View:
    y = lowering.new(shape)
    lowering.emit("fill", [], [y], dict(n=y.elements, value=number))
    return y

