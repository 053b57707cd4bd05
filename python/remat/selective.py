"""Selective checkpoint policies of torch.utils.checkpoint, as remat's: they are asked about each operator by itself."""

from __future__ import annotations

import functools
import sys
import weakref
from collections.abc import Callable
from typing import Any

import torch
from torch.utils.checkpoint import CheckpointPolicy, SelectiveCheckpointContext

from remat import _C
from remat.errors import Error
from remat.policy import policy_of

PolicyFunction = Callable[..., Any]

# Values that go to the host and come back are as little recomputed as those that stay.
_SAVES = tuple(member for member in CheckpointPolicy if member.name.endswith(("_SAVE", "_CPU_OFFLOAD")))
_TIMES = 4  # a policy is asked about each operator: as many tell "every second" to "every fourth"

_operators: list[torch._ops.OpOverload] = []
_schemas = 0  # how many there were when `_operators` was made
_loaded: tuple[int, ...] = ()  # and what of all that may register operators
_policies: weakref.WeakKeyDictionary[PolicyFunction, tuple[int, _C.Policy]] = weakref.WeakKeyDictionary()


def selective_policy(function: PolicyFunction) -> _C.Policy:
    """Keeps the operators that `function` saves, the policy of a context that
    torch.utils.checkpoint.create_selective_checkpoint_contexts() made. Raises Error where it fails without an
    operator's arguments, or its answers differ from one time to the next."""
    listed = _listed(function)
    if listed is not None:
        return _policy_of_list(listed)
    operators = _known_operators()
    try:
        count, policy = _policies.get(function, (0, None))
    except TypeError:  # it has no hash, or no weak references
        return _ask(function, operators)
    if policy is None or count != len(operators):
        policy = _ask(function, operators)
        _policies[function] = len(operators), policy
    return policy


@functools.lru_cache(maxsize=64)
def _policy_of_list(operators: tuple[torch._ops.OpOverload, ...]) -> _C.Policy:
    """Composites among them say nothing, as in torch, whose policies are asked about their parts alone."""
    schemas = [operator._schema for operator in operators]
    recorded = [_C.is_recorded_operator(schema.name, schema.overload_name) for schema in schemas]
    return policy_of([operator for operator, is_recorded in zip(operators, recorded) if is_recorded])


def _listed(function: PolicyFunction) -> tuple[torch._ops.OpOverload, ...] | None:
    """The operators, where create_selective_checkpoint_contexts() was given a list. What it makes of that is a function
    over the list, a new one every time, which would be asked again every time."""
    code = getattr(function, "__code__", None)
    if getattr(function, "__module__", None) != "torch.utils.checkpoint" or code is None:
        return None
    cells = dict(zip(code.co_freevars, function.__closure__ or ()))
    listed = cells["policy_fn_or_list"].cell_contents if list(cells) == ["policy_fn_or_list"] else None
    if not isinstance(listed, list):
        return None
    return tuple(operator for operator in listed if isinstance(operator, torch._ops.OpOverload))


def _ask(function: PolicyFunction, operators: list[torch._ops.OpOverload]) -> _C.Policy:
    context = SelectiveCheckpointContext(is_recompute=False)
    saved = []
    for operator in operators:
        try:
            answers = [function(context, operator) for _ in range(_TIMES)]
        except Exception as error:
            raise Error(
                f"[checkpoint] the selective policy failed when asked about {operator} without its arguments "
                f"({error!r}); decide by operator alone, or use remat.policy(keep=[...])"
            ) from error
        saves = [answer is True or answer in _SAVES for answer in answers]
        if any(saves) != all(saves):
            raise Error(
                f"[checkpoint] the selective policy saved {operator} {sum(saves)} of the {_TIMES} times that it was "
                "asked about it; it is asked by operator and not at every call, so that it cannot count calls: decide "
                "by operator alone, or put remat.policy(keep=[...]) around the parts of the function"
            )
        if saves[0]:
            saved.append(operator)
    return _policy_of_list(tuple(saved))


def _known_operators() -> list[torch._ops.OpOverload]:
    """Every operator that torch.ops knows of by now."""
    global _operators, _schemas, _loaded
    loaded = len(sys.modules), len(torch.ops.loaded_libraries), len(getattr(torch.library, "_defs", ()))
    if loaded == _loaded:  # looking at the schemas takes ten milliseconds
        return _operators
    schemas = torch._C._jit_get_all_schemas()
    if len(schemas) != _schemas:
        found = []
        for schema in schemas:
            namespace, _, name = schema.name.partition("::")
            packet = getattr(getattr(torch.ops, namespace), name, None)
            overload = getattr(packet, schema.overload_name or "default", None)
            if isinstance(overload, torch._ops.OpOverload):
                found.append(overload)
        _operators, _schemas = found, len(schemas)
    _loaded = loaded
    return _operators
