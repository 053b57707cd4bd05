"""What is in progress on a thread: its step, and the regions of the enabled blocks that it is in."""

from __future__ import annotations

import threading
import weakref
from collections import Counter
from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import nn

from remat import _C
from remat.hooks import modules_in_call, never_compiled

if TYPE_CHECKING:
    from remat.session import Session, Step
    from remat.wrapped_steps import WrappedSteps


class _Region(NamedTuple):
    """A call of an enabled block."""

    module: weakref.ref[nn.Module]
    scope: _C.Scope | None  # none where gradients are off: then nothing is saved that could be dropped

    def end(self) -> None:
        if self.scope is not None:
            self.scope.end()


class _Thread(threading.local):
    def __init__(self) -> None:
        self.step: weakref.ref[Step] | None = None  # the last to begin; one that is forgotten ends
        self.wrapped: weakref.ref[WrappedSteps] | None = None  # of the model whose step was the last to begin
        self.regions: list[_Region] = []  # the outermost first


_here = _Thread()
_between_steps: list[weakref.WeakMethod[Callable[[Session], None]]] = []


def call_between_steps(method: Callable[[Session], None]) -> None:
    """Calls `method` whenever a step of a session is about to begin, on any thread, as long as its object lives."""
    _between_steps.append(weakref.WeakMethod(method, _between_steps.remove))


def before_step(session: Session) -> None:
    """A step of `session` is about to begin on this thread."""
    for reference in list(_between_steps):
        if (method := reference()) is not None:
            method(session)


def note_step(step: Step) -> None:
    """`step` has begun on this thread."""
    _here.step = weakref.ref(step)


def note_wrapped(steps: WrappedSteps) -> None:
    """A step of a wrapped model has begun on this thread."""
    _here.wrapped = weakref.ref(steps)


def wrapped_in_progress() -> WrappedSteps | None:
    """Of the wrapped model whose step was the last to begin on this thread."""
    return None if _here.wrapped is None else _here.wrapped()


def end_waiting() -> None:
    """Ends the step of a wrapped model that waits for backward on this thread, if there is one."""
    steps = wrapped_in_progress()
    if steps is not None:
        steps.end_waiting()


def session_in_progress() -> Session | None:
    """The session whose step is in progress on this thread, if one is."""
    step = None if _here.step is None else _here.step()
    return None if step is None or step.has_ended() else step._session


def step_in_progress() -> bool:
    """Whether a step of this thread is in progress, be it the user's or a wrapped model's. What is recorded without one
    is so for a policy's scope alone."""
    step = None if _here.step is None else _here.step()
    return step is not None and not step.has_ended()


def begin_region(module: nn.Module, policy: _C.Policy) -> None:
    """In a forward pre-hook of `module`: its call follows the policy."""
    end_interrupted(entering=module)
    scope = None
    if torch.is_grad_enabled():
        scope = _C.Scope(policy)
        scope.begin()
    _here.regions.append(_Region(weakref.ref(module), scope))


def end_region(module: nn.Module) -> None:
    """In a forward hook of `module`. Does nothing where hooks that ran before begin_region() have failed."""
    regions = _here.regions
    if len(regions) > 1:  # those inside may have been interrupted
        end_interrupted()
    if regions and regions[-1].module() is module:
        regions.pop().end()


@never_compiled
def end_interrupted(entering: nn.Module | None = None) -> None:
    """Ends the regions whose calls have ended by a KeyboardInterrupt: modules call no hooks then. To be called before
    anyone looks whether something is recording. `entering`: in a forward pre-hook of this module, whose call has no
    region yet."""
    regions = _here.regions
    if not regions:
        return
    calls = Counter(map(id, modules_in_call()))
    if entering is not None:
        calls[id(entering)] -= 1
    going_on, interrupted = [], []
    for region in regions:
        module = id(region.module())
        calls[module] -= 1
        (going_on if calls[module] >= 0 else interrupted).append(region)
    for region in reversed(interrupted):
        region.end()
    regions[:] = going_on
