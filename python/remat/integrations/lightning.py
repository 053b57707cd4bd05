"""remat in Lightning's Trainer::

    trainer = lightning.Trainer(callbacks=[RematCallback(budget="6GiB")])
"""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any

import lightning
import torch

from remat.budget import Pool
from remat.errors import Error
from remat.integrations.figures import Figures
from remat.integrations.replaced_step import ReplacedStep
from remat.model_session import ModelSession
from remat.session import Session, Step


class _Training:
    """One fit() in progress."""

    def __init__(self, module: lightning.LightningModule, session: ModelSession, strategy: Any) -> None:
        self.session = session
        self.figures = Figures()
        self.step: Step | None = None

        # Callbacks are not told of each training_step(): closures may call it again, skipped batches do not.
        def in_a_step(own: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
            self.end_step(completed=False)
            self.step = session.of(module).step()
            output = own(*args, **kwargs)
            if not module.automatic_optimization:
                self.end_step(completed=True)
            return output

        self.steps = ReplacedStep(strategy, in_a_step)

    def end_step(self, completed: bool) -> None:
        if self.step is None:
            return
        step, self.step = self.step, None
        self.figures.add(step.end(completed))


class RematCallback(lightning.Callback):
    """Keeps the training batches under `budget`: a step begins with each call of training_step() and ends after its
    backward pass, or, with manual optimization, when it returns. An optimizer that calls its closure several times has
    a step in each.

    Args:
        budget, options: those of :class:`remat.Session`, but the device is that of the module's first parameter if
            none is named.

    Logs "remat/peak_bytes", "remat/plain_peak_bytes" (what the peak would have been), "remat/budget_bytes" and
    "remat/recompute_seconds" with every batch. A second fit() of the same module goes on with the same session, another
    module gets one of its own, also where it is trained inside of another's fit() or on another thread. Under a
    percentage the first batch takes what it must and no more than plain; a later one that begins as it did, without
    gradients, is refused where that was more than the share: after a validation or at a second fit(), for which
    Lightning frees the gradients, or an optimizer's first update; name bytes there. Lightning's Tuner runs its trials
    without callbacks, and so without the budget. On several processes the sessions agree (remat.Session's process_group,
    the group of all): what one is refused all are told of. Raises Error for what remat.Session refuses. Copies and
    pickles have the budget and the options, but not the sessions.
    """

    def __init__(self, budget: int | str | Pool | None = None, **options: Any) -> None:
        self._options = {"name": "RematCallback", "budget": budget, **options}
        ModelSession(self._options)  # bad options are an error here
        self._begin_anew()

    def _begin_anew(self) -> None:
        self._trainings: list[_Training] = []  # in progress, the innermost last
        self._sessions: weakref.WeakKeyDictionary[lightning.LightningModule, ModelSession] = weakref.WeakKeyDictionary()
        self._last: ModelSession | None = None

    @property
    def session(self) -> Session:
        """The session of the present fit(), the innermost if there are several, or of the last, for its reports. Raises
        Error before the first batch: its device is the module's."""
        present = self._trainings[-1].session if self._trainings else self._last
        session = None if present is None else present.get()
        if session is None:
            raise Error("[lightning] there is no session before the first batch; ask when training has begun")
        return session

    def __getstate__(self) -> dict[str, Any]:
        return {"_options": self._options}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._begin_anew()

    def on_train_start(self, trainer: Any, pl_module: Any) -> None:
        if sum(isinstance(callback, RematCallback) for callback in trainer.callbacks) > 1:
            raise Error("[lightning] this Trainer has two RematCallbacks; keep one of them")
        self._release(trainer)
        several = trainer.world_size > 1
        session = self._sessions.get(pl_module)
        if session is None or session.agrees != several:
            session = self._sessions[pl_module] = ModelSession(self._options, agrees=several)
        self._trainings.append(_Training(pl_module, session, trainer.strategy))

    def on_after_backward(self, trainer: Any, pl_module: Any) -> None:
        training = self._training_of(trainer)
        if training is not None and pl_module.automatic_optimization:
            training.end_step(completed=True)

    def on_train_batch_end(self, trainer: Any, pl_module: Any, outputs: Any, batch: Any, batch_idx: int) -> None:
        training = self._training_of(trainer)
        if training is None:
            return
        training.end_step(completed=False)  # still there: training_step() returned None
        figures = training.figures.take()
        if figures:
            # Lightning would make them 32-bit floats, which cannot tell bytes apart.
            exact = {name: torch.tensor(float(value), dtype=torch.float64) for name, value in figures.items()}
            pl_module.log_dict(exact)

    def on_exception(self, trainer: Any, pl_module: Any, exception: BaseException) -> None:
        self._release(trainer)

    def on_train_end(self, trainer: Any, pl_module: Any) -> None:
        self._release(trainer)

    def _training_of(self, trainer: Any) -> _Training | None:
        return next((one for one in self._trainings if one.steps.owner is trainer.strategy), None)

    def _release(self, trainer: Any) -> None:
        """Ends a step in progress, and lets the Trainer's steps be."""
        training = self._training_of(trainer)
        if training is None:
            return
        training.end_step(completed=False)
        training.steps.put_back()
        self._trainings.remove(training)
        self._last = training.session
