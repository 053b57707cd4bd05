"""Updates of parameters while backward runs, so that their gradients are never all alive."""

from __future__ import annotations

import functools
import sys
import weakref
from collections import OrderedDict
from types import TracebackType
from typing import Any

import torch
from torch.utils.checkpoint import CheckpointFunction
from torch.utils.weak import WeakTensorKeyDictionary

from remat import _C
from remat.errors import Error

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
    once it is gone.

    Args:
        optimizer: one of torch.optim's whose updates of a parameter depend on its own gradient and state alone: all
            but LBFGS.
        accumulate: backward passes per step. Gradients add up, and the last of them updates. After fewer, as at the end
            of an epoch, ``optimizer.step()`` updates from what is there, and the next pass is the first of a step.
        per_parameter: True says of an optimizer that is not torch.optim's that it is of that kind too, and writes
            nothing to its parameter groups.

    Raises Error for another optimizer, for ``differentiable=True``, for a parameter that another such optimizer
    updates, and where torch.distributed is in use: gradients are averaged or sharded after they are complete. Backward
    raises Error with ``create_graph=True``, inside of torch.utils.checkpoint with ``use_reentrant=True``, and after a
    backward pass that has failed when some parameters had been updated: see :meth:`OptimizerInBackward.reset`.

    Nobody sees all gradients: ``clip_grad_norm_()`` after backward has nothing to clip, and ``GradScaler.update()``
    raises. A norm of all gradients needs all of them; do without both.
    """
    return OptimizerInBackward(optimizer, accumulate, per_parameter)


class OptimizerInBackward:
    """What :func:`optimizer_in_backward` returns; need not be kept. ``with`` ends it by :meth:`remove`."""

    def __init__(self, optimizer: torch.optim.Optimizer, accumulate: int, per_parameter: bool) -> None:
        _check_optimizer(optimizer, per_parameter)
        if not isinstance(accumulate, int) or isinstance(accumulate, bool) or accumulate < 1:
            raise Error(f"{_WHERE} accumulate is {accumulate!r}; use the backward passes per step, 1 or more")
        # Weak, since parameters own their hooks, and Python's collector does not find cycles that lead through them.
        self._optimizer = weakref.ref(optimizer)
        self._accumulate = accumulate
        self._passes = 0  # that have ended since the last update
        self._pass: int | None = None  # in progress, or failed: autograd's number of it
        self._updated = 0  # parameters in that pass
        self._handles: list[Any] = [optimizer.register_step_post_hook(functools.partial(_restart, weakref.ref(self)))]
        for index, group in enumerate(optimizer.param_groups):
            for parameter in group["params"]:
                if not parameter.requires_grad:
                    continue  # if it is trained later: see _end_pass()
                if (before := _updates_of(parameter)) is not None:
                    before.remove()  # its optimizer is gone
                _updates[parameter] = weakref.ref(self)
                hook = functools.partial(self._gradient_is_complete, index)
                self._handles.append(parameter.register_post_accumulate_grad_hook(hook))

    def remove(self) -> None:
        """From now on ``optimizer.step()`` updates again. Between steps; a second call does nothing."""
        for handle in self._handles:
            handle.remove()
        self._handles.clear()

    def reset(self) -> None:
        """The next backward pass is the first of a step. To be called after ``zero_grad()`` in the middle of one, and
        after a pass that failed. Where that had updated some parameters and others not, load both model and optimizer
        from a checkpoint before."""
        self._passes, self._pass, self._updated = 0, None, 0

    def __enter__(self) -> OptimizerInBackward:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.remove()

    def _gradient_is_complete(self, group: int, parameter: torch.Tensor) -> None:
        self._begin_pass()
        if self._passes + 1 == self._accumulate:
            optimizer = self._kept_optimizer()
            self._update(optimizer, optimizer.param_groups[group], parameter)

    def _begin_pass(self) -> None:
        current = torch._C._current_graph_task_id()
        if current == self._pass:
            return
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
        _check_pass()
        self._pass = current
        torch.autograd.Variable._execution_engine.queue_callback(self._end_pass)

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
        self._pass, self._updated = None, 0

    def _update(self, optimizer: torch.optim.Optimizer, group: dict[str, Any], parameter: torch.Tensor) -> None:
        """As ``optimizer.step()`` does, if this parameter was all that had a gradient."""
        self._updated += 1
        alone = object.__new__(type(optimizer))
        alone.__dict__.update(optimizer.__dict__)
        alone.param_groups = [{**group, "params": [parameter]}]
        alone._optimizer_step_pre_hooks = OrderedDict()
        alone._optimizer_step_post_hooks = OrderedDict()
        update = _C.ParameterUpdate()
        try:
            type(optimizer).step(alone)  # not what a scheduler put in its place to count calls
        finally:
            update.end()
        parameter.grad = None

    def _kept_optimizer(self) -> torch.optim.Optimizer:
        optimizer = self._optimizer()
        if optimizer is None:
            raise Error(f"{_WHERE} the optimizer is gone, and its state with it; keep it in a variable")
        return optimizer


def _restart(ours: weakref.ref[OptimizerInBackward], *_: Any) -> None:
    """The user has called ``optimizer.step()``."""
    this = ours()
    if this is not None:
        this._passes = 0


def _updates_of(parameter: torch.Tensor) -> OptimizerInBackward | None:
    """What has hooks on it, and was not removed."""
    reference = _updates.get(parameter)
    updates = None if reference is None else reference()
    return updates if updates is not None and updates._handles else None


def _check_optimizer(optimizer: Any, per_parameter: bool) -> None:
    if not isinstance(optimizer, torch.optim.Optimizer):
        raise Error(f"{_WHERE} a {type(optimizer).__name__} is no torch.optim.Optimizer; give the optimizer itself")
    name = type(optimizer).__name__
    if isinstance(optimizer, torch.optim.LBFGS):
        raise Error(f"{_WHERE} LBFGS needs all gradients at once, several times per step; use another optimizer")
    if not f"{type(optimizer).__module__}.".startswith("torch.optim.") and not per_parameter:
        raise Error(
            f"{_WHERE} {name} is not torch.optim's, and may look at several parameters at once (a norm, a counter in a "
            "group); if each update depends on the parameter's own gradient and state alone, say per_parameter=True"
        )
    if any(group.get("differentiable") for group in optimizer.param_groups):
        raise Error(f"{_WHERE} {name} has differentiable=True: such updates need their gradients later; leave it out")
    for group in optimizer.param_groups:
        for parameter in group["params"]:
            updates = _updates_of(parameter)
            if updates is not None and updates._optimizer() is not None:
                raise Error(f"{_WHERE} backward updates a parameter of this {name} already; remove() that first")
    _check_processes()


def _check_processes() -> None:
    distributed = torch.distributed
    if distributed.is_available() and distributed.is_initialized():
        raise Error(
            f"{_WHERE} torch.distributed is in use: DDP and FSDP average gradients after they are complete, and updates "
            "would come before; call optimizer.step() after backward"
        )


def _check_pass() -> None:
    if torch.is_grad_enabled():
        raise Error(f"{_WHERE} backward with create_graph=True needs parameters and gradients as they are; leave it out")
    frame = sys._getframe(1)
    while frame is not None:
        if frame.f_code is CheckpointFunction.backward.__code__:
            raise Error(
                f"{_WHERE} torch.utils.checkpoint with use_reentrant=True runs backward passes inside of backward, each "
                "of which adds to gradients; give it use_reentrant=False, or use remat.checkpoint()"
            )
        frame = frame.f_back
