"""Every operator of one step with digests of what it computed: where two runs part is the first value that only one has."""

from __future__ import annotations

import json
from typing import Any

import torch
from torch import nn
from torch.nn.modules.module import register_module_forward_hook, register_module_forward_pre_hook
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from .calls import in_backward
from .values import value_of


class Trace(TorchDispatchMode):
    """Of the step before the update with this number, from the first call of a model on. Slow: all results are read."""

    def __init__(self, update: int, path: str) -> None:
        super().__init__()
        self.update = update
        self._path = path
        self._on = False
        self.done = False
        self._operators: list[tuple[str, str, str, list[str]]] = []
        self._inside: list[nn.Module] = []

    def begin(self, modules: dict[int, tuple[str, nn.Module]]) -> None:
        if self._on or self.done:
            return
        self._modules = modules
        self._hooks = [
            register_module_forward_pre_hook(lambda module, args: self._inside.append(module)),
            register_module_forward_hook(self._left, always_call=True),
        ]
        self._on = True
        self.__enter__()

    def end(self) -> None:
        """Writes what was seen."""
        if not self._on:
            return
        self._on, self.done = False, True
        self.__exit__(None, None, None)
        for hook in self._hooks:
            hook.remove()
        with open(self._path, "w", encoding="utf-8") as file:
            json.dump(self._operators, file)

    def _left(self, module: nn.Module, args: Any, result: Any) -> None:
        while self._inside and self._inside.pop() is not module:
            pass  # what an exception left

    def __torch_dispatch__(self, operator: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = operator(*args, **(kwargs or {}))
        name = operator._schema.name
        if "empty" not in name and name != "aten::detach":
            written = _written(operator, name, args)
            tensors = [each for each in [*tree_leaves(result), *written] if isinstance(each, torch.Tensor)]
            if tensors:
                inside = self._modules.get(id(self._inside[-1]), ("", None))[0] if self._inside else ""
                phase = "forward"
                if in_backward():  # which computes without gradients, other than what calls the model again
                    phase = "recomputed" if self._inside or torch.is_grad_enabled() else "backward"
                self._operators.append((name, inside, phase, [value_of(tensor).digest() for tensor in tensors]))
        return result


def _written(operator: Any, name: str, args: Any) -> list[Any]:
    """Arguments that it writes to. Batch norms write to the statistics, which their schemas do not all say."""
    arguments = operator._schema.arguments
    found = [arg for arg, known in zip(args, arguments) if known.alias_info is not None and known.alias_info.is_write]
    if "batch_norm" in name and "backward" not in name:
        found += [arg for arg, known in zip(args, arguments) if known.name.startswith("running_")]
    return tree_leaves(found)


def first_difference(plain: str, other: str) -> dict[str, str] | None:
    """The first operator that computed something which is nowhere in the plain step; None if there is none. Alike bytes in
    another place do not count: copies to the host and back, a block that runs twice."""
    with open(plain, encoding="utf-8") as first, open(other, encoding="utf-8") as second:
        known = {digest for *_, digests in json.load(first) for digest in digests}
        for name, module, phase, digests in json.load(second):
            if any(digest not in known for digest in digests):
                return {"operator": name, "module": module, "phase": phase}
    return None
