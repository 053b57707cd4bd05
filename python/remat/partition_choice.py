"""Where the compiler cuts a block's graph into forward and backward: of several cuts with the same bits, the fastest. The
cuts are those of AOTAutograd's partitioner for several values of ``torch._functorch.config.activation_memory_budget``,
the share that forward saves of what it could save. They are tried on copies of the blocks, between two steps."""

from __future__ import annotations

import contextlib
import copy
import logging
import time
import types
import warnings
import weakref
from collections.abc import Sequence
from typing import Any

import torch
from torch import nn
from torch.utils._pytree import tree_flatten, tree_leaves, tree_map

from remat.errors import Error

_log = logging.getLogger("remat.compile")

FASTEST = "fastest"
_SHARES = (1.0, 0.8, 0.5)  # the first is the one whose bits the others must have
_ROUNDS = 5  # in which each is timed once
_ALIKE = 1.02  # of times that differ by less, the cut that saves less is taken
_PLAIN = (bool, int, float, complex, str, bytes, type(None), torch.dtype, torch.device)


def _call(module: nn.Module, *args: Any, **kwargs: Any) -> Any:
    return module._call_impl(*args, **kwargs)


class Compiler:
    """torch.compile for blocks, with its options and one `activation_memory_budget`; None: that of torch's
    configuration."""

    def __init__(self, options: dict[str, Any], share: float | None = None) -> None:
        self._options = dict(options)
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
        self._args = tree_map(lambda leaf: _Input(leaf) if isinstance(leaf, torch.Tensor) else leaf, (args, kwargs))
        self._autocast = {
            device: torch.get_autocast_dtype(device)
            for device in {parameter.device.type for parameter in block.parameters()}
            if torch.is_autocast_enabled(device)
        }

    def key(self) -> str:
        leaves, structure = tree_flatten(self._args)
        known = [leaf.key() if isinstance(leaf, _Input) else leaf for leaf in leaves]
        return f"{known} {structure} {self._autocast}"

    def run(self, block: nn.Module) -> tuple[list[torch.Tensor], float]:
        """Calls `block` with random contents and runs its backward. Returns all that may depend on the cut (results,
        gradients, buffers, the generator's state) and the seconds that it took."""
        torch.manual_seed(0)
        args, kwargs = tree_map(lambda leaf: leaf.make() if isinstance(leaf, _Input) else leaf, self._args)
        inputs = [leaf for leaf in tree_leaves((args, kwargs)) if isinstance(leaf, torch.Tensor) and leaf.requires_grad]
        wanted = inputs + [parameter for parameter in block.parameters() if parameter.requires_grad]
        begun = _now(block)
        with contextlib.ExitStack() as contexts:
            for device, dtype in self._autocast.items():
                contexts.enter_context(torch.autocast(device, dtype=dtype))
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
        if self.seen is None and torch.is_grad_enabled() and all(map(_can_be_given_again, tree_leaves((args, kwargs)))):
            self.seen = _Call(self.block(), args, kwargs)
        return self._compiled(*args, **kwargs)


def _devices(block: nn.Module) -> list[int]:
    return sorted({parameter.device.index for parameter in block.parameters() if parameter.is_cuda})


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
        self._compilers = {share: Compiler(options, share) for share in _SHARES}
        self._seconds: dict[str, dict[float, float]] = {}  # by kind of block
        for block in blocks:
            self._compilers[_SHARES[0]].compile(block)
        self._waiting = [_Watched(block) for block in blocks]

    def between_steps(self) -> bool:
        """Chooses for the blocks that have been called in training meanwhile. Returns whether others are waiting."""
        for watched in self._waiting[:]:
            block = watched.block()
            if block is None or block._compiled_call_impl is not watched:  # or compiled by somebody else since
                self._waiting.remove(watched)
            elif watched.seen is not None:
                self._waiting.remove(watched)
                self._choose(block, watched.seen)
        return bool(self._waiting)

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
        shapes = [(parameter.shape, parameter.dtype, parameter.requires_grad) for parameter in block.parameters()]
        kind = f"{type(block)} {block.training} {shapes} {call.key()}"
        blocks, same, expected = {}, [], None
        for share, compiler in self._compilers.items():
            copied = blocks[share] = _copy_of(block)
            compiler.compile(copied)
            found, _ = call.run(copied)
            if expected is None:
                expected = found
            if _equal(found, expected):
                same.append(share)
        if kind not in self._seconds:
            rounds = [{share: call.run(each)[1] for share, each in blocks.items()} for _ in range(_ROUNDS)]
            self._seconds[kind] = {share: min(each[share] for each in rounds) for share in blocks}
        seconds = {share: self._seconds[kind][share] for share in same}
        chosen = min(share for share in same if seconds[share] <= _ALIKE * min(seconds.values()))
        _log.info("[compile] %s: activation_memory_budget %s, of seconds %s", type(block).__name__, chosen, seconds)
        return chosen
