"""Products of matrices."""

from __future__ import annotations

from torch.fx import Node

from remat.export.lower_elementwise import broadcast
from remat.export.lowering import Lowering, Missing, lowers
from remat.export.step import View


def _sizes(left: View, right: View) -> dict[str, int | float]:
    """Of matrices, or batches of them."""
    batch = left.shape[0] if len(left.shape) == 3 else 1
    ab = left.strides[0] if len(left.shape) == 3 else 0
    bb = right.strides[0] if len(right.shape) == 3 else 0
    (m, k), n = left.shape[-2:], right.shape[-1]
    am, ak = left.strides[-2:]
    bk, bn = right.strides[-2:]
    return dict(b=batch, m=m, k=k, n=n, ab=ab, am=am, ak=ak, bb=bb, bk=bk, bn=bn, relu=0, scale=1.0)


def _transposed(view: View) -> View:
    return View(view.buffer, view.layout.transpose(-1, -2))


def _product(lowering: Lowering, left: View, right: View, bias: View | None, node: Node) -> View:
    result = lowering.new(node.meta["val"].shape)
    lowering.emit("matmul", [left, right, bias], [result, None], _sizes(left, right))
    return result


@lowers("mm.default")
def _mm(lowering: Lowering, node: Node) -> View:
    left, right = lowering.view(node.args[0]), lowering.view(node.args[1])
    transposed = lowering.gradient_is_transposed(node)
    if transposed is None:
        return _product(lowering, left, right, None, node)
    # A parameter's gradient, in the parameter's order: (A B)' = B' A'.
    if transposed:
        left, right = _transposed(right), _transposed(left)
    gradient = lowering.new((left.shape[0], right.shape[1]))
    lowering.emit("matmul_grad", [left, right], [gradient], _sizes(left, right))
    return _transposed(gradient) if transposed else gradient


@lowers("addmm.default")
def _addmm(lowering: Lowering, node: Node) -> View:
    bias, left, right = (lowering.view(argument) for argument in node.args)
    if any(node.kwargs.get(name, 1) != 1 for name in ("alpha", "beta")) or len(bias.shape) != 1 or bias.strides != (1,):
        raise Missing(str(node.target), "with factors, or another bias than a vector")
    return _product(lowering, left, right, bias, node)


@lowers("bmm.default")
def _bmm(lowering: Lowering, node: Node) -> View:
    return _product(lowering, lowering.view(node.args[0]), lowering.view(node.args[1]), None, node)


@lowers("baddbmm.default")
def _baddbmm(lowering: Lowering, node: Node) -> View:
    """Attention with a mask that is added."""
    if any(node.kwargs.get(name, 1) != 1 for name in ("alpha", "beta")):
        raise Missing(str(node.target), "with factors")
    product = _product(lowering, lowering.view(node.args[1]), lowering.view(node.args[2]), None, node)
    return broadcast(lowering, product, lowering.view(node.args[0]), product.shape, "add")
