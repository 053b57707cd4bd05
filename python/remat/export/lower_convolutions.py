"""Convolutions and pooling, of one and two dimensions."""

from __future__ import annotations

import math
from typing import Any

from torch.fx import Node

from remat.export.lowering import Lowering, Missing, lowers
from remat.export.step import View


def _two(numbers: Any, filler: int) -> list[int]:
    """Of one dimension: as of an image that is one row."""
    numbers = list(numbers)
    return numbers if len(numbers) == 2 else [filler, *numbers]


def _sizes(node: Node, x: View, w: View, result: tuple[int, ...], at: int) -> dict[str, int]:
    stride, padding, dilation, transposed, _, groups = node.args[at : at + 6]
    if transposed:
        raise Missing(str(node.target), "that is transposed")
    if len(x.shape) not in (3, 4):
        raise Missing(str(node.target), "of three dimensions")
    n, c, *image = x.shape
    o, _, *kernel = w.shape
    (h, width), (kh, kw), (oh, ow) = _two(image, 1), _two(kernel, 1), _two(result[2:], 1)
    (sh, sw), (ph, pw), (dh, dw) = _two(stride, 1), _two(padding, 0), _two(dilation, 1)
    return dict(n=n, c=c, h=h, w=width, o=o, kh=kh, kw=kw, sh=sh, sw=sw, ph=ph, pw=pw, dh=dh, dw=dw, g=groups,
                oh=oh, ow=ow, relu=0)  # fmt: skip


def _is_1x1(a: dict[str, int]) -> bool:
    return all(a[name] == 1 for name in ("kh", "kw", "sh", "sw", "g")) and a["ph"] == a["pw"] == 0


def _is_depthwise(a: dict[str, int]) -> bool:
    ones = all(a[name] == 1 for name in ("sh", "sw", "dh", "dw"))
    return ones and a["g"] == a["c"] == a["o"] and a["g"] > 1 and a["ph"] < a["kh"] and a["pw"] < a["kw"]


def _keeps_size(a: dict[str, int]) -> bool:
    """Whether its result may lie over its input."""
    return (a["c"], a["h"], a["w"]) == (a["o"], a["oh"], a["ow"]) and (_is_1x1(a) or _is_depthwise(a))


def _plane_workspace(a: dict[str, int]) -> int:
    """Bytes of a plane of a depthwise convolution with zeros around it."""
    return 4 * (a["h"] + max(2 * a["ph"], a["kh"] - 1)) * (a["w"] + max(2 * a["pw"], a["kw"] - 1))


@lowers("convolution.default")
def _convolution(lowering: Lowering, node: Node) -> View:
    x, w, bias = lowering.whole(node.args[0]), lowering.whole(node.args[1]), lowering.optional(node.args[2])
    shape = tuple(node.meta["val"].shape)
    a = _sizes(node, x, w, shape, 3)
    workspace = _plane_workspace(a) if _is_depthwise(a) else 16 * a["c"] if _keeps_size(a) else 0
    result = lowering.new(shape)
    lowering.emit("conv2d", [x, w, bias], [result, None], a, workspace, [(0, 0)] if _keeps_size(a) else [])
    return result


@lowers("convolution_backward.default")
def _convolution_backward(lowering: Lowering, node: Node) -> list[View | None]:
    dy, x, w = (lowering.whole(argument) for argument in node.args[:3])
    a = _sizes(node, x, w, dy.shape, 4)
    wants_input, wants_weight, wants_bias = node.args[10]
    results: list[View | None] = [None, None, None]

    def grad_bias() -> None:
        results[2] = lowering.new((a["o"],))
        sizes = dict(outer=a["n"], middle=a["o"], inner=a["oh"] * a["ow"], scale=1.0)
        lowering.emit("sum_around_grad", [dy], [results[2]], sizes)

    def grad_weight() -> None:
        workspace = _plane_workspace(a) if _is_depthwise(a) else 16 * a["o"] if _is_1x1(a) else 0
        if not _is_1x1(a):
            stored = results[1] = lowering.new(w.shape)
            lowering.emit("conv2d_grad_weight", [x, dy], [stored], a, workspace)
            return
        # Stored by columns, which fit over x, channel by channel.
        stored = lowering.new((a["c"], a["o"]))
        results[1] = View(stored.buffer, stored.layout.t().unflatten(1, w.shape[1:]))
        over = [(0, 0)] if a["h"] * a["w"] >= a["o"] else []
        lowering.emit("conv2d_grad_weight", [x, dy], [stored], a, workspace, over)

    def grad_input() -> None:
        results[0] = lowering.new(x.shape)
        keeps = _keeps_size(a)
        workspace = _plane_workspace(a) if _is_depthwise(a) else 16 * a["o"] if keeps else 0
        lowering.emit("conv2d_grad_input", [dy, w], [results[0]], a, workspace, [(0, 0)] if keeps else [])

    if wants_bias:
        grad_bias()
    # Where the gradient of the input may lie over dy, that of the weight comes first; otherwise it comes last, so that
    # the weight can be updated at once.
    if wants_weight and (_keeps_size(a) or not wants_input):
        grad_weight()
    if wants_input:
        grad_input()
    if wants_weight and results[1] is None:
        grad_weight()
    return results


# ---- Pooling.


def _pair(numbers: Any) -> tuple[int, int]:
    numbers = [numbers] if isinstance(numbers, int) else list(numbers)
    return (numbers[0], numbers[-1])


def _argument(node: Node, index: int, default: Any) -> Any:
    return node.args[index] if len(node.args) > index else default


def _pool_sizes(x: View, result: tuple[int, ...], kernel: Any, stride: Any, padding: Any) -> dict[str, int]:
    (h, w), (oh, ow) = x.shape[-2:], result[-2:]
    (kh, kw), (ph, pw) = _pair(kernel), _pair(padding)
    sh, sw = _pair(stride) if stride else (kh, kw)
    return dict(planes=math.prod(x.shape[:-2]), h=h, w=w, oh=oh, ow=ow, kh=kh, kw=kw, sh=sh, sw=sw, ph=ph, pw=pw,
                count_pad=1)  # fmt: skip


@lowers("max_pool2d_with_indices.default")
def _max_pool(lowering: Lowering, node: Node) -> list[View]:
    x = lowering.whole(node.args[0])
    shape = tuple(node.meta["val"][0].shape)
    a = _pool_sizes(x, shape, node.args[1], _argument(node, 2, []), _argument(node, 3, 0))
    if _pair(_argument(node, 4, 1)) != (1, 1) or _argument(node, 5, False) or a["kh"] * a["kw"] > 256:
        raise Missing(str(node.target), "with dilation, ceil_mode or a window of more than 256 elements")
    y, index = lowering.new(shape), lowering.new(shape, "uint8")
    lowering.emit("max_pool2d", [x], [y, None if lowering.phase == "predict" else index], a)
    return [y, index]


@lowers("max_pool2d_with_indices_backward.default")
def _max_pool_backward(lowering: Lowering, node: Node) -> View:
    dy, x, index = lowering.whole(node.args[0]), lowering.view(node.args[1]), lowering.view(node.args[7])
    dx = lowering.new(x.shape)
    lowering.emit("max_pool2d_grad", [dy, index], [dx], _pool_sizes(x, dy.shape, *node.args[2:5]))
    return dx


def _average_sizes(node: Node, x: View, result: tuple[int, ...], at: int) -> dict[str, int]:
    a = _pool_sizes(x, result, node.args[at], _argument(node, at + 1, []), _argument(node, at + 2, 0))
    if _argument(node, at + 3, False) or _argument(node, at + 5, None) is not None:
        raise Missing(str(node.target), "with ceil_mode or a divisor")
    a["count_pad"] = int(_argument(node, at + 4, True))
    return a


@lowers("avg_pool2d.default")
def _average_pool(lowering: Lowering, node: Node) -> View:
    x = lowering.whole(node.args[0])
    y = lowering.new(node.meta["val"].shape)
    lowering.emit("avg_pool2d", [x], [y], _average_sizes(node, x, y.shape, 1))
    return y


@lowers("avg_pool2d_backward.default")
def _average_pool_backward(lowering: Lowering, node: Node) -> View:
    dy, x = lowering.whole(node.args[0]), lowering.view(node.args[1])
    dx = lowering.new(x.shape)
    lowering.emit("avg_pool2d_grad", [dy], [dx], _average_sizes(node, x, dy.shape, 2))
    return dx


def _adaptive_sizes(node: Node, x: View, result: tuple[int, ...]) -> dict[str, int]:
    if any(size % parts for size, parts in zip(x.shape[-2:], result[-2:], strict=True)):
        raise Missing(str(node.target), "of a size that is no multiple of the result's")
    window = [size // parts for size, parts in zip(x.shape[-2:], result[-2:], strict=True)]
    return _pool_sizes(x, result, window, window, 0)


@lowers("_adaptive_avg_pool2d.default")
def _adaptive_pool(lowering: Lowering, node: Node) -> View:
    x = lowering.whole(node.args[0])
    y = lowering.new(node.meta["val"].shape)
    lowering.emit("avg_pool2d", [x], [y], _adaptive_sizes(node, x, y.shape))
    return y


@lowers("_adaptive_avg_pool2d_backward.default")
def _adaptive_pool_backward(lowering: Lowering, node: Node) -> View:
    dy, x = lowering.whole(node.args[0]), lowering.view(node.args[1])
    dx = lowering.new(x.shape)
    lowering.emit("avg_pool2d_grad", [dy], [dx], _adaptive_sizes(node, x, dy.shape))
    return dx
