"""Steps that begin and end by themselves: one line on a model instead of a ``with`` in the training loop."""

from __future__ import annotations

from typing import Any

from torch import nn

from remat.budget import Pool
from remat.errors import Error
from remat.heads import check_how, promise_heads, release_heads
from remat.hooks import add_hooks, check_module, compile_anew, has_forward
from remat.session import Session
from remat.wrapped_steps import WrappedSteps


def wrap(model: nn.Module, budget: int | str | Pool | None = None, *, head: str = "whole", **options: Any) -> nn.Module:
    """Keeps every forward and backward pass through `model` under `budget`, without a change to the training loop::

        model = remat.wrap(model, budget="6GiB")

    A step begins when the model is called with gradients enabled, and ends when backward has been through its results;
    it covers what comes between, such as the loss. Gradient accumulation: each micro-batch is a step. Several calls
    before the backward passes, several results with a backward for each, or ``retain_graph``, are one step (unless such
    a graph was freed without another backward before: then the next call begins a step). So are calls of several
    wrapped models, where a result of the first waits for its backward meanwhile: it is the first one's step, and of
    budgets in bytes the smallest holds. A step whose forward or backward fails, or whose results are dropped without a
    backward, ends there; one to which memory was refused elsewhere (in the loss, in another model), at the next call of
    a wrapped model. One whose results are held, but older than others that a backward has been through, ends at
    the next call of a wrapped model, with or without gradients. So do later steps where newer results were held in vain
    (a target, a log, an evaluation without ``no_grad``) and freed without a backward. A result that is kept for longer
    does not keep its step: that ends after 32 more calls of wrapped models or 32 backward passes of others, after 4
    calls on other threads (which are in no step until then: a warning says so), or where you begin a step of your own.
    Its backward then has the same bits, outside of any step. A part that is called by itself (``model.encoder(x)``) is
    in no step: wrap that part too. Inside a session's step of yours the model is part of
    that step. A call that a backward makes (torch.utils.checkpoint around the model) begins none.

    Memory is refused (:class:`remat.BudgetError`) to a forward of the model, to operators with gradients that go on
    from its results (the loss), and to a backward through them. What else runs while a result waits for its backward,
    such as an evaluation, or a notebook's next cell after an error, only makes the step evict what it can: beyond
    that it passes the budget, and shows in the report's ``peak_bytes``. What it computes without gradients is not
    recorded.

    Args:
        head: how the loss of a Hugging Face language model is made of its logits, with the same bits: "whole", as without
            remat; "tiles", wherever that can be; "auto", in tiles where they are larger than 16 MiB, unless whole ones
            fit and steps are shorter so. In tiles, the logits are computed when somebody reads them, which has to be
            before the optimizer's step (docs/tiles.md).
        budget, options: those of :class:`remat.Session`, but the device is that of the model's first parameter if
            none is named.

    Returns `model` itself, with hooks: its class, parameters and state_dict() are untouched, and copies and pickles of
    it are wrapped too. Wrapping again replaces the budget. :func:`remat.session_of` has the reports;
    :func:`remat.unwrap` takes the hooks away.
    """
    check_module("wrap", model)
    check_how("wrap", head)
    if not has_forward(model):
        raise Error(
            f"[wrap] {type(model).__name__} has no forward(), so that no call of it would begin a step; wrap the modules "
            "that are called, or put a session's step around them: with remat.Session(budget=...).step()"
        )
    options = {"name": f"remat.wrap({type(model).__name__})", "budget": budget, **options}
    steps = WrappedSteps(options)  # bad options are an error here, and the model stays as it was
    unwrap(model)
    add_hooks(model, steps.before, steps.after)
    promise_heads(model, head, "wrap", session=steps.session.get)
    compile_anew()
    return model


def _steps_of(model: nn.Module) -> WrappedSteps | None:
    """What wrap() put on `model`; None if it is not wrapped."""
    if not isinstance(model, nn.Module):
        return None
    for hook in model._forward_pre_hooks.values():
        steps = getattr(hook, "__self__", None)
        if isinstance(steps, WrappedSteps):
            return steps
    return None


def unwrap(model: nn.Module) -> nn.Module:
    """Takes back what :func:`wrap` did; a step in progress ends. Returns `model`."""
    steps = _steps_of(model)
    if steps is not None:
        steps.remove_from(model)
        release_heads(model, "wrap")
    return model


def session_of(model: nn.Module) -> Session:
    """The session behind :func:`wrap`, for its reports. Raises Error if the model is not wrapped."""
    steps = _steps_of(model)
    if steps is None:
        raise Error(f"[wrap] this {type(model).__name__} is not wrapped; call remat.wrap(model, budget=...) first")
    with steps.lock:
        return steps.session.of(model)
