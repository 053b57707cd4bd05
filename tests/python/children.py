"""Child processes of tests."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable


def in_child(act: Callable[[], None], seconds: float = 20) -> str | None:
    """Forks, runs `act` in the child; what went wrong there, or nothing. A child that hangs is ended."""
    child = os.fork()
    if child == 0:
        status = 1
        try:
            act()
            status = 0
        except BaseException as error:
            os.write(2, f"child: {type(error).__name__}: {error}\n".encode())
        finally:
            os._exit(status)
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        pid, status = os.waitpid(child, os.WNOHANG)
        if pid:
            return None if status == 0 else f"the child ended with status {status}"
        time.sleep(0.005)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return "the child hung"
