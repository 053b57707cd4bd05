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
    from remat.session import Step

_DROP_ALL = _C.Policy.drop_all()


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
        self.waiting: weakref.WeakMethod | None = None  # ends it if it is a wrapped model's that waits for backward
        self.regions: list[_Region] = []  # the outermost first


_here = _Thread()


def note_step(step: Step) -> None:
    """`step` has begun on this thread."""
    _here.step = weakref.ref(step)


def note_waiting(end: Callable[[], None]) -> None:
    """A wrapped model's step has begun on this thread. `end`, a method, ends it where it waits for backward."""
    _here.waiting = weakref.WeakMethod(end)


def end_waiting() -> None:
    """Ends the step of a wrapped model that waits for backward on this thread, if there is one."""
    end = None if _here.waiting is None else _here.waiting()
    if end is not None:
        end()


def step_in_progress() -> bool:
    """Whether a step of this thread is in progress, be it the user's or a wrapped model's. What is recorded without one
    is so for a policy's scope alone."""
    step = None if _here.step is None else _here.step()
    return step is not None and not step.has_ended()


def begin_region(module: nn.Module) -> None:
    """In a forward pre-hook of `module`: what its call saves is dropped."""
    end_interrupted(entering=module)
    scope = None
    if torch.is_grad_enabled():
        scope = _C.Scope(_DROP_ALL)
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
