"""Where the compiler cuts a graph into forward and backward: of several cuts with the same bits, the fastest. The cuts are
those of AOTAutograd's partitioner for several values of ``torch._functorch.config.activation_memory_budget``, the share
that forward saves of what it could save. Each graph is compiled with all of them at once, runs with the first, and is tried
with the others between two steps: the compiled code alone, on inputs of its own."""

from __future__ import annotations

import copy
import inspect
import logging
import threading
import time
import types
import weakref
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import nn

from remat.errors import Error

_log = logging.getLogger("remat.compile")

COMPILE_OPTIONS = frozenset(inspect.signature(torch.compile).parameters) - {"model"}
FASTEST = "fastest"
_SHARES = (1.0, 0.8, 0.5)  # the first is the one whose bits the others must have
_ROUNDS = 5  # in which each is timed once
_ALIKE = 1.02  # of times that differ by less, the cut that saves less is taken
_MOST_HELD_BYTES = 64 << 20  # of integers among the inputs, whose contents are kept until the cuts are tried

Run = Callable[..., Any]


def _call(module: nn.Module, *args: Any, **kwargs: Any) -> Any:
    return module._call_impl(*args, **kwargs)


def _limit(blocks: Sequence[nn.Module], options: dict[str, Any]) -> dict[str, int]:
    """torch.compile keeps so many versions of a function, whatever the number of modules that share it: as many for each
    kind of block, where this version of torch can be told."""
    if "recompile_limit" not in COMPILE_OPTIONS or options.get("recompile_limit") is not None:
        return {}
    kinds = {(type(block), tuple(parameter.shape for parameter in block.parameters())) for block in blocks}
    return {"recompile_limit": torch._dynamo.config.recompile_limit * len(kinds)}


class Compiler:
    """torch.compile for `blocks`, with its options and an `activation_memory_budget`: a number, "fastest", or None for that
    of torch's configuration."""

    def __init__(self, blocks: Sequence[nn.Module], options: dict[str, Any], share: float | str | None = None) -> None:
        self._options = options | _limit(blocks, options)
        self.choice: Choice | None = None  # whose between_steps() is to be called
        if share is None:
            return
        backend, mode, more = (self._options.pop(name, None) for name in ("backend", "mode", "options"))
        if mode is not None and more is not None:
            raise Error("[compile] mode and options are both given; torch.compile takes one of them: give its options alone")
        more = dict(more or {})
        if "guard_filter_fn" in more:  # which is not the backend's
            self._options["options"] = {"guard_filter_fn": more.pop("guard_filter_fn")}
        known = torch._TorchCompileInductorWrapper if backend in (None, "inductor") else torch._TorchCompileWrapper
        arguments = (mode, more or None, options.get("dynamic"))
        whole = known(*arguments) if backend in (None, "inductor") else known(backend, *arguments)
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
    """A backend of torch.compile, with one activation_memory_budget."""

    def __init__(self, backend: Run, share: float) -> None:
        self._backend, self._share = backend, share

    def __call__(self, graph: Any, inputs: list[Any]) -> Run:
        import torch._functorch.config as configuration

        with configuration.patch(activation_memory_budget=self._share):
            return self._backend(graph, inputs)


class Choice:
    """A backend of torch.compile that tries several cuts of each graph with gradients."""

    def __init__(self, backend: Run) -> None:
        self._backend = backend
        self._graphs: list[weakref.ref[_Graph]] = []  # to be tried; the compiled code has them
        self._trying = threading.Lock()  # steps may begin on several threads

    def __call__(self, graph: Any, inputs: list[Any]) -> Run:
        differentiable = torch.is_grad_enabled() and any(isinstance(x, torch.Tensor) and x.requires_grad for x in inputs)
        if not differentiable or not all(map(_can_be_made_again, inputs)):
            return _Cut(self._backend, _SHARES[0])(graph, inputs)
        # The first comes first. A compilation settles symbolic sizes, which the next one finds settled: code of other bits.
        cuts = {share: _Cut(self._backend, share)(copy.deepcopy(graph), inputs) for share in _SHARES}
        tried = _Graph(cuts, [_Input(each) for each in inputs])
        self._graphs.append(weakref.ref(tried))
        return tried.run

    def between_steps(self) -> None:
        """Tries the graphs that were compiled since the last time."""
        if not self._trying.acquire(blocking=False):
            return
        try:
            while self._graphs:
                graph = self._graphs[0]()
                if graph is not None:
                    graph.choose()
                self._graphs.pop(0)  # not before: an interrupt leaves it to be tried
        finally:
            self._trying.release()


def _can_be_made_again(value: Any) -> bool:
    if not isinstance(value, torch.Tensor):
        return isinstance(value, (int, torch.SymInt))
    if type(value) not in (torch.Tensor, nn.Parameter) or value.layout != torch.strided or value.is_inference():
        return False
    return value.is_floating_point() or value.is_complex() or value.nbytes <= _MOST_HELD_BYTES


class _Input:
    """What another call of a graph needs to know of an input: a number, the contents of integers, and of other tensors
    what they are and, as long as they live, where their contents are. Those that are gone become normal noise."""

    def __init__(self, value: Any) -> None:
        self._value: Any = value.node.hint if isinstance(value, torch.SymInt) else value
        self.device = value.device if isinstance(value, torch.Tensor) else torch.device("cpu")
        if isinstance(value, torch.Tensor):
            self._size, self._stride = _numbers(value.shape), _numbers(value.stride())
            self._dtype = value.dtype
            self._requires_grad = value.requires_grad
            random = value.is_floating_point() or value.is_complex()
            self._value = None if random else value.detach().clone()
            self._living = weakref.ref(value) if random else None

    def make(self) -> Any:
        if self._value is not None:
            return self._value.clone() if isinstance(self._value, torch.Tensor) else self._value
        living = self._living()
        if living is not None and tuple(living.shape) == self._size:
            tensor = living.detach().clone()
        else:
            once = [1 if stride == 0 else size for size, stride in zip(self._size, self._stride)]
            tensor = torch.empty_strided(once, self._stride, dtype=self._dtype, device=self.device).normal_().expand(self._size)
        return tensor.requires_grad_(self._requires_grad)


def _numbers(sizes: Sequence[Any]) -> tuple[int, ...]:
    return tuple(size.node.hint if isinstance(size, torch.SymInt) else size for size in sizes)


class _Interrupted(BaseException):
    """The trial ends, as its thread was asked to."""


class _Graph:
    """A graph that was compiled with several cuts, of which it runs one."""

    def __init__(self, cuts: dict[float, Run], inputs: list[_Input]) -> None:
        self._cuts, self._inputs = cuts, inputs
        self._chosen = cuts[_SHARES[0]]
        self._devices = sorted({each.device.index for each in inputs if each.device.type == "cuda"})
        self._stopped = False

    def run(self, *args: Any) -> Any:
        return self._chosen(*args)

    def choose(self) -> None:
        """From now on it runs the fastest cut that has the bits of the first, or the first if that cannot be told."""
        share = _SHARES[0]
        outcome: list[Any] = []
        # A thread of its own has no modes, hooks, autocast or scopes of the user's.
        trial = threading.Thread(target=self._try, args=(outcome,), name="remat.compile")
        with torch.random.fork_rng(self._devices):
            trial.start()
            try:
                trial.join()
            except BaseException:  # an interrupt: the generator is not given back while the trial draws from it
                self._stopped = True
                trial.join()
                self._stopped = False
                raise
        if isinstance(outcome[0], BaseException):
            _log.warning("[compile] the cuts of a graph could not be tried, so that it stays at %s: %s", share, outcome[0])
        else:
            same, seconds = outcome[0]
            least = min((seconds[each] for each in same), default=0)
            share = min((each for each in same if seconds[each] <= _ALIKE * least), default=share)
            _log.info("[compile] activation_memory_budget %s; those with the same bits: %s; seconds: %s", share, same, seconds)
        self._chosen = self._cuts[share]
        self._cuts, self._inputs = {}, []

    def _try(self, outcome: list[Any]) -> None:
        try:
            same = self._same_bits()
            rounds = [{share: self._run(share)[1] for share in same} for _ in range(_ROUNDS)] if len(same) > 1 else []
            outcome.append((same, {share: min((each[share] for each in rounds), default=0.0) for share in same}))
        except BaseException as error:
            outcome.append(error)

    def _same_bits(self) -> list[float]:
        """The shares with the bits of the first; none where that has contents that nothing can be told from."""
        expected, _ = self._run(_SHARES[0])
        if not all(bool(each.isfinite().all()) for each in expected if each.is_floating_point()):
            return []
        return [share for share in _SHARES if share == _SHARES[0] or _equal(self._run(share)[0], expected)]

    def _run(self, share: float) -> tuple[list[torch.Tensor], float]:
        """Forward and backward of one cut. Returns all that may depend on the cut (results, gradients, inputs that were
        written to, the states of generators) and the seconds that it took."""
        if self._stopped:
            raise _Interrupted
        _seed(self._devices)
        inputs = [each.make() for each in self._inputs]
        tensors = [each for each in inputs if isinstance(each, torch.Tensor)]
        leaves = [each for each in tensors if each.requires_grad]
        given = [each.clone() if isinstance(each, torch.Tensor) and each.requires_grad else each for each in inputs]
        begun = _now(self._devices)
        results = [each for each in self._cuts[share](*given) if isinstance(each, torch.Tensor)]
        forward = _now(self._devices) - begun
        ends = [each for each in results if each.requires_grad]
        directions = [torch.randn_like(end) for end in ends]
        begun = _now(self._devices)
        gradients = torch.autograd.grad(ends, leaves, directions, allow_unused=True) if ends else ()
        backward = _now(self._devices) - begun
        written = [each for each in given if isinstance(each, torch.Tensor)]
        states = [torch.get_rng_state(), *map(torch.cuda.get_rng_state, self._devices)]
        return [each.detach() for each in (*results, *gradients, *written, *states) if each is not None], forward + backward


def _seed(devices: Sequence[int]) -> None:
    """Not torch.manual_seed(), which seeds devices that have nothing to do with it."""
    torch.default_generator.manual_seed(0)
    for device in devices:
        torch.cuda.default_generators[device].manual_seed(0)


def _now(devices: Sequence[int]) -> float:
    """Seconds, when all that was asked for is done."""
    for device in devices:
        torch.cuda.synchronize(device)
    return time.perf_counter()


def _equal(one: list[torch.Tensor], other: list[torch.Tensor]) -> bool:
    """Bit for bit, in the same places of memory."""
    if [(each.shape, each.stride(), each.dtype) for each in one] != [(each.shape, each.stride(), each.dtype) for each in other]:
        return False
    return all(torch.equal(*(each.reshape(-1).view(torch.uint8) for each in pair)) for pair in zip(one, other))
