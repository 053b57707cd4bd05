"""Regions on a model's repeated blocks, where a budget is not wanted."""

from __future__ import annotations

import functools
import threading
from collections.abc import Iterable
from typing import Any

from torch import nn

from remat.errors import Error
from remat.hooks import calls_around, check_module, never_compiled, remove_hooks
from remat.policy import policy

# Of Hugging Face's models; PEFT and others wrap such models and hand the calls on.
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
        if scopes:
            while len(scopes) > calls_around(module):  # those calls were interrupted
                scopes.pop().__exit__(None, None, None)
        scopes.append(policy().__enter__())

    @never_compiled
    def after(self, module: nn.Module, args: Any, result: Any) -> None:
        scopes = self._threads.__dict__.get("scopes")
        if scopes:  # hooks that ran before these may have failed
            scopes.pop().__exit__(None, None, None)


def find_blocks(model: nn.Module) -> list[nn.Module]:
    """The repeated blocks of a model: the layers that Hugging Face's models declare for checkpointing, or else those
    members of its outermost lists (ModuleList, Sequential) of which there are several of one class, with modules
    inside."""
    declared = _declared_blocks(model)
    if declared:
        return declared
    blocks: list[nn.Module] = []

    def look(module: nn.Module) -> None:
        if isinstance(module, (nn.ModuleList, nn.Sequential)):
            by_class: dict[type, list[nn.Module]] = {}
            for child in module.children():
                if next(child.children(), None) is not None:
                    by_class.setdefault(type(child), []).append(child)
            repeated = [child for group in by_class.values() if len(group) > 1 for child in group]
            # Lists in a list (the stages of a vision model): their members are the blocks, if they have some.
            lists = [child for child in repeated if isinstance(child, (nn.ModuleList, nn.Sequential))]
            repeated = [child for child in repeated if child not in lists or not find_blocks(child)]
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


def _declared_blocks(module: nn.Module) -> list[nn.Module]:
    """The outermost modules of a class derived from transformers' GradientCheckpointingLayer."""
    found: list[nn.Module] = []
    seen: set[nn.Module] = set()

    def look(module: nn.Module) -> None:
        if module in seen:
            return
        seen.add(module)
        if any(base.__name__ == "GradientCheckpointingLayer" for base in type(module).__mro__):
            found.append(module)
            return
        for child in module.children():
            look(child)

    look(module)
    return found


def _switched_models(model: nn.Module) -> list[nn.Module]:
    """The outermost modules of `model` whose checkpointing can be switched, `model` itself or what it wraps."""
    if any(hasattr(type(model), f"{switch}_enable") for switch in _SWITCHES):
        return [model]
    return [found for child in model.children() for found in _switched_models(child)]


def enable(model: nn.Module, blocks: Iterable[nn.Module] | None = None) -> nn.Module:
    """Drops what autograd saves inside each of `blocks` from now on, as checkpointing every block does. Returns
    `model`.

    Args:
        blocks: modules of the model; None: its repeated blocks, the members of its outermost lists of like modules.

    For a Hugging Face model, also inside PEFT's, ``gradient_checkpointing_enable()`` and
    ``activation_checkpointing_enable()`` lead here from now on, so that a Trainer may call them; caches of keys and
    values, which those forbid, may stay (``use_cache``). Copies and pickles of the model are enabled too. Enabling
    twice is enabling once, on the blocks named last. Raises Error if there are no blocks.
    """
    check_module("enable", model)
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
    disable(model)
    for switched in _switched_models(model):
        if any(getattr(module, "gradient_checkpointing", False) for module in switched.modules()):
            _call_switch(switched, "disable")  # both would be once too many
    _add_regions(chosen)
    named = None if blocks is None else chosen  # `blocks` may be an iterator
    for switched in _switched_models(model):
        for switch in _SWITCHES:
            if hasattr(type(switched), f"{switch}_enable"):
                switched.__dict__[f"{switch}_enable"] = functools.partial(_switched_on, model, named)
                switched.__dict__[f"{switch}_disable"] = functools.partial(_switched_off, model)
    return model


def _call_switch(model: nn.Module, what: str) -> None:
    """Calls the model's own switch, by its present name rather than by a deprecated one."""
    for switch in reversed(_SWITCHES):
        function = getattr(type(model), f"{switch}_{what}", None)
        if function is not None:
            function(model)
            return


def _switched_on(
    model: nn.Module, blocks: list[nn.Module] | None, *args: Any, every_n_layers: int = 1, **kwargs: Any
) -> None:
    """activation_checkpointing_enable(activation_checkpointing_kwargs=..., every_n_layers=..., offload=...): there is
    no second call for its arguments to be about, and nothing to hold for an offload."""
    _remove_regions(model)
    chosen = find_blocks(model) if blocks is None else blocks
    _add_regions(chosen[:: max(1, every_n_layers)])


def _switched_off(model: nn.Module) -> None:
    """As checkpointing that is off may be switched on again, remat stays in the switches' place."""
    _remove_regions(model)


def disable(model: nn.Module) -> nn.Module:
    """Takes back what :func:`enable` did. Returns `model`."""
    _remove_regions(model)
    for switched in _switched_models(model):
        for switch in _SWITCHES:
            switched.__dict__.pop(f"{switch}_enable", None)
            switched.__dict__.pop(f"{switch}_disable", None)
    return model


def _add_regions(blocks: Iterable[nn.Module]) -> None:
    for block in dict.fromkeys(blocks):
        region = _Region()
        block.register_forward_pre_hook(region.before, prepend=True)
        block.register_forward_hook(region.after, always_call=True)


def _remove_regions(model: nn.Module) -> None:
    for module in model.modules():
        remove_hooks(module, _Region)
