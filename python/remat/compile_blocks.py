"""torch.compile on a model's repeated blocks, under a budget."""

from __future__ import annotations

import types
from typing import Any

import torch
from torch import nn

from remat.blocks import find_blocks
from remat.hooks import check_module
from remat.wrap import wrap

_COMPILERS = ("fullgraph", "dynamic", "backend", "mode", "options", "disable")


def _call(module: nn.Module, *args: Any, **kwargs: Any) -> Any:
    return module._call_impl(*args, **kwargs)


def _compile_block(block: nn.Module, options: dict[str, Any]) -> None:
    if type(block).__module__.startswith("torch.nn."):
        # compile() of PyTorch's own layers compiles nothing: all of the call's code is PyTorch's, which it skips.
        block._compiled_call_impl = torch.compile(types.MethodType(_call, block), **options)
    else:
        block.compile(**options)


def compile(model: nn.Module, budget: int | str | None = None, **options: Any) -> nn.Module:
    """Compiles the repeated blocks of `model` one by one, and keeps every forward and backward pass under `budget`::

        model = remat.compile(model, budget="6GiB")

    The bits are those of the same compiled blocks without remat. Each kernel of a block's forward pass is an operator,
    which is recomputed where the budget asks for it; what a block has saved for backward has to be there at once when
    its backward runs, so a model that is compiled as a whole leaves nothing to save.

    Args:
        budget: as of :class:`remat.Session`, in bytes or percent of the activation peak; None: no limit.
        options: those of :func:`torch.compile` (fullgraph, dynamic, backend, mode, options, disable) go to it, and the
            others to :func:`remat.wrap`.

    Returns `model` itself, with hooks. Its blocks are those of :func:`remat.find_blocks`, compiled in place as by
    ``nn.Module.compile``: parameters and state_dict() keep their names, and copies are not compiled. A model without repeated blocks is
    compiled as a whole. Not thread-safe: call it before the first step.
    """
    check_module("compile", model)
    compiler = {name: options.pop(name) for name in _COMPILERS if name in options}
    wrap(model, budget, **options)  # bad options are an error before anything has changed
    for block in find_blocks(model) or [model]:
        _compile_block(block, compiler)
    return model
