"""The state of one parameter of a paged optimizer: in a file, with stand-ins in the optimizer's ``state``."""

from __future__ import annotations

from typing import Any, NoReturn

import torch

from remat import _C
from remat.device import META
from remat.errors import Error

SMALLEST_BYTES = 64 << 10
"""State tensors below are not worth an access to the file, and stay in memory."""
PART_ELEMENTS = 1 << 21
"""A parameter that is larger is updated in parts, where that has the same bits."""

# Each element's update looks at that element alone, whatever the options.
_ELEMENTWISE = {
    getattr(torch.optim, name)
    for name in ("SGD", "Adam", "AdamW", "Adagrad", "RMSprop", "Adadelta", "Adamax", "NAdam", "RAdam", "ASGD", "Rprop")
}
# Kernels of bfloat16 and float16 round otherwise where a loop ends, which in parts is elsewhere.
_SAME_IN_PARTS = (torch.float32, torch.float64)


class Pages:
    """What stand-ins lead to: tensors in the file, by name, in the parts that the parameter is updated in."""

    def __init__(self, pager: _C.StatePager, parts: list[slice | None]) -> None:
        self.parts = parts  # of the flat parameter; [None] is the whole, in its own shape
        self.names: list[str] = []
        self.states = [pager.add() for _ in parts]

    def __deepcopy__(self, memo: Any) -> NoReturn:
        _refuse_copy()

    def __reduce_ex__(self, protocol: Any) -> NoReturn:
        _refuse_copy()

    def read(self, entry: dict[str, Any]) -> dict[str, Any]:
        """The entry of ``state`` with copies of the tensors in place of their stand-ins."""
        whole = dict(entry)
        for part, state in zip(self.parts, self.states):
            tensors = state.read()
            if len(tensors) != len(self.names):
                raise Error("[paged] state of a parameter is lost; load model and optimizer from a checkpoint")
            for name, tensor in zip(self.names, tensors):
                stand_in = entry.get(name)
                if pages_of(stand_in) is not self:
                    continue  # somebody put something else there, or removed it
                if part is None:
                    whole[name] = tensor
                    continue
                if whole[name] is stand_in:
                    whole[name] = torch.empty(stand_in.shape, dtype=stand_in.dtype)
                whole[name].view(-1)[part] = tensor
        return whole


def _refuse_copy() -> NoReturn:
    raise Error(
        "[paged] state in a file cannot be copied or pickled with its optimizer; take optimizer.state_dict(), which "
        "reads all of it"
    )


def pages_of(value: Any) -> Pages | None:
    """Of a stand-in; None for anything else."""
    return getattr(value, "_remat_pages", None) if isinstance(value, torch.Tensor) else None


def pages_in(entry: dict[str, Any]) -> Pages | None:
    """Of a parameter's entry of ``state``."""
    return next((pages for pages in map(pages_of, entry.values()) if pages is not None), None)


def whole(entry: Any) -> Any:
    """An entry of ``state`` with all tensors, of which those from the file are copies."""
    pages = pages_in(entry) if isinstance(entry, dict) else None
    return entry if pages is None else pages.read(entry)


def parts_of(optimizer: torch.optim.Optimizer, parameter: torch.Tensor, entry: dict[str, Any]) -> list[slice | None]:
    """What the parameter is updated in: the elements of each."""
    count = parameter.numel()
    is_same = type(optimizer) in _ELEMENTWISE and parameter.dtype in _SAME_IN_PARTS
    if count <= PART_ELEMENTS or not is_same or not parameter.is_contiguous():
        return [None]
    in_memory = (value for value in entry.values() if pages_of(value) is None)
    if any(is_of_elements(value, count) and not _can_store(value) for value in in_memory):
        return [None]  # somebody put it there
    parts = -(-count // PART_ELEMENTS)
    size = -(-count // parts // 16) * 16  # whole cache lines
    return [slice(begin, min(begin + size, count)) for begin in range(0, count, size)]


def take(pages: Pages, index: int, entry: dict[str, Any], count: int) -> tuple[dict[str, Any], list[torch.Tensor]]:
    """The entry of ``state`` for one part of a parameter that has `count` elements, and the tensors of it that were
    fetched from the file."""
    part = pages.parts[index]
    is_last = index + 1 == len(pages.parts)
    fetched = pages.states[index].fetch()
    by_name = dict(zip(pages.names, fetched))
    taken = {}
    for name, value in entry.items():
        if pages_of(value) is pages:
            taken[name] = by_name[name]
        elif part is not None and is_of_elements(value, count):
            taken[name] = value.reshape(-1)[part]
        elif isinstance(value, torch.Tensor) and not is_last:
            taken[name] = value.clone()  # each part counts its steps
        else:
            taken[name] = value
    return taken, fetched


def put(pages: Pages, index: int, values: dict[str, Any], of: torch.Tensor) -> list[str]:
    """Begins to write what belongs in the file, and returns its names. `of` is the parameter, or its part."""
    part = pages.parts[index]
    names = [name for name, value in values.items() if _belongs_in_file(value, of, part)]
    pages.states[index].store([values[name] for name in names])
    return names


def entry_with_stand_ins(
    pages: Pages, names: list[str], values: dict[str, Any], before: dict[str, Any], parameter: torch.Tensor
) -> dict[str, Any]:
    """The new entry of ``state``: `values` are those of the last part, of which those named are in the file."""
    pages.names = names
    return {
        name: _stand_in(pages, before.get(name), value, parameter) if name in names else value
        for name, value in values.items()
    }


def _stand_in(pages: Pages, before: Any, value: torch.Tensor, parameter: torch.Tensor) -> torch.Tensor:
    """Has the shape and type of a tensor of state, and no contents."""
    like = value if pages.parts == [None] else parameter
    if pages_of(before) is pages and before.shape == like.shape and before.dtype == value.dtype:
        return before
    made = torch.empty_strided(like.shape, like.stride(), dtype=value.dtype, device=META)
    made._remat_pages = pages  # type: ignore[attr-defined]
    return made


def is_of_elements(value: Any, count: int) -> bool:
    """Has state an element for each of the parameter, or its part?"""
    return isinstance(value, torch.Tensor) and value.dim() > 0 and value.numel() == count


def _can_store(value: torch.Tensor) -> bool:
    return _C.PagedState.can_store(value)


def _belongs_in_file(value: Any, of: torch.Tensor, part: slice | None) -> bool:
    if not isinstance(value, torch.Tensor) or not _can_store(value):
        return False
    if part is not None:
        return is_of_elements(value, of.numel())
    # Memory that is shared is not the state's alone to move.
    return (
        value.nbytes >= SMALLEST_BYTES
        and value.untyped_storage().nbytes() == value.nbytes
        and not any(value.data_ptr() == other.data_ptr() for other in (of, of.grad) if other is not None)
    )
