"""Which device is meant, and what the package has to know of it."""

from __future__ import annotations

import atexit
import contextlib
import random
from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch import nn

from remat import _C
from remat.errors import Error

HOST = "cpu"
META = "meta"
AUTOGRAD_OF_META = "AutogradMeta"  # the dispatcher's key


def device_of(device: str | torch.device | None) -> torch.device:
    """What the caller means by `device`: None is CUDA where there is one."""
    if device is None:
        device = "cuda" if torch.cuda.is_available() else HOST
    try:
        device = torch.device(device)
    except (RuntimeError, TypeError) as error:
        raise Error(f"[device] {device!r} is no device ({error}); use 'cpu' or 'cuda'") from None
    if device.type == "cuda" and device.index is None and torch.cuda.is_available():
        device = torch.device("cuda", torch.cuda.current_device())
    return device


def device_of_model(model: nn.Module) -> torch.device | None:
    """Of the model's first parameter that has memory; None where there is none."""
    return next((parameter.device for parameter in model.parameters() if not parameter.is_meta), None)


def is_host(device: torch.device) -> bool:
    """Is it the one where this code runs?"""
    return device.type == HOST


def accelerators() -> list[torch.device]:
    """Those that PyTorch has here, whether remat supports them or not."""
    found = torch.accelerator.current_accelerator(check_available=True)
    return [] if found is None else [torch.device(found.type, i) for i in range(torch.accelerator.device_count())]


def synchronize(device: torch.device) -> None:
    """Waits for what runs there."""
    if device.type not in (HOST, META):
        torch.accelerator.synchronize(device)


def random_state(device: torch.device) -> torch.Tensor:
    """Of its default generator."""
    return torch.get_rng_state() if is_host(device) else torch.get_device_module(device).get_rng_state(device)


def seed_generator(device: torch.device, seed: int) -> None:
    """Seeds its default generator, and no other."""
    if is_host(device):
        torch.default_generator.manual_seed(seed)
    else:
        state = torch.Generator(device).manual_seed(seed).get_state()
        torch.get_device_module(device).set_rng_state(state, device)


@contextlib.contextmanager
def fork_generators(devices: Sequence[torch.device]) -> Iterator[None]:
    """Inside, what is drawn by the default generators of the host and of these leaves their states as they were."""
    with contextlib.ExitStack() as stack:
        stack.enter_context(torch.random.fork_rng([]))
        for device in devices:
            stack.enter_context(torch.random.fork_rng([device.index], device_type=device.type))
        yield


@contextlib.contextmanager
def fork_host_generators() -> Iterator[None]:
    """The same of the host's, Python's own, and NumPy's where it is installed."""
    python, numpy = random.getstate(), _numpy_random()
    of_numpy = None if numpy is None else numpy.get_state()
    try:
        with fork_generators([]):
            yield
    finally:
        random.setstate(python)
        if numpy is not None:
            numpy.set_state(of_numpy)


def _numpy_random() -> Any:
    try:
        import numpy
    except ImportError:
        return None
    return numpy.random


_used: set[torch.device] = set()


def end_after_autograd(device: torch.device) -> None:
    """When the interpreter ends it waits for autograd's thread of `device`, an accelerator.

    That thread releases what a backward held, some of it Python's, after backward() has returned. If the interpreter was
    ending by then, it would end the process with an error: PyTorch alone does."""
    if device.type in (HOST, META):
        return
    if not _used:
        atexit.register(_wait_for_autograd)
    _used.add(device)


def _wait_for_autograd() -> None:
    for device in _used:
        initialized = getattr(torch.get_device_module(device.type), "is_initialized", lambda: True)
        if initialized():
            _C.wait_for_autograd(device)
