"""What a wrapped model says where its budget does not hold."""

from __future__ import annotations

import warnings
from typing import Any

from torch import nn


def _warn(message: str) -> None:
    warnings.warn(message, RuntimeWarning, stacklevel=3)


def warn_of_guest(module: nn.Module) -> None:
    _warn(
        f"[wrap] this {type(module).__name__} was called while a result of another wrapped model waits for its "
        "backward: it is part of that model's step, where its own budget, a share of its own steps, does not hold; "
        "let go of that result first, or give both models the same budget"
    )


def warn_of_scope(module: nn.Module) -> None:
    """No step can begin inside a scope, so that nothing keeps a budget where there is a scope alone."""
    _warn(
        f"[wrap] this {type(module).__name__} was called inside of a remat.policy(), a remat.checkpoint() or an "
        "enabled block, which is not part of any step: no step begins there, and the budget does not hold; put the "
        "scope inside the model, or begin a step outside of both: with remat.Session(budget=...).step()"
    )


def warn_of_thread(module: nn.Module) -> None:
    _warn(
        f"[wrap] this {type(module).__name__} was called on a second thread while a result of a call on another one waits "
        "for its backward: this call is part of no step, and the budget does not hold for it; let go of that result "
        "first, or give each thread a model of its own"
    )


def warn_of_backward(module: nn.Module) -> None:
    """GradCache and reentrant checkpoints call the model with gradients only there."""
    _warn(
        f"[wrap] this {type(module).__name__} was called with gradients inside of a backward that is part of no step: no "
        "step begins there, and the budget does not hold; begin one around forward and backward: "
        "with remat.Session(budget=...).step()"
    )


def warn_of_lazy_result(result: Any) -> None:
    _warn(
        f"[wrap] the model returned a {type(result).__name__}, which runs it after forward has returned: "
        "that is outside the budget; return tensors, or use remat.Session(...).step() around the loop"
    )


def warn_of_hidden_results(result: Any, saved: int) -> None:
    """`saved`: values that the call left for autograd."""
    _warn(
        f"[wrap] no tensor that needs a gradient was found in what the model returned (a {type(result).__name__}), "
        f"but {saved} saved values wait for backward somewhere: what comes after forward is outside the budget; "
        "return tensors, or use remat.Session(...).step()"
    )
