"""What keeps random numbers right where the compiler cuts a graph: they are saved for backward, never drawn again there.

Imports Inductor, which takes as long as torch itself: import this module where something is compiled."""

from __future__ import annotations

from typing import Any

import torch
from torch._inductor.custom_graph_pass import CustomGraphPass
from torch.utils.checkpoint import CheckpointPolicy


def _draws(node: torch.fx.Node) -> bool:
    """Whether it takes random numbers from a generator. What computes them from a seed does not."""
    operator = node.target
    if not isinstance(operator, torch._ops.OpOverload) or torch.Tag.nondeterministic_seeded not in operator.tags:
        return False
    names = (argument.name for argument in operator._schema.arguments)
    given = dict(zip(names, node.args)) | dict(node.kwargs)
    return given.get("dropout_p") != 0.0  # attention that drops nothing


class SavedRandomNumbers(CustomGraphPass):
    """After this pass AOTAutograd's partitioner saves what operators draw: Inductor's seeds, say, from which the masks of
    dropout are computed again with the same bits. Below an activation_memory_budget of 1, torch 2.13 draws others
    in backward, and gradients are wrong (pytorch/pytorch#190758).

    Args:
        other: the user's own pass or passes, which run before.
    """

    def __init__(self, other: Any = None) -> None:
        self._others = list(other) if isinstance(other, (list, tuple)) else [other] if other is not None else []

    def __call__(self, graph: torch.fx.Graph) -> None:
        for other in self._others:
            other(graph)
        for node in graph.nodes:
            if _draws(node):
                node.meta["recompute"] = CheckpointPolicy.MUST_SAVE

    def uuid(self) -> Any:
        """By what Inductor's cache tells graphs of this pass from others; None: by nothing, it does not keep them."""
        others = [other.uuid() if isinstance(other, CustomGraphPass) else None for other in self._others]
        return None if None in others else ("remat: random numbers are saved", *others)
