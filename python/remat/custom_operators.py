"""Operators that are Python functions (torch.library.custom_op): a replay would call the user's function a second time,
and what it gives may depend on more than its arguments. What they make is kept."""

from __future__ import annotations

import functools
from typing import Any

from torch.library import CustomOpDef

from remat import _C


def _install() -> None:
    call = CustomOpDef.__call__
    if hasattr(call, "_remat"):
        return

    @functools.wraps(call)
    def opaque(self: Any, *args: Any, **kwargs: Any) -> Any:
        if not _C.is_recording():
            return call(self, *args, **kwargs)
        region = _C.OpaqueRegion()
        try:
            return call(self, *args, **kwargs)
        finally:
            region.end()

    opaque._remat = True  # type: ignore[attr-defined]
    CustomOpDef.__call__ = opaque


_install()
