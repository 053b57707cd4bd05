"""Normalization by layers, groups and batches."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from torch.fx import Node

from remat.export.lowering import Lowering, Missing, lowers
from remat.export.step import View


def _norm(lowering: Lowering, x: View, weight: View | None, bias: View | None, a: dict[str, Any]) -> list[View]:
    y, mean, rstd = lowering.new(x.shape), lowering.new((a["rows"],)), lowering.new((a["rows"],))
    lowering.emit("norm", [x, weight, bias], [y, mean, rstd], a, in_place=[(0, 0)])
    return [y, mean, rstd]


def _norm_backward(
    lowering: Lowering, dy: View, x: View, statistics: Sequence[View], weight: View | None, a: dict[str, Any],
    wanted: Sequence[bool], kernels: str,
) -> list[View | None]:  # fmt: skip
    """The parameters' gradients first: that of the input may lie over dy."""
    results: list[View | None] = [None, None, None]
    channels = a.get("groups", 1) * a["channels"]
    inputs = [dy, x, *statistics]
    if wanted[1]:
        results[1] = lowering.new((channels,))
        lowering.emit(f"{kernels}_grad_weight", inputs, [results[1]], a)
    if wanted[2]:
        results[2] = lowering.new((channels,))
        outer = a["n"] if "n" in a else a["rows"] // a["groups"]
        sizes = dict(outer=outer, middle=channels, inner=a["inner"], scale=1.0)
        lowering.emit("sum_around_grad", [dy], [results[2]], sizes)
    if wanted[0]:
        results[0] = lowering.new(x.shape)
        lowering.emit(f"{kernels}_grad_input", [*inputs, weight], [results[0]], a, in_place=[(0, 0), (1, 0)])
    return results


def _layer_sizes(x: View, shape: Sequence[int], eps: float) -> dict[str, Any]:
    channels = math.prod(shape)
    return dict(rows=x.elements // channels, groups=1, channels=channels, inner=1, eps=eps)


@lowers("native_layer_norm.default")
def _layer_norm(lowering: Lowering, node: Node) -> list[View]:
    x, weight, bias = lowering.whole(node.args[0]), lowering.optional(node.args[2]), lowering.optional(node.args[3])
    return _norm(lowering, x, weight, bias, _layer_sizes(x, node.args[1], node.args[4]))


@lowers("native_layer_norm_backward.default")
def _layer_norm_backward(lowering: Lowering, node: Node) -> list[View | None]:
    dy, x = lowering.whole(node.args[0]), lowering.whole(node.args[1])
    statistics = [lowering.view(node.args[3]), lowering.view(node.args[4])]
    a = _layer_sizes(x, node.args[2], 0.0)
    return _norm_backward(lowering, dy, x, statistics, lowering.optional(node.args[5]), a, node.args[7], "norm")


def _group_sizes(n: int, c: int, inner: int, groups: int, eps: float) -> dict[str, Any]:
    return dict(rows=n * groups, groups=groups, channels=c // groups, inner=inner, eps=eps)


@lowers("native_group_norm.default")
def _group_norm(lowering: Lowering, node: Node) -> list[View]:
    x, weight, bias = lowering.whole(node.args[0]), lowering.optional(node.args[1]), lowering.optional(node.args[2])
    return _norm(lowering, x, weight, bias, _group_sizes(*node.args[3:8]))


@lowers("native_group_norm_backward.default")
def _group_norm_backward(lowering: Lowering, node: Node) -> list[View | None]:
    dy, x = lowering.whole(node.args[0]), lowering.whole(node.args[1])
    statistics = [lowering.view(node.args[2]), lowering.view(node.args[3])]
    a = _group_sizes(*node.args[5:9], 0.0)
    return _norm_backward(lowering, dy, x, statistics, lowering.optional(node.args[4]), a, node.args[9], "norm")


def _batch_sizes(x: View, train: bool, eps: float) -> dict[str, Any]:
    return dict(n=x.shape[0], channels=x.shape[1], inner=math.prod(x.shape[2:]), train=int(train), eps=eps)


def _batch_norm_made(lowering: Lowering, x: View, weight: View | None, bias: View | None, a: dict[str, Any]) -> list[View]:
    y, mean, var = lowering.new(x.shape), lowering.new((x.shape[1],)), lowering.new((x.shape[1],))
    inputs = [None if v is None else lowering.contiguous(v) for v in (x, weight, bias)]
    lowering.emit("batch_norm", inputs, [y, mean, var], a, in_place=[(0, 0)])
    return [y, mean, var]


@lowers("_native_batch_norm_legit_functional.default")
def _batch_norm(lowering: Lowering, node: Node) -> list[Any]:
    x, weight, bias = lowering.whole(node.args[0]), lowering.optional(node.args[1]), lowering.optional(node.args[2])
    if any(str(argument.target) == "aten.repeat.default" for argument in node.args[3:5]):
        raise Missing("aten.instance_norm", "that tracks running statistics; leave track_running_stats at False: it")
    running, momentum, eps = [lowering.view(argument) for argument in node.args[3:5]], node.args[6], node.args[7]
    a = _batch_sizes(x, True, eps)
    y, mean, var = _batch_norm_made(lowering, x, weight, bias, a)
    count = a["n"] * a["inner"]
    unbiased = count / (count - 1) if count > 1 else 1.0
    # An operator of its own, which no replay repeats.
    arguments = dict(channels=a["channels"], momentum=float(momentum), unbiased=unbiased)
    lowering.emit("running", [mean, var, *running], [], arguments)
    return [y, mean, var, *running]


@lowers("_native_batch_norm_legit.no_stats")
def _batch_norm_of_the_batch(lowering: Lowering, node: Node) -> list[Any]:
    """Of modules that track no running statistics, and with each picture for itself of InstanceNorm."""
    x, weight, bias = lowering.whole(node.args[0]), lowering.optional(node.args[1]), lowering.optional(node.args[2])
    return _batch_norm_made(lowering, x, weight, bias, _batch_sizes(x, True, node.args[5]))


@lowers("_native_batch_norm_legit_no_training.default")
def _batch_norm_eval(lowering: Lowering, node: Node) -> list[Any]:
    x, weight, bias = lowering.whole(node.args[0]), lowering.optional(node.args[1]), lowering.optional(node.args[2])
    mean, var = lowering.view(node.args[3]), lowering.view(node.args[4])
    y = lowering.new(x.shape)
    a = _batch_sizes(x, False, node.args[6])
    lowering.emit("batch_norm_eval", [x, weight, bias, mean, var], [y], a, in_place=[(0, 0)])
    return [y, mean, var]


@lowers("native_batch_norm_backward.default")
def _batch_norm_backward(lowering: Lowering, node: Node) -> list[View | None]:
    dy, x, weight = lowering.whole(node.args[0]), lowering.whole(node.args[1]), lowering.optional(node.args[2])
    train, eps, wanted = node.args[7:10]
    # In training the statistics of the batch, otherwise the running ones.
    statistics = [lowering.view(argument) for argument in node.args[5 if train else 3 :][:2]]
    return _norm_backward(lowering, dy, x, statistics, weight, _batch_sizes(x, train, eps), wanted, "batch_norm")
