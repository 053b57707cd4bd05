"""What moves elements."""

from __future__ import annotations

import math
from collections.abc import Sequence

from torch.fx import Node

from remat.export.lowering import Lowering, Missing, front, lowers, merged
from remat.export.step import View


@lowers("clone.default", "contiguous.default")
def _clone(lowering: Lowering, node: Node) -> View:
    """A value is never written to, so that a copy is needed for its order alone."""
    return lowering.whole(node.args[0])


@lowers("cat.default", "stack.default")
def _cat(lowering: Lowering, node: Node) -> View:
    parts = [lowering.whole(part) for part in node.args[0]]
    y = lowering.new(node.meta["val"].shape)
    dim = (node.args[1] if len(node.args) > 1 else 0) % len(y.shape)
    inner = [part.elements // math.prod(y.shape[:dim]) for part in parts]
    arguments = dict(outer=math.prod(y.shape[:dim]), width=math.prod(y.shape[dim:]), inner=inner,
                     at=[sum(inner[:i]) for i in range(len(inner))])  # fmt: skip
    lowering.emit("cat", parts, [y], arguments)
    return y


def _padded(lowering: Lowering, x: View, shape: Sequence[int], low: Sequence[int]) -> View:
    """x within zeros, from `low` on."""
    y = lowering.new(shape)
    # Dimensions that are not padded are one with those before them.
    sizes: list[list[int]] = []
    for d, own, first in zip(shape, x.shape, low, strict=True):
        if sizes and d == own:
            sizes[-1] = [number * d for number in sizes[-1]]
        else:
            sizes.append([d, own, first])
    if len(sizes) > 4:
        raise Missing("aten.constant_pad_nd.default", "of more than four dimensions")
    d, own, first = (list(column) for column in zip(*sizes, strict=True))
    lowering.emit("pad", [x], [y], dict(d=front(d, 4, 1), x=front(own, 4, 1), low=front(first, 4, 0)))
    return y


@lowers("constant_pad_nd.default")
def _pad(lowering: Lowering, node: Node) -> View:
    x, pad = lowering.view(node.args[0]), node.args[1]
    if len(node.args) > 2 and node.args[2] != 0:
        raise Missing(str(node.target), "with another number than 0")
    low, layout = [0] * len(x.shape), x.layout
    for i in range(len(pad) // 2):
        before, after = pad[2 * i], pad[2 * i + 1]
        dim = len(x.shape) - 1 - i
        # Less than nothing cuts, as the backward pass of padding does.
        first, last = max(-before, 0), layout.shape[dim] - max(-after, 0)
        layout = layout.narrow(dim, first, last - first)
        low[dim] = max(before, 0)
    x = lowering.contiguous(View(x.buffer, layout))
    shape = tuple(node.meta["val"].shape)
    return x if x.shape == shape else _padded(lowering, x, shape, low)


@lowers("select_backward.default")
def _select_backward(lowering: Lowering, node: Node) -> View:
    dy, shape, dim, index = lowering.whole(node.args[0]), node.args[1], node.args[2], node.args[3]
    dim %= len(shape)
    low = [index % shape[dim] if d == dim else 0 for d in range(len(shape))]
    return _padded(lowering, View(dy.buffer, dy.layout.unsqueeze(dim)), shape, low)


@lowers("slice_backward.default")
def _slice_backward(lowering: Lowering, node: Node) -> View:
    dy, shape, dim, start, _, step = lowering.whole(node.args[0]), *node.args[1:]
    if step != 1:
        raise Missing(str(node.target), "with a step")
    dim %= len(shape)
    start = min(max(start + shape[dim] if start < 0 else start, 0), shape[dim])
    return _padded(lowering, dy, shape, [start if d == dim else 0 for d in range(len(shape))])


@lowers("flip.default")
def _flip(lowering: Lowering, node: Node) -> View:
    """A copy with negative strides, from the last element on."""
    x = lowering.view(node.args[0])
    flipped = {dim % len(x.shape) for dim in node.args[1]}
    strides = [-s if d in flipped else s for d, s in enumerate(x.strides)]
    first = x.offset + sum(x.strides[d] * (x.shape[d] - 1) for d in flipped)
    sizes, (own,) = merged(x.shape, [strides])
    if len(sizes) > 6 or x.buffer.type != "float32":
        raise Missing(str(node.target), "of integers, or of more than six dimensions that do not merge")
    y = lowering.new(x.shape)
    begin = View(x.buffer, x.layout.as_strided((1,), (1,), first))
    lowering.emit("copy", [begin], [y], dict(d=front(sizes, 6, 1), s=front(own, 6, 0)))
    return y


@lowers("repeat.default")
def _repeat(lowering: Lowering, node: Node) -> View:
    x, times = lowering.view(node.args[0]), node.args[1]
    layout = x.layout.reshape([1] * (len(times) - len(x.shape)) + list(x.shape)) if len(times) > len(x.shape) else x.layout
    sizes = list(layout.shape)
    for d in reversed(range(len(times))):
        layout = layout.unsqueeze(d)
    layout = layout.expand([n for pair in zip(times, sizes, strict=True) for n in pair])
    copied = lowering.contiguous(View(x.buffer, layout))
    return View(copied.buffer, copied.layout.reshape([t * s for t, s in zip(times, sizes, strict=True)]))
