"""torch.utils.checkpoint's functions, without the second call of the user's."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Sequence
from typing import Any

import torch

from remat.errors import Error
from remat.policy import policy
from remat.selective import selective_policy

Contexts = Callable[[], tuple[Any, Any]]  #: around the call, and around the second one that there is not


def checkpoint(
    function: Callable[..., Any] | None = None,
    *args: Any,
    use_reentrant: bool | None = None,
    context_fn: Contexts | None = None,
    determinism_check: str = "default",
    debug: bool = False,
    early_stop: bool = True,
    preserve_rng_state: bool = True,
    respect_saved_tensors_hooks: bool | None = None,
    **kwargs: Any,
) -> Any:
    """Calls ``function(*args, **kwargs)`` once and returns what it returns. What autograd saves inside is dropped, and
    brought back in backward by replaying the recorded operators.

    Takes every argument of torch.utils.checkpoint.checkpoint, up to torch 2.14. Those about the second call have nothing
    to do here: `use_reentrant`, `determinism_check`, `debug`, `early_stop` and `preserve_rng_state` (random numbers are
    always the same); nor has `respect_saved_tensors_hooks`, as hooks that are set around the call get all that is saved.
    Of `context_fn`, what torch.utils.checkpoint.create_selective_checkpoint_contexts() made is understood: the
    operators that it saves are kept. Any other context is entered around the one call.

    A decorator, too: ``@remat.checkpoint``, or with options ``@remat.checkpoint(context_fn=...)``, for functions, methods
    and modules. A function that needs no arguments is called at once, as by torch's; ``@remat.checkpoint()`` decorates
    it.
    """
    del use_reentrant, determinism_check, debug, early_stop, preserve_rng_state, respect_saved_tensors_hooks
    if function is None and not args:
        if kwargs:
            raise TypeError(f"[checkpoint] there is no option {', '.join(kwargs)}; the function comes first")
        return lambda decorated: _checkpointed(decorated, context_fn)
    if not callable(function):
        raise TypeError(f"[checkpoint] a {type(function).__name__} cannot be called; the function comes first")
    if not args and not kwargs and _needs_arguments(function):
        return _checkpointed(function, context_fn)
    return _call(function, context_fn, args, kwargs)


def _needs_arguments(function: Callable[..., Any]) -> bool:
    """False too where a builtin does not say."""
    try:
        inspect.signature(function.forward if isinstance(function, torch.nn.Module) else function).bind()
    except TypeError:
        return True
    except ValueError:
        pass
    return False


def _checkpointed(function: Callable[..., Any], context_fn: Contexts | None) -> Callable[..., Any]:
    """A function, so that one in a class is a method."""

    @functools.wraps(function, updated=())
    def call(*args: Any, **kwargs: Any) -> Any:
        return _call(function, context_fn, args, kwargs)

    return call


def _call(function: Callable[..., Any], context_fn: Contexts | None, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
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
