"""Where in a model an operator comes from, for messages."""

from __future__ import annotations

import contextlib
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode

from remat.export.capture import fake_step

_LIBRARIES = (str(Path(torch.__file__).parent), str(Path(__file__).parent), "<")


class _Search(TorchDispatchMode):
    """Notes the first call of an operator: the module that ran, and the line outside of PyTorch that led to it."""

    def __init__(self, operator: str) -> None:
        super().__init__()
        self.operator = operator
        self.modules: list[str] = []
        self.found = ""

    def __torch_dispatch__(self, operator: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if not self.found and str(operator).split(".")[1] == self.operator:
            frames = [f for f in traceback.extract_stack() if not f.filename.startswith(_LIBRARIES)]
            parts = [".".join(["model", *filter(None, self.modules[-1:])])] if self.modules else []
            parts += [f"{Path(frames[-1].filename).name}:{frames[-1].lineno}"] if frames else []
            self.found = ", ".join(parts)
        return operator(*args, **(kwargs or {}))


def explain(
    module: nn.Module, loss: Callable[..., torch.Tensor], inputs: Sequence[torch.Tensor],
    targets: Sequence[torch.Tensor], name: str, why: str,
) -> str:  # fmt: skip
    """The message for an operator (``aten.grid_sampler_2d.default``) that has no kernel."""
    operator = name.split(".")[1] if "." in name else name
    search = _Search(operator.removesuffix("_data").removesuffix("_backward"))
    hooks = []
    for path, part in module.named_modules():
        hooks.append(part.register_forward_pre_hook(lambda _m, _a, path=path: search.modules.append(path)))
        hooks.append(part.register_forward_hook(lambda _m, _a, _r: search.modules.pop() and None))
    try:
        # What fails here is passed over: the message is about the operator.
        with contextlib.suppress(Exception), fake_step(module, loss, inputs, targets, ()) as (step, tensors), search:
            step(*tensors)
    finally:
        for hook in hooks:
            hook.remove()
    place = f" ({search.found})" if search.found else ""
    what = f" {why}" if why else ""
    return f"[export] aten::{operator}{what}{place} has no kernel in C; docs/export.md lists those that have"
