"""The exceptions that remat raises. Messages read ``[where] what happened, with the numbers; what to do``."""

from __future__ import annotations

from remat import _C


class Error(RuntimeError):
    """Something the user can mend: a bad argument, an unsupported request, a tensor modified between forward and
    backward. Parameters, generator state and the session stay usable after it."""


class BudgetError(Error):
    """The step does not fit the budget, even with everything dropped that can be recomputed.

    Raised where an out-of-memory error would be, in the forward or the backward pass. The step can be tried again with
    less work or a larger budget.
    """

    budget_bytes: int | None
    """The budget that was in force."""
    lower_bound_bytes: int | None
    """No budget below it can pass the point where the step stopped, whatever is dropped."""
    smallest_known_bytes: int | None
    """What the smallest earlier step of the session that completed took, beside what was alive when this one began; None
    if there is none. Of a planner, the smallest budget that it has a plan for."""

    def __init__(self, message: str = "") -> None:
        super().__init__(message)
        figures = _C.budget_figures(message)
        self.budget_bytes, self.lower_bound_bytes, self.smallest_known_bytes = figures or (None, None, None)


class InternalError(RuntimeError):
    """A broken invariant inside remat, and not the user's fault: please report it with the message."""


_C.set_error_types(Error, BudgetError, InternalError)
