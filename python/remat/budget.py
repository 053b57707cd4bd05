"""Budgets as users write them, and those that sessions share."""

from __future__ import annotations

from remat import _C
from remat.errors import Error


class Pool:
    """A number of bytes that sessions of this process share::

        pool = remat.Pool("6GiB")
        actor, learner = remat.wrap(actor, budget=pool), remat.wrap(learner, budget=pool)

    As under a budget in bytes, all tensors count: while a step of any of the sessions is in progress, what is alive on the
    CPU stays under the pool's bytes. A step is granted what is free, beside what sessions hold between their steps, as it
    begins, and gives it back as it ends. Steps that run on several threads at once divide it: each has the least that it
    can do with, and one more byte goes to whom it saves the most seconds of recomputation. One that does not fit beside
    those in progress waits until it does, first come, first served; Ctrl-C ends the wait. A session's first step runs
    alone, and so does one that could not be planned for. What does not fit alone is refused by a BudgetError, as without a
    pool. Reports have ``granted_bytes`` and ``waited_seconds``. See docs/budget.md.

    Args:
        budget: an int, or "6GiB", "1500MB".

    On the CPU, for sessions without a process group. Thread-safe. Copies are the same pool. Raises Error for a budget that
    is no number of bytes.
    """

    def __init__(self, budget: int | str) -> None:
        self._pool = _C.Pool(parse_budget(budget, "pool"))

    def __copy__(self) -> Pool:
        return self

    def __deepcopy__(self, memo: object) -> Pool:
        return self

    def __reduce_ex__(self, protocol: object) -> str:
        raise TypeError("[pool] a pool belongs to its process: it cannot be pickled; make another, or leave it out")

    def __repr__(self) -> str:
        return f"remat.Pool({self.bytes})"

    @property
    def bytes(self) -> int:
        """Of all tensors."""
        return self._pool.bytes

    @property
    def running(self) -> int:
        """Steps of its sessions that are in progress."""
        return self._pool.running()

    @property
    def waiting(self) -> int:
        """Threads that wait for their step to begin."""
        return self._pool.waiting()


def parse_budget(budget: int | str | Pool | None, who: str = "session") -> _C.Budget:
    """Bytes, text such as "6GiB" or "40%", a pool, or None for the device's limit. Raises Error, which names `who`, for
    anything else."""
    if budget is None:
        return _C.Budget()
    if isinstance(budget, Pool):
        return budget._pool.budget
    if isinstance(budget, str):
        return _C.Budget.parse(budget)
    if isinstance(budget, bool) or not hasattr(budget, "__index__"):
        raise Error(
            f'[{who}] a budget of {budget!r} has no meaning; use bytes (an int), "6GiB", "40%", a remat.Pool or None'
        )
    count = budget.__index__()
    if not 0 < count < 2**63:
        raise Error(f"[{who}] a budget of {count} bytes has no meaning; use a positive number below 2**63")
    if count <= 100:
        raise Error(f'[{who}] a budget of {count} bytes is too small for any step: did you mean "{count}%"?')
    return _C.Budget.bytes(count)


def parse_bytes(size: int | str, who: str, what: str) -> int:
    """The bytes of a budget that is a number of them. Raises Error, which names `who` and `what`, for anything else."""
    count = parse_budget(size, who).byte_count
    if count <= 0:
        raise Error(f"[{who}] {what} is {size!r}; give bytes, as 24GiB")
    return count
