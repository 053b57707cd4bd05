"""What a wrapped model says where its budget does not hold."""

from __future__ import annotations

import warnings
from typing import Any

GUEST = (
    "this {kind} was called while a result of another wrapped model waits for its backward: it is part of that model's "
    "step, where its own budget, a share of its own steps, does not hold; let go of that result first, or give both "
    "models the same budget"
)
SCOPE = (  # no step can begin inside a scope, so that nothing keeps a budget where there is a scope alone
    "this {kind} was called inside of a remat.policy(), a remat.checkpoint() or an enabled block, which is not part of "
    "any step: no step begins there, and the budget does not hold; put the scope inside the model, or begin a step "
    "outside of both: with remat.Session(budget=...).step()"
)
THREAD = (
    "this {kind} was called on a second thread while a result of a call on another one waits for its backward: this "
    "call is part of no step, and the budget does not hold for it; let go of that result first, or give each thread a "
    "model of its own"
)
BACKWARD = (  # GradCache and reentrant checkpoints call the model with gradients only there
    "this {kind} was called with gradients inside of a backward that is part of no step: no step begins there, and the "
    "budget does not hold; begin one around forward and backward: with remat.Session(budget=...).step()"
)
LAZY_RESULT = (
    "the model returned a {kind}, which runs it after forward has returned: that is outside the budget; return "
    "tensors, or use remat.Session(...).step() around the loop"
)
HIDDEN_RESULTS = (
    "no tensor that needs a gradient was found in what the model returned (a {kind}), but {saved} saved values wait "
    "for backward somewhere: what comes after forward is outside the budget; return tensors, or use "
    "remat.Session(...).step()"
)


def warn(message: str, about: Any, saved: int = 0) -> None:
    """`about`: the model or what it returned. `saved`: values that the call left for autograd."""
    text = message.format(kind=type(about).__name__, saved=saved)
    warnings.warn(f"[wrap] {text}", RuntimeWarning, stacklevel=2)
