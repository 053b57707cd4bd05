"""What torch.compile made. The kernels of a compiled forward graph become operators, or all of it becomes one, which are
recorded, dropped and recomputed like PyTorch's own: a recompute calls the same compiled code with the same inputs and
random numbers, and never the user's function. What cannot be called again, and compiled backward graphs, are opaque
regions: their results are kept.

This file and kernel_source.py alone know the compiler's internals (torch 2.11 and 2.13). Without what they look for,
compiled parts are kept. It waits for the compiler to be imported; without the compiler it costs nothing.
"""

from __future__ import annotations

import functools
import hashlib
import itertools
import os
import re
import sys
import threading
import weakref
from collections.abc import Callable
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from importlib.util import find_spec
from types import ModuleType
from typing import Any, ClassVar

import torch
from torch.utils._python_dispatch import _disable_current_modes, _get_current_dispatch_mode_stack

from remat import _C
from remat.device import HOST
from remat.errors import BudgetError, Error
from remat.kernel_source import Kernel, kernels_of, may_scatter

# Recomputes start from a copy of what a graph writes to, such as a BatchNorm's statistics.
_MOST_WRITTEN_BYTES = 1 << 20
# Operators that the compiled code calls by name.
_CALLED = re.compile(r"torch\.ops\.([A-Za-z_]\w*)\.([A-Za-z_]\w*)")
_BUILTIN = ("aten", "inductor", "prims")
_numbers = itertools.count()
_defined: set[str] = set()  # names of kernels that are operators
_seeing = threading.Lock()


def _name_of(kernel: Any, code: str) -> str:
    """The same for the same machine code, in each process: a saved plan names it."""
    library = getattr(getattr(kernel, "__self__", None), "__file__", None)  # named for its source and compiler flags
    if library is None:
        return f"kernel_{next(_numbers)}"
    return "kernel_" + hashlib.sha256((os.path.basename(library) + code).encode()).hexdigest()[:12]


def _launcher(launch: Any, kernel: Kernel) -> Callable[..., None]:
    name = _name_of(launch, kernel.code)
    if name not in _defined:
        _C.define_kernel(name, functools.partial(_call, launch), kernel.arguments, kernel.repeatable)
        _defined.add(name)

    def launch_recorded(*args: Any) -> None:
        if _C.is_recording():
            _C.call_kernel(name, *args)
        else:
            launch(*args)

    return launch_recorded


def _allocator(allocate: Any) -> Callable[..., torch.Tensor]:
    def empty(size: Any, stride: Any, dtype: torch.dtype) -> torch.Tensor:
        if _C.is_recording():
            return torch.ops.compiled.empty_strided(size, stride, dtype=dtype)
        return allocate(size, stride, dtype)

    return empty


def _see_kernels(graph: Any) -> bool:
    """Makes operators of the kernels that the compiled code launches, as those of PyTorch that it calls are already."""
    if set(graph.device_types) - {HOST}:
        return False
    code = graph.current_callable
    module = getattr(code, "__func__", code).__globals__
    with _seeing:
        if "_remat_sees" not in module:
            kernels = kernels_of(graph.source_code)
            module["_remat_sees"] = kernels is not None and {*kernels, "empty_strided_cpu"} <= module.keys()
            if module["_remat_sees"]:
                replaced = {name: _launcher(module[name], kernel) for name, kernel in kernels.items()}
                module.update(replaced, empty_strided_cpu=_allocator(module["empty_strided_cpu"]))
    return module["_remat_sees"]


def _repeats(source: str) -> bool:
    """Does the compiled code give the same bits each time, as far as it can be told?"""
    if not source or may_scatter(source):
        return False
    return all(_C.is_repeatable(f"{space}::{name}") for space, name in set(_CALLED.findall(source)))


def _can_be_called_again(graph: Any) -> bool:
    """Is it the code of a forward pass that a recompute may call?"""
    options = graph.fx_kwargs
    if options["is_backward"] or options.get("cpp_wrapper") or len(graph.device_types) > 1:
        return False
    # The results of these are in memory that every call writes to.
    return not any(bool(options.get(name)) for name in ("cudagraphs", "aot_mode"))


def _only_checks_custom_operators() -> bool:
    """Is the dispatch mode the one under which AOTAutograd runs a graph for the first time?"""
    modes = _get_current_dispatch_mode_stack()
    return all(type(mode).__name__ == "_AnalyzeCustomOpInputOutputMode" for mode in modes)


def _call(code: Callable[..., Any], *args: Any) -> Any:
    """Calls compiled code. Kernels that call PyTorch through its C interface, as for scratch memory, turn a BudgetError
    into a RuntimeError with its text; here it becomes what it was."""
    _C.lost_budget_error()  # of an earlier call
    try:
        return code(*args)
    except RuntimeError as error:
        lost = None if isinstance(error, Error) else _C.lost_budget_error()
        if lost is None:
            raise
        raise BudgetError(lost) from error


def _kept(code: Callable[..., Any], *args: Any) -> Any:
    """Calls it so that what it makes is kept."""
    region = _C.OpaqueRegion()
    try:
        return _call(code, *args)
    finally:
        region.end()


def _replace_by_copies(inputs: list[Any], positions: list[int]) -> list[torch.Tensor]:
    copies = [inputs[i].clone() for i in positions]
    for i, copy in zip(positions, copies):
        inputs[i] = copy
    return copies


class _Graph:
    """A compiled forward graph of which something can be recomputed."""

    def __init__(self, graph: Any, call: Callable[[Any, Any], Any]) -> None:
        self.written = sorted(graph.mutated_input_idxs)
        self.calls_custom = any(space not in _BUILTIN for space, _ in _CALLED.findall(graph.source_code))
        self.name = None  # of the operator that stands for all of it
        if not _see_kernels(graph):
            self.name = f"graph_{next(_numbers)}"
            self.define(graph, call)

    def define(self, graph: Any, call: Callable[[Any, Any], Any]) -> None:
        reference, written, name = weakref.ref(graph), self.written, self.name

        def run(inputs: list[Any]) -> tuple[Any, list[torch.Tensor]]:
            graph = reference()
            if graph is None:
                raise RuntimeError(
                    f"[compile] compiled::{name} is to be recomputed, but torch.compile has thrown out its code "
                    "(torch.compiler.reset()); do that between steps"
                )
            updated = _replace_by_copies(inputs, written)  # a recompute is given the same ones again
            return _call(call, graph, inputs), updated

        _C.define_graph(name, run)

    def may_run_on(self, inputs: list[Any]) -> bool:
        """Are they tensors and integers, can what the graph writes to be replaced by copies, and does no dispatch mode
        want to see what it calls?"""
        if torch._C._len_torch_dispatch_stack() and (self.calls_custom or not _only_checks_custom_operators()):
            return False
        if not all(type(one) is int or isinstance(one, torch.Tensor) for one in inputs):
            return False
        if not self.written:
            return True
        written = [inputs[i] for i in self.written]
        if not all(isinstance(t, torch.Tensor) and t.is_contiguous() and not t.is_inference() for t in written):
            return False
        if sum(t.untyped_storage().nbytes() for t in written) > _MOST_WRITTEN_BYTES:
            return False
        storages = [t.untyped_storage()._cdata for t in inputs if isinstance(t, torch.Tensor)]
        return all(storages.count(t.untyped_storage()._cdata) == 1 for t in written)

    def run(self, graph: Any, call: Callable[[Any, Any], Any], inputs: list[Any]) -> Any:
        """The graph's results."""
        written = [inputs[i] for i in self.written]
        with _disable_current_modes():
            if written:  # Operators read copies: a write to what they have read would keep their results for good.
                _kept(_replace_by_copies, inputs, self.written)
            region = _C.CompiledRegion()
            try:
                if self.name is not None:
                    results, updated = _C.call_graph(self.name, inputs)
                else:
                    updated = _replace_by_copies(inputs, self.written)
                    results = call(graph, inputs)
            finally:
                region.end()
        for tensor, contents in zip(written, updated):
            tensor.copy_(contents)
        return results


# By the graph's identity, as graphs have no hash; None: its results are kept.
_graphs: dict[int, tuple[weakref.ref[Any], _Graph | None]] = {}


def _graph_of(graph: Any, call: Callable[[Any, Any], Any]) -> _Graph | None:
    key = id(graph)
    known = _graphs.get(key)
    if known is None or known[0]() is not graph:
        try:
            recomputable = _can_be_called_again(graph) and (_see_kernels(graph) or _repeats(graph.source_code))
            made = _Graph(graph, call) if recomputable else None
        except (AttributeError, KeyError, TypeError):  # internals of another version of torch
            made = None
        known = _graphs[key] = (weakref.ref(graph, lambda _: _graphs.pop(key, None)), made)
    return known[1]


def _recorded(call: Callable[[Any, Any], Any], forward: bool) -> Any:
    @functools.wraps(call)
    def recorded(self: Any, inputs: Any) -> Any:
        if not _C.is_recording():
            return call(self, inputs)
        if forward and isinstance(inputs, list):
            graph = _graph_of(self, call)
            if graph is not None and graph.may_run_on(inputs):
                return graph.run(self, call, inputs)
        return _kept(call, self, inputs)

    recorded._remat = True  # type: ignore[attr-defined]
    return recorded


def _see_compiled_code(module: ModuleType) -> None:
    for name, forward in (("CompiledFxGraph", True), ("CompiledAOTI", False)):
        kind = getattr(module, name, None)
        if kind is not None and not hasattr(kind.__call__, "_remat"):
            kind.__call__ = _recorded(kind.__call__, forward)


def _see_compilations(module: ModuleType) -> None:
    """Not by a callback of its own: torch.compiler.reset() throws out all callbacks."""
    handler = getattr(module, "CompilationCallbackHandler", None)
    begin = getattr(handler, "run_start_callbacks", None)
    if begin is None or hasattr(begin, "_remat"):
        return

    @functools.wraps(begin)
    def begun(self: Any, args: Any) -> None:
        _C.note_compilation()
        begin(self, args)

    begun._remat = True  # type: ignore[attr-defined]
    handler.run_start_callbacks = begun


class _AfterImport(MetaPathFinder):
    """Calls what waits for a module when that is imported: the compiler may be in the middle of a step, by its first
    call."""

    _waiting: ClassVar[dict[str, Callable[[ModuleType], None]]] = {
        "torch._inductor.output_code": _see_compiled_code,
        "torch._dynamo.callback": _see_compilations,
    }

    def find_spec(self, name: str, path: Any, target: Any = None) -> ModuleSpec | None:
        then = self._waiting.pop(name, None)
        spec = None if then is None else find_spec(name)
        if spec is None or spec.loader is None:
            return spec
        execute = spec.loader.exec_module

        def exec_module(module: ModuleType) -> None:
            execute(module)
            then(module)

        spec.loader.exec_module = exec_module  # type: ignore[method-assign]
        return spec

    @classmethod
    def install(cls) -> None:
        for name in [name for name in cls._waiting if name in sys.modules]:
            cls._waiting.pop(name)(sys.modules[name])
        sys.meta_path.insert(0, cls())


_AfterImport.install()
