"""A graph that torch.compile has compiled with several cuts into forward and backward: the compiled code of each is tried
on inputs of its own, which tells whether it has the bits of the first, its time, and what it saves."""

from __future__ import annotations

import logging
import threading
import time
import weakref
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from remat.partition_budget import Option
from remat.progress import session_in_progress

if TYPE_CHECKING:
    from remat.session import Session

_log = logging.getLogger("remat.compile")

_ROUNDS = (3, 15)  # in which each is timed once: at least and at most
_ALIKE = 1.02  # two times of a cut that differ by less are its time
_MOST_HELD_BYTES = 64 << 20  # of integers among the inputs, whose contents are kept until the cuts are tried

Run = Callable[..., Any]


def can_be_made_again(value: Any) -> bool:
    if not isinstance(value, torch.Tensor):
        return isinstance(value, (int, torch.SymInt))
    if type(value) not in (torch.Tensor, nn.Parameter) or value.layout != torch.strided or value.is_inference():
        return False
    return value.is_floating_point() or value.is_complex() or value.nbytes <= _MOST_HELD_BYTES


class Input:
    """What another call of a graph needs to know of an input: a number, the contents of integers, and of other tensors
    what they are and, as long as they live, where their contents are. Those that are gone become normal noise."""

    def __init__(self, value: Any) -> None:
        self._value: Any = value.node.hint if isinstance(value, torch.SymInt) else value
        self.symbolic = isinstance(value, torch.SymInt)
        self.parameter = isinstance(value, nn.Parameter)
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


class _Interrupted(BaseException):
    """The trial ends, as its thread was asked to."""


@dataclass
class _Outcome:
    """Of a run: seconds of forward and backward; bytes saved between them, parameters apart; all that may depend on the cut
    (results, inputs after it, states of generators, and apart from these the gradients by the index of their inputs); and
    which inputs with gradients it wrote to."""

    seconds: float
    saved_bytes: int
    fixed: list[torch.Tensor]
    gradients: dict[int, torch.Tensor]
    written: set[int]


class TriedGraph:
    """A graph that was compiled with several cuts, by their activation_memory_budgets, of which it runs one: the largest
    until take() is called."""

    def __init__(self, cuts: dict[float, Run], inputs: list[Input]) -> None:
        self._cuts, self._inputs = cuts, inputs
        self._first = max(cuts)  # whose bits the others must have
        self._run_by = cuts[self._first]
        self._devices = sorted({each.device.index for each in inputs if each.device.type == "cuda"})
        self._strides: dict[float, dict[int, tuple[int, ...]]] = {}  # see _same_bits()
        self._restrided: dict[int, tuple[int, ...]] = {}  # those of the cut that is taken
        self._stopped = False
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
            _log.warning(
                "[compile] the cuts of a graph could not be tried, so that it stays at %s: %s", self._first, outcome[0]
            )
            outcome[0] = []
        self._options = outcome[0] or [Option(self._first, 0.0, 0, 0)]

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
        _log.info("[compile] activation_memory_budget %s; those with the same bits: %s", share, self._options)
        self._run_by, self._restrided = self._cuts[share], self._strides.get(share, {})
        self._cuts, self._inputs, self.counts_calls = {}, [], False

    def _try(self, outcome: list[Any]) -> None:
        try:
            self._strides = self._same_bits()
            outcome.append(self._measure())
        except BaseException as error:
            outcome.append(error)

    def _measure(self) -> list[Option]:
        """In turns, until the two smallest times of each cut are alike: machines have slow moments."""
        times: dict[float, list[float]] = {share: [] for share in self._strides}
        saved: dict[float, int] = {}
        for count in range(1, _ROUNDS[1] + 1):
            for share, seconds in times.items():
                outcome = self._run(share)
                saved[share] = outcome.saved_bytes
                seconds.append(outcome.seconds)
                seconds.sort()
            if count >= _ROUNDS[0] and all(seconds[1] <= _ALIKE * seconds[0] for seconds in times.values()):
                break
        return [
            Option(share, seconds[0], saved[share], max(0, saved[self._first] - saved[share]))
            for share, seconds in times.items()
        ]

    def _same_bits(self) -> dict[float, dict[int, tuple[int, ...]]]:
        """The shares with the bits of the first, and for each the gradients' strides of the first that are not its own;
        none where nothing can be told from what the first computes."""
        first = self._run(self._first)
        tensors = [*first.fixed, *first.gradients.values()]
        if not all(bool(each.isfinite().all()) for each in tensors if each.is_floating_point()):
            return {}
        found: dict[float, dict[int, tuple[int, ...]]] = {self._first: {}}
        symbolic = any(each.symbolic for each in self._inputs)
        for share in self._cuts:
            if share == self._first:
                continue
            other = self._run(share)
            if not _equal(first.fixed, other.fixed) or first.gradients.keys() != other.gradients.keys():
                continue
            strides = {
                index: gradient.stride()
                for index, gradient in first.gradients.items()
                if gradient.stride() != other.gradients[index].stride()
            }
            values = all(map(_same_values, first.gradients.values(), other.gradients.values()))
            can_be_given = not symbolic and not any(self._inputs[i].parameter or i in first.written for i in strides)
            if values and (can_be_given or not strides):
                found[share] = strides
        return found

    def _run(self, share: float) -> _Outcome:
        """Forward and backward of one cut."""
        if self._stopped:
            raise _Interrupted
        _seed(self._devices)
        inputs = [each.make() for each in self._inputs]
        leaves = {i: each for i, each in enumerate(inputs) if isinstance(each, torch.Tensor) and each.requires_grad}
        given = [each.clone() if index in leaves else each for index, each in enumerate(inputs)]
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
                saved.pop(each.untyped_storage().data_ptr(), None)
        ends = [each for each in results if each.requires_grad]
        directions = [torch.randn_like(end) for end in ends]
        begun = _now(self._devices)
        gradients = torch.autograd.grad(ends, list(leaves.values()), directions, allow_unused=True) if ends else ()
        backward = _now(self._devices) - begun
        after = [each for each in given if isinstance(each, torch.Tensor)]
        states = [torch.get_rng_state(), *map(torch.cuda.get_rng_state, self._devices)]
        return _Outcome(
            forward + backward,
            sum(saved.values()),
            [each.detach() for each in (*results, *after, *states)],
            {index: each for index, each in zip(leaves, gradients) if each is not None},
            {index for index in leaves if given[index]._version > 0},
        )


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
