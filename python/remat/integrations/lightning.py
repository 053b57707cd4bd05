"""remat in Lightning's Trainer::

trainer = lightning.Trainer(callbacks=[RematCallback(budget="6GiB")])
"""

from __future__ import annotations

import weakref
from typing import Any

import lightning
import torch

from remat.errors import Error
from remat.integrations.figures import Figures
from remat.model_session import ModelSession
from remat.session import Session, Step


class RematCallback(lightning.Callback):
    """Keeps the training batches under `budget`: a step begins with each call of training_step() and ends after its
    backward pass, or, with manual optimization, when it returns. An optimizer that calls its closure several times has
    a step in each.

    Args:
        budget, options: those of :class:`remat.Session`, but the device is that of the module's first parameter if
            none is named.

    Logs "remat/peak_bytes", "remat/plain_peak_bytes" (what the peak would have been), "remat/budget_bytes" and
    "remat/recompute_seconds" with every batch. A second fit() of the same module goes on with the same session, another
    module gets one of its own. Lightning's Tuner runs its trials without callbacks, and so without the budget. Raises
    Error for what remat.Session refuses. Copies and pickles have the budget and the options, but not the session.
    """

    def __init__(self, budget: int | str | None = None, **options: Any) -> None:
        self._options = {"name": "RematCallback", "budget": budget, **options}
        self._session = ModelSession(self._options)
        self._module: weakref.ref[lightning.LightningModule] | None = None  # whose session it is
        self._strategy: Any = None  # of the Trainer that trains it
        self._replaced: Any = None  # the strategy's training_step() of the user's own, if there was one
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
        return {**self.__dict__, "_module": None, "_strategy": None, "_replaced": None, "_step": None}

    def on_train_start(self, trainer: Any, pl_module: Any) -> None:
        if self._module is None or self._module() is not pl_module:
            self._session, self._module = ModelSession(self._options), weakref.ref(pl_module)
        self._release()
        # Callbacks are not told of each training_step(): closures may call it again, skipped batches do not.
        training_step = trainer.strategy.training_step
        self._replaced = vars(trainer.strategy).get("training_step")

        def in_a_step(*args: Any, **kwargs: Any) -> Any:
            self._end(completed=False)
            self._step = self._session.of(pl_module).step()
            output = training_step(*args, **kwargs)
            if not pl_module.automatic_optimization:
                self._end(completed=True)
            return output

        self._strategy, trainer.strategy.training_step = trainer.strategy, in_a_step

    def on_after_backward(self, trainer: Any, pl_module: Any) -> None:
        if pl_module.automatic_optimization:
            self._end(completed=True)

    def on_train_batch_end(self, trainer: Any, pl_module: Any, outputs: Any, batch: Any, batch_idx: int) -> None:
        self._end(completed=False)  # still there: training_step() returned None
        figures = self._figures.take()
        if figures:
            # Lightning would make them 32-bit floats, which cannot tell bytes apart.
            exact = {name: torch.tensor(float(value), dtype=torch.float64) for name, value in figures.items()}
            pl_module.log_dict(exact)

    def on_exception(self, trainer: Any, pl_module: Any, exception: BaseException) -> None:
        self._release()

    def on_train_end(self, trainer: Any, pl_module: Any) -> None:
        self._release()

    def _release(self) -> None:
        """Ends a step in progress, and lets the Trainer's steps be."""
        self._end(completed=False)
        if self._strategy is not None:
            if self._replaced is not None:
                self._strategy.training_step = self._replaced
            else:
                vars(self._strategy).pop("training_step", None)  # what the class has is seen again
            self._strategy = self._replaced = None

    def _end(self, completed: bool) -> None:
        if self._step is None:
            return
        step, self._step = self._step, None
        self._figures.add(step.end(completed))
