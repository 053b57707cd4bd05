"""Regions on a model's repeated blocks, where a budget is not wanted."""

from __future__ import annotations

import functools
import threading
from collections.abc import Iterable
from typing import Any

from torch import nn

from remat.errors import Error
from remat.hooks import never_compiled, remove_hooks
from remat.policy import policy

_SWITCHES = ("gradient_checkpointing", "activation_checkpointing")


class _Region:
    """The hooks of one block: its forward runs under ``remat.policy()``."""

    def __init__(self) -> None:
        self._threads = threading.local()

    # Copies of a model and models in files have the hooks, but none of a call in progress.
    def __getstate__(self) -> dict[str, Any]:
        return {}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self._threads = threading.local()

    @never_compiled
    def before(self, module: nn.Module, args: Any) -> None:
        scopes = self._threads.__dict__.setdefault("scopes", [])
        scopes.append(policy().__enter__())

    @never_compiled
    def after(self, module: nn.Module, args: Any, result: Any) -> None:
        scopes = self._threads.__dict__.get("scopes")
        if scopes:  # hooks that ran before these may have failed
            scopes.pop().__exit__(None, None, None)


def find_blocks(model: nn.Module) -> list[nn.Module]:
    """The repeated blocks of a model: the members of its outermost lists (ModuleList, Sequential) that have several
    modules of one class with modules inside."""
    blocks: list[nn.Module] = []

    def look(module: nn.Module) -> None:
        if isinstance(module, (nn.ModuleList, nn.Sequential)):
            by_class: dict[type, list[nn.Module]] = {}
            for child in module.children():
                if next(child.children(), None) is not None:
                    by_class.setdefault(type(child), []).append(child)
            repeated = [child for group in by_class.values() if len(group) > 1 for child in group]
            # Lists in a list (the stages of a vision model): their members are the blocks.
            repeated = [child for child in repeated if not isinstance(child, (nn.ModuleList, nn.Sequential))]
            if repeated:
                blocks.extend(repeated)
                for child in module.children():
                    if not any(child is block for block in repeated):
                        look(child)
                return
        for child in module.children():
            look(child)

    look(model)
    return blocks


def enable(model: nn.Module, blocks: Iterable[nn.Module] | None = None) -> nn.Module:
    """Drops what autograd saves inside each of `blocks`, as checkpointing every block does, from now on. Returns `model`.

    Args:
        blocks: modules of the model; None: its repeated blocks, the members of its outermost lists of like modules.

    For a Hugging Face model ``gradient_checkpointing_enable()`` and ``activation_checkpointing_enable()`` lead here from
    now on, so that a Trainer may call them. Copies and pickles of the model are enabled too. Enabling twice is enabling
    once, on the blocks named last. Raises Error if there are no blocks.
    """
    chosen = find_blocks(model) if blocks is None else list(blocks)
    if not chosen:
        raise Error(
            f"[enable] {type(model).__name__} has no repeated blocks to choose from: no list with several modules of "
            "one class; name them: remat.enable(model, blocks=[...])"
        )
    mine = set(model.modules())
    for block in chosen:
        if block not in mine:
            raise Error(f"[enable] {type(block).__name__} is not a module of this {type(model).__name__}; give its own")
    _remove_regions(model)
    if hasattr(model, "gradient_checkpointing_disable") and getattr(model, "is_gradient_checkpointing", False):
        type(model).gradient_checkpointing_disable(model)  # both would be once too many
    for block in chosen:
        region = _Region()
        block.register_forward_pre_hook(region.before, prepend=True)
        block.register_forward_hook(region.after, always_call=True)
    for switch in _SWITCHES:
        if hasattr(type(model), f"{switch}_enable"):
            model.__dict__[f"{switch}_enable"] = functools.partial(_switched_on, model, blocks=blocks)
        if hasattr(type(model), f"{switch}_disable"):
            model.__dict__[f"{switch}_disable"] = functools.partial(disable, model)
    return model


def _switched_on(model: nn.Module, *args: Any, blocks: Iterable[nn.Module] | None = None, **kwargs: Any) -> None:
    """gradient_checkpointing_enable(gradient_checkpointing_kwargs=...): its arguments have nothing to do here."""
    enable(model, blocks)


def disable(model: nn.Module) -> nn.Module:
    """Takes back what :func:`enable` did. Returns `model`."""
    _remove_regions(model)
    for switch in _SWITCHES:
        model.__dict__.pop(f"{switch}_enable", None)
        model.__dict__.pop(f"{switch}_disable", None)
    return model


def _remove_regions(model: nn.Module) -> None:
    for module in model.modules():
        remove_hooks(module, _Region)
