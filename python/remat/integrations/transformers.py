"""remat in Hugging Face's Trainer::

    trainer = Trainer(model=model, args=..., callbacks=[RematCallback(budget="6GiB")])

Gradient accumulation, evaluation in between and accelerate's mixed precision work as without it, with the same bits.
"""

from __future__ import annotations

import inspect
import os
import sys
import threading
import warnings
import weakref
from collections.abc import Callable
from types import CodeType, FrameType
from typing import Any

from torch import nn
from transformers import Trainer, TrainerCallback, TrainerControl, TrainerState, TrainingArguments

from remat.budget import Pool, parse_budget
from remat.errors import Error
from remat.fit import Fit
from remat.heads import HeadHooks, check_how, promise_heads, release_heads
from remat.integrations.auto_batch import AutoBatch
from remat.integrations.figures import Figures
from remat.integrations.replaced_step import ReplacedStep
from remat.model_session import ModelSession
from remat.paged import paged, pager_of
from remat.parameter_update import unwrapped
from remat.session import Session


def _method_codes() -> set[CodeType]:
    """Of all methods that Trainer and its subclasses have now: people put others in their place."""
    codes = set()
    classes = [Trainer]
    while classes:
        cls = classes.pop()
        classes += cls.__subclasses__()
        for member in vars(cls).values():
            if inspect.isfunction(member):
                codes.add(inspect.unwrap(member).__code__)
    return codes


def _trainers_in(frame: FrameType | None, methods: set[CodeType]) -> list[Trainer]:
    """The Trainers of which methods are running, the innermost first. Only of these methods the local variables are
    looked at: up to Python 3.12 a look makes the frame hold all of them until it ends, deleted ones too."""
    found = []
    while frame is not None:
        if frame.f_code in methods and frame.f_code.co_argcount > 0:
            caller = frame.f_locals.get(frame.f_code.co_varnames[0])
            if isinstance(caller, Trainer):
                found.append(caller)
        frame = frame.f_back
    return found


def _calling_trainer() -> Trainer:
    """In a callback's method: the Trainer that called it, which callbacks are not told."""
    trainers = _trainers_in(sys._getframe(2), _method_codes())
    if trainers:
        return trainers[0]
    raise Error(
        "[transformers] RematCallback is for transformers.Trainer, and no such object has called it; in other loops, use "
        "remat.wrap(model, budget=...)"
    )


def _is_running(trainer: Trainer) -> bool:
    """Is a method of it running, on any thread? After an exception in train() the Trainer calls no callback."""
    methods = _method_codes()
    return any(trainer is one for frame in sys._current_frames().values() for one in _trainers_in(frame, methods))


def _owner(trainer: Trainer) -> str:
    return f"trainer {id(trainer)}"


class _Training:
    """One train() in progress."""

    def __init__(self, callback: RematCallback, trainer: Trainer, model: nn.Module, options: dict[str, Any]) -> None:
        self.session = ModelSession(options, agrees=True)
        self.figures = Figures()
        self.warned = False  # that the budget does not hold
        self.model = trained = weakref.ref(model)  # what an exception leaves behind keeps no model
        self.owner = _owner(trainer)  # of the hooks on its head
        self._stepping: int | None = None  # the thread of the step in progress
        self._heads: list[HeadHooks] = []

        def in_a_step(own: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
            # The callback may have been taken out, and after an exception nobody says so.
            if not any(callback is one for one in self.steps.owner.callback_handler.callbacks):
                return own(*args, **kwargs)
            with self.session.of(trained()).step():
                self._stepping = threading.get_ident()
                try:
                    result = own(*args, **kwargs)
                    for hooks in self._heads:  # next comes the optimizer's step
                        hooks.make_promised()
                    return result
                finally:
                    self._stepping = None
                    for hooks in self._heads:
                        hooks.leave()  # what an interrupt in the head has left

        self.steps = ReplacedStep(trainer, in_a_step)

    def promise_heads(self, model: nn.Module, how: str) -> None:
        """In steps alone: nobody takes the hooks away after an exception."""
        reference = weakref.ref(self)

        def in_step() -> bool:
            training = reference()
            return training is not None and training._stepping == threading.get_ident()

        self._heads = promise_heads(model, how, self.owner, in_step, self.session.get)


class RematCallback(TrainerCallback):
    """Keeps every ``training_step()`` of ``trainer.train()`` under `budget`: the forward and backward pass of a
    micro-batch are a step. Evaluation, the optimizer and other callbacks are outside of it.

    Args:
        budget, options: those of :class:`remat.Session`, but the device is that of the model's first parameter if
            none is named.
        auto_batch: splits the batch (``per_device_train_batch_size * gradient_accumulation_steps``) into the micro-batches
            that take the least time of those that fit, by :func:`remat.fit`, as ``train()`` begins; the arguments then
            say so, and :attr:`fit` what was found. The batch itself stays, and the bits are those of such arguments. Not
            with a percentage, which every size fits; on one process and the CPU. Give the callback to the Trainer's
            constructor.
        head: how the loss of a language model is made of its logits, with the same bits: see :func:`remat.wrap`.
        page_optimizer: a directory: the optimizer's state waits in a file there, see :func:`remat.paged`. It stays there
            when ``train()`` is over. Checkpoints have all of it.
        page_gradients: with `page_optimizer`, gradients wait in a file, too, also where they are accumulated and clipped.

    The Trainer's logs get "remat/peak_bytes", "remat/plain_peak_bytes" (what the peak would have been) and
    "remat/budget_bytes" of the step with the largest peak since the last entry, and "remat/recompute_seconds" of all. Callbacks that come before this one, such
    as TensorBoard's, are told of an entry before the figures are in it: for them, put this one in front:
    ``trainer.callback_handler.callbacks.insert(0, callback)``.

    After an optimizer's first update, or an evaluation that frees gradients, a step may need more than those before.
    With ``auto_find_batch_size=True`` a batch that the budget refuses is made smaller. A Trainer with a loop of its own,
    which does not call ``training_step()``, is warned about: there, use remat.wrap(). The Trainer's
    ``activation_checkpointing=True`` would run layers twice on top of this: leave it off, or call remat.enable(model)
    before. One callback may serve several Trainers, also one that trains inside of another's ``train()``, or on another
    thread; each has a session of its own. On several processes of torch.distributed the sessions agree (remat.Session's
    process_group, the group of all): what one is refused all are told of. Raises Error for budgets and options that
    remat.Session refuses. Copies and pickles have the budget and the options, but not the sessions.
    """

    def __init__(
        self,
        budget: int | str | Pool | None = None,
        *,
        auto_batch: bool = False,
        head: str = "auto",
        page_optimizer: str | os.PathLike[str] | None = None,
        page_gradients: bool = False,
        **options: Any,
    ) -> None:
        self._options = {"name": "RematCallback", "budget": budget, **options}
        ModelSession(self._options)  # bad options are an error here
        if not isinstance(auto_batch, bool):
            raise Error(f"[transformers] auto_batch is {auto_batch!r}; use True or False")
        parsed = parse_budget(budget)
        if auto_batch and (parsed.share or parsed.is_pressure):
            raise Error(f"[transformers] auto_batch has no meaning with {budget}, which every size fits; give bytes")
        check_how("transformers", head)
        if page_gradients and page_optimizer is None:
            raise Error("[transformers] page_gradients=True names no directory; say page_optimizer=DIRECTORY, too")
        self._head = head
        self._page_optimizer = page_optimizer
        self._page_gradients = page_gradients
        self._auto_batch = auto_batch
        self._splits: list[tuple[weakref.ref[Trainer], AutoBatch]] = []  # by Trainer, the newest last
        self._trainings: list[_Training] = []  # in progress, the innermost last
        self._last: _Training | None = None

    @property
    def session(self) -> Session:
        """The session of the present ``train()``, the innermost if there are several, or of the last, for its reports.
        Raises Error before the first step: its device is the model's."""
        training = self._trainings[-1] if self._trainings else self._last
        session = None if training is None else training.session.get()
        if session is None:
            raise Error("[transformers] there is no session before the first step; ask when training has begun")
        return session

    @property
    def fit(self) -> Fit | None:
        """What `auto_batch` found last; None where it has not looked yet."""
        found = [split.found for _, split in self._splits if split.found is not None]
        return found[-1] if found else None

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_trainings": [], "_last": None, "_splits": []}

    def on_init_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        if self._auto_batch:
            trainer = _calling_trainer()
            self._splits = [(owner, split) for owner, split in self._splits if owner() is not None]
            self._splits.append((weakref.ref(trainer), AutoBatch(trainer, self._options["budget"])))

    def on_train_begin(
        self,
        args: TrainingArguments,
        state: TrainerState,
        control: TrainerControl,
        model: nn.Module,
        optimizer: Any = None,
        **kwargs: Any,
    ) -> None:
        if self._page_optimizer is not None:
            pager = pager_of(unwrapped(optimizer))
            if pager is None:
                paged(optimizer, dir=self._page_optimizer, gradients=self._page_gradients)
            elif self._page_gradients and not pager.stores_gradients:
                raise Error(
                    "[transformers] page_gradients=True, and the optimizer's state is in a file already, without its "
                    "gradients; call paged() with gradients=True, or leave it to the callback"
                )
        trainer = _calling_trainer()
        if self._auto_batch and not any(owner() is trainer and split.found for owner, split in self._splits):
            raise Error(
                "[transformers] auto_batch has not seen this Trainer before it made its data loader; give the callback to "
                "its constructor, as Trainer(callbacks=[...])"
            )
        self._begin(trainer, model)

    def _begin(self, trainer: Trainer, model: nn.Module) -> _Training:
        if sum(isinstance(one, RematCallback) for one in trainer.callback_handler.callbacks) > 1:
            raise Error("[transformers] this Trainer has two RematCallbacks; keep one of them")
        for training in list(self._trainings):
            owner = training.steps.owner
            if owner is None or owner is trainer or not _is_running(owner):  # an exception ended it
                self._end(training)
        training = _Training(self, trainer, model, self._options)
        self._trainings.append(training)
        training.promise_heads(model, self._head)
        return training

    def _end(self, training: _Training) -> None:
        training.steps.put_back()
        self._trainings.remove(training)
        self._last = training
        if (model := training.model()) is not None:
            release_heads(model, training.owner)

    def _training_of(self, trainer: Trainer) -> _Training | None:
        return next((one for one in self._trainings if one.steps.owner is trainer), None)

    def on_substep_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, model: nn.Module, **kwargs: Any
    ) -> None:
        self._add_figures(_calling_trainer(), model)

    def on_step_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, model: nn.Module, **kwargs: Any
    ) -> None:
        self._add_figures(_calling_trainer(), model)

    def _add_figures(self, trainer: Trainer, model: nn.Module) -> None:
        training = self._training_of(trainer)
        if training is None:  # this callback was added meanwhile
            self._begin(trainer, model)
            return
        session = training.session.get()
        if session is not None:
            training.figures.add(session.report())
        elif not training.warned:
            training.warned = True
            warnings.warn(
                "[transformers] this Trainer does not call its training_step(), and the budget does not hold; use "
                "remat.wrap(model, budget=...) in place of RematCallback",
                RuntimeWarning,
                stacklevel=3,
            )

    def on_log(
        self,
        args: TrainingArguments,
        state: TrainerState,
        control: TrainerControl,
        logs: dict[str, Any] | None = None,
        **kwargs: Any,
    ) -> None:
        training = self._training_of(_calling_trainer())
        if training is None or logs is None or not ("loss" in logs or "train_loss" in logs):  # of an evaluation
            return
        figures = training.figures.take()
        logs.update(figures)
        if state.log_history:  # has a copy of `logs`
            state.log_history[-1].update(figures)

    def on_train_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, model: nn.Module, **kwargs: Any
    ) -> None:
        training = self._training_of(_calling_trainer())
        if training is not None:
            self._end(training)
