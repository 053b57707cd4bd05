"""Steps that begin and end by themselves: one line on a model instead of a ``with`` in the training loop."""

from __future__ import annotations

import sys
import threading
import warnings
import weakref
from collections.abc import Iterable, Mapping
from types import ModuleType
from typing import Any

import torch
from torch import nn
from torch.autograd import Variable

from remat import _C
from remat.errors import Error
from remat.hooks import calls_around, check_module, never_compiled, remove_hooks
from remat.session import Session, Step

_DEEPEST = 6  # of results in results, such as the layers of a cache


def _slots_of(part: Any) -> list[Any]:
    names = [kind.__dict__.get("__slots__", ()) for kind in type(part).__mro__]
    flat = [name for each in names for name in ((each,) if isinstance(each, str) else each)]
    return [getattr(part, name, None) for name in flat]


def _tensors_in(result: Any) -> list[torch.Tensor]:
    """The tensors of a model's result that backward may come to, in whatever it keeps them."""
    found: list[torch.Tensor] = []
    seen: set[int] = set()
    pending = [(result, 0)]
    while pending:
        part, depth = pending.pop()
        if id(part) in seen or depth > _DEEPEST:
            continue
        seen.add(id(part))
        if isinstance(part, torch.Tensor):
            if part.requires_grad:
                found.append(part)
            continue
        inside: Iterable[Any] = ()
        if isinstance(part, Mapping):
            inside = part.values()
        elif isinstance(part, (list, tuple, set, frozenset)):
            inside = part
        elif not isinstance(part, (type, nn.Module, ModuleType)):  # dataclasses, caches
            inside = [*getattr(part, "__dict__", {}).values(), *_slots_of(part)]
        pending.extend((child, depth + 1) for child in inside)
    return found


class _Call:
    """One forward call of the model, whose results wait for backward. The hooks on its results keep it alive."""

    def __init__(self, number: int, saved: int) -> None:
        self.number = number  # of the call in its step, from 1
        self.saved = saved  # values that it left for autograd
        self.reached = False  # a backward has begun on it
        self.retained = False  # a backward has been through it and left it there for another


_of_thread = threading.local()  # .steps: of the model whose step was the last to begin


def _in_progress() -> _Steps | None:
    reference = getattr(_of_thread, "steps", None)
    return None if reference is None else reference()


class _Steps:
    """The hooks of a wrapped model: they begin a step before forward and end it after backward."""

    def __init__(self, options: dict[str, Any]) -> None:
        self.options = options
        self._begin()

    def _begin(self) -> None:
        self.lock = threading.RLock()  # threads may call the model at once: one of them has the step
        self.session: Session | None = None
        self._forget()

    def _forget(self) -> None:
        self.step: Step | None = None
        self.thread = 0
        self.depth = 0
        self.calls: list[weakref.ref[_Call]] = []
        self.made = 0  # calls so far
        self.live_before = 0  # values that autograd may ask for, when the present call began
        self.live = 0  # the same, when a backward came to the first result
        self.newest_reached = 0  # by a backward, of the calls' numbers
        self.passed = 0  # the newest call that a backward has been through to the end
        self.retained = False  # a backward has left a graph there
        self.in_backward = False  # true also where it failed

    # Copies of a model and models in files are wrapped too, each with a session of its own.
    def __getstate__(self) -> dict[str, Any]:
        return {"options": self.options}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.options = state["options"]
        self._begin()

    def the_session(self) -> Session:
        if self.session is None:
            self.session = Session(**self.options)
        return self.session

    @never_compiled
    def before(self, module: nn.Module, args: Any) -> None:
        if torch.is_grad_enabled():
            with self.lock:
                self._before(module)

    def _before(self, module: nn.Module) -> None:
        here = threading.get_ident()
        if self.step is not None:
            if self.thread == here and self.depth > 0 and calls_around(module) == 0:  # that call was interrupted
                self.depth = 0
                self.calls.clear()
            self._end_if_over()
        if self.step is None:
            if (other := _in_progress()) is not None and other.thread == here:
                with other.lock:
                    other._end_if_over()
            if _C.is_recording():
                return  # a step of the user's own, or of a model around or before this one
            self.step = self.the_session().step()
            self.thread = here
            _of_thread.steps = weakref.ref(self)
        if self.thread == here:
            if self.depth == 0:
                self.live_before = self.step.live_values()
            self.depth += 1

    @never_compiled
    def after(self, module: nn.Module, args: Any, result: Any) -> None:
        with self.lock:
            if self.step is not None and self.depth > 0 and self.thread == threading.get_ident():
                self._after(result)

    def _after(self, result: Any) -> None:
        self.depth -= 1
        if self.depth > 0:  # a model that calls itself
            return
        if result is None and sys.exc_info()[0] is not None:
            self.end(completed=False)
            return
        waiting = _tensors_in(result)
        if not waiting:
            if not self._waiting_calls():
                hidden = self.step.live_values() - self.live_before
                self.end(completed=False)
                if hidden > 0:
                    warnings.warn(
                        f"[wrap] no tensor that needs a gradient was found in what the model returned (a "
                        f"{type(result).__name__}), but {hidden} saved values wait for backward somewhere: what comes "
                        "after forward is outside the budget; return tensors, or use remat.Session(...).step()",
                        RuntimeWarning,
                        stacklevel=2,
                    )
            return
        step = self.step
        self.made += 1
        call = _Call(self.made, step.live_values() - self.live_before)
        self.calls.append(weakref.ref(call))
        for tensor in waiting:
            if tensor.grad_fn is not None:  # not a parameter handed out as it is: its hooks would stay
                # Losses are held longer than steps, which would keep their records for as long.
                tensor.register_hook(lambda _grad, call=call, step=weakref.ref(step): self._reached(step(), call))

    def _waiting_calls(self) -> list[_Call]:
        """Those whose graphs are still there; without a graph no backward can come."""
        return [call for call in (reference() for reference in self.calls) if call is not None]

    def _reached(self, step: Step | None, call: _Call) -> None:
        """A backward has come to a result of `call`."""
        with self.lock:
            if step is not None and self.step is step and not call.reached:
                self._begin_backward(step, call)

    def _begin_backward(self, step: Step, call: _Call) -> None:
        if not any(other.reached for other in self._waiting_calls()):
            self.live = step.live_values()
            Variable._execution_engine.queue_callback(lambda: self._backward_done(step))
            self.in_backward = True
        call.reached = True
        self.newest_reached = max(self.newest_reached, call.number)

    def _backward_done(self, step: Step) -> None:
        with self.lock:
            if self.step is step:
                self._end_backward(step)

    def _end_backward(self, step: Step) -> None:
        self.in_backward = False
        calls = self._waiting_calls()
        if step.live_values() >= self.live > 0:  # retain_graph: another backward comes
            self.retained = True
            for call in calls:
                call.retained = call.retained or call.reached
                call.reached = False
            return
        self.passed = self.newest_reached
        left = [call for call in calls if not call.reached]
        self.calls = [weakref.ref(call) for call in left]
        if not left or self._passed_below(left):
            self.end(completed=True)

    def _passed_below(self, calls: list[_Call]) -> bool:
        """A backward of gradients (``create_graph``) has been through all of `calls`, which need not come to their
        results: less is left of their graphs than they saved."""
        return all(call.retained for call in calls) and self.step.live_values() < sum(call.saved for call in calls)

    def _is_over(self) -> bool:
        """Nothing more is to be waited for, though some results have seen no backward to its end."""
        if self.depth > 0:
            return False
        calls = self._waiting_calls()
        if not calls or any(call.reached for call in calls) or self.step.live_values() == 0:
            return True
        # Backward has been through a later call: these results are held for something else, for a log or a list.
        return all(call.number < self.passed for call in calls) or self._passed_below(calls)

    def _end_if_over(self) -> None:
        if self.step is not None and self._is_over():
            self.end(completed=not self.in_backward and (self.passed > 0 or self.retained))

    def end(self, completed: bool) -> None:
        step = self.step
        self._forget()
        step.end(completed)


def wrap(model: nn.Module, budget: int | str | None = None, **options: Any) -> nn.Module:
    """Keeps every forward and backward pass through `model` under `budget`, without a change to the training loop::

        model = remat.wrap(model, budget="6GiB")

    A step begins when the model is called with gradients enabled, and ends when backward has been through its results;
    it covers what comes between, such as the loss. Gradient accumulation: each micro-batch is a step. Several calls
    before the backward passes, or ``retain_graph``, are one step. A step whose results are dropped without a backward,
    or are older than others that a backward has been through, or whose forward or backward fails, ends at the next call
    of a wrapped model at the latest. Inside a session's step of yours the model is part of that step.

    Args:
        budget, options: those of :class:`remat.Session`.

    Returns `model` itself, with hooks: its class, parameters and state_dict() are untouched, and copies and pickles of
    it are wrapped too. Wrapping again replaces the budget. :func:`remat.session_of` has the reports;
    :func:`remat.unwrap` takes the hooks away.
    """
    check_module("wrap", model)
    unwrap(model)
    steps = _Steps({"budget": budget, **options})
    steps.the_session()  # bad options are an error here
    model.register_forward_pre_hook(steps.before, prepend=True)
    model.register_forward_hook(steps.after, always_call=True)
    return model


def _steps_of(model: nn.Module) -> _Steps | None:
    if not isinstance(model, nn.Module):
        return None
    for hook in model._forward_pre_hooks.values():
        steps = getattr(hook, "__self__", None)
        if isinstance(steps, _Steps):
            return steps
    return None


def unwrap(model: nn.Module) -> nn.Module:
    """Takes back what :func:`wrap` did; a step in progress ends. Returns `model`."""
    steps = _steps_of(model)
    if steps is None:
        return model
    with steps.lock:
        if steps.step is not None:
            steps.end(completed=False)
    remove_hooks(model, _Steps)
    return model


def session_of(model: nn.Module) -> Session:
    """The session behind :func:`wrap`, for its reports. Raises Error if the model is not wrapped."""
    steps = _steps_of(model)
    if steps is None:
        raise Error(f"[wrap] this {type(model).__name__} is not wrapped; call remat.wrap(model, budget=...) first")
    return steps.the_session()
