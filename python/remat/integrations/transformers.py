"""remat in Hugging Face's Trainer::

    trainer = Trainer(model=model, args=..., callbacks=[RematCallback(budget="6GiB")])

Gradient accumulation, evaluation in between and accelerate's mixed precision work as without it, with the same bits.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from typing import Any

from torch import nn
from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments

from remat.errors import Error
from remat.integrations.figures import Figures
from remat.model_session import ModelSession
from remat.wrap import session_of, unwrap, wrap_until


def _end_of_training() -> Callable[[], bool]:
    """In a callback's method: tells whether the loop that called it has been left, on the same thread. After an exception
    the Trainer calls no callback."""
    frame = sys._getframe(2)
    while frame.f_back is not None and frame.f_globals.get("__name__") == "transformers.trainer_callback":
        frame = frame.f_back
    # Not the frame itself, which would hold all of the loop's variables.
    thread, loop, code = threading.get_ident(), id(frame), frame.f_code

    def is_over() -> bool:
        if threading.get_ident() != thread:
            return False
        frame = sys._getframe(1)
        while frame is not None and not (id(frame) == loop and frame.f_code is code):
            frame = frame.f_back
        return frame is None

    return is_over


class RematCallback(TrainerCallback):
    """Keeps every forward and backward pass of ``trainer.train()`` under `budget`: wraps the model (remat.wrap) when
    training begins and unwraps it when training ends, or, where an exception has ended it, when the model is called
    next.

    Args:
        budget, options: those of :class:`remat.Session`, but the device is that of the model's first parameter if
            none is named.

    The Trainer's logs get, for the steps since the last entry, "remat/peak_bytes", "remat/plain_peak_bytes" (what the
    peak would have been), "remat/budget_bytes" and "remat/recompute_seconds". A micro-batch is a step. Callbacks that
    come before this one, such as TensorBoard's, are told of an entry before the figures are in it: for them, put this
    one in front: ``trainer.callback_handler.callbacks.insert(0, callback)``.

    The Trainer's ``activation_checkpointing=True`` would run layers twice on top of this: leave it off, or call
    remat.enable(model) before. Raises Error for budgets and options that remat.Session refuses.
    """

    def __init__(self, budget: int | str | None = None, **options: Any) -> None:
        self._options = {"budget": budget, **options}
        self._figures = Figures()
        ModelSession(self._options)  # bad options are an error here

    def on_train_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, model: nn.Module, **kwargs: Any
    ) -> None:
        wrap_until(_end_of_training(), model, **self._options)
        self._figures = Figures()

    def on_substep_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, model: nn.Module, **kwargs: Any
    ) -> None:
        try:
            self._figures.add(session_of(model).report())
        except Error:  # no step has ended: nothing had gradients
            pass

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
        unwrap(model)
