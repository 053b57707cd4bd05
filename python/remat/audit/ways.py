"""Ways to save memory: what each does to a model before its first call."""

from __future__ import annotations

import functools
import importlib
import importlib.util
import inspect
import os
import sys
from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint, create_selective_checkpoint_contexts

Way = Callable[[nn.Module], Any]
NAMES = "plain, checkpoint, sac, compile, compile:FRACTION, offload, enable, remat, remat:BUDGET"


class NotHere(Exception):
    """Why a way has nothing to do for a model."""


class BadWay(Exception):
    """Why there is no such way."""


def check(spec: str) -> None:
    """Raises BadWay unless it is one of NAMES."""
    name, colon, detail = spec.partition(":")
    if name == "chunked-loss":
        raise BadWay("chunked-loss is not built in: it takes the place of a model's last layer and its loss, which a script "
                     "does not name; give a function of yours: --way chunked-loss=FILE.py:FUNCTION")  # fmt: skip
    if name not in ("plain", "checkpoint", "sac", "compile", "offload", "enable", "remat") or (
        colon and (name not in ("compile", "remat") or not detail)
    ):
        raise BadWay(f"there is no way '{spec}'; use {NAMES}, or --way NAME=FILE.py:FUNCTION for one of yours")
    if name == "compile" and colon:
        try:
            right = 0 <= float(detail) <= 1
        except ValueError:
            right = False
        if not right:
            raise BadWay(f"'{detail}' is no activation_memory_budget; use 0 to 1, as in compile:0.5")


def built_in(spec: str) -> Way | None:
    """Of one of NAMES; None for plain."""
    name, _, detail = spec.partition(":")
    if name == "remat":
        return lambda model: _remat().wrap(model, budget=detail or None)
    if name == "enable":
        return lambda model: _remat().enable(model, blocks=_blocks(model))
    if name == "compile":
        return functools.partial(_compile, fraction=float(detail) if detail else None)
    return {"plain": None, "checkpoint": _checkpoint, "sac": _selective, "offload": _offload}[name]


def load(place: str) -> Callable[..., Any]:
    """The function of "module:function" or "FILE.py:function". Raises BadWay."""
    source, _, name = place.rpartition(":")
    if not source or not name:
        raise BadWay(f"'{place}' names no function; give FILE.py:FUNCTION or MODULE:FUNCTION")
    try:
        if source.endswith(".py"):
            specification = importlib.util.spec_from_file_location("audited_way", os.path.abspath(source))
            assert specification is not None and specification.loader is not None
            module = importlib.util.module_from_spec(specification)
            sys.modules["audited_way"] = module
            specification.loader.exec_module(module)
        else:
            module = importlib.import_module(source)
    except (OSError, ImportError) as error:
        raise BadWay(f"{source} cannot be imported ({error}); give FILE.py:FUNCTION or MODULE:FUNCTION") from None
    function = getattr(module, name, None)
    if not callable(function):
        raise BadWay(f"{source} has no function {name}; give FILE.py:FUNCTION or MODULE:FUNCTION")
    return function


def takes_model(function: Callable[..., Any]) -> bool:
    try:
        inspect.signature(function).bind()
    except TypeError:
        return True
    except ValueError:
        return True
    return False


def _remat() -> Any:
    return importlib.import_module("remat")


def _blocks(model: nn.Module) -> list[nn.Module]:
    blocks = _remat().find_blocks(model)
    if not blocks:
        raise NotHere(
            f"{type(model).__name__} has no repeated blocks that remat.find_blocks() finds; give a function that "
            "changes yours: --way NAME=FILE.py:FUNCTION"
        )
    return blocks


def _checkpoint(model: nn.Module, **options: Any) -> None:
    """As the model does it itself, where it is one of Hugging Face's; else each repeated block's forward."""
    options = {"use_reentrant": False, **options}
    if getattr(model, "supports_gradient_checkpointing", False):
        model.gradient_checkpointing_enable(gradient_checkpointing_kwargs=options)
        return
    for block in _blocks(model):
        block.forward = functools.partial(checkpoint, block.forward, **options)


_KEPT = ("mm", "addmm", "bmm", "baddbmm", "convolution", "_scaled_dot_product_flash_attention",
         "_scaled_dot_product_flash_attention_for_cpu", "_scaled_dot_product_efficient_attention",
         "_scaled_dot_product_cudnn_attention", "_scaled_dot_product_attention_math")  # fmt: skip


def _selective(model: nn.Module) -> None:
    kept = [getattr(torch.ops.aten, name).default for name in _KEPT if hasattr(torch.ops.aten, name)]
    _checkpoint(model, context_fn=functools.partial(create_selective_checkpoint_contexts, kept))


def _compile(model: nn.Module, fraction: float | None) -> Any:
    compiled = torch.compile(model)
    if fraction is None:
        return compiled
    import torch._functorch.config as config

    def call(*args: Any, **kwargs: Any) -> Any:
        with config.patch(activation_memory_budget=fraction):
            return compiled(*args, **kwargs)

    return call


def _offload(model: nn.Module) -> Callable[..., Any]:
    def call(*args: Any, **kwargs: Any) -> Any:
        with torch.autograd.graph.save_on_cpu():
            return model(*args, **kwargs)

    return call
