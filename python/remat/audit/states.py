"""What generators and optimizers hold."""

from __future__ import annotations

import random
import sys
from collections.abc import Iterator
from typing import Any

import torch

from .values import Value, text, value_of


def generator_states() -> Iterator[tuple[str, Value]]:
    """Of the generators that are the process's."""
    yield "torch", value_of(torch.get_rng_state())
    if (accelerator := accelerator_in_use()) is not None:
        for device in range(accelerator.device_count()):
            yield f"{accelerator.__name__.rpartition('.')[2]}:{device}", value_of(accelerator.get_rng_state(device))
    yield "random", _bytes_of(random.getstate())
    if "numpy" in sys.modules:
        _, words, place, *rest = sys.modules["numpy"].random.get_state()
        yield "numpy", _bytes_of((words.tolist(), place, rest))


def accelerator_in_use() -> Any:
    """The module of PyTorch's for the accelerator here, where the process has begun to use it; None otherwise."""
    kind = torch.accelerator.current_accelerator(check_available=True)
    module = None if kind is None else torch.get_device_module(kind)
    return module if getattr(module, "is_initialized", bool)() else None


def _bytes_of(state: Any) -> Value:
    data = repr(state).encode()
    return Value("uint8", [len(data)], data)


def optimizer_states(optimizer: Any, parameters: list[tuple[str, torch.Tensor]]) -> Iterator[tuple[str, Value]]:
    """Tensors and numbers, as "exp_avg of blocks.0.weight"."""
    for name, parameter in parameters:
        for key, value in optimizer.state.get(parameter, {}).items():
            for index, item in enumerate(value) if isinstance(value, (list, tuple)) else [("", value)]:
                where = f"{key}{'' if index == '' else f'[{index}]'} of {name}"
                if isinstance(item, torch.Tensor):
                    yield where, value_of(item)
                elif isinstance(item, (bool, int, float)):
                    yield where, text(repr(item))


def optimizer_settings(optimizer: Any) -> Iterator[tuple[str, Value]]:
    """As "lr of group 0"."""
    for index, group in enumerate(optimizer.param_groups):
        for key, setting in group.items():
            if isinstance(setting, torch.Tensor):
                yield f"{key} of group {index}", value_of(setting)
            elif isinstance(setting, (bool, int, float, str, type(None))) or (
                isinstance(setting, tuple) and all(isinstance(each, (bool, int, float)) for each in setting)
            ):
                yield f"{key} of group {index}", text(repr(setting))
