"""remat in Lightning's Trainer::

trainer = lightning.Trainer(callbacks=[RematCallback(budget="6GiB")])
"""

from __future__ import annotations

from typing import Any

import lightning
import torch

from remat.errors import Error
from remat.integrations.figures import Figures
from remat.model_session import ModelSession
from remat.session import Session, Step


class RematCallback(lightning.Callback):
    """Keeps every training batch under `budget`: a step begins with the batch and ends after its backward pass, or,
    with manual optimization, with the batch.

    Args:
        budget, options: those of :class:`remat.Session`, but the device is that of the module's first parameter if
            none is named.

    Logs "remat/peak_bytes", "remat/plain_peak_bytes" (what the peak would have been), "remat/budget_bytes" and
    "remat/recompute_seconds" with every batch. Raises Error for what remat.Session refuses. Copies and pickles have the
    budget and the options, but not the session.
    """

    def __init__(self, budget: int | str | None = None, **options: Any) -> None:
        self._session = ModelSession({"name": "RematCallback", "budget": budget, **options})
        self._step: Step | None = None
        self._figures = Figures()

    @property
    def session(self) -> Session:
        """The session, for its reports. Raises Error before the first batch: its device is the module's."""
        session = self._session.get()
        if session is None:
            raise Error("[lightning] there is no session before the first batch; ask when training has begun")
        return session

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_step": None}

    def on_train_batch_start(self, trainer: Any, pl_module: Any, batch: Any, batch_idx: int) -> None:
        self._end(completed=False)
        self._step = self._session.of(pl_module).step()

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
