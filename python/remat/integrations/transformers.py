"""remat in Hugging Face's Trainer::

    trainer = Trainer(model=model, args=..., callbacks=[RematCallback(budget="6GiB")])

Gradient accumulation, evaluation in between and accelerate's mixed precision work as without it, with the same bits.
"""

from __future__ import annotations

import contextlib
import sys
import warnings
import weakref
from collections.abc import Callable
from typing import Any

from torch import nn
from transformers import Trainer, TrainerCallback, TrainerControl, TrainerState, TrainingArguments

from remat.errors import Error
from remat.integrations.figures import Figures
from remat.model_session import ModelSession
from remat.session import Session


def _calling_trainer() -> Trainer:
    """In a callback's method: the Trainer that called it, which callbacks are not told."""
    frame = sys._getframe(2)
    while frame is not None:
        caller = frame.f_locals.get("self")
        if isinstance(caller, Trainer):
            return caller
        frame = frame.f_back
    raise Error(
        "[transformers] RematCallback is for transformers.Trainer, and no such object has called it; in other loops, use "
        "remat.wrap(model, budget=...)"
    )


class RematCallback(TrainerCallback):
    """Keeps every ``training_step()`` of ``trainer.train()`` under `budget`: the forward and backward pass of a
    micro-batch are a step. Evaluation, the optimizer and other callbacks are outside of it.

    Args:
        budget, options: those of :class:`remat.Session`, but the device is that of the model's first parameter if
            none is named.

    The Trainer's logs get, for the steps since the last entry, "remat/peak_bytes", "remat/plain_peak_bytes" (what the
    peak would have been), "remat/budget_bytes" and "remat/recompute_seconds". Callbacks that come before this one, such
    as TensorBoard's, are told of an entry before the figures are in it: for them, put this one in front:
    ``trainer.callback_handler.callbacks.insert(0, callback)``.

    After an optimizer's first update, or an evaluation that frees gradients, a step may need more than those before.
    With ``auto_find_batch_size=True`` a batch that the budget refuses is made smaller. A Trainer with a loop of its own,
    which does not call ``training_step()``, is warned about: there, use remat.wrap(). The Trainer's
    ``activation_checkpointing=True`` would run layers twice on top of this: leave it off, or call remat.enable(model)
    before. Raises Error for budgets and options that remat.Session refuses. Copies and pickles have the budget and the
    options, but not the session.
    """

    def __init__(self, budget: int | str | None = None, **options: Any) -> None:
        self._options = {"name": "RematCallback", "budget": budget, **options}
        self._session = ModelSession(self._options)  # bad options are an error here
        self._trainer: weakref.ref[Trainer] | None = None  # whose training_step() is replaced
        self._replaced: Callable[..., Any] | None = None  # the user's own, if there was one
        self._figures = Figures()
        self._warned = False  # that the budget does not hold

    @property
    def session(self) -> Session:
        """The session of the present or last ``train()``, for its reports. Raises Error before the first step: its
        device is the model's."""
        session = self._session.get()
        if session is None:
            raise Error("[transformers] there is no session before the first step; ask when training has begun")
        return session

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_trainer": None, "_replaced": None}

    def on_train_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, model: nn.Module, **kwargs: Any
    ) -> None:
        self._release()
        self._session, self._figures, self._warned = ModelSession(self._options), Figures(), False
        self._put_steps_around(_calling_trainer(), model)

    def _put_steps_around(self, trainer: Trainer, model: nn.Module) -> None:
        self._replaced = replaced = vars(trainer).get("training_step")
        self._trainer = reference = weakref.ref(trainer)  # which need not wait for the garbage collector
        session = self._session

        def in_a_step(*args: Any, **kwargs: Any) -> Any:
            trainer = reference()
            step = contextlib.nullcontext()
            # After an exception the Trainer calls no callback, and this one may be taken out then.
            if any(callback is self for callback in trainer.callback_handler.callbacks):
                step = session.of(model).step()
            with step:
                if replaced is not None:
                    return replaced(*args, **kwargs)
                return type(trainer).training_step(trainer, *args, **kwargs)

        trainer.training_step = in_a_step

    def _release(self) -> None:
        trainer = None if self._trainer is None else self._trainer()
        if trainer is not None:
            if self._replaced is not None:
                trainer.training_step = self._replaced
            else:
                vars(trainer).pop("training_step", None)  # what the class has is seen again
        self._trainer = self._replaced = None

    def on_substep_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, model: nn.Module, **kwargs: Any
    ) -> None:
        session = self._session.get()
        if session is not None:
            self._figures.add(session.report())
        elif not self._warned:
            self._warned = True
            warnings.warn(
                "[transformers] this Trainer does not call its training_step(), and the budget does not hold; use "
                "remat.wrap(model, budget=...) in place of RematCallback",
                RuntimeWarning,
                stacklevel=2,
            )

    def on_step_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, model: nn.Module, **kwargs: Any
    ) -> None:
        self.on_substep_end(args, state, control, model)

    def on_log(
        self,
        args: TrainingArguments,
        state: TrainerState,
        control: TrainerControl,
        logs: dict[str, Any] | None = None,
        **kwargs: Any,
    ) -> None:
        if logs is None or not ("loss" in logs or "train_loss" in logs):  # of an evaluation
            return
        figures = self._figures.take()
        logs.update(figures)
        if state.log_history:  # has a copy of `logs`
            state.log_history[-1].update(figures)

    def on_train_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, model: nn.Module, **kwargs: Any
    ) -> None:
        self._release()
