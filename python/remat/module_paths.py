"""The modules of a model by their paths, as named_modules() gives them: "layers.3.attention"."""

from __future__ import annotations

import re
from collections.abc import Mapping
from difflib import get_close_matches
from typing import TypeVar

from torch import nn

from remat.errors import Error
from remat.hooks import has_forward

T = TypeVar("T")


def _expression(pattern: str) -> re.Pattern[str]:
    """`*` stands for any characters but dots, `**` for dots too."""
    parts = re.split(r"(\*\*|\*)", pattern)
    meanings = {"*": "[^.]*", "**": ".*"}
    return re.compile("".join(meanings.get(part, re.escape(part)) for part in parts))


def by_path(where: str, model: nn.Module, patterns: Mapping[str, T]) -> dict[nn.Module, T]:
    """What `patterns` have for the modules whose paths they match and which can be called; of several, the last. A module
    that stands in several places has several paths. Raises Error for a pattern that matches none."""
    if not patterns:
        raise Error(f"[{where}] no path is given; use those of model.named_modules(), and * for a part of one")
    try:
        paths = list(model.named_modules(remove_duplicate=False))
    except RecursionError:
        raise Error(
            f"[{where}] a module of this {type(model).__name__} is inside itself, and has no end of paths; name modules "
            "by themselves: blocks=[...]"
        ) from None
    found: dict[nn.Module, T] = {}
    for pattern, value in patterns.items():
        if not isinstance(pattern, str):
            raise Error(f"[{where}] {pattern!r} is no path of a module; use strings as model.named_modules() gives them")
        expression = _expression(pattern)
        matching = [module for path, module in paths if expression.fullmatch(path)]
        if not matching:
            near = get_close_matches(pattern, [path for path, _ in paths if path], n=3, cutoff=0)
            known = f"there are {', '.join(near)} and others" if near else "it has none inside"
            raise Error(
                f'[{where}] no module of this {type(model).__name__} is at "{pattern}", {known}; use paths of '
                "model.named_modules(), and * for a part of one"
            )
        called = [module for module in matching if has_forward(module)]
        if not called:
            raise Error(
                f'[{where}] the {type(matching[0]).__name__} at "{pattern}" has no forward(), so that no call of it would '
                f'be seen; use what is inside of it: "{pattern}.*"'
            )
        for module in called:
            found[module] = value
    return found
