"""remat in Lightning's Trainer::

    trainer = lightning.Trainer(callbacks=[RematCallback(budget="6GiB")])
"""

from __future__ import annotations

from typing import Any

import lightning
import torch

from remat.integrations.figures import Figures
from remat.session import Session, Step


class RematCallback(lightning.Callback):
    """Keeps every training batch under `budget`: a step begins with the batch and ends after its backward pass, or,
    with manual optimization, with the batch.

    Args:
        budget, options: those of :class:`remat.Session`.

    Logs "remat/peak_bytes", "remat/plain_peak_bytes" (what the peak would have been), "remat/budget_bytes" and
    "remat/recompute_seconds" with every batch. Raises Error for what remat.Session refuses.
    """

    def __init__(self, budget: int | str | None = None, **options: Any) -> None:
        self.session = Session(budget=budget, **options)
        self._step: Step | None = None
        self._figures = Figures()

    def on_train_batch_start(self, trainer: Any, pl_module: Any, batch: Any, batch_idx: int) -> None:
        self._end(completed=False)
        self._step = self.session.step()

    def on_after_backward(self, trainer: Any, pl_module: Any) -> None:
        if pl_module.automatic_optimization:
            self._end(completed=True)

    def on_train_batch_end(self, trainer: Any, pl_module: Any, outputs: Any, batch: Any, batch_idx: int) -> None:
        self._end(completed=not pl_module.automatic_optimization)  # still there: a batch that was skipped
        figures = self._figures.take()
        if figures:
            # Lightning would make them 32-bit floats, which cannot tell bytes apart.
            exact = {name: torch.tensor(float(value), dtype=torch.float64) for name, value in figures.items()}
            pl_module.log_dict(exact)

    def on_exception(self, trainer: Any, pl_module: Any, exception: BaseException) -> None:
        self._end(completed=False)

    def _end(self, completed: bool) -> None:
        if self._step is None:
            return
        step, self._step = self._step, None
        self._figures.add(step.end(completed))
