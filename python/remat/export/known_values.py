"""What of a graph is known when it is exported: masks and indices that the step makes of nothing but sizes, and tensors of
buffers that the step does not write. It is computed here, and becomes a constant."""

from __future__ import annotations

from typing import Any

import torch
from torch.fx import Node

MOST = 1 << 20  # elements that are computed
# Read what is made in no memory, or what is not theirs alone.
_NOT = {"aten.empty.memory_format", "aten.new_empty.default", "aten.empty_like.default"}


class KnownValues:
    """Tensors of nodes, as far as they are known."""

    def __init__(self) -> None:
        self._tensors: dict[Node, Any] = {}

    def get(self, node: Node) -> torch.Tensor | None:
        tensor = self._tensors.get(node)
        return tensor if isinstance(tensor, torch.Tensor) else None

    def put(self, node: Node, tensor: torch.Tensor) -> None:
        if tensor.numel() <= MOST:
            self._tensors[node] = tensor.detach()

    def compute(self, node: Node) -> bool:
        """Whether a call's result is known, since all that it reads is."""
        target = node.target
        random = isinstance(target, torch._ops.OpOverload) and torch.Tag.nondeterministic_seeded in target.tags
        if random or str(target) in _NOT or any(source not in self._tensors for source in node.all_input_nodes):
            return False
        value = node.meta.get("val")
        sizes = [v.numel() for v in (value if isinstance(value, (list, tuple)) else [value]) if isinstance(v, torch.Tensor)]
        if not sizes or max(sizes) > MOST:
            return False
        with torch.no_grad():
            given = torch.fx.node.map_arg((node.args, node.kwargs), lambda source: self._tensors[source])
            self._tensors[node] = target(*given[0], **given[1])
        return True


def hides(node: Node, tensor: torch.Tensor) -> bool:
    """Whether a tensor is a mask that is added to what a softmax reads alone, with something left in each row: infinite
    numbers in it can be the lowest finite one."""
    hidden = tensor == float("-inf")
    if bool(tensor.isnan().any() or (tensor == float("inf")).any() or hidden.all(-1).any()):
        return False
    added = _readers(node)
    return bool(added) and all(str(r.target) in ("aten.add.Tensor", "aten.baddbmm.default") and only_softmax_reads(r) for r in added)


def only_softmax_reads(node: Node) -> bool:
    """Forward, and of backward what fills the same places."""
    readers = _readers(node)
    return bool(readers) and all("softmax" in str(r.target) for r in readers)


def _readers(node: Node) -> list[Node]:
    """What reads a node, views between left out."""
    from remat.export.lowering import VIEWS

    found = []
    for user in node.users:
        found += _readers(user) if str(user.target) in VIEWS else [user]
    return found
