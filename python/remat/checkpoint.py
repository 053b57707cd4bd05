"""torch.utils.checkpoint's functions, without the second call of the user's."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from remat.errors import Error
from remat.policy import policy
from remat.selective import selective_policy


def checkpoint(
    function: Callable[..., Any],
    *args: Any,
    use_reentrant: bool | None = None,
    context_fn: Callable[[], tuple[Any, Any]] | None = None,
    determinism_check: str = "default",
    debug: bool = False,
    early_stop: bool = True,
    preserve_rng_state: bool = True,
    **kwargs: Any,
) -> Any:
    """Calls ``function(*args, **kwargs)`` once and returns what it returns. What autograd saves inside is dropped, and
    brought back in backward by replaying the recorded operators.

    Takes every argument of torch.utils.checkpoint.checkpoint. Those about the second call have nothing to do here:
    `use_reentrant`, `determinism_check`, `debug`, `early_stop` and `preserve_rng_state` (random numbers are always the
    same). Of `context_fn`, what torch.utils.checkpoint.create_selective_checkpoint_contexts() made is understood: the
    operators that it saves are kept. Any other context is entered around the one call.
    """
    del use_reentrant, determinism_check, debug, early_stop, preserve_rng_state
    if context_fn is None:
        with policy():
            return function(*args, **kwargs)
    context, _recompute_context = context_fn()
    selective = getattr(context, "policy_fn", None)
    if selective is None:
        with policy(), context:
            return function(*args, **kwargs)
    with policy(keep=selective_policy(selective)):
        return function(*args, **kwargs)


def checkpoint_sequential(
    functions: torch.nn.Sequential | Sequence[Callable[[Any], Any]],
    segments: int,
    input: Any,
    use_reentrant: bool | None = None,
    **kwargs: Any,
) -> Any:
    """Runs `functions` one after the other on `input`, in `segments` checkpointed runs of equal length (Chen et al.
    2016, arXiv 1604.06174, section 4: about the square root of their number uses least memory).

    Takes the arguments of torch.utils.checkpoint.checkpoint_sequential; `use_reentrant` and `preserve_rng_state` have
    nothing to do. Raises Error unless 1 <= segments <= the number of functions.
    """
    kwargs.pop("preserve_rng_state", None)
    if kwargs:
        raise TypeError(f"checkpoint_sequential() got unexpected arguments: {', '.join(kwargs)}")
    if isinstance(functions, torch.nn.Sequential):
        functions = list(functions)  # children() would leave out a module's second occurrence
    count = len(functions)
    if not 1 <= segments <= count:
        raise Error(
            f"[checkpoint_sequential] segments is {segments}, functions are {count}; use 1 to the number of functions"
        )
    x = input
    for segment in range(segments):
        with policy():
            for function in functions[count * segment // segments : count * (segment + 1) // segments]:
                x = function(x)
    return x
