"""Budgets as users write them."""

from __future__ import annotations

from remat import _C
from remat.errors import Error


def parse_budget(budget: int | str | None, who: str = "session") -> _C.Budget:
    """Bytes, text such as "6GiB" or "40%", or None for the device's limit. Raises Error, which names `who`, for anything
    else."""
    if budget is None:
        return _C.Budget()
    if isinstance(budget, str):
        return _C.Budget.parse(budget)
    if isinstance(budget, bool) or not hasattr(budget, "__index__"):
        raise Error(f'[{who}] a budget of {budget!r} has no meaning; use bytes (an int), "6GiB", "40%" or None')
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
