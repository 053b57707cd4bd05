"""Regions on a model's repeated blocks, where a budget is not wanted."""

from __future__ import annotations

import contextlib
import warnings
import weakref
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Union

from torch import nn

from remat import memory
from remat.errors import Error
from remat.heads import check_how, promise_heads, release_heads
from remat.hooks import add_hooks, check_module, compile_anew, has_forward, never_compiled, remove_hooks
from remat.module_paths import by_path
from remat.policy import operator_name, policy_of
from remat.progress import begin_region, end_region

# Of Hugging Face's models; PEFT and others wrap such models and hand the calls on.
_SWITCHES = ("gradient_checkpointing", "activation_checkpointing")


Keep = Union[Sequence[Any], str]  #: of a policy
Policies = dict[nn.Module, Keep]


def _dropping(blocks: Iterable[nn.Module]) -> Policies:
    """All that they save."""
    return dict.fromkeys(blocks, ())


def _listed(keep: Any) -> Keep:
    """By names, which any number of modules can share and a pickle can hold."""
    if isinstance(keep, str):
        return keep
    if not isinstance(keep, Iterable):
        raise Error(f'[enable] {keep!r} is not what a module can keep; use "all", "compute" or a list of operators')
    return [operator_name(operator, where="enable") for operator in keep]


class _Region:
    """The hooks of one block: its forward runs under ``remat.policy(keep)``."""

    def __init__(self, keep: Keep) -> None:
        self._keep = keep
        self._policy = policy_of(keep)

    def __getstate__(self) -> Keep:
        return self._keep

    def __setstate__(self, keep: Keep) -> None:
        self.__init__(keep)

    @never_compiled
    def before(self, module: nn.Module, args: Any) -> None:
        begin_region(module, self._policy)

    @never_compiled
    def after(self, module: nn.Module, args: Any, result: Any) -> None:
        end_region(module)


class _Switch:
    """Stands in a Hugging Face model for its own switches. It knows the model and the blocks weakly: as it is in an
    attribute of theirs, they would be freed by the garbage collector alone."""

    def __init__(self, model: nn.Module, blocks: Policies | None) -> None:
        self.__setstate__((model, blocks))

    # A copy of the model, or one from a file, has a switch of its own. It is in the state too: the copy alone holds it.
    def __getstate__(self) -> tuple[nn.Module | None, Policies | None]:
        return self._model(), self._named()

    def __setstate__(self, state: tuple[nn.Module | None, Policies | None]) -> None:
        model, blocks = state
        self._model = (lambda: None) if model is None else weakref.ref(model)
        self._blocks = None if blocks is None else [(weakref.ref(block), keep) for block, keep in blocks.items()]

    def _named(self) -> Policies | None:
        if self._blocks is None:
            return None
        named = ((reference(), keep) for reference, keep in self._blocks)
        return {block: keep for block, keep in named if block is not None}

    def enable(
        self,
        activation_checkpointing_kwargs: dict[str, Any] | None = None,
        every_n_layers: int = 1,
        offload: bool = False,
        *,
        gradient_checkpointing_kwargs: dict[str, Any] | None = None,
    ) -> None:
        """As Hugging Face's. What the keywords of checkpointing say of a second call has nothing to do here; of what else
        they ask for and do not get, there is a warning."""
        asked = {**(activation_checkpointing_kwargs or {}), **(gradient_checkpointing_kwargs or {})}
        _warn_of_what_is_not_done(offload or asked.get("offload"), asked.get("context_fn"))
        model = self._model()
        if model is not None:
            named = self._named()
            chosen = _dropping(find_blocks(model)) if named is None else named
            regions = _regions(chosen if every_n_layers <= 1 else _every(every_n_layers, chosen))
            _remove_regions(model)
            _add_regions(regions)

    def disable(self) -> None:
        """As checkpointing that is off may be switched on again, this stays in the switches' place."""
        model = self._model()
        if model is not None:
            _remove_regions(model)


def _warn_of_what_is_not_done(offload: Any, context_fn: Any) -> None:
    if offload:
        warnings.warn(
            "[enable] offload=True has no effect under remat: nothing is moved to the host, and what the blocks read stays "
            "where it is; leave it out, or call remat.disable(model) for Hugging Face's own",
            stacklevel=3,
        )
    if context_fn is not None:
        warnings.warn(
            "[enable] context_fn has no effect under remat: say what blocks keep by remat.enable(model, policies=...)",
            stacklevel=3,
        )


def find_blocks(model: nn.Module) -> list[nn.Module]:
    """The repeated blocks of a model: the layers that Hugging Face's models declare for checkpointing, or else those
    members of its outermost lists (ModuleList, Sequential) of which there are several of one class, with modules
    inside."""
    declared = _declared_blocks(model)
    if declared:
        return declared
    return _repeated_blocks(model)


def listed_blocks(where: str, blocks: Any) -> list[nn.Module]:
    """The blocks that a user names. Raises Error for what is no list of anything."""
    if not isinstance(blocks, Iterable):
        raise Error(f"[{where}] blocks is a {type(blocks).__name__}; give a list of modules: blocks=[...]")
    return list(blocks)


def check_members(where: str, model: nn.Module, blocks: Iterable[nn.Module]) -> None:
    """Raises Error unless all are modules of the model that can be called."""
    modules = set(model.modules())
    for block in blocks:
        if block not in modules:
            raise Error(f"[{where}] {type(block).__name__} is not a module of this {type(model).__name__}; give its own")
        if not has_forward(block):
            raise Error(
                f"[{where}] a {type(block).__name__} has no forward(), so that no call of it would be seen; name the "
                f"modules inside of it: remat.{where}(model, blocks=[...])"
            )


def _repeated_blocks(module: nn.Module) -> list[nn.Module]:
    """Those of the outermost lists in `module`, which may be one itself."""
    repeated: list[nn.Module] = []
    if isinstance(module, (nn.ModuleList, nn.Sequential)):
        by_class: dict[type, list[nn.Module]] = {}
        for child in module.children():
            if next(child.children(), None) is not None:
                by_class.setdefault(type(child), []).append(child)
        repeated = [child for group in by_class.values() if len(group) > 1 for child in group]
        # Lists in a list (the stages of a vision model): their members are the blocks, if they have some.
        lists = [child for child in repeated if isinstance(child, (nn.ModuleList, nn.Sequential))]
        repeated = [child for child in repeated if child not in lists or not find_blocks(child)]
    found = list(repeated)
    for child in module.children():
        if child not in repeated:
            found += _repeated_blocks(child)
    return found


def _declared_blocks(module: nn.Module) -> list[nn.Module]:
    """The outermost modules of a class derived from transformers' GradientCheckpointingLayer."""
    found: list[nn.Module] = []
    seen: set[nn.Module] = set()
    pending = [module]
    while pending:
        each = pending.pop()
        if each in seen:
            continue
        seen.add(each)
        if any(base.__name__ == "GradientCheckpointingLayer" for base in type(each).__mro__):
            found.append(each)
        else:
            pending.extend(reversed(list(each.children())))
    return found


def _switched_models(model: nn.Module) -> list[nn.Module]:
    """The outermost modules of `model` whose checkpointing can be switched, `model` itself or what it wraps."""
    if any(hasattr(type(model), f"{switch}_enable") for switch in _SWITCHES):
        return [model]
    return [found for child in model.children() for found in _switched_models(child)]


def enable(
    model: nn.Module,
    blocks: Iterable[nn.Module] | None = None,
    *,
    policies: Mapping[str, Keep] | None = None,
    head: str = "whole",
) -> nn.Module:
    """Drops what autograd saves inside each of `blocks` from now on, as checkpointing every block does. Returns
    `model`.

    Args:
        blocks: modules of the model; None: its repeated blocks, the members of its outermost lists of like modules.
        policies: instead of `blocks`, what modules keep, by their paths: ``{"layers.*": (), "layers.*.attention":
            "all"}`` drops all but what the attention saves. ``*`` stands for any characters but dots, ``**`` for dots
            too; the values are those of :class:`remat.policy`. Of modules inside of each other the innermost decides,
            of patterns for one module the last.
        head: how the loss of a Hugging Face language model is made of its logits: see :func:`remat.wrap`.

    For a Hugging Face model, also inside PEFT's, ``gradient_checkpointing_enable()`` and
    ``activation_checkpointing_enable()`` lead here from now on, so that a Trainer may call them; caches of keys and
    values, which those forbid, may stay (``use_cache``). Their ``offload=True`` does nothing here, with a warning. Copies and pickles of the model are enabled too. Enabling
    twice is enabling once, on the blocks named last. Raises Error if there are no blocks, or none that can be called at a
    path, and for what is no policy; all stays as it was then.
    """
    check_module("enable", model)
    check_how("enable", head)
    if blocks is not None and policies is not None:
        raise Error("[enable] blocks and policies both say where; give one of them")
    named = None
    if policies is not None:
        if not isinstance(policies, Mapping):
            raise Error(f'[enable] policies is a {type(policies).__name__}; use a dict by paths, as {{"layers.*": ()}}')
        named = by_path("enable", model, {path: _listed(keep) for path, keep in policies.items()})
    elif blocks is not None:
        named = _dropping(listed_blocks("enable", blocks))
    chosen = _dropping(find_blocks(model)) if named is None else named
    if not chosen:
        raise Error(
            f"[enable] {type(model).__name__} has no repeated blocks to choose from: no list with several modules of "
            "one class; name them: remat.enable(model, blocks=[...])"
        )
    check_members("enable", model, chosen)
    regions = _regions(chosen)  # bad policies are an error here
    disable(model)
    for switched in _switched_models(model):
        if any(getattr(module, "gradient_checkpointing", False) for module in switched.modules()):
            _call_switch(switched, "disable")  # both would be once too many
    promise_heads(model, head, "enable")
    _add_regions(regions)
    with contextlib.suppress(Error):  # another library's allocator stays
        # Before the first forward pass, in which FSDP2 allocates what its parameters are gathered into.
        memory.start_accounting()
    for switched in _switched_models(model):
        inside = set(switched.modules())
        mine = None if named is None else {block: keep for block, keep in named.items() if block in inside}
        ours = _Switch(switched, mine)
        for switch in _SWITCHES:
            if hasattr(type(switched), f"{switch}_enable"):
                switched.__dict__[f"{switch}_enable"] = ours.enable
                switched.__dict__[f"{switch}_disable"] = ours.disable
    return model


def _call_switch(model: nn.Module, what: str) -> None:
    """Calls the model's own switch, by its present name rather than by a deprecated one."""
    for switch in reversed(_SWITCHES):
        function = getattr(type(model), f"{switch}_{what}", None)
        if function is not None:
            function(model)
            return


def disable(model: nn.Module) -> nn.Module:
    """Takes back what :func:`enable` did. Returns `model`."""
    _remove_regions(model)
    release_heads(model, "enable")
    for switched in _switched_models(model):
        for switch in _SWITCHES:
            switched.__dict__.pop(f"{switch}_enable", None)
            switched.__dict__.pop(f"{switch}_disable", None)
    return model


def _every(n: int, blocks: Policies) -> Policies:
    """Of the outermost of `blocks` each n-th, with those that are inside of it."""
    inside = {block: set(block.modules()) - {block} for block in blocks}
    outermost = [block for block in blocks if not any(block in members for members in inside.values())]
    chosen = {member for block in outermost[::n] for member in (block, *inside[block])}
    return {block: keep for block, keep in blocks.items() if block in chosen}


def _regions(blocks: Policies) -> dict[nn.Module, _Region]:
    return {block: _Region(keep) for block, keep in blocks.items()}


def _add_regions(regions: dict[nn.Module, _Region]) -> None:
    for block, region in regions.items():
        add_hooks(block, region.before, region.after)
    compile_anew()


def _remove_regions(model: nn.Module) -> None:
    for module in model.modules():
        remove_hooks(module, _Region)
