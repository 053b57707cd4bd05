"""The exceptions that remat raises. Messages read ``[where] what happened, with the numbers; what to do``."""

from __future__ import annotations

import re

import torch

from remat import _C

# Lightning's Tuner.scale_batch_size() looks for it in an error's only argument. (accelerate finds " out of memory." in
# the message.)
_PHRASE = "; DefaultCPUAllocator: can't allocate memory"


class Error(RuntimeError):
    """Something the user can mend: a bad argument, an unsupported request, a tensor modified between forward and
    backward. Parameters, generator state and the session stay usable after it."""


class BudgetError(Error, torch.OutOfMemoryError):
    """The step does not fit the budget, even with everything dropped that can be recomputed.

    Raised where an out-of-memory error would be, in the forward or the backward pass, and a ``torch.OutOfMemoryError``
    itself: what mends those by a smaller batch (accelerate, the Trainer's ``auto_find_batch_size``, Lightning's
    ``Tuner.scale_batch_size``, loops of your own) mends it too. The step can be tried again with
    less work or a larger budget::

        budget = 1 << 20
        while True:  # ends with what the step takes, or a few percent more
            try:
                train_one_step(budget)
                break
            except remat.BudgetError as error:
                budget = error.needed_bytes
    """

    budget_bytes: int | None
    """The budget that was in force."""
    needed_bytes: int | None
    """The budget to try next, more than budget_bytes, with all that is alive now counted. Where the session knows the
    step from one like it, what it is predicted to take. Where it does not (in a first step, say), what it took so far
    and a quarter more: what comes later may take more, and then the next error says so. A loop that sets its budget to
    the number of each error always comes to an end; from a guess that is far too small, and with a session made anew
    each time, after eight tries or more, where :func:`remat.fit_budget` takes about six and finds the smallest. Of a planner, the smallest budget that it
    has a plan for."""
    needed_percent: float | None
    """The same as a whole percentage, rounded up, where the budget was one; None where 100 % are too few."""
    lower_bound_bytes: int | None
    """No budget below it can pass the point where the step stopped, whatever is dropped."""
    smallest_known_bytes: int | None
    """What the smallest earlier step of the session that completed took, beside what was alive when this one began and
    the gradients that were there then and are not now; None if there is none."""

    def __init__(self, message: str = "") -> None:
        message = message.removesuffix(_PHRASE)  # of a copy
        super().__init__(message + _PHRASE)
        figures = _C.budget_figures(message) or _figures_in(message)
        self.budget_bytes, self.lower_bound_bytes, self.smallest_known_bytes, self.needed_bytes = figures[:4]
        self.needed_percent = figures[4]

    def __str__(self) -> str:
        return super().__str__().removesuffix(_PHRASE)


def _figures_in(message: str) -> tuple[int | None, int | None, None, int | None, float | None]:
    """Of an error that another process raised, such as a DataLoader's worker: it comes as text alone."""

    def figure(words: str) -> int | None:
        found = re.search(words + r" [\d.]+ [KMGT]?i?B \((\d+) bytes\)", message)
        return None if found is None else int(found[1])

    percent = re.search(r"; give [^,;]* or ([\d.]+)%", message)
    needed_percent = None if percent is None else float(percent[1])
    return figure("the budget is"), figure("no budget below"), None, figure("; give"), needed_percent


class InternalError(RuntimeError):
    """A broken invariant inside remat, and not the user's fault: please report it with the message."""


_C.set_error_types(Error, BudgetError, InternalError)
