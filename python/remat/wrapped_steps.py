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
from remat.lessons import Lessons
from remat.model_session import ModelSession
from remat.progress import end_interrupted, note_wrapped, step_in_progress, wrapped_in_progress
from remat.results import Call, Place, Result, add_hook, tensors_in, unseen_by_torch_functions
from remat.session import Step
from remat.wrap_warnings import (
    warn_of_backward,
    warn_of_guest,
    warn_of_hidden_results,
    warn_of_lazy_result,
    warn_of_scope,
    warn_of_thread,
)

LAZY = (Iterator, Awaitable, AsyncIterator)  # results that run the model when somebody asks for the next

_MOST_JOINED = 32  # calls in a step that may wait for ever (see _join()): the records of all are held until it ends

_MOST_PASSING = 4  # calls on other threads while a result of the step's waits


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
        self.lessons = Lessons()
        _living.add(self)
        self._forget()

    def _forget(self) -> None:
        self.step: Step | None = None
        self.host: WrappedSteps | None = None  # another wrapped model's, whose step a call is inside of
        self.guest_of: Step | None = None  # that step
        self.thread = 0
        self.depth = 0
        self.called: Callable[[], bool] = bool  # whether the outermost call goes on
        self.calls: list[weakref.ref[Call]] = []
        self.made = 0  # calls so far
        self.live_before = 0  # values that autograd may ask for, when the present call began
        self.live_after = 0  # the same, when the last call ended
        self.live = 0  # the same, when a backward came to the first result
        self.newest_reached = 0  # by a backward, of the calls' numbers
        self.passed = 0  # the newest call that a backward has been through to the end
        self.made_before = 0  # calls before the last backward, which may have been through another model's in the step
        self.joined = 0  # calls that began after a backward, or after another was freed, and other models'
        self.passing = 0  # calls on other threads
        self.left_calls: set[int] = set()  # the numbers of those that backwards have not come to, while others began
        self.retained = False  # a backward has left a graph there
        self.retained_calls: set[int] = set()  # the numbers of those whose graphs backwards have left
        self.in_backward = False  # true also where it failed
        self.waited_for: set[Place] = set()  # after a backward through others of the same call

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
                self._warn_once(warn_of_backward, module)
            return
        with self.lock, unseen_by_torch_functions():
            self._end_earlier(module)
            if torch.is_grad_enabled():
                self._before(module)

    def _end_earlier(self, module: nn.Module) -> None:
        """Ends the step that is over, of this model or of the one that was the last to begin on this thread."""
        here = threading.get_ident()
        end_interrupted()
        if self.step is not None:
            if self.thread == here and self.depth > 0 and calls_around(module) == 0:  # that call was interrupted
                self.depth = 0
                self.calls.clear()
            self._end_if_over()
            if self.step is not None and self.thread != here:
                self._pass_by(module)
            elif self.step is not None and self.depth == 0:
                self._leave_behind()
                self._join(self.made > len(self._waiting_calls()))
        if self.step is None and (other := wrapped_in_progress()) is not None and other.thread == here:
            with other.lock:
                other._end_if_over()
                other._join(True)

    def _before(self, module: nn.Module) -> None:
        here = threading.get_ident()
        if self.step is None:
            if _C.is_recording():  # a step of the user's own, or of a model around or before this one
                if not step_in_progress():
                    self._warn_once(warn_of_scope, module)
                self._enter_others(module)
                return
            self.thread = here
            self.called = partial(_goes_on, weakref.ref(module))
            note_wrapped(self)
            self.step = self.session.of(module).step_of_call(self.called)
        elif self.thread == here and self.depth == 0:
            self.live_before = self.step.live_values()
            self.called = partial(_goes_on, weakref.ref(module))
            self.step.enter_forward(self.called)
        if self.thread == here:
            self.depth += 1

    def _enter_others(self, module: nn.Module) -> None:
        """A call in the step of another wrapped model, which waits for its backward, is one of that step's."""
        other = wrapped_in_progress()
        if other is None or (self.guest_of is not None and calls_around(module) > 0):
            return
        with other.lock:
            step = other.step
            if step is not None and other.thread == threading.get_ident() and other.depth == 0:
                step.enter_forward(partial(_goes_on, weakref.ref(module)))
                self.host, self.guest_of = other, step
                if not step.hold_under(self.session.of(module)):
                    self._warn_once(warn_of_guest, module)

    def _warn_once(self, warn: Callable[[nn.Module], None], module: nn.Module) -> None:
        if not self.warned:
            self.warned = True
            warn(module)

    @never_compiled
    def after(self, module: nn.Module, args: Any, result: Any) -> None:
        if _in_backward() or not torch.is_grad_enabled():
            return
        with self.lock, unseen_by_torch_functions():
            if self.guest_of is not None and calls_around(module) == 0:
                self.guest_of.leave_forward()
                for tensor in tensors_in(result):
                    if tensor.grad_fn is not None:
                        add_hook(tensor, partial(self.host._reached_guest, weakref.ref(self.guest_of)))
                self.host = self.guest_of = None
            if self.step is not None and self.depth > 0 and self.thread == threading.get_ident():
                self._after(result)

    def _after(self, result: Any) -> None:
        self.depth -= 1
        if self.depth > 0:  # a model that calls itself
            return
        self.step.leave_forward()
        if result is None and sys.exc_info()[0] is not None:
            self.end(completed=False)
            return
        waiting = tensors_in(result)
        if not waiting:
            if not self._waiting_calls():
                hidden = self.step.live_values() - self.live_before
                self.end(completed=False)
                if isinstance(result, LAZY):
                    warn_of_lazy_result(result)
                elif hidden > 0:
                    warn_of_hidden_results(result, hidden)
            return
        step = self.step
        self.made += 1
        self.live_after = step.live_values()
        call = Call(self.made, self.live_after - self.live_before)
        self.calls.append(weakref.ref(call, self._call_gone))
        hooked = [tensor for tensor in waiting if tensor.grad_fn is not None]  # a parameter's hooks would stay
        for index, tensor in enumerate(hooked):
            each = Result(call, tensor, (len(hooked), index))
            # Losses are held longer than steps, which would keep their records for as long.
            add_hook(tensor, lambda _grad, each=each, step=weakref.ref(step): self._reached(step(), each))

    def _waiting_calls(self) -> list[Call]:
        """Those whose graphs are still there; without a graph no backward can come."""
        return [call for call in (reference() for reference in self.calls) if call is not None]

    def _reached(self, step: Step | None, result: Result) -> None:
        """A backward has come to a result."""
        with self.lock:
            if step is None or self.step is not step or step.has_ended():
                self.lessons.came_late(result)
                return
            if result.place in self.waited_for:
                self.lessons.comes_later[result.place] = True
            self.waited_for.discard(result.place)
            result.reached = True
            if not result.call.reached:
                self._begin_backward(step, result.call)

    def _reached_guest(self, step: weakref.ref[Step], _grad: torch.Tensor) -> None:
        """A backward has come to a result of another wrapped model, whose call was inside of `step`."""
        if self.step is not None and self.step is step():
            self.made_before = self.made

    def _begin_backward(self, step: Step, call: Call) -> None:
        if not any(other.reached for other in self._waiting_calls()):
            self.live = step.live_values()
            self._look_for_freed()
            Variable._execution_engine.queue_callback(lambda: self._backward_done(step))
            self.in_backward = True
        call.reached = True
        self.lessons.came(call)
        self.left_calls.discard(call.number)
        self.newest_reached = max(self.newest_reached, call.number)

    def _look_for_freed(self) -> None:
        """At the beginning of a backward: graphs that an earlier one retained may have been freed since the last call,
        as where ``loss`` is assigned anew in every iteration."""
        waiting = {call.number for call in self._waiting_calls()}
        if not self.retained_calls <= waiting and self.live < self.live_after:
            self.lessons.retained_in_vain = True
        self.retained_calls &= waiting
        if self.made_before > 0:
            self._look_for_left(waiting)
        self.left_calls &= waiting

    def _look_for_left(self, waiting: set[int]) -> None:
        self.lessons.left_in_vain[self.made_before > 0] |= not self.left_calls <= waiting

    def _leave_behind(self) -> None:
        """A call begins though some wait that a backward did not come to. It may come yet, or their results are held
        for another use (a target, a log) until they are assigned anew."""
        calls = self._waiting_calls()
        self._look_for_left({call.number for call in calls})
        after, newest = self.made_before > 0, self.made_before or self.made
        left = [call for call in calls if call.number <= newest and not (call.retained or call.partly)]
        for call in left:
            call.left_after = after
        if left and self.lessons.left_in_vain[after] and calls[-1].number <= newest:
            self.end(self._outcome())
        else:
            self.left_calls = {call.number for call in left}

    def _join(self, late: bool) -> None:
        """Another call begins in the step, maybe another model's. Where some result waits for ever, that has an end.
        `late`: not all calls so far may wait for one backward."""
        if self.step is None or self.depth > 0 or not torch.is_grad_enabled():
            return
        self.joined += 1 if late or self.made_before > 0 or self.retained else 0
        if self.joined > _MOST_JOINED:
            self.end(self._outcome())

    def _pass_by(self, module: nn.Module) -> None:
        """A call begins on another thread than the step's. Two threads may train at a time; where a result waits for
        ever, or its thread has ended, that has an end."""
        if self.depth > 0 or self.in_backward or not torch.is_grad_enabled():
            return
        self.passing += 1
        if self.passing > _MOST_PASSING or self.thread not in sys._current_frames():
            self.end(self._outcome())
        elif not _C.is_recording():
            self._warn_once(warn_of_thread, module)

    def end_waiting(self) -> None:
        """The user begins a step: what waits for backward is part of no other one."""
        with self.lock:
            if self.step is None or self.thread != threading.get_ident() or _in_backward():
                return
            if self.depth == 0:
                self.end(self._outcome())
            elif not self.called():  # an interrupt has ended the call
                self.end(completed=False)

    def _backward_done(self, step: Step) -> None:
        with self.lock:
            if self.step is step and not step.has_ended():
                self._end_backward(step)

    def _end_backward(self, step: Step) -> None:
        self.in_backward = False
        calls = self._waiting_calls()
        live = step.live_values()
        if live >= self.live > 0:  # retain_graph: another backward comes
            self.retained = True
            for call in calls:
                if call.reached:
                    call.retained = True
                    self.retained_calls.add(call.number)
                call.reached = False
                for result in call.results():
                    result.reached = False
            return
        self.passed, self.made_before = self.newest_reached, self.made
        left = [call for call in calls if not call.reached or (live > 0 and self._waits_for_rest(call))]
        self.calls = [weakref.ref(call, self._call_gone) for call in left]
        if not left or self._passed_below(left):
            self.end(completed=True)

    def _waits_for_rest(self, call: Call) -> bool:
        rest = self.lessons.rest_of(call)
        if rest:
            self.waited_for.update(result.place for result in rest)
            call.reached, call.partly = False, True
        return bool(rest)

    def _passed_below(self, calls: list[Call]) -> bool:
        """A backward of gradients (``create_graph``) has been through all of `calls`, which need not come to their
        results: less is left of their graphs than they saved."""
        if not all(call.retained and not call.partly for call in calls):
            return False
        return self.step.live_values() < sum(call.saved for call in calls)

    def _is_over(self) -> bool:
        """Nothing more is to be waited for, though some results have seen no backward to its end."""
        if self.step.has_ended():  # a backward of it has failed
            return True
        if self.depth > 0:
            return False
        if self.step.was_refused():  # in the loss, or in another model's call: whatever comes now is another attempt
            return True
        calls = self._waiting_calls()
        if any(call.reached for call in calls) or self.step.live_values() == 0:
            return True
        if not calls:  # without their results there may be a graph that a backward has made (create_graph)
            return not self.retained
        if self.lessons.retained_in_vain and all(call.retained and not call.partly for call in calls):
            return True
        # Backward has been through a later call, or through another part of the same one: these results are held for
        # something else, for a log or a list.
        return all(call.partly or call.number < self.passed for call in calls) or self._passed_below(calls)

    def _end_if_over(self) -> None:
        if self.step is not None and self._is_over():
            self.end(self._outcome())

    def _outcome(self) -> bool:
        return not self.in_backward and not self.step.was_refused() and (self.made_before > 0 or self.retained)

    def _call_gone(self, _: weakref.ref[Call]) -> None:
        """The results of a call have been freed. This comes at any time, on any thread."""
        if self.lock._is_owned() or not self.lock.acquire(blocking=False):
            return  # then the next call looks
        try:
            step = self.step
            if step is None or self.depth > 0 or self._waiting_calls() or step.has_ended():
                return
            if not self.in_backward and not _in_backward():
                step.end_when_released(self._outcome())
        finally:
            self.lock.release()

    def remove_from(self, model: nn.Module) -> None:
        """Takes the hooks away; a step in progress ends."""
        with self.lock:
            if self.step is not None:
                self.end(completed=False)
        remove_hooks(model, WrappedSteps)

    def end(self, completed: bool) -> None:
        step = self.step
        self.lessons.did_not_come(self.waited_for)
        self._forget()
        step.end(completed)
