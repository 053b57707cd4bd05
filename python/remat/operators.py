"""What users know of their own operators, and PyTorch does not say. Thread-safe."""

from __future__ import annotations

from typing import Any

import torch

from remat import _C
from remat.policy import operator_name


def repeatable(operator: Any) -> None:
    """Says that a call of `operator` with the same arguments and generator states gives the same bits, and writes to
    nothing but the tensors that its schema marks so: remat may drop what it gives and run it again.

    Needed where it is a Python function (torch.library): such operators are run once otherwise, and what they give is
    held. Its first four calls are looked at all the same: one that writes to an input, or gives its memory back,
    without its schema saying so, is not run again. Nothing else checks what was declared, except
    ``Session(verify=True)``.

    Args:
        operator: "mylib::gate" (every overload) or "mylib::gate.out", ``torch.ops.mylib.gate``,
            ``torch.ops.mylib.gate.default``, or what torch.library.custom_op() made.

    Holds for the whole process from the operator's next call on. Raises Error for an operator that does not exist, for
    views and composites (their parts are recorded by themselves) and for collective communication.
    """
    _C.declare_repeatable(_name_of(operator))


def not_repeatable(operator: Any, writes_arguments: bool = False) -> None:
    """Says that remat must not run `operator` again: what it gives is held.

    Args:
        operator: as for repeatable().
        writes_arguments: it may also write to any tensor that it is given, during the call or later (communication that
            is still in progress), and its schema does not say so. Default: it writes as its schema says.

    Holds for the whole process from the operator's next call on. Raises Error for an operator that does not exist, and
    for views and composites (their parts are recorded by themselves).
    """
    _C.declare_not_repeatable(_name_of(operator), writes_arguments)


def _name_of(operator: Any) -> str:
    if isinstance(operator, torch.library.CustomOpDef):
        operator = operator._opoverload
    return operator_name(operator, where="operators")
