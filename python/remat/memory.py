"""How many tensor bytes are alive, and how many were at the worst moment.

CPU: exact. Accounting starts with the first Session, or with :func:`start_accounting`, :func:`current` or
:func:`reset_peak`; tensors that are older are added then. Memory that PyTorch's allocator did not give (NumPy's, mapped files) counts from the first operator of a step that
reads it. CUDA and other accelerators: what was asked of the device's allocator, to the byte, from the first call on that
names the device; on CUDA what is older, too. All functions may be called from any thread.
``device`` is "cpu", "cuda" or another accelerator's name; None: CUDA where there is one.
"""

from __future__ import annotations

import torch

from remat import _C
from remat.accounting import count_older_tensors, counts
from remat.device import HOST, device_of, is_host
from remat.errors import Error


def start_accounting(device: str | torch.device = HOST) -> None:
    """Puts remat's accounting allocator in the place of PyTorch's CPU allocator, for the rest of the process. Tensors
    that exist already stay valid, and count from now on. A second call does nothing. "meta" has an allocator of its
    own; for accelerators one that asks remat comes to stand before the device's."""
    device = device_of(device)
    _C.memory_start_accounting(device)
    if is_host(device):
        count_older_tensors()


def _counted(device: str | torch.device | None) -> torch.device:
    """The device, whose tensors are counted from now on if they have not been before."""
    device = device_of(device)
    if is_host(device) and not counts():
        start_accounting(device)
    return device


def current(device: str | torch.device | None = None) -> int:
    """Tensor bytes alive now."""
    return _C.memory_current(_counted(device))


def peak(device: str | torch.device | None = None) -> int:
    """The largest value of :func:`current` since accounting started, or the last :func:`reset_peak`. Steps have their
    own. Raises Error where it has not started: what came before is not known."""
    return _C.memory_peak(device_of(device))


def reset_peak(device: str | torch.device | None = None) -> None:
    """Makes the present :func:`current` the new peak."""
    _C.memory_reset_peak(_counted(device))


def limit(device: str | torch.device | None = None) -> int:
    """The most bytes that the device may hold now: the budget of the step in progress, else the smallest of physical
    memory, the container's limit, what the process may map (``ulimit -v``, ``-d``) and what :func:`set_limit` asked
    for."""
    return _C.memory_limit(device_of(device))


def set_limit(bytes: int | None, device: str | torch.device | None = None) -> None:
    """A standing limit for every session on the device; None takes it away. Raises Error unless positive."""
    if bytes is not None:
        if isinstance(bytes, bool) or not hasattr(bytes, "__index__"):
            raise Error(f"[set_limit] a limit of {bytes!r} has no meaning; give a number of bytes, or None for none")
        bytes = bytes.__index__()
        if not 0 < bytes < 2**63:
            raise Error(f"[set_limit] the limit is {bytes} bytes; use a positive number below 2**63, or None for none")
    _C.memory_set_limit(bytes, device_of(device))


def cached(device: str | torch.device | None = None) -> int:
    """Bytes that freed tensors left with the allocator for reuse."""
    return _C.memory_cached(device_of(device))


def release_cached(device: str | torch.device | None = None) -> None:
    """Gives :func:`cached` back to the system."""
    _C.memory_release_cached(device_of(device))


def resident_peak() -> int:
    """The largest resident set of the process so far. More than :func:`peak`: code, thread stacks, scratch space that
    libraries allocate for themselves, and :func:`cached`."""
    return _C.memory_resident_peak()
