"""A function on a thread of its own that an interrupt ends."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable
from typing import Any


class Stopped(BaseException):
    """The function is to end."""


class StoppableCall:
    """Calls a function on a thread of its own, which has no modes, hooks, autocast or scopes of the user's."""

    def __init__(self, function: Callable[[], Any]) -> None:
        self._function = function
        self._may_begin, self._ended = threading.Event(), threading.Event()
        self._stop = False
        self._result: Any = None
        self._error: BaseException | None = None

    def run(self) -> Any:
        """What the function returns or raises. An exception of this thread's, such as an interrupt, ends the function at its
        next check(), and is raised when it has ended."""
        thread, started = threading.Thread(target=self._run, name="remat.compile"), False
        try:
            thread.start()
            started = True
            self._may_begin.set()
            self._ended.wait()
        except BaseException:
            self._stop = True
            self._may_begin.set()
            while started and not self._ended.is_set():
                with contextlib.suppress(BaseException):  # a second interrupt
                    self._ended.wait()
            raise
        if self._error is not None:
            raise self._error
        return self._result

    def check(self) -> None:
        """Raises where the function is to end."""
        if self._stop:
            raise Stopped

    def _run(self) -> None:
        self._may_begin.wait()
        try:
            self.check()
            self._result = self._function()
        except BaseException as error:
            self._error = error
        finally:
            self._ended.set()
