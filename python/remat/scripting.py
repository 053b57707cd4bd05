"""torch.jit.script() of a wrapped model, or one with enabled blocks: it compiles a module's hooks too, and remat's are
Python's. While it looks at a model they are not there. What it makes is as that of the plain model, without a budget."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import nn


def _is_ours(hook: Any) -> bool:
    owner = getattr(hook, "__self__", None)
    module = getattr(hook, "__module__", None) if owner is None else type(owner).__module__
    return str(module).partition(".")[0] == "remat"


@contextlib.contextmanager
def _without_hooks(model: Any) -> Iterator[None]:
    modules = model.modules() if isinstance(model, nn.Module) else ()
    taken = []
    for module in modules:
        for hooks in (module._forward_pre_hooks, module._forward_hooks):
            if any(_is_ours(hook) for hook in hooks.values()):
                taken.append((hooks, dict(hooks)))
    try:
        for hooks, before in taken:
            for key, hook in before.items():
                if _is_ours(hook):
                    del hooks[key]
        yield
    finally:
        for hooks, before in taken:  # in their old order
            added = {key: hook for key, hook in hooks.items() if key not in before}
            hooks.clear()
            hooks.update(before | added)


def _install() -> None:
    compiler = torch.jit._recursive
    create: Callable[..., Any] = compiler.create_script_module
    if hasattr(create, "_remat"):
        return

    @functools.wraps(create)
    def created(nn_module: Any, *args: Any, **kwargs: Any) -> Any:
        with _without_hooks(nn_module):
            return create(nn_module, *args, **kwargs)

    created._remat = True  # type: ignore[attr-defined]
    compiler.create_script_module = created


_install()
