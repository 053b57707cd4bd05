"""Regions that torch.compile made: their kernels write results through pointers, which nobody sees, so what they make
is kept. Installed the first time that something is compiled; without the compiler it costs nothing."""

from __future__ import annotations

import functools
import sys
from typing import Any

import torch

from remat import _C

_OUTPUT_CODE = "torch._inductor.output_code"


def _opaque(call: Any) -> Any:
    @functools.wraps(call)
    def opaque(self: Any, inputs: Any) -> Any:
        if not _C.is_recording():
            return call(self, inputs)
        region = _C.OpaqueRegion()
        try:
            return call(self, inputs)
        finally:
            region.end()

    opaque._remat = True  # type: ignore[attr-defined]
    return opaque


def see_compiled_regions() -> None:
    """Makes each call of what the compiler made an opaque region, from now on, if the compiler has been imported."""
    module = sys.modules.get(_OUTPUT_CODE)
    for name in ("CompiledFxGraph", "CompiledAOTI"):
        kind = getattr(module, name, None)
        if kind is not None and not hasattr(kind.__call__, "_remat"):
            kind.__call__ = _opaque(kind.__call__)


def _install() -> None:
    """The compiler may be imported in the middle of a step, by the first call of a compiled module."""
    backend = getattr(torch, "_TorchCompileInductorWrapper", None)
    if backend is None or hasattr(backend.__call__, "_remat"):
        return
    call = backend.__call__

    @functools.wraps(call)
    def compile(self: Any, *args: Any, **kwargs: Any) -> Any:
        import torch._inductor.output_code  # noqa: F401

        see_compiled_regions()
        return call(self, *args, **kwargs)

    compile._remat = True  # type: ignore[attr-defined]
    backend.__call__ = compile
    see_compiled_regions()


_install()
