"""Updates of parameters while backward runs, so that their gradients are never all alive."""

from __future__ import annotations

import functools
import gc
import inspect
import weakref
from types import TracebackType
from typing import Any

import torch
from torch.utils.weak import WeakTensorKeyDictionary

from remat import _C
from remat.device import end_after_autograd
from remat.errors import Error
from remat.paged import pager_of
from remat.parameter_update import check_updates_alone, groups_of, unwrapped
from remat.update_in_parts import update_in_parts

_WHERE = "[optimizer in backward]"
_updates = WeakTensorKeyDictionary()  # by parameter: a weak reference to its OptimizerInBackward


def optimizer_in_backward(
    optimizer: torch.optim.Optimizer, *, accumulate: int = 1, per_parameter: bool = False
) -> OptimizerInBackward:
    """From now on backward updates each of the optimizer's parameters as soon as its gradient is complete, and frees
    the gradient at once::

        optimizer = torch.optim.AdamW(model.parameters())
        remat.optimizer_in_backward(optimizer)

    The training loop stays as it is. Parameters and the optimizer's state have the bits that they would have after
    ``loss.backward(); optimizer.step(); optimizer.zero_grad()``: ``step()`` finds no gradients any more and does
    nothing, schedulers and ``state_dict()`` work on the optimizer as always. Keep the optimizer: backward raises Error
    once it is gone. One in a reference cycle goes on training until Python's collector has found it; call
    :meth:`OptimizerInBackward.remove` before you let go of it.

    Args:
        optimizer: one of torch.optim's whose updates of a parameter depend on its own gradient and state alone: all
            but LBFGS. Of accelerate's, the one inside.
        accumulate: backward passes per step. Gradients add up, and the last of them updates. After fewer, as at the end
            of an epoch, ``optimizer.step()`` updates from what is there, and the next pass is the first of a step.
        per_parameter: True says of an optimizer that is not torch.optim's that it is of that kind too, leaves parameters
            without gradients alone, and writes nothing to its parameter groups.

    Raises Error for another optimizer, for one whose ``step`` was replaced, for ``differentiable=True``, for a lazy parameter without a shape, for one that
    is in the groups twice or that another such optimizer updates, and where torch.distributed is in use: gradients are
    averaged or sharded after they are complete.

    Backward raises Error with ``create_graph=True``; after a backward pass that has failed when some parameters had
    been updated (see :meth:`OptimizerInBackward.reset`); and where a backward pass inside of another one completes a
    gradient, as in torch.utils.checkpoint with ``use_reentrant=True`` or a hand-written checkpoint. Parameters outside
    of such a checkpoint may have been updated then, which the error says.

    A backward pass updates whatever the loop does with it later. What is noticed of loops that would have thrown
    gradients away or added them up is refused, when it has happened once: ``optimizer.zero_grad()`` raises Error if no
    ``step()`` came after the last update, and in loops that call ``step()`` a second backward pass without one raises,
    unless `accumulate` says so. (Loops without ``step()`` may leave out ``zero_grad()`` too.) Not noticed are
    ``model.zero_grad()``, and gradients that are changed or thrown away by hand.

    Forward passes that run again in backward must not read weights past autograd: where a block under
    torch.utils.checkpoint reads ``other.weight.detach()``, or a weight under ``no_grad()``, the weight may have been
    updated by then, and gradients are other ones, without an error.

    Nobody sees all gradients: ``clip_grad_norm_()`` and ``clip_grad_value_()`` after backward have nothing to clip, and
    a ``GradScaler`` raises after weights were updated by gradients that are scaled. Do without them.
    """
    return OptimizerInBackward(optimizer, accumulate, per_parameter)


class OptimizerInBackward:
    """What :func:`optimizer_in_backward` returns; need not be kept. ``with`` ends it by :meth:`remove`."""

    def __init__(self, optimizer: torch.optim.Optimizer, accumulate: int, per_parameter: bool) -> None:
        optimizer = unwrapped(optimizer)
        _check_optimizer(optimizer, per_parameter)
        if not isinstance(accumulate, int) or isinstance(accumulate, bool) or accumulate < 1:
            raise Error(f"{_WHERE} accumulate is {accumulate!r}; use the backward passes per step, 1 or more")
        # Weak, since parameters own their hooks, and Python's collector does not find cycles that lead through them.
        self._optimizer = weakref.ref(optimizer)
        self._accumulate = accumulate
        self._passes = 0  # that have ended since the last update
        self._pass: int | None = None  # in progress, or failed: autograd's number of it
        self._updated = 0  # parameters in that pass
        self._groups: dict[int, int] = {}  # by a parameter's id, its group's index when that pass began
        self._updated_since_step: set[int] = set()  # ids of parameters, since the user's last optimizer.step()
        self._calls_step = False  # the user does
        self._handles: list[Any] = []
        try:
            self._install(optimizer)
        except BaseException:
            self.remove()
            raise

    def _install(self, optimizer: torch.optim.Optimizer) -> None:
        ours = weakref.ref(self)
        self._handles.append(optimizer.register_step_post_hook(functools.partial(_step_was_called, ours)))
        for group in optimizer.param_groups:
            for parameter in group["params"]:
                if not parameter.requires_grad:
                    continue  # if it is trained later: see _end_pass()
                if (before := updates_of(parameter)) is not None:
                    before.remove()  # its optimizer is gone
                _updates[parameter] = ours
                end_after_autograd(parameter.device)
                self._handles.append(parameter.register_post_accumulate_grad_hook(self._gradient_is_complete))
        if "zero_grad" not in vars(optimizer):  # there is no hook for it; copies and pickles leave it behind
            zero_grad: Any = functools.partial(_zero_grad, ours, self._optimizer)
            zero_grad.__signature__ = inspect.signature(optimizer.zero_grad)  # accelerate's looks for set_to_none
            optimizer.zero_grad = zero_grad  # type: ignore[method-assign]

    def remove(self) -> None:
        """From now on ``optimizer.step()`` updates again. Between steps; a second call does nothing."""
        optimizer = self._optimizer()
        zero_grad = None if optimizer is None else vars(optimizer).get("zero_grad")
        if isinstance(zero_grad, functools.partial) and zero_grad.args[:1] == (weakref.ref(self),):
            del optimizer.zero_grad  # type: ignore[union-attr]
        for handle in self._handles:
            handle.remove()
        self._handles.clear()

    def reset(self) -> None:
        """The next backward pass is the first of a step. To be called after ``zero_grad()`` in the middle of one, and
        after a pass that failed. Where that had updated some parameters and others not, load both model and optimizer
        from a checkpoint before."""
        self._passes, self._pass, self._updated = 0, None, 0
        self._updated_since_step.clear()

    def __enter__(self) -> OptimizerInBackward:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.remove()

    def _gradient_is_complete(self, parameter: torch.Tensor) -> None:
        self._begin_pass()
        if self._passes + 1 < self._accumulate:
            return
        optimizer = self._kept_optimizer()
        group = self._groups.get(id(parameter))
        if group is not None:  # in one still
            self._update(optimizer, optimizer.param_groups[group], parameter)

    def _begin_pass(self) -> None:
        current = torch._C._current_graph_task_id()
        if current == self._pass:
            return
        if _C.is_in_nested_backward():
            raise Error(
                f"{_WHERE} this backward pass runs inside of another one, as torch.utils.checkpoint with "
                "use_reentrant=True and hand-written checkpoints do, and may complete a gradient more than once; use "
                f"use_reentrant=False or remat.checkpoint(){self._after_updates()}"
            )
        if self._updated > 0:
            raise Error(
                f"{_WHERE} a backward pass failed after {self._updated} parameters were updated, and others were not; "
                "load model and optimizer from a checkpoint, zero_grad(), then reset() what optimizer_in_backward() "
                "returned"
            )
        if self._pass is not None and self._accumulate > 1:
            raise Error(
                f"{_WHERE} backward pass {self._passes + 1} of {self._accumulate} of a step failed; zero_grad(), reset() "
                "what optimizer_in_backward() returned, and begin the step again"
            )
        _check_processes()
        if torch.is_grad_enabled():
            raise Error(
                f"{_WHERE} backward with create_graph=True needs parameters and gradients as they are; leave it out"
            )
        self._groups = groups_of(self._kept_optimizer(), _WHERE)
        self._pass = current
        torch.autograd.Variable._execution_engine.queue_callback(self._end_pass)

    def _after_updates(self) -> str:
        if self._updated == 0:
            return ""
        return f". {self._updated} parameters were updated before: load model and optimizer from a checkpoint"

    def _end_pass(self) -> None:
        """Called when the pass has come to its end, but not when it has failed."""
        self._passes += 1
        if self._passes == self._accumulate:
            # What got its gradient in an earlier pass alone, or came to the optimizer later.
            optimizer = self._kept_optimizer()
            for group in optimizer.param_groups:
                for parameter in group["params"]:
                    if parameter.grad is not None:
                        self._update(optimizer, group, parameter)
            self._passes = 0
            if (pager := pager_of(optimizer)) is not None:
                pager.end_step()
        self._pass, self._updated = None, 0

    def _update(self, optimizer: torch.optim.Optimizer, group: dict[str, Any], parameter: torch.Tensor) -> None:
        """As ``optimizer.step()`` does, if this parameter was all that had a gradient."""
        if self._calls_step and self._accumulate == 1 and id(parameter) in self._updated_since_step:
            raise Error(
                f"{_WHERE} a second backward pass since optimizer.step() has a gradient of a parameter that the first "
                "updated: they would have added up; say accumulate=, the backward passes per step, or call step() "
                "after each of them, and load model and optimizer from a checkpoint"
            )
        self._updated += 1
        self._updated_since_step.add(id(parameter))
        pager = pager_of(optimizer)
        update = _C.ParameterUpdate()
        try:
            (update_in_parts if pager is None else pager.update)(optimizer, group, parameter)
        finally:
            update.end()
        parameter.grad = None

    def _kept_optimizer(self) -> torch.optim.Optimizer:
        optimizer = self._optimizer()
        if optimizer is None:
            raise Error(f"{_WHERE} the optimizer is gone, and its state with it; keep it in a variable")
        return optimizer


def _step_was_called(ours: weakref.ref[OptimizerInBackward], *_: Any) -> None:
    """By the user."""
    this = ours()
    if this is not None:
        this._passes = 0
        this._calls_step = True
        this._updated_since_step.clear()


def _zero_grad(
    ours: weakref.ref[OptimizerInBackward], optimizer: weakref.ref[torch.optim.Optimizer], *args: Any, **kwargs: Any
) -> None:
    """Stands in the optimizer for its own."""
    this, of = ours(), optimizer()
    if this is not None and this._passes == 0 and this._pass is None and this._updated_since_step:
        updated = len(this._updated_since_step)
        raise Error(
            f"{_WHERE} zero_grad() throws gradients away that backward has used already: since the last "
            f"optimizer.step(), it updated {updated} parameters. Call step() after each backward pass, or leave out "
            "zero_grad() too. What is not to be trained by a pass needs requires_grad_(False) in it; load model and "
            "optimizer from a checkpoint, then reset() what optimizer_in_backward() returned"
        )
    if of is not None:
        type(of).zero_grad(of, *args, **kwargs)


def updates_of(parameter: torch.Tensor) -> OptimizerInBackward | None:
    """What has hooks on it, and was not removed."""
    reference = _updates.get(parameter)
    updates = None if reference is None else reference()
    return updates if updates is not None and updates._handles else None


def _is_updated_elsewhere(parameter: torch.Tensor) -> bool:
    updates = updates_of(parameter)
    return updates is not None and updates._optimizer() is not None


def _check_optimizer(optimizer: Any, per_parameter: bool) -> None:
    check_updates_alone(optimizer, per_parameter, _WHERE)
    name = type(optimizer).__name__
    parameters = [parameter for group in optimizer.param_groups for parameter in group["params"]]
    if any(map(_is_updated_elsewhere, parameters)):
        gc.collect()  # by an optimizer in a reference cycle, maybe, that nobody needs
    if any(map(_is_updated_elsewhere, parameters)):
        raise Error(
            f"{_WHERE} backward updates a parameter of this {name} already, by this or another optimizer; remove() "
            "what optimizer_in_backward() returned for that, or let go of that optimizer"
        )
    pager = pager_of(optimizer)
    if pager is not None and pager.stores_gradients:
        raise Error(
            f"{_WHERE} gradients of this {name} wait in a file, by paged(gradients=True); updates in backward free them: "
            "take one of both"
        )
    _check_processes()


def _check_processes() -> None:
    distributed = torch.distributed
    if distributed.is_available() and distributed.is_initialized():
        raise Error(
            f"{_WHERE} torch.distributed is in use: DDP and FSDP average gradients after they are complete, and updates "
            "would come before; call optimizer.step() after backward"
        )
