"""A function on a thread of its own that an interrupt ends."""

from __future__ import annotations

import signal
import threading
import time

import pytest

from remat.stoppable import run_stoppable


@pytest.fixture(autouse=True)
def interrupts_are_heard():
    """A shell starts what it runs in the background with interrupts ignored."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


def interrupt_main():
    signal.pthread_kill(threading.main_thread().ident, signal.SIGINT)


def test_it_returns_and_raises_what_the_function_does():
    assert run_stoppable(lambda check: threading.current_thread() is threading.main_thread()) is False
    with pytest.raises(ZeroDivisionError):
        run_stoppable(lambda check: 1 / 0)


@pytest.mark.parametrize("interrupts", [1, 3])
def test_an_interrupt_is_raised_when_the_function_has_ended(interrupts):
    def work(check):
        for _ in range(interrupts):
            interrupt_main()
            time.sleep(0.1)
        try:
            while True:
                check()
                time.sleep(0.01)
        finally:
            time.sleep(0.2)
            ended.append(True)

    ended = []
    with pytest.raises(KeyboardInterrupt):
        run_stoppable(work)
    assert ended


def test_a_function_whose_thread_did_not_start_is_not_called(monkeypatch):
    def start(thread):
        real(thread)
        raise KeyboardInterrupt

    called = []
    real = threading.Thread.start
    monkeypatch.setattr(threading.Thread, "start", start)
    with pytest.raises(KeyboardInterrupt):
        run_stoppable(lambda check: called.append(True))
    time.sleep(0.2)
    assert not called
