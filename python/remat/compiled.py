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
from torch.utils._python_dispatch import _disable_current_modes, _get_current_dispatch_mode_stack

from remat import _C

_OUTPUT_CODE = "torch._inductor.output_code"
# Recomputes start from a copy of what a graph writes to, such as a BatchNorm's statistics.
_MOST_WRITTEN_BYTES = 1 << 20
# Operators that the compiled code calls by name.
_CALLED = re.compile(r"torch\.ops\.([A-Za-z_]\w*)\.([A-Za-z_]\w*)")
_BUILTIN = ("aten", "inductor", "prims")
# Threads, or blocks of a GPU, that add to the same element do so in any order.
_RACING = "atomic_add"
# A kernel's definition in the compiled code, and the arguments of its function.
_DEFINED = re.compile(r"^(\w+) = async_compile\.(\w+)\(", re.MULTILINE)
_KERNEL = re.compile(r"^(\w+) = async_compile\.cpp_pybinding\(\[[^\]]*\], r'''(.*?)'''\)", re.MULTILINE | re.DOTALL)
_ARGUMENTS = re.compile(r'extern "C"\s+void\s+kernel\(([^)]*)\)')
_KINDS = {"in_ptr": "r", "out_ptr": "w", "in_out_ptr": "w", "ks": "n"}

_numbers = itertools.count()


def _kernels_of(source: str) -> dict[str, tuple[str, bool]] | None:
    """For each kernel of the compiled code by name: what its arguments are, and does it give the same bits each time?
    None where something else than kernels of the CPU is defined."""
    kernels = {}
    for name, code in _KERNEL.findall(source):
        function = _ARGUMENTS.search(code)
        if function is None:
            return None
        names = [argument.split()[-1].rstrip("0123456789") for argument in function[1].split(",") if argument.strip()]
        if not set(names) <= set(_KINDS):
            return None
        kernels[name] = "".join(_KINDS[name] for name in names), _RACING not in code
    return kernels if len(kernels) == len(_DEFINED.findall(source)) else None


def _launcher(kernel: Any, arguments: str, repeatable: bool) -> Callable[..., None]:
    name = f"kernel_{next(_numbers)}"
    _C.define_kernel(name, kernel, arguments, repeatable)

    def launch(*args: Any) -> None:
        if _C.is_recording():
            _C.call_kernel(name, *args)
        else:
            kernel(*args)

    return launch


def _allocator(allocate: Any) -> Callable[..., torch.Tensor]:
    def empty(size: Any, stride: Any, dtype: torch.dtype) -> torch.Tensor:
        if _C.is_recording():
            return torch.ops.compiled.empty_strided(size, stride, dtype=dtype)
        return allocate(size, stride, dtype)

    return empty


def _see_kernels(graph: Any) -> bool:
    """Makes operators of the kernels that the compiled code launches, as those of PyTorch that it calls are already."""
    if set(graph.device_types) - {"cpu"}:
        return False
    code = graph.current_callable
    module = getattr(code, "__func__", code).__globals__
    if "_remat_sees" not in module:
        kernels = _kernels_of(graph.source_code)
        module["_remat_sees"] = kernels is not None and "empty_strided_cpu" in module and kernels.keys() <= module.keys()
        if module["_remat_sees"]:
            for name, (arguments, repeatable) in kernels.items():
                module[name] = _launcher(module[name], arguments, repeatable)
            module["empty_strided_cpu"] = _allocator(module["empty_strided_cpu"])
    return module["_remat_sees"]


def _repeats(source: str) -> bool:
    """Does the compiled code give the same bits each time, as far as it can be told?"""
    if not source or _RACING in source:
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


def _kept(call: Callable[..., Any], *args: Any) -> Any:
    """Calls it so that what it makes is kept."""
    region = _C.OpaqueRegion()
    try:
        return call(*args)
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
            return call(graph, inputs), updated

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
            if self.name is not None:
                results, updated = _C.call_graph(self.name, inputs)
            else:
                updated = _replace_by_copies(inputs, self.written)
                results = call(graph, inputs)
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
