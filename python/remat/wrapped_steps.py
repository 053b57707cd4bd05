"""When the steps of a wrapped model begin and end: its hooks."""

from __future__ import annotations

import os
import sys
import threading
import weakref
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from functools import partial
from typing import Any

import torch
from torch import nn
from torch.autograd import Variable

from remat import _C
from remat.hooks import calls_around, is_in_call, never_compiled, remove_hooks
from remat.model_session import ModelSession
from remat.progress import end_interrupted, note_wrapped, step_in_progress, wrapped_in_progress
from remat.results import add_hook, tensors_in, unseen_by_torch_functions
from remat.session import Step
from remat.step_end import History, Moment, Result, StepEnd
from remat.wrap_warnings import BACKWARD, GUEST, HIDDEN_RESULTS, LAZY_RESULT, SCOPE, THREAD, warn

LAZY = (Iterator, Awaitable, AsyncIterator)  # results that run the model when somebody asks for the next

_MOST_CALLS_ELSEWHERE = 4  # on other threads while a result of the step's waits


def _in_backward() -> bool:
    """Of a call at its beginning or end: a backward calls the model a second time where torch.utils.checkpoint is
    around it."""
    return torch._C._current_graph_task_id() != -1


@never_compiled
def _goes_on(model: weakref.ref[nn.Module]) -> bool:
    module = model()
    return module is not None and is_in_call(module)


_living: weakref.WeakSet[WrappedSteps] = weakref.WeakSet()  # for forks


def _after_fork() -> None:
    """In the child: the steps in progress are the parent's, and locks may be held by threads that are not there."""
    for steps in list(_living):
        steps._begin()


os.register_at_fork(after_in_child=_after_fork)


class WrappedSteps:
    """The hooks of a wrapped model: they begin a step before forward and end it after backward."""

    def __init__(self, options: dict[str, Any]) -> None:
        self.session = ModelSession(options)
        self._begin()

    def _begin(self) -> None:
        self.lock = threading.RLock()  # threads may call the model at once: one of them has the step
        self.warned = False  # of a place where the budget does not hold
        self.history = History()
        self.guest_of: Step | None = None  # another wrapped model's, which a call is inside of
        _living.add(self)
        self._forget()

    def _forget(self) -> None:
        self.step: Step | None = None
        self.results = StepEnd(self.history)
        self.thread = 0
        self.depth = 0  # of the calls of a model that calls itself
        self.called: Callable[[], bool] = bool  # whether the outermost call goes on
        self.live_before = 0  # values that autograd may ask for, when the present call began
        self.calls_elsewhere = 0  # on other threads

    # Copies of a model and models in files are wrapped too, each with a session of its own.
    def __getstate__(self) -> dict[str, Any]:
        return {"session": self.session}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.session = state["session"]
        self._begin()

    @never_compiled
    def before(self, module: nn.Module, args: Any) -> None:
        if _in_backward():
            if torch.is_grad_enabled() and self.step is None and not (_C.is_recording() or step_in_progress()):
                self._warn_once(BACKWARD, module)
            return
        with self.lock, unseen_by_torch_functions():
            self._end_earlier(module)
            if torch.is_grad_enabled():
                self._begin_call(module)

    def _end_earlier(self, module: nn.Module) -> None:
        """Ends the step that is over, of this model or of the one that was the last to begin on this thread."""
        here = threading.get_ident()
        end_interrupted()
        if self.step is not None and self.thread != here:
            self._call_elsewhere(module)
        elif self.step is not None and self.depth > 0 and calls_around(module) == 0:  # that call was interrupted
            self.end(completed=False)
        else:
            self._end_if_over(Moment.CALL)
        if self.step is None and (other := wrapped_in_progress()) is not None and other.thread == here:
            with other.lock:
                other._end_if_over(Moment.OTHERS_CALL)

    def _end_if_over(self, moment: Moment) -> None:
        """As a call begins. A refusal was in the loss, or in another model's call: whatever comes now is another
        attempt."""
        step = self.step
        if step is None or (self.depth > 0 and not step.has_ended()):
            return
        if step.has_ended() or step.was_refused():
            self.end()
        elif self.results.call_begins(moment, step.live_values(), step.backward_passes(), torch.is_grad_enabled()):
            self.end()

    def _call_elsewhere(self, module: nn.Module) -> None:
        """A call begins on another thread than the step's. Two threads may train at a time; where a result waits for
        ever, or its thread has ended, that has an end."""
        is_alive = self.thread in sys._current_frames()
        if is_alive and self.results.in_backward():
            return
        self._end_if_over(Moment.OTHERS_CALL)
        if self.step is None or self.depth > 0 or not torch.is_grad_enabled():
            return
        self.calls_elsewhere += 1
        if self.calls_elsewhere > _MOST_CALLS_ELSEWHERE or not is_alive:
            self.end()
        elif not _C.is_recording():
            self._warn_once(THREAD, module)

    def _begin_call(self, module: nn.Module) -> None:
        here = threading.get_ident()
        goes_on = partial(_goes_on, weakref.ref(module))
        if self.step is None:
            if _C.is_recording():  # a step of the user's own, or of a model around or before this one
                if not step_in_progress():
                    self._warn_once(SCOPE, module)
                self._begin_guests_call(module, goes_on)
                return
            self.thread, self.called = here, goes_on
            note_wrapped(self)
            self.step = self.session.of(module).step_of_call(goes_on)
        elif self.thread == here and self.depth == 0:
            self.live_before = self.step.live_values()
            self.called = goes_on
            self.step.enter_forward(goes_on)
        if self.thread == here:
            self.depth += 1

    def _begin_guests_call(self, module: nn.Module, goes_on: Callable[[], bool]) -> None:
        """A call in the step of another wrapped model, which waits for its backward, is one of that step's."""
        other = wrapped_in_progress()
        if other is None or (self.guest_of is not None and calls_around(module) > 0):
            return
        with other.lock:
            step = other.step
            if step is not None and other.thread == threading.get_ident() and other.depth == 0:
                step.enter_forward(goes_on)
                self.guest_of = step
                if not step.hold_under(self.session.of(module)):
                    self._warn_once(GUEST, module)

    def _warn_once(self, message: str, module: nn.Module) -> None:
        if not self.warned:
            self.warned = True
            warn(message, module)

    @never_compiled
    def after(self, module: nn.Module, args: Any, result: Any) -> None:
        if _in_backward() or not torch.is_grad_enabled():
            return
        with self.lock, unseen_by_torch_functions():
            if self.guest_of is not None and calls_around(module) == 0:
                self.guest_of.leave_forward()
                self.guest_of = None
            if self.step is not None and self.depth > 0 and self.thread == threading.get_ident():
                self.depth -= 1
                if self.depth == 0:
                    self._end_call(result)

    def _end_call(self, result: Any) -> None:
        step = self.step
        step.leave_forward()
        if result is None and sys.exc_info()[0] is not None:
            self.end(completed=False)
            return
        saved = step.live_values() - self.live_before
        tensors = tensors_in(result)
        if tensors:
            hooked = [tensor for tensor in tensors if tensor.grad_fn is not None]  # a parameter's hooks would stay
            for tensor, each in zip(hooked, self.results.call_ends(hooked, saved)):
                # Losses are held longer than steps, which would keep their records for as long.
                add_hook(tensor, partial(self._backward_comes, weakref.ref(step), each))
        elif not self.results.waiting():
            self.end(completed=False)
            if isinstance(result, LAZY):
                warn(LAZY_RESULT, result)
            elif saved > 0:
                warn(HIDDEN_RESULTS, result, saved)

    def _backward_comes(self, reference: weakref.ref[Step], result: Result, _gradient: torch.Tensor) -> None:
        with self.lock:
            self.history.came_to(result)
            step = reference()
            if step is None or self.step is not step or step.has_ended():
                return
            if self.results.backward_comes(result):
                Variable._execution_engine.queue_callback(partial(self._backward_ends, step))

    def _backward_ends(self, step: Step) -> None:
        with self.lock:
            kept = torch._C._autograd._get_current_graph_task_keep_graph()
            if self.step is step and not step.has_ended() and self.results.backward_ends(step.live_values(), kept):
                self.end(completed=True)

    def end_waiting(self) -> None:
        """The user begins a step: what waits for backward is part of no other one."""
        with self.lock:
            if self.step is None or self.thread != threading.get_ident() or _in_backward():
                return
            if self.depth == 0:
                self.end()
            elif not self.called():  # an interrupt has ended the call
                self.end(completed=False)

    def remove_from(self, model: nn.Module) -> None:
        """Takes the hooks away; a step in progress ends."""
        with self.lock:
            if self.step is not None:
                self.end(completed=False)
        remove_hooks(model, WrappedSteps)

    def end(self, completed: bool | None = None) -> None:
        """By default completed if a backward has been through something in it."""
        step = self.step
        if completed is None:
            completed = step.backward_passes() > 0 and not (self.results.in_backward() or step.was_refused())
        self.results.close()
        self._forget()
        step.end(completed)
