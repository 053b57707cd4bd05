"""A function on a thread of its own that an interrupt ends."""

from __future__ import annotations

import signal
import threading
import time

import pytest

from remat.stoppable import Stopped, StoppableCall


def interrupt_main():
    signal.pthread_kill(threading.main_thread().ident, signal.SIGINT)


def test_it_returns_and_raises_what_the_function_does():
    assert StoppableCall(lambda: threading.current_thread() is threading.main_thread()).run() is False
    with pytest.raises(ZeroDivisionError):
        StoppableCall(lambda: 1 / 0).run()


@pytest.mark.parametrize("interrupts", [1, 3])
def test_an_interrupt_is_raised_when_the_function_has_ended(interrupts):
    def work():
        for _ in range(interrupts):
            interrupt_main()
            time.sleep(0.1)
        try:
            while True:
                call.check()
                time.sleep(0.01)
        except Stopped:
            time.sleep(0.2)
            ended.append(True)
            raise

    ended = []
    call = StoppableCall(work)
    with pytest.raises(KeyboardInterrupt):
        call.run()
    assert ended


def test_a_function_whose_thread_did_not_start_is_not_called(monkeypatch):
    def start(thread):
        real(thread)
        raise KeyboardInterrupt

    called = []
    real = threading.Thread.start
    monkeypatch.setattr(threading.Thread, "start", start)
    with pytest.raises(KeyboardInterrupt):
        StoppableCall(lambda: called.append(True)).run()
    time.sleep(0.2)
    assert not called
