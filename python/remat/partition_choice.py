"""Where the compiler cuts a graph into forward and backward: one of several cuts with the same bits. The cuts are
those of AOTAutograd's partitioner for several values of ``torch._functorch.config.activation_memory_budget``, the share
that forward saves of what it could save. Each graph is compiled with all of them at once, runs with the first, and is tried
with the others between two steps: the compiled code alone, on inputs of its own."""

from __future__ import annotations

import copy
import inspect
import logging
import os
import threading
import types
import weakref
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from remat.errors import Error
from remat.partition_budget import choose, last_step
from remat.partition_input import Input, can_be_made_again
from remat.partition_trial import Run, TriedGraph

if TYPE_CHECKING:
    from remat.session import Session

FASTEST = "fastest"
_PASS = "joint_custom_post_pass"  # Inductor's option for a pass over a graph of forward and backward
_log = logging.getLogger("remat.compile")
_SHARES = (1.0, 0.8, 0.5, 0.3, 0.1)  # the first is the one whose bits the others must have
_MODELS = 8  # of one class, each with code of its own, are compiled for several sizes and modes
_LEAST = 1e-6  # at 0 the partitioner saves the inputs alone, even where backward then draws other random numbers

_trying = threading.Lock()  # steps may begin on several threads, whose trials would slow each other down


def _after_fork() -> None:
    """In the child, where a thread that held the lock is not."""
    global _trying
    _trying = threading.Lock()


os.register_at_fork(after_in_child=_after_fork)


def compile_options() -> frozenset[str]:
    """The names of what torch.compile takes. Not those of a session, whose `name` is another one."""
    return frozenset(inspect.signature(torch.compile).parameters) - {"model", "name"}


def _save_random_numbers(other: Any) -> Any:
    """The pass SavedRandomNumbers, after the user's own one."""
    from remat.partition_random import SavedRandomNumbers

    return SavedRandomNumbers(other)


def _call(module: nn.Module, *args: Any, **kwargs: Any) -> Any:
    return module._call_impl(*args, **kwargs)


def _shape_of(parameter: nn.Parameter) -> torch.Size | None:
    """None where the first call gives it one."""
    return None if torch.nn.parameter.is_lazy(parameter) else parameter.shape


def _limit(blocks: Sequence[nn.Module], options: dict[str, Any], models: int) -> dict[str, int]:
    """torch.compile keeps so many versions of a function, whatever the number of modules that share it: as many for each
    kind of block, and of so many models, where this version of torch can be told."""
    if "recompile_limit" not in compile_options() or options.get("recompile_limit") is not None:
        return {}
    kinds = {(type(block), tuple(map(_shape_of, block.parameters()))) for block in blocks}
    return {"recompile_limit": torch._dynamo.config.recompile_limit * len(kinds) * models}


def _name_of_compilation() -> str:
    """As in torch.compile's own logs (TORCH_LOGS)."""
    compilation = torch._guards.CompileContext.current_compile_id()
    return "graph" if compilation is None else f"graph [{compilation}]"


def has_ranks() -> bool:
    """Whether there are several processes, or may be."""
    return torch.distributed.is_available() and torch.distributed.is_initialized()


class Compiler:
    """torch.compile for `blocks`, with its options and an `activation_memory_budget`: a number, "fastest", or None for that
    of torch's configuration."""

    def __init__(self, blocks: Sequence[nn.Module], options: dict[str, Any], share: float | str | None = None) -> None:
        self._options = options | _limit(blocks, options, _MODELS if share == FASTEST else 1)
        self.choice: Choice | None = None  # whose between_steps() is to be called
        if share is None:
            return
        backend, mode, more = (self._options.pop(name, None) for name in ("backend", "mode", "options"))
        if mode is not None and more is not None:
            raise Error("[compile] mode and options are both given; torch.compile takes one of them: give its options alone")
        more = dict(more or {})
        if "guard_filter_fn" in more:  # which is not the backend's
            self._options["options"] = {"guard_filter_fn": more.pop("guard_filter_fn")}
        for name in more:
            if name.replace("-", "_") == _PASS:  # options win over the configuration
                more[name] = _save_random_numbers(more[name])
        given = (mode, more or None, options.get("dynamic"))
        if backend in (None, "inductor"):
            whole = torch._TorchCompileInductorWrapper(*given)
        else:
            whole = torch._TorchCompileWrapper(backend, *given)
        if share == FASTEST:
            self.choice = Choice(whole)
        self._options["backend"] = self.choice or _Cut(whole, share)

    def compile(self, block: nn.Module) -> None:
        """In place, as ``nn.Module.compile()``."""
        options = {name: dict(value) if name == "options" and value else value for name, value in self._options.items()}
        if type(block).__module__.startswith("torch.nn."):
            # compile() of PyTorch's own layers compiles nothing: all of the call's code is PyTorch's, which it skips.
            block._compiled_call_impl = torch.compile(types.MethodType(_call, block), **options)
        else:
            block.compile(**options)


class _Cut:
    """A backend of torch.compile, with one activation_memory_budget. torch.compile lets models that have equal backends
    share their code."""

    def __init__(self, backend: Run, share: float) -> None:
        self._backend, self._share = backend, share

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Cut) and (self._backend, self._share) == (other._backend, other._share)

    def __hash__(self) -> int:
        return hash(self._share)

    def __call__(self, graph: Any, inputs: list[Any]) -> Run:
        import torch._functorch.config as aot
        import torch._inductor.config as inductor

        passes = {_PASS: _save_random_numbers(getattr(inductor, _PASS))} if self._share < 1 else {}
        with aot.patch(activation_memory_budget=max(self._share, _LEAST)), inductor.patch(passes):
            return self._backend(graph, inputs)


def _stay(graphs: Sequence[TriedGraph]) -> None:
    """Without a trial: ranks would choose by times of their own."""
    if graphs:
        _log.warning(
            '[compile] activation_memory_budget="%s" and a process group, which came later: times differ between ranks, so '
            "that graphs stay at %s; give a number",
            FASTEST,
            _SHARES[0],
        )
    for graph in graphs:
        graph.take(_SHARES[0])


class Choice:
    """A backend of torch.compile that tries several cuts of each graph with gradients. Each model has its own, and so code
    of its own: what its first steps take on the usual cut is what a budget in percent is of."""

    def __init__(self, backend: Run) -> None:
        self._backend = backend
        self._graphs: list[weakref.ref[TriedGraph]] = []  # to be tried; the compiled code has them

    def __call__(self, graph: Any, inputs: list[Any]) -> Run:
        differentiable = torch.is_grad_enabled() and any(isinstance(x, torch.Tensor) and x.requires_grad for x in inputs)
        if not differentiable or not all(map(can_be_made_again, inputs)):
            return _Cut(self._backend, _SHARES[0])(graph, inputs)
        # The first comes first. A compilation settles symbolic sizes, which the next one finds settled: code of other bits.
        # It has the graph itself: torch.compile makes other code of a copy, where a graph writes to its inputs.
        graphs = [graph, *(copy.deepcopy(graph) for _ in _SHARES[1:])]
        cuts = {share: _Cut(self._backend, share)(each, inputs) for share, each in zip(_SHARES, graphs)}
        tried = TriedGraph(_name_of_compilation(), cuts, [Input(each) for each in inputs])
        self._graphs.append(weakref.ref(tried))
        return tried.run

    def between_steps(self, session: Session) -> None:
        """Tries the graphs that ran in the last step of `session` and had been compiled before, and lets each run with one
        of its cuts from now on. That step tells what one takes: while code is compiled the compiler holds tensors, and the
        first backward pass makes gradients. An interrupt leaves the graphs to the next time."""
        if not self._graphs or not _trying.acquire(blocking=False):
            return
        try:
            graphs = [graph for reference in self._graphs if (graph := reference()) is not None]
            if has_ranks():
                _stay(graphs)
            else:
                self._choose([graph for graph in graphs if graph.counted_in(session)], session)
            new = [graph for graph in graphs if not graph.is_settled()]
            for graph in new:
                graph.counts_calls = True
            self._graphs = [weakref.ref(graph) for graph in new]
        finally:
            _trying.release()

    @staticmethod
    def _choose(graphs: Sequence[TriedGraph], session: Session) -> None:
        for graph in graphs:
            graph.try_cuts()
        options = [graph.options() for graph in graphs]
        if all(len(each) == 1 for each in options):
            chosen = [each[0] for each in options]
        else:
            chosen = choose(options, last_step(session))
        for graph, option in zip(graphs, chosen):
            graph.take(option.share)
