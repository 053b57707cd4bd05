"""A graph that torch.compile has compiled with several cuts into forward and backward: the compiled code of each is tried
on inputs of its own, which tells whether it has the bits of the first, its time, and what it saves."""

from __future__ import annotations

import logging
import time
import weakref
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import torch

from remat.device import HOST, fork_generators, is_host, random_state, seed_generator, synchronize
from remat.partition_budget import Option
from remat.partition_input import Input
from remat.progress import session_in_progress
from remat.stoppable import run_stoppable

if TYPE_CHECKING:
    from remat.session import Session

_log = logging.getLogger("remat.compile")

_ROUNDS = (3, 15)  # in which each is timed once: at least and at most
_COMPARED = 1 << 16  # elements of results and gradients at least: few may be alike by chance
_MOST_ROUNDS = 200  # for graphs of few elements
_ALIKE = 1.02  # two times of a cut that differ by less are its time

Run = Callable[..., Any]


class _Strided(torch.autograd.Function):
    """Gives the gradient of a tensor other strides."""

    @staticmethod
    def forward(ctx: Any, tensor: torch.Tensor, stride: tuple[int, ...]) -> torch.Tensor:
        ctx.stride = stride
        return tensor.view_as(tensor)

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> tuple[torch.Tensor, None]:
        restrided = torch.empty_strided(gradient.shape, ctx.stride, dtype=gradient.dtype, device=gradient.device)
        return restrided.copy_(gradient), None


def _with_gradient_of(tensor: Any, stride: tuple[int, ...] | None) -> Any:
    """`tensor`, so that its gradient has these strides where anybody can tell: compiled code gives gradients of its results
    the strides that it was made for."""
    if stride is None or not tensor.requires_grad or not torch.is_grad_enabled():
        return tensor
    if type(tensor.grad_fn).__name__ == "CompiledFunctionBackward":
        return tensor
    return _Strided.apply(tensor, stride)


@dataclass
class _Outcome:
    """Of a run: seconds of forward and backward; bytes saved between them, parameters apart; all that may depend on the cut
    (results, inputs after it, states of generators, and apart from these the gradients by the index of their inputs); and
    which inputs with gradients it wrote to, or else returned as they are or a view of."""

    seconds: float
    saved_bytes: int
    fixed: list[torch.Tensor]
    gradients: dict[int, torch.Tensor]
    written: set[int]
    returned: set[int]

    def elements(self) -> int:
        return sum(each.numel() for each in self._computed())

    def is_finite(self) -> bool:
        return all(bool(each.isfinite().all()) for each in self._computed())

    def _computed(self) -> list[torch.Tensor]:
        return [each for each in (*self.fixed, *self.gradients.values()) if each.is_floating_point() or each.is_complex()]


def _are_settled(times: Collection[list[float]]) -> bool:
    """Whether each cut has been timed often enough."""
    rounds = min(map(len, times))
    if rounds < _ROUNDS[0]:
        return False
    return rounds >= _ROUNDS[1] or all(second <= _ALIKE * first for first, second, *_ in map(sorted, times))


class TriedGraph:
    """A graph that was compiled with several cuts, by their activation_memory_budgets, of which it runs one: the largest
    until take() is called."""

    def __init__(self, name: str, cuts: dict[float, Run], inputs: list[Input]) -> None:
        self._name = name
        self._cuts, self._inputs = cuts, inputs
        self._first = max(cuts)  # whose bits the others must have
        self._run_by = cuts[self._first]
        self._devices = sorted({each.device for each in inputs if not is_host(each.device)}, key=str)
        self._strides: dict[float, dict[int, tuple[int, ...]]] = {}  # see _strides_beside()
        self._restrided: dict[int, tuple[int, ...]] = {}  # those of the cut that is taken
        self.counts_calls = False
        self._session: weakref.ref[Session] | None = None  # whose calls are counted: the first that made any
        self._calls = self._waiting = self._most_waiting = 0  # those counted; those that wait for backward, now and at most
        self._options: list[Option] = []  # of one call, once they have been tried

    def run(self, *args: Any) -> Any:
        if self._restrided:
            args = tuple(_with_gradient_of(each, self._restrided.get(index)) for index, each in enumerate(args))
        results = self._run_by(*args)
        if self.counts_calls:
            self._count(results)
        return results

    def _count(self, results: Sequence[Any]) -> None:
        node = next((each.grad_fn for each in results if isinstance(each, torch.Tensor) and each.grad_fn is not None), None)
        session = session_in_progress()
        if node is None or session is None:
            return
        if self._session is None or self._session() is None:
            self._session, self._calls, self._waiting, self._most_waiting = weakref.ref(session), 0, 0, 0
        if self._session() is not session:
            return
        self._calls += 1
        self._waiting += 1
        self._most_waiting = max(self._most_waiting, self._waiting)
        node.register_hook(self._count_backward)

    def _count_backward(self, *gradients: Any) -> None:
        self._waiting -= 1

    def counted_in(self, session: Session) -> bool:
        """Whether calls were counted, those of this session."""
        return self._session is not None and self._session() is session

    def try_cuts(self) -> None:
        """Finds options(). The first cut alone where nothing can be told of others."""
        if self._options:
            return
        with fork_generators(self._devices):
            try:
                found = run_stoppable(self._try)
            except Exception as error:  # of the code that was compiled
                reason = (str(error).splitlines() or [repr(error)])[0]  # more may be PyTorch's whole table of operators
                _log.warning("[compile] the cuts of %s could not be tried: it stays at %s: %s", self._name, self._first, reason)
                found = []
        self._options = found or [Option(self._first, 0.0, 0, 0)]

    def options(self) -> list[Option]:
        """The cuts with the bits of the first, which is the first of them, for the calls that were counted."""
        return [
            replace(each, seconds=self._calls * each.seconds, saved_bytes=self._most_waiting * each.saved_bytes)
            for each in self._options
        ]

    def is_settled(self) -> bool:
        """Whether take() has been called."""
        return not self._cuts

    def take(self, share: float) -> None:
        """From now on it runs this one of its cuts."""
        alike = "; those with the same bits: " + ", ".join(map(str, self._options)) if self._options else ""
        _log.info("[compile] %s runs with activation_memory_budget %s%s", self._name, share, alike)
        self._run_by, self._restrided = self._cuts[share], self._strides.get(share, {})
        self._cuts, self._inputs, self.counts_calls = {}, [], False

    def _try(self, check_stop: Callable[[], None]) -> list[Option]:
        """In turns on ever other random numbers, until enough was compared and the two smallest times of each cut are alike:
        machines have slow moments. Nothing where nothing can be told from what the first cut computes."""
        times: dict[float, list[float]] = {share: [] for share in self._cuts}
        saved: dict[float, int] = {}
        compared = 0
        for seed in range(_MOST_ROUNDS):
            first = self._run(self._first, seed)
            if not first.is_finite():
                return []
            compared += first.elements()
            for share in list(times):
                check_stop()
                other = first if share == self._first else self._run(share, seed)
                strides = self._strides_beside(first, other)
                if strides is None:
                    del times[share]
                else:
                    self._strides[share], saved[share] = strides, other.saved_bytes
                    times[share].append(other.seconds)
            if len(times) == 1 or (compared >= _COMPARED and _are_settled(times.values())):
                break
        return [
            Option(share, min(seconds), saved[share], max(0, saved[self._first] - saved[share]))
            for share, seconds in times.items()
        ]

    def _strides_beside(self, first: _Outcome, other: _Outcome) -> dict[int, tuple[int, ...]] | None:
        """The gradients' strides of the first cut that are not the other's; None where it has other bits, or its gradients
        cannot be given those strides."""
        if not _equal(first.fixed, other.fixed) or first.gradients.keys() != other.gradients.keys():
            return None
        if not all(map(_same_values, first.gradients.values(), other.gradients.values())):
            return None
        strides = {
            index: gradient.stride()
            for index, gradient in first.gradients.items()
            if gradient.stride() != other.gradients[index].stride()
        }
        symbolic = any(each.symbolic for each in self._inputs)
        fixed = first.written | first.returned | {i for i, each in enumerate(self._inputs) if each.parameter}
        return None if strides and (symbolic or fixed & strides.keys()) else strides

    def _run(self, share: float, seed: int) -> _Outcome:
        """Forward and backward of one cut."""
        for device in (torch.device(HOST), *self._devices):  # torch.manual_seed() would seed the others, too
            seed_generator(device, seed)
        inputs = [each.make() for each in self._inputs]
        leaves = {i: each for i, each in enumerate(inputs) if isinstance(each, torch.Tensor) and each.requires_grad}
        given = [_no_leaf(each) if index in leaves else each for index, each in enumerate(inputs)]
        saved: dict[int, int] = {}  # bytes, by the storage

        def note(tensor: torch.Tensor) -> torch.Tensor:
            storage = tensor.untyped_storage()
            saved[storage.data_ptr()] = storage.nbytes()
            return tensor

        begun = _now(self._devices)
        with torch.autograd.graph.saved_tensors_hooks(note, lambda tensor: tensor):
            results = [each for each in self._cuts[share](*given) if isinstance(each, torch.Tensor)]
        forward = _now(self._devices) - begun
        for each, described in zip(given, self._inputs):
            if described.parameter:
                saved.pop(_address(each), None)
        written = {index for index in leaves if given[index]._version > 0}
        # Code that is not compiled makes the gradients of what is returned as it was.
        kept = {_address(given[index]): index for index in leaves if index not in written}
        returned = {kept[_address(each)] for each in results if _address(each) in kept}
        ends = [each for each in results if each.requires_grad and _address(each) not in kept]
        directions = [torch.randn_like(end) for end in ends]
        begun = _now(self._devices)
        gradients = torch.autograd.grad(ends, list(leaves.values()), directions, allow_unused=True) if ends else ()
        backward = _now(self._devices) - begun
        after = [each for each in given if isinstance(each, torch.Tensor)]
        states = [torch.get_rng_state(), *map(random_state, self._devices)]
        return _Outcome(
            forward + backward,
            sum(saved.values()),
            [each.detach() for each in (*results, *after, *states)],
            {index: each for index, each in zip(leaves, gradients) if each is not None},
            written,
            returned,
        )


def _now(devices: Sequence[torch.device]) -> float:
    """Seconds, when all that was asked for is done."""
    for device in devices:
        synchronize(device)
    return time.perf_counter()


def _address(tensor: torch.Tensor) -> int:
    return tensor.untyped_storage().data_ptr()


def _no_leaf(leaf: torch.Tensor) -> torch.Tensor:
    """With its contents and strides: a copy, to which the code may write, if clone() keeps strides such as these."""
    copy = leaf.clone()
    return copy if copy.stride() == leaf.stride() else leaf.view_as(leaf)


def _same_values(one: torch.Tensor, other: torch.Tensor) -> bool:
    """Bit for bit."""
    if one.shape != other.shape or one.dtype != other.dtype:
        return False
    return torch.equal(one.reshape(-1).view(torch.uint8), other.reshape(-1).view(torch.uint8))


def _equal(one: list[torch.Tensor], other: list[torch.Tensor]) -> bool:
    """Bit for bit, with the same strides."""
    if [each.stride() for each in one] != [each.stride() for each in other]:
        return False
    return all(map(_same_values, one, other))
