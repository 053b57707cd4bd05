"""What torch.compile made. A compiled forward graph becomes one operator, which is recorded, dropped and recomputed
like PyTorch's own: a recompute calls the same compiled code with the same inputs and random numbers, and never the
user's function. What cannot be called again, and compiled backward graphs, are opaque regions: their results are kept.

This file alone knows the compiler's internals (torch 2.11 and 2.13). Without what it looks for, compiled parts are kept.
It is installed the first time that something is compiled; without the compiler it costs nothing."""

from __future__ import annotations

import functools
import itertools
import re
import sys
import weakref
from collections.abc import Callable
from typing import Any

import torch

from remat import _C

_OUTPUT_CODE = "torch._inductor.output_code"
# Recomputes start from a copy of what a graph writes to, such as a BatchNorm's statistics.
_MOST_WRITTEN_BYTES = 1 << 20
# Operators that the compiled code calls by name; all others are kernels of its own.
_CALLED = re.compile(r"torch\.ops\.([A-Za-z_]\w*)\.([A-Za-z_]\w*)")
# Threads, or blocks of a GPU, that add to the same element do so in any order.
_RACING = "atomic_add"

_numbers = itertools.count()


def _repeats(graph: Any) -> bool:
    """Does the compiled code give the same bits each time, as far as it can be told?"""
    source = graph.source_code
    if not source or _RACING in source:
        return False
    return all(_C.is_repeatable(f"{space}::{name}") for space, name in set(_CALLED.findall(source)))


def _can_be_called_again(graph: Any) -> bool:
    """Is it the code of a forward pass that a recompute may call?"""
    options = graph.fx_kwargs
    if options["is_backward"] or options.get("cpp_wrapper") or len(graph.device_types) > 1:
        return False
    if any(bool(options.get(name)) for name in ("cudagraphs", "aot_mode")):
        return False  # their results are in memory that every call writes to
    return _repeats(graph)


class _Operator:
    """The operator that stands for a compiled graph."""

    def __init__(self, graph: Any, call: Callable[[Any, Any], Any]) -> None:
        self.name = f"graph_{next(_numbers)}"
        self.written = sorted(graph.mutated_input_idxs)
        reference, written, name = weakref.ref(graph), self.written, self.name

        def run(inputs: list[Any]) -> tuple[Any, list[torch.Tensor]]:
            graph = reference()
            if graph is None:
                raise RuntimeError(
                    f"[compile] compiled::{name} is to be recomputed, but torch.compile has thrown out its code "
                    "(torch.compiler.reset()); do that between steps"
                )
            updated = [inputs[i].clone() for i in written]
            for i, copy in zip(written, updated):
                inputs[i] = copy
            return call(graph, inputs), updated

        _C.define_graph(self.name, run)

    def may_run_on(self, inputs: list[Any]) -> bool:
        """Can what the graph writes to be replaced by copies?"""
        if not self.written:
            return True
        written = [inputs[i] for i in self.written]
        if not all(isinstance(t, torch.Tensor) and t.is_contiguous() for t in written):
            return False
        if sum(t.untyped_storage().nbytes() for t in written) > _MOST_WRITTEN_BYTES:
            return False
        storages = [t.untyped_storage()._cdata for t in inputs if isinstance(t, torch.Tensor)]
        return all(storages.count(t.untyped_storage()._cdata) == 1 for t in written)

    def __call__(self, inputs: list[Any]) -> Any:
        """The graph's results; None where it has not run, since the inputs are not tensors and integers alone."""
        written = [inputs[i] for i in self.written]
        outcome = _C.call_graph(self.name, inputs)
        if outcome is None:
            return None
        results, updated = outcome
        for tensor, contents in zip(written, updated):
            tensor.copy_(contents)
        return results


# By the graph's identity, as graphs have no hash; None: it cannot be called again.
_operators: dict[int, tuple[weakref.ref[Any], _Operator | None]] = {}


def _operator_of(graph: Any, call: Callable[[Any, Any], Any]) -> _Operator | None:
    key = id(graph)
    known = _operators.get(key)
    if known is None or known[0]() is not graph:
        try:
            operator = _Operator(graph, call) if _can_be_called_again(graph) else None
        except (AttributeError, KeyError, TypeError):  # internals of another version of torch
            operator = None
        known = _operators[key] = (weakref.ref(graph, lambda _: _operators.pop(key, None)), operator)
    return known[1]


def _recorded(call: Callable[[Any, Any], Any], forward: bool) -> Any:
    @functools.wraps(call)
    def recorded(self: Any, inputs: Any) -> Any:
        if not _C.is_recording():
            return call(self, inputs)
        if forward and isinstance(inputs, list) and torch._C._len_torch_dispatch_stack() == 0:
            operator = _operator_of(self, call)
            if operator is not None and operator.may_run_on(inputs):
                results = operator(inputs)
                if results is not None:
                    return results
        region = _C.OpaqueRegion()
        try:
            return call(self, inputs)
        finally:
            region.end()

    recorded._remat = True  # type: ignore[attr-defined]
    return recorded


def see_compiled_code() -> None:
    """Sees the calls of what the compiler makes, from now on, if the compiler has been imported."""
    module = sys.modules.get(_OUTPUT_CODE)
    for name, forward in (("CompiledFxGraph", True), ("CompiledAOTI", False)):
        kind = getattr(module, name, None)
        if kind is not None and not hasattr(kind.__call__, "_remat"):
            kind.__call__ = _recorded(kind.__call__, forward)


def _install() -> None:
    """The compiler may be imported in the middle of a step, by the first call of a compiled module."""
    backend = getattr(torch, "_TorchCompileInductorWrapper", None)
    if backend is None or hasattr(backend.__call__, "_remat"):
        return
    call = backend.__call__

    @functools.wraps(call)
    def compile(self: Any, *args: Any, **kwargs: Any) -> Any:
        import torch._inductor.output_code  # noqa: F401

        see_compiled_code()
        return call(self, *args, **kwargs)

    compile._remat = True  # type: ignore[attr-defined]
    backend.__call__ = compile
    see_compiled_code()


_install()
