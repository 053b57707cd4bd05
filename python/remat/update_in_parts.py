"""Updates of large parameters part by part, so that what the optimizer takes for a moment is small."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

import torch

from remat.paged_state import is_of_elements, parts_of
from remat.parameter_update import flat_of, part_of, update_alone


def update_in_parts(optimizer: torch.optim.Optimizer, group: dict[str, Any], parameter: torch.Tensor) -> None:
    """As :func:`update_alone`, with the same bits. AdamW's own step takes two tensors of the parameter's size for a
    moment; in parts, 16 MB."""
    entry = optimizer.state[parameter] if parameter in optimizer.state else {}
    parts = parts_of(optimizer, parameter, entry)
    if parts == [None] or not _can_be_in_parts(parameter, entry):
        return update_alone(optimizer, group, parameter)
    flat, count = flat_of(parameter), parameter.numel()
    whole = dict(entry)
    for part in parts:
        target = part_of(flat, part)
        state: defaultdict[torch.Tensor, Any] = defaultdict(dict)
        if entry:
            state[target] = {name: _part_of_state(value, count, part) for name, value in entry.items()}
        update_alone(optimizer, group, target, state=state)
        for name, value in state.get(target, {}).items():
            if not is_of_elements(value, target.numel()):
                whole[name] = value
                continue
            if not is_of_elements(whole.get(name), count):
                whole[name] = torch.empty_like(parameter, dtype=value.dtype, requires_grad=False)
            place = whole[name].view(-1)[part]
            if place.data_ptr() != value.data_ptr():
                place.copy_(value)
    if whole:
        optimizer.state[parameter] = whole
    return None


def _can_be_in_parts(parameter: torch.Tensor, entry: dict[str, Any]) -> bool:
    gradient, count = parameter.grad, parameter.numel()
    return (
        type(parameter) in (torch.nn.Parameter, torch.Tensor)
        and type(gradient) is torch.Tensor
        and gradient.layout == torch.strided
        and gradient.is_contiguous()
        and all(value.is_contiguous() for value in entry.values() if is_of_elements(value, count))
    )


def _part_of_state(value: Any, count: int, part: slice | None) -> Any:
    if is_of_elements(value, count):
        return value.view(-1)[part]
    return value.clone() if isinstance(value, torch.Tensor) else value  # each part counts its steps
