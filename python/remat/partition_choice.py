"""Where the compiler cuts a block's graph into forward and backward: of several cuts with the same bits, the fastest. The
cuts are those of AOTAutograd's partitioner for several values of ``torch._functorch.config.activation_memory_budget``,
the share that forward saves of what it could save. They are tried on copies of the blocks, between two steps."""

from __future__ import annotations

import contextlib
import copy
import inspect
import logging
import threading
import time
import types
import warnings
import weakref
from collections.abc import Sequence
from typing import Any

import torch
from torch import nn
from torch.utils._pytree import tree_flatten, tree_leaves, tree_unflatten

from remat.errors import Error

_log = logging.getLogger("remat.compile")

COMPILE_OPTIONS = frozenset(inspect.signature(torch.compile).parameters) - {"model"}
FASTEST = "fastest"
_SHARES = (1.0, 0.8, 0.5)  # the first is the one whose bits the others must have
_ROUNDS = 5  # in which each is timed once
_ALIKE = 1.02  # of times that differ by less, the cut that saves less is taken
_PLAIN = (bool, int, float, complex, str, bytes, type(None), torch.dtype, torch.device)


def _call(module: nn.Module, *args: Any, **kwargs: Any) -> Any:
    return module._call_impl(*args, **kwargs)


def _shapes(block: nn.Module) -> tuple[Any, ...]:
    return tuple((parameter.shape, parameter.dtype, parameter.requires_grad) for parameter in block.parameters())


def _limit(blocks: Sequence[nn.Module], options: dict[str, Any]) -> dict[str, int]:
    """torch.compile keeps so many versions of a function, whatever the number of modules that share it: as many for each
    kind of block, where this version of torch can be told."""
    if "recompile_limit" not in COMPILE_OPTIONS or options.get("recompile_limit") is not None:
        return {}
    kinds = {(type(block), _shapes(block)) for block in blocks}
    return {"recompile_limit": torch._dynamo.config.recompile_limit * len(kinds)}


class Compiler:
    """torch.compile for `blocks`, with its options and one `activation_memory_budget`; None: that of torch's
    configuration."""

    def __init__(self, blocks: Sequence[nn.Module], options: dict[str, Any], share: float | None = None) -> None:
        self._options = options | _limit(blocks, options)
        if share is not None:
            self._share = share
            backend, mode = self._options.pop("backend", None), self._options.pop("mode", None)
            rest, dynamic = self._options.pop("options", None), options.get("dynamic")
            if backend in (None, "inductor"):
                self._backend = torch._TorchCompileInductorWrapper(mode, rest, dynamic)
            else:
                self._backend = torch._TorchCompileWrapper(backend, mode, rest, dynamic)
            self._options["backend"] = self._cut

    def _cut(self, graph: Any, inputs: Any) -> Any:
        import torch._functorch.config as configuration

        with configuration.patch(activation_memory_budget=self._share):
            return self._backend(graph, inputs)

    def compile(self, block: nn.Module) -> None:
        """In place, as ``nn.Module.compile()``."""
        if type(block).__module__.startswith("torch.nn."):
            # compile() of PyTorch's own layers compiles nothing: all of the call's code is PyTorch's, which it skips.
            block._compiled_call_impl = torch.compile(types.MethodType(_call, block), **self._options)
        else:
            block.compile(**self._options)

_HOOKS = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")


def _can_be_given_again(leaf: Any) -> bool:
    """Not so caches and the like, which a call may write to."""
    if isinstance(leaf, torch.Tensor):
        return type(leaf) in (torch.Tensor, nn.Parameter) and leaf.layout == torch.strided
    return isinstance(leaf, _PLAIN)


class _Input:
    """What is known of a tensor among a block's inputs, without its contents unless they are integers."""

    def __init__(self, tensor: torch.Tensor) -> None:
        self.size, self.stride = tuple(tensor.shape), tensor.stride()
        self.options = {"dtype": tensor.dtype, "device": tensor.device}
        self.requires_grad = tensor.requires_grad
        random = tensor.is_floating_point() or tensor.is_complex()
        self._contents = None if random else tensor.detach().clone()

    def key(self) -> tuple[Any, ...]:
        return (self.size, self.stride, str(self.options), self.requires_grad)

    def make(self) -> torch.Tensor:
        if self._contents is not None:
            return self._contents.clone()
        once = [1 if stride == 0 else size for size, stride in zip(self.size, self.stride)]
        tensor = torch.empty_strided(once, self.stride, **self.options).normal_().expand(self.size)
        return tensor.requires_grad_().view_as(tensor) if self.requires_grad else tensor


class _Call:
    """A training call of a block: what another call like it needs."""

    def __init__(self, block: nn.Module, args: Any, kwargs: Any) -> None:
        leaves, self._structure = tree_flatten((args, kwargs))
        inputs = {id(leaf): _Input(leaf) for leaf in leaves if isinstance(leaf, torch.Tensor)}
        self._leaves = [inputs.get(id(leaf), leaf) for leaf in leaves]  # a tensor that is given twice is one
        self._autocast = {
            device: (torch.is_autocast_enabled(device), torch.get_autocast_dtype(device))
            for device in {parameter.device.type for parameter in block.parameters()}
        }

    def key(self) -> str:
        inputs = [leaf for leaf in self._leaves if isinstance(leaf, _Input)]
        known = [(inputs.index(leaf), leaf.key()) if isinstance(leaf, _Input) else leaf for leaf in self._leaves]
        return f"{known} {self._structure} {self._autocast}"

    def run(self, block: nn.Module) -> tuple[list[torch.Tensor], float]:
        """Calls `block` with random contents and runs its backward. Returns all that may depend on the cut (results,
        gradients, buffers, the generator's state) and the seconds that it took."""
        _seed(block)
        made = {id(leaf): leaf.make() for leaf in self._leaves if isinstance(leaf, _Input)}
        args, kwargs = tree_unflatten([made.get(id(leaf), leaf) for leaf in self._leaves], self._structure)
        inputs = [tensor for tensor in made.values() if tensor.requires_grad]
        wanted = inputs + [parameter for parameter in block.parameters() if parameter.requires_grad]
        begun = _now(block)
        with contextlib.ExitStack() as contexts:
            for device, (enabled, dtype) in self._autocast.items():
                contexts.enter_context(torch.autocast(device, dtype=dtype, enabled=enabled))
            results = [leaf for leaf in tree_leaves(block(*args, **kwargs)) if isinstance(leaf, torch.Tensor)]
        forward = _now(block) - begun
        ends = [leaf for leaf in results if leaf.requires_grad]
        directions = [torch.randn_like(end) for end in ends]
        begun = _now(block)
        gradients = torch.autograd.grad(ends, wanted, directions, allow_unused=True) if ends and wanted else ()
        backward = _now(block) - begun
        known = (*results, *gradients, *block.buffers(), torch.get_rng_state())
        return [tensor.detach() for tensor in known if tensor is not None], forward + backward


class _Watched:
    """Stands for a block's compiled call until one has been seen in training."""

    def __init__(self, block: nn.Module) -> None:
        self.block = weakref.ref(block)
        self.seen: _Call | None = None
        self._compiled = block._compiled_call_impl
        block._compiled_call_impl = self

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if self.seen is None and torch.is_grad_enabled():
            block = self.block()
            if all(map(_can_be_given_again, tree_leaves((args, kwargs)))):
                self.seen = _Call(block, args, kwargs)
            else:
                block._compiled_call_impl = self._compiled
        return self._compiled(*args, **kwargs)


def _devices(block: nn.Module) -> list[int]:
    return sorted({parameter.device.index for parameter in block.parameters() if parameter.is_cuda})


def _seed(block: nn.Module) -> None:
    """Not torch.manual_seed(), which seeds devices that have nothing to do with it."""
    torch.default_generator.manual_seed(0)
    for device in _devices(block):
        torch.cuda.default_generators[device].manual_seed(0)


def _now(block: nn.Module) -> float:
    """Seconds, when all that was asked for is done."""
    for device in _devices(block):
        torch.cuda.synchronize(device)
    return time.perf_counter()


def _equal(one: list[torch.Tensor], other: list[torch.Tensor]) -> bool:
    """Bit for bit, NaNs included."""
    if [(each.shape, each.dtype) for each in one] != [(each.shape, each.dtype) for each in other]:
        return False
    return all(torch.equal(*(each.reshape(-1).view(torch.uint8) for each in pair)) for pair in zip(one, other))


def _copy_of(block: nn.Module) -> nn.Module:
    for module in block.modules():
        if any(vars(module)[name] for name in _HOOKS):
            raise Error(f"its {type(module).__name__} has hooks, which the calls of a copy would call too")
    return copy.deepcopy(block)


class PartitionChoice:
    """Compiles blocks with the first cut, and later each with the fastest of those that have its bits."""

    def __init__(self, blocks: Sequence[nn.Module], options: dict[str, Any]) -> None:
        self._compilers = {share: Compiler(blocks, options, share) for share in _SHARES}
        self._seconds: dict[str, dict[float, float]] = {}  # by kind of block
        self._choosing = threading.Lock()  # steps may begin on several threads
        for block in blocks:
            self._compilers[_SHARES[0]].compile(block)
        self._waiting = [_Watched(block) for block in blocks]

    def between_steps(self) -> bool:
        """Chooses for the blocks that have been called in training meanwhile. Returns whether others are waiting."""
        if self._choosing.acquire(blocking=False):
            try:
                for watched in self._waiting[:]:
                    self._look_at(watched)
            finally:
                self._choosing.release()
        return bool(self._waiting)

    def _look_at(self, watched: _Watched) -> None:
        block = watched.block()
        if block is None or block._compiled_call_impl is not watched:  # it cannot be tried, or was compiled anew
            self._waiting.remove(watched)
        elif watched.seen is not None:
            self._waiting.remove(watched)
            self._choose(block, watched.seen)

    def _choose(self, block: nn.Module, call: _Call) -> None:
        share = _SHARES[0]
        try:
            with torch.random.fork_rng(_devices(block)), torch.enable_grad():
                share = self._fastest(block, call)
        except Exception as error:
            warnings.warn(
                f"[compile] the cuts of a {type(block).__name__} could not be tried, so that it stays at "
                f"activation_memory_budget {share}: {error}",
                RuntimeWarning,
                stacklevel=2,
            )
        self._compilers[share].compile(block)

    def _fastest(self, block: nn.Module, call: _Call) -> float:
        copies = {share: _copy_of(block) for share in self._compilers}
        try:
            for share, compiler in self._compilers.items():
                compiler.compile(copies[share])
            same = self._same(copies, call)
            seconds = self._times(copies, call, f"{type(block)} {block.training} {_shapes(block)} {call.key()}")
        finally:
            for copied in copies.values():  # a cycle, which would keep the copy until the garbage collector comes
                copied._compiled_call_impl = None
        least = min(seconds[share] for share in same)
        chosen = min(share for share in same if seconds[share] <= _ALIKE * least)
        _log.info("[compile] %s: activation_memory_budget %s of %s, seconds %s", type(block).__name__, chosen, same, seconds)
        return chosen

    @staticmethod
    def _same(copies: dict[float, nn.Module], call: _Call) -> list[float]:
        """The shares whose bits are those of the first."""
        expected, _ = call.run(copies[_SHARES[0]])
        return [_SHARES[0], *(share for share in _SHARES[1:] if _equal(call.run(copies[share])[0], expected))]

    def _times(self, copies: dict[float, nn.Module], call: _Call, kind: str) -> dict[float, float]:
        """The seconds of each share for blocks of this kind."""
        if kind not in self._seconds:
            rounds = [{share: call.run(copied)[1] for share, copied in copies.items()} for _ in range(_ROUNDS)]
            self._seconds[kind] = {share: min(each[share] for each in rounds) for share in copies}
        return self._seconds[kind]
