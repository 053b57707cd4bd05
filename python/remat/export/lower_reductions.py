"""Sums, means, softmax, losses, embeddings."""

from __future__ import annotations

import math
from typing import Any

from torch.fx import Node

from remat.export.lowering import Lowering, Missing, lowers
from remat.export.step import View


@lowers("sum.dim_IntList", "mean.dim", "sum.default", "mean.default")
def _sum(lowering: Lowering, node: Node) -> View:
    x = lowering.whole(node.args[0])
    dims = node.args[1] if len(node.args) > 1 and node.args[1] else range(len(x.shape))
    summed = {d % len(x.shape) for d in dims}
    count = math.prod(x.shape[d] for d in summed)
    scale = 1.0 / count if "mean" in str(node.target) else 1.0
    # Neighbours that are both summed, or both kept, are one dimension; those of size 1 are either.
    groups: list[list[Any]] = []
    for d, size in enumerate(x.shape):
        if size == 1:
            continue
        if groups and groups[-1][1] == (d in summed):
            groups[-1][0] *= size
        else:
            groups.append([size, d in summed])
    y = lowering.new(node.meta["val"].shape)
    is_gradient = node in lowering.gradient_bases
    pattern = "".join("s" if s else "k" for _, s in groups)
    sizes = [size for size, _ in groups]
    around = pattern == "sks" or (is_gradient and pattern in ("", "s", "k", "sk", "ks"))
    if not around and pattern not in ("", "s", "k", "sk", "ks", "ksk"):
        raise Missing(str(node.target), f"over dimensions {sorted(summed)} of {len(x.shape)}")
    # The dimension in the middle is the one that is kept, or the one that is summed.
    middle, side = ("k", "s") if around else ("s", "k")
    arguments = dict(
        outer=sizes[0] if pattern[:1] == side else 1,
        middle=sizes[pattern.index(middle)] if middle in pattern else 1,
        inner=sizes[-1] if pattern[-1:] == side and len(pattern) > 1 else 1,
        scale=scale,
    )
    kernel = ("sum_around_grad" if is_gradient else "sum_around") if around else "sum"
    lowering.emit(kernel, [x], [y], arguments)
    return y


# ---- Softmax and losses.


def _rows(node: Node, x: View, dim: int) -> dict[str, int]:
    if dim % len(x.shape) != len(x.shape) - 1:
        raise Missing(str(node.target), "over another dimension than the last")
    return dict(rows=x.elements // x.shape[-1], columns=x.shape[-1])


@lowers("_softmax.default", "_safe_softmax.default", "_log_softmax.default")
def _softmax(lowering: Lowering, node: Node) -> View:
    x = lowering.whole(node.args[0])
    y = lowering.new(x.shape)
    kernel = "log_softmax" if "log" in str(node.target) else "softmax"
    lowering.emit(kernel, [x], [y], _rows(node, x, node.args[1]), in_place=[(0, 0)])
    return y


@lowers("_softmax_backward_data.default", "_log_softmax_backward_data.default")
def _softmax_backward(lowering: Lowering, node: Node) -> View:
    dy, y = lowering.whole(node.args[0]), lowering.whole(node.args[1])
    dx, rows = lowering.new(y.shape), _rows(node, y, node.args[2])
    made = None if "log" in str(node.target) else lowering.sole_product(node.args[0])
    if made is not None and made.arguments["n"] == y.shape[-1]:
        lowering.emit_after(made, "matmul_softmax_grad", y, dx, made.arguments, 16 * y.shape[-1])
        return dx
    kernel = "log_softmax_grad" if "log" in str(node.target) else "softmax_grad"
    lowering.emit(kernel, [dy, y], [dx], rows, in_place=[(0, 0), (1, 0)])
    return dx


def _nll_sizes(x: View, reduction: int, ignore: int) -> dict[str, int]:
    return dict(rows=x.elements // x.shape[-1], columns=x.shape[-1], reduction=reduction, ignore=ignore)


@lowers("nll_loss_forward.default")
def _nll_loss(lowering: Lowering, node: Node) -> list[View]:
    x, target = lowering.whole(node.args[0]), lowering.whole(node.args[1])
    loss, total = lowering.new(node.meta["val"][0].shape), lowering.new(())
    weight = None if node.args[2] is None else lowering.whole(node.args[2])
    lowering.emit("nll_loss", [x, target, weight], [loss, total], _nll_sizes(x, *node.args[3:5]))
    return [loss, total]


@lowers("nll_loss_backward.default")
def _nll_loss_backward(lowering: Lowering, node: Node) -> View:
    dloss, x, target = lowering.whole(node.args[0]), lowering.view(node.args[1]), lowering.whole(node.args[2])
    dx, total = lowering.new(x.shape), lowering.view(node.args[6])
    weight = None if node.args[3] is None else lowering.whole(node.args[3])
    lowering.emit("nll_loss_grad", [dloss, target, weight, total], [dx], _nll_sizes(x, *node.args[4:6]))
    return dx


_LOSSES = {"mse_loss": "mse_loss", "binary_cross_entropy": "bce_loss", "binary_cross_entropy_with_logits": "bce_logits_loss"}


def _loss_sizes(node: Node, x: View, tensors: int) -> dict[str, int]:
    """Of a loss whose first arguments are tensors, and the last, if there is one more, the reduction: the mean."""
    others = [argument for argument in node.args[tensors:] if argument is not None]
    if any(isinstance(argument, Node) for argument in others):
        raise Missing(str(node.target), "with weights")
    return dict(n=x.elements, reduction=others[0] if others else 1)


@lowers(*(f"{name}.default" for name in _LOSSES))
def _loss(lowering: Lowering, node: Node) -> View:
    x, target = lowering.whole(node.args[0]), lowering.whole(node.args[1])
    loss = lowering.new(node.meta["val"].shape)
    kernel = _LOSSES[str(node.target).split(".")[1]]
    lowering.emit(kernel, [x, target], [loss], _loss_sizes(node, x, 2))
    return loss


@lowers("mse_loss_backward.default", "binary_cross_entropy_backward.default")
def _loss_backward(lowering: Lowering, node: Node) -> View:
    dloss, x, target = (lowering.whole(argument) for argument in node.args[:3])
    dx = lowering.new(x.shape)
    kernel = _LOSSES[str(node.target).split(".")[1].removesuffix("_backward")] + "_grad"
    lowering.emit(kernel, [dloss, x, target], [dx], _loss_sizes(node, x, 3), in_place=[(1, 0)])
    return dx


_HUBER = {"huber_loss": 1.0, "smooth_l1_loss": 1.0}  # delta, beta


def _huber_sizes(x: View, name: str, reduction: int, delta: float) -> dict[str, Any]:
    """smooth_l1_loss() of beta is huber_loss() of that delta, divided by it."""
    return dict(n=x.elements, reduction=reduction, delta=float(delta), scale=1.0 / delta if name == "smooth_l1_loss" else 1.0)


@lowers(*(f"{name}.default" for name in _HUBER))
def _huber_loss(lowering: Lowering, node: Node) -> View:
    x, target = lowering.whole(node.args[0]), lowering.whole(node.args[1])
    loss, name = lowering.new(node.meta["val"].shape), str(node.target).split(".")[1]
    reduction, delta = [*node.args[2:], *[1, _HUBER[name]][len(node.args) - 2 :]]
    lowering.emit("huber_loss", [x, target], [loss], _huber_sizes(x, name, reduction, delta))
    return loss


@lowers(*(f"{name}_backward.default" for name in _HUBER))
def _huber_loss_backward(lowering: Lowering, node: Node) -> View:
    dloss, x, target = (lowering.whole(argument) for argument in node.args[:3])
    dx, name = lowering.new(x.shape), str(node.target).split(".")[1].removesuffix("_backward")
    lowering.emit("huber_loss_grad", [dloss, x, target], [dx], _huber_sizes(x, name, *node.args[3:5]), in_place=[(1, 0)])
    return dx


# ---- Embeddings.


@lowers("embedding.default")
def _embedding(lowering: Lowering, node: Node) -> View:
    table, index = lowering.whole(node.args[0]), lowering.whole(node.args[1])
    y = lowering.new(node.meta["val"].shape)
    rows, columns = table.shape
    lowering.emit("embedding", [table, index], [y], dict(n=index.elements, rows=rows, columns=columns, padding=-1))
    return y


@lowers("embedding_dense_backward.default")
def _embedding_backward(lowering: Lowering, node: Node) -> View:
    dy, index = lowering.whole(node.args[0]), lowering.whole(node.args[1])
    rows, padding, by_frequency = node.args[2:5]
    if by_frequency:
        raise Missing(str(node.target), "with scale_grad_by_freq")
    gradient = lowering.new((rows, dy.shape[-1]))
    arguments = dict(n=index.elements, rows=rows, columns=dy.shape[-1], padding=padding)
    lowering.emit("embedding_grad", [dy, index], [gradient], arguments)
    return gradient
