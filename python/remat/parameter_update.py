"""An optimizer's update of one parameter, by the optimizer's own code."""

from __future__ import annotations

import contextlib
from collections import OrderedDict, defaultdict
from typing import Any

import torch
from torch.nn.parameter import is_lazy
from torch.optim import lr_scheduler

from remat.errors import Error


def unwrapped(optimizer: Any) -> Any:
    """accelerate's has the parameter groups of another, and its step() calls that one's."""
    accelerates = f"{type(optimizer).__module__}.".startswith("accelerate.")
    return optimizer.optimizer if accelerates and hasattr(optimizer, "optimizer") else optimizer


def check_updates_alone(optimizer: Any, per_parameter: bool, where: str) -> None:
    """Raises Error where updates of the optimizer's parameters may depend on one another: `per_parameter` says of one
    that is not torch.optim's that they do not."""
    if not isinstance(optimizer, torch.optim.Optimizer):
        raise Error(f"{where} a {type(optimizer).__name__} is no torch.optim.Optimizer; give the optimizer itself")
    name = type(optimizer).__name__
    if isinstance(optimizer, torch.optim.LBFGS):
        raise Error(f"{where} LBFGS needs all gradients at once, several times per step; use another optimizer")
    inner = next((each for each in vars(optimizer).values() if isinstance(each, torch.optim.Optimizer)), None)
    if inner is not None:
        raise Error(
            f"{where} {name} wraps a {type(inner).__name__}, whose updates it may change; if it does not, give that"
        )
    is_known = is_of_torch(optimizer) or _full_name(optimizer) in _KNOWN
    if not is_known and not per_parameter:
        raise Error(
            f"{where} {name} is not torch.optim's, and may look at several parameters at once (a norm, a counter in a "
            "group); if each update depends on the parameter's own gradient and state alone, say per_parameter=True in a "
            "call of remat.paged() or remat.optimizer_in_backward() of your own"
        )
    if any(group.get("differentiable") for group in optimizer.param_groups):
        raise Error(f"{where} {name} has differentiable=True: such updates need their gradients later; leave it out")
    groups_of(optimizer, where)
    if any(is_lazy(parameter) for group in optimizer.param_groups for parameter in group["params"]):
        raise Error(
            f"{where} a parameter of this {name} is lazy and has no shape yet; run the model once before, on an input "
            "of the usual shape"
        )
    _check_step(optimizer, where)
    if not is_known:
        _check_idle(optimizer, where)


def _check_step(optimizer: torch.optim.Optimizer, where: str) -> None:
    """Raises Error where the optimizer has a step() of its own that is not its class's: updates would pass it over."""
    replaced = vars(optimizer).get("step")
    pager = vars(optimizer).get("_remat_paged")
    if replaced is None or (pager is not None and replaced == pager._step):
        return
    step = getattr(replaced, "__func__", replaced)
    while getattr(step, "__code__", None) is not None and step.__code__.co_filename == lr_scheduler.__file__:
        step = step.__wrapped__  # schedulers count its calls
    if getattr(step, "__wrapped__", step) is not _plain_step(type(optimizer)):
        name = getattr(step, "__qualname__", type(step).__name__)
        raise Error(
            f"{where} step() of this {type(optimizer).__name__} was replaced by {name}, which updates one by one would "
            "pass over; take it away (del optimizer.step), and do what it does in the training loop"
        )


def _check_idle(optimizer: torch.optim.Optimizer, where: str) -> None:
    """Raises Error where the optimizer's step() changes parameters that have no gradient: step() would do so again to
    those that were updated one by one. Tried on parameters made for it."""
    for group in optimizer.param_groups:
        for like in group["params"][:1]:
            trial = torch.linspace(-3, 3, 4).to(like.dtype).requires_grad_(like.requires_grad)
            before = trial.detach().clone()
            with contextlib.suppress(Exception):  # whatever it needs, it has not
                update_alone(optimizer, group, trial, defaultdict(dict))
            if not torch.equal(trial.detach(), before):
                raise Error(
                    f"{where} step() of this {type(optimizer).__name__} changes parameters that have no gradient, which "
                    "updates one by one do not; have it leave them (if parameter.grad is None: continue), or call step() "
                    "as it is"
                )


_KNOWN = ("transformers.optimization.Adafactor",)  # to look at each parameter alone, beside torch.optim's


def _full_name(optimizer: torch.optim.Optimizer) -> str:
    return f"{type(optimizer).__module__}.{type(optimizer).__qualname__}"


def is_of_torch(optimizer: torch.optim.Optimizer) -> bool:
    """Is it one of torch.optim's?"""
    return f"{type(optimizer).__module__}.".startswith("torch.optim.")


def groups_of(optimizer: torch.optim.Optimizer, where: str) -> dict[int, int]:
    """By each parameter's id, the index of its group: parameters own what keeps it, and must not be held by that."""
    groups: dict[int, int] = {}
    for index, group in enumerate(optimizer.param_groups):
        for parameter in group["params"]:
            if id(parameter) in groups:
                shape = tuple(parameter.shape)
                raise Error(f"{where} a parameter of shape {shape} is in the optimizer's groups twice; give it once")
            groups[id(parameter)] = index
    return groups


def update_alone(
    optimizer: torch.optim.Optimizer, group: dict[str, Any], parameter: torch.Tensor, state: Any = None
) -> None:
    """As ``optimizer.step()`` does, if this parameter was all that had a gradient, with `state` in place of the
    optimizer's."""
    alone = object.__new__(type(optimizer))
    alone.__dict__.update(optimizer.__dict__)
    alone.param_groups = [{**group, "params": [parameter]}]
    alone._optimizer_step_pre_hooks = OrderedDict()
    alone._optimizer_step_post_hooks = OrderedDict()
    if state is not None:
        alone.state = state
    _plain_step(type(optimizer))(alone)


def flat_of(parameter: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor | None]:
    """Its elements and their gradients in a row."""
    gradient = parameter.grad
    return parameter.detach().view(-1), None if gradient is None else gradient.detach().reshape(-1)


def part_of(flat: tuple[torch.Tensor, torch.Tensor | None], part: slice | None) -> torch.Tensor:
    elements, gradients = flat
    target = elements[part]
    if gradients is not None:
        if gradients.dtype != target.dtype:
            target.grad_dtype = gradients.dtype
        target.grad = gradients[part]
    return target


def _plain_step(kind: type[torch.optim.Optimizer]) -> Any:
    """Not what a scheduler put in its place to count calls, and without the hooks of all optimizers."""
    step: Any = kind.step
    return step.__wrapped__ if getattr(step, "hooked", False) else step
