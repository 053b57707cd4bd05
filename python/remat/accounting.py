"""What is counted: every CPU tensor of the process, also those that are older than the accounting."""

from __future__ import annotations

import threading

from remat import _C

_lock = threading.Lock()
_counted = False


def count_older_tensors() -> None:
    """Adds the tensors that exist when accounting has just started: parameters, their gradients, what an optimizer has
    made of them. Looks through Python's objects, once in a process."""
    global _counted
    with _lock:
        if not _counted:
            _counted = True
            _C.memory_adopt_older()


def counts() -> bool:
    """Whether accounting has started."""
    return _counted
