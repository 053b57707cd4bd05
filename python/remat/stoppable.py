"""A function on a thread of its own that an interrupt ends."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable
from typing import TypeVar

Result = TypeVar("Result")
_PAUSE = 0.1  # seconds: a signal that comes as a thread begins to wait is seen when it wakes


class _Stopped(BaseException):
    """The function is to end."""


class _Call:
    def __init__(self, function: Callable[[Callable[[], None]], Result]) -> None:
        self._function = function
        self.may_begin, self.ended, self.stop = threading.Event(), threading.Event(), threading.Event()
        self.results: list[Result] = []
        self.error: BaseException | None = None

    def run(self) -> None:
        self.may_begin.wait()
        try:
            self._check()
            self.results.append(self._function(self._check))
        except BaseException as error:
            self.error = error
        finally:
            self.ended.set()

    def _check(self) -> None:
        if self.stop.is_set():
            raise _Stopped


def run_stoppable(function: Callable[[Callable[[], None]], Result]) -> Result:
    """Calls a function on a thread of its own, which has no modes, hooks, autocast or scopes of the user's, and returns or
    raises what that does.

    An exception of the calling thread's, such as an interrupt, is raised when the function has ended. The function is given
    another one, to be called often, which raises where it is to end.
    """
    call = _Call(function)
    thread, started = threading.Thread(target=call.run, name="remat.compile"), False
    try:
        thread.start()
        started = True
        call.may_begin.set()
        while not call.ended.wait(_PAUSE):
            pass
    except BaseException:
        call.stop.set()
        call.may_begin.set()
        while started and not call.ended.is_set():
            with contextlib.suppress(BaseException):  # a second interrupt
                call.ended.wait(_PAUSE)
        raise
    if call.error is not None:
        raise call.error
    return call.results[0]
