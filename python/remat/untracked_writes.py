"""Ways from Python to write to a tensor without an operator that the recorder would see: they tell it themselves.

``Tensor.apply_()``, ``map_()`` and ``map2_()`` write; ``Tensor.numpy()`` and DLPack hand the memory to somebody who
may. ``Tensor.share_memory_()`` and copies of storages (``copy.deepcopy``) take memory that the allocator does not see,
which is counted. ``torch.utils.swap_tensors()`` wants nobody else to have a reference to its tensors. Each is wrapped
once, when remat is imported, those that open memory in C, for whoever has taken hold of them before; on a thread without a
step a wrapper only asks whether anything is recorded.

``ctx.saved_tensors`` of a custom function: autograd makes another tensor of a parameter that was saved. Functions that
keep things on their parameters (``.grad``, ``.main_grad``) get the parameter itself, as they do without remat.

Operators of ``torch.library.custom_op()``: torch 2.14 and later call them past its dispatcher, and so past all who observe
operators. The recorder would take down what the Python function calls, below autocast and autograd, as if it were called by
itself, and not the operator. With remat they go through the dispatcher, as before 2.14.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch
from torch.autograd.function import BackwardCFunction

from remat import _C, accounting
from remat.hooks import never_compiled


def _letting_go(swap: Callable[[Any, Any], None]) -> Callable[[Any, Any], None]:
    @functools.wraps(swap)
    def swapped(first: Any, second: Any) -> None:
        if _C.is_anything_recorded():
            for tensor in (first, second):
                if isinstance(tensor, torch.Tensor):
                    _C.let_go(tensor)
        swap(first, second)

    swapped._remat = True  # type: ignore[attr-defined]
    return swapped


def _counting(method: Callable[..., Any], count: Callable[[Any], None]) -> Callable[..., Any]:
    """Of a method that returns something whose memory is not the allocator's."""

    @functools.wraps(method)
    def counted(*args: Any, **kwargs: Any) -> Any:
        result = method(*args, **kwargs)
        if accounting.counts():
            count(result)
        return result

    counted._remat = True  # type: ignore[attr-defined]
    return counted


@never_compiled
def _saved_tensors(context: Any) -> Any:
    saved = torch._C._FunctionBase.saved_tensors.__get__(context)
    return tuple(_C.leaf_of(tensor) if isinstance(tensor, torch.Tensor) else tensor for tensor in saved)


def _go_through_the_dispatcher() -> None:
    switch = getattr(torch._ops.OpOverload, "_enable_pyobj_dispatch", None)
    if switch is not None and not hasattr(switch, "_remat"):

        @functools.wraps(switch)
        def switched_off(operator: Any, enabled: bool = True) -> None:
            switch(operator, False)

        switched_off._remat = True  # type: ignore[attr-defined]
        torch._ops.OpOverload._enable_pyobj_dispatch = switched_off  # type: ignore[method-assign]
        for known in list(torch._library.custom_ops.OPDEFS.values()):
            switch(known._opoverload, False)


def _install() -> None:
    tensor = torch._C.TensorBase  # whose attributes are those in C, whatever torch.Tensor's have been replaced by
    for function in (tensor.apply_, tensor.map_, tensor.map2_):
        _C.watch_function(function, _C.announce_write)
    for function in (tensor.numpy, torch._C._to_dlpack, getattr(torch._C, "_to_dlpack_versioned", None)):
        if function is not None:
            _C.watch_function(function, _C.hand_out)
    if not hasattr(torch.Tensor.share_memory_, "_remat"):
        torch.Tensor.share_memory_ = _counting(torch.Tensor.share_memory_, _C.count_memory)  # type: ignore[method-assign]
        torch.UntypedStorage.clone = _counting(torch.UntypedStorage.clone, _C.count_storage)  # type: ignore[method-assign]
    if not hasattr(torch._C._swap_tensor_impl, "_remat"):
        torch._C._swap_tensor_impl = _letting_go(torch._C._swap_tensor_impl)  # whoever has imported swap_tensors()
    BackwardCFunction.saved_tensors = property(_saved_tensors)  # type: ignore[misc]
    _go_through_the_dispatcher()


_install()
