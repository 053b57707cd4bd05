"""Which layer of a model each recorded operator is in: for pictures of a step."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn
from torch.utils.hooks import RemovableHandle

from remat import _C
from remat.hooks import check_module, never_compiled


class LayerNotes:
    """While it is open, notes where the operators of each module of `model` begin and end in this thread's record.
    Modules are named by their paths; what runs between them has the path of the one around them, outside of all ""."""

    def __init__(self, model: nn.Module) -> None:
        check_module("step", model)
        self._begins: list[tuple[int, str]] = [(0, "")]  # from which operator on, and the path
        self._inside = [""]
        self._handles: list[RemovableHandle] = []
        for path, module in model.named_modules():
            if path and not isinstance(module, torch.jit.ScriptModule):  # which takes no hooks
                enter, leave = never_compiled(self._entering(path)), never_compiled(self._leaving(path))
                self._handles.append(module.register_forward_pre_hook(enter, prepend=True))
                # Called also where the forward pass fails.
                self._handles.append(module.register_forward_hook(leave, always_call=True))

    def _entering(self, path: str) -> Any:
        def enter(module: nn.Module, inputs: Any) -> None:
            self._inside.append(path)
            self._note()

        return enter

    def _leaving(self, path: str) -> Any:
        def leave(module: nn.Module, inputs: Any, results: Any) -> None:
            if path in self._inside:  # an interrupt may have left others inside
                while self._inside.pop() != path:
                    pass
            self._note()

        return leave

    def _note(self) -> None:
        count = _C.recorded_operators()
        if count >= self._begins[-1][0]:
            self._begins.append((count, self._inside[-1]))

    def close(self) -> None:
        """Takes the hooks away. May be called again."""
        while self._handles:
            self._handles.pop().remove()

    def paths(self, operators: int) -> list[str]:
        """The path for each of so many operators."""
        paths: list[str] = []
        for (begin, path), (end, _) in zip(self._begins, [*self._begins[1:], (operators, "")]):
            paths.extend([path] * (min(end, operators) - min(begin, operators)))
        return paths
