"""Which saved values a region of the forward pass keeps, where no budget decides. Scopes are of the thread that enters
them."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from types import TracebackType
from typing import Any

import torch

from remat import _C
from remat.errors import Error
from remat.progress import end_interrupted


def operator_name(operator: Any, where: str = "policy") -> str:
    """ "aten::mm" or "aten::add.Tensor", from that or from torch.ops.aten.mm, torch.ops.aten.add.Tensor."""
    if isinstance(operator, str):
        return operator
    if isinstance(operator, torch._ops.OpOverload):
        schema = operator._schema
        return schema.name + (f".{schema.overload_name}" if schema.overload_name else "")
    if isinstance(operator, torch._ops.OpOverloadPacket):
        return operator._qualified_op_name
    raise Error(f'[{where}] {operator!r} is no operator; use names such as "aten::mm", or torch.ops.aten.mm')


class policy:  # lower case: it reads as the statement that it is
    """While it lasts, values produced on this thread follow the policy: ``with remat.policy(keep=["aten::mm"]): ...``.

    Args:
        keep: the operators whose results stay in memory, as "aten::mm" (every overload), "aten::add.Tensor",
            ``torch.ops.aten.mm`` or ``torch.ops.aten.mm.default``; "compute": matrix products, convolutions and
            attention; "all": everything, as plain PyTorch does. All else that can be recomputed exactly is dropped.
            Default: nothing is kept. Operators that are made of others ("aten::linear" of "aten::addmm") are named by
            their parts, views by what made the value that they look at.

    Scopes nest, and the innermost decides. Values that come in from outside are kept. Inside a session's step the
    step's budget holds as well: what a policy keeps may still be dropped. Works without a session too. Raises Error for
    an operator that does not exist or is never recorded, with the names of its parts. One object may be entered by several threads, and again inside itself. Leave a scope
    on the thread that entered it: left on another (as when a suspended generator is collected there), it lasts until
    the step ends, and without a session until recording does.
    """

    def __init__(self, keep: Sequence[Any] | str | _C.Policy = ()) -> None:
        self._keep = keep if isinstance(keep, (str, _C.Policy)) else [operator_name(operator) for operator in keep]
        self._policy = keep if isinstance(keep, _C.Policy) else policy_of(self._keep)
        self._scopes: list[tuple[int, _C.Scope]] = []  # by threads, the innermost last

    def __enter__(self) -> policy:
        end_interrupted()
        scope = _C.Scope(self._policy)
        scope.begin()
        self._scopes.append((threading.get_ident(), scope))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        end_interrupted()  # their scopes are inside this one
        entered = list(self._scopes)  # other threads may add to it, and remove theirs
        if not entered:
            raise Error("[policy] this policy is left more often than it was entered")
        own = [entry for entry in entered if entry[0] == threading.get_ident()]
        last = (own or entered)[-1]
        self._scopes.remove(last)
        last[1].end()

    def __reduce__(self) -> tuple[type[policy], tuple[Any]]:
        return policy, (self._keep,)  # none of its scopes is open

    def __deepcopy__(self, memo: dict[int, Any]) -> policy:
        return policy(self._policy)


def policy_of(keep: Sequence[Any] | str) -> _C.Policy:
    if keep == "all":
        return _C.Policy.keep_all()
    if keep == "compute":
        return _C.Policy.keep_compute()
    if isinstance(keep, str):
        raise Error(f'[policy] keep is "{keep}"; use "all", "compute" or a list of operators')
    names = [operator_name(operator) for operator in keep]
    return _C.Policy.keep_operators(names) if names else _C.Policy.drop_all()


def keep(tensor: torch.Tensor) -> torch.Tensor:
    """Marks the value of `tensor` as one never to drop in this step, whatever the policy or budget says. Returns
    `tensor`. Outside a step and a scope it does nothing."""
    if not isinstance(tensor, torch.Tensor):
        raise Error(f"[keep] a {type(tensor).__name__} is no tensor; give the tensor to keep")
    return _C.keep(tensor)
