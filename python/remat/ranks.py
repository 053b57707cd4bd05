"""How the sessions of several processes reach each other: by connections of their own."""

from __future__ import annotations

from datetime import timedelta

import torch
from torch import distributed as dist

from remat.device import HOST
from remat.errors import Error

_DEFAULT_TIMEOUT = timedelta(minutes=30)  #: c10d's


def world() -> dist.ProcessGroup | None:
    """The group of all processes; None where there is one."""
    several = dist.is_available() and dist.is_initialized() and dist.get_world_size() > 1
    return dist.group.WORLD if several else None


def connections_of(process_group: dist.ProcessGroup) -> dist.ProcessGroupGloo | None:
    """What sessions of the group's processes agree by; None for a group of one. Collective: the ranks connect anew, by
    Gloo, since their group is in the middle of things when it is used. They wait as long as the group does."""
    if not dist.is_available() or not dist.is_initialized():
        raise Error("[session] process_group needs torch.distributed; call init_process_group() first")
    if not isinstance(process_group, dist.ProcessGroup):
        raise Error(f"[session] process_group is {process_group!r}; use a group that this process belongs to")
    rank, size = process_group.rank(), process_group.size()
    if size == 1:
        return None
    # The model's own connections know at once of a process that has ended; those that are made here would wait for it.
    dist.barrier(process_group)
    # Not by new_group(), which names groups by how many the process has: ranks may have other numbers. How many sessions
    # the group has had is kept where it lives: a process may have been in others before.
    store = process_group.get_group_store()
    number = store.add(f"remat/sessions/{rank}", 1)
    return dist.ProcessGroupGloo(dist.PrefixStore(f"remat/{number}", store), rank, size, _timeout(process_group))


def _timeout(process_group: dist.ProcessGroup) -> timedelta:
    try:
        return process_group._get_backend(torch.device(HOST)).options._timeout
    except (AttributeError, RuntimeError):  # another backend, which does not say
        return _DEFAULT_TIMEOUT
