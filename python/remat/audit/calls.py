"""The outermost calls of modules: they tell what parameters are called, and are where a way comes to stand.

A script names its model nowhere. So calls of modules are watched, but only from outside: while one runs,
``torch.nn.Module.__call__`` is what it was, and so what torch.compile and others find there is PyTorch's own.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from .ways import NotHere

_WRAPPERS = ("_orig_mod.", "_checkpoint_wrapped_module.", "_fsdp_wrapped_module.")


def in_backward() -> bool:
    return torch._C._current_graph_task_id() != -1


def plain_name(name: str) -> str:
    """Without what wrappers of PyTorch's put into it."""
    for wrapper in _WRAPPERS:
        name = name.replace(wrapper, "")
    return name


class Calls:
    """`way`: makes of a model what is to be called in its place. `before_call`: called before every outermost call."""

    def __init__(self, way: Callable[[nn.Module], Any] | None, before_call: Callable[[], None]) -> None:
        self.parameters: dict[int, tuple[str, nn.Parameter]] = {}
        self.buffers: list[tuple[str, nn.Module, str]] = []
        self.modules: dict[int, tuple[str, nn.Module]] = {}
        self.applied = 0
        self.refused: list[str] = []  # why a way found nothing to do
        self._way = way
        self._before_call = before_call
        self._instead: dict[int, tuple[nn.Module, Callable[..., Any]]] = {}
        self._roots: list[nn.Module] = []
        self._thread = threading.get_ident()

    def install(self) -> None:
        self._original = original = nn.Module.__call__

        def call(module: nn.Module, *args: Any, **kwargs: Any) -> Any:
            if threading.get_ident() != self._thread or in_backward() or torch.compiler.is_compiling():
                return original(module, *args, **kwargs)
            nn.Module.__call__ = original
            try:
                runs = self._found(module)
                self._before_call()
                return original(module, *args, **kwargs) if runs is module else runs(*args, **kwargs)
            finally:
                nn.Module.__call__ = call

        nn.Module.__call__ = call

    def remove(self) -> None:
        nn.Module.__call__ = self._original

    def _found(self, module: nn.Module) -> Callable[..., Any]:
        known = self._instead.get(id(module))
        if known is not None:
            return known[1]
        runs: Callable[..., Any] = module
        if next(module.parameters(), None) is not None:  # no loss
            self._name(*_root_of(module))
            if self._way is not None:
                try:
                    result = self._way(module)
                    runs = module if result is None else result
                    self.applied += 1
                except NotHere as reason:
                    self.refused.append(str(reason))
        self._instead[id(module)] = module, runs
        return runs

    def _name(self, root: nn.Module, called: str) -> None:
        """The names of all that is in `root`. Of several models all but the first have their own name before."""
        if id(root) in self.modules:
            return
        if self._roots:
            called = called or f"{type(root).__name__}{len(self._roots) + 1}"
        before = f"{called}." if self._roots else ""
        self._roots.append(root)
        for name, parameter in root.named_parameters():
            self.parameters.setdefault(id(parameter), (before + plain_name(name), parameter))
        for path, module in root.named_modules():
            if id(module) in self.modules:
                continue
            path = plain_name(f"{path}.").removesuffix(".")
            self.modules[id(module)] = (before + path).removesuffix(".") or type(root).__name__, module
            for name in module._buffers:
                self.buffers.append((before + (f"{path}.{name}" if path else name), module, name))


def _root_of(module: nn.Module) -> tuple[nn.Module, str]:
    """The outermost module with this one inside that a caller is a method of (training_step() of a LightningModule is not
    called through the module), and the name of a variable that it has there."""
    root, name = module, ""
    frame = sys._getframe(3)
    while frame is not None:
        owner = frame.f_locals.get("self")
        if isinstance(owner, nn.Module) and any(inner is root for inner in owner.modules()):
            root, name = owner, ""
        if not name:
            name = next((word for word, value in frame.f_locals.items() if value is root and word != "self"), "")
        frame = frame.f_back
    return root, name
