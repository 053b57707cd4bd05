"""What training would take of a GPU's memory, on a machine without one: PyTorch's caching allocator, simulated over the
allocations of a step on the meta device."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import torch
from torch import nn

from remat import _C
from remat.budget import parse_bytes
from remat.device import META
from remat.device_operators import operators_of_cuda
from remat.errors import Error
from remat.session import Session

DEFAULT_CONTEXT = "500MiB"  # not measured: there was no GPU
_SETTINGS = ("PYTORCH_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF")  # the first that is there counts
_PART_FOR_TIMES = 16  # of its activations: what a real step without a plan may take more, by the times that it measures
_TRIES = 4  # between the largest budget of the curve that fits and the next one


@dataclasses.dataclass(frozen=True)
class DevicePoint:
    """A training on the device.

    Attributes:
        budget_bytes: of its session; None: plain.
        share_percent: what the budget is of the plain step's activation peak, for ``Session(budget="40%")``; 100: plain.
        allocated_bytes: the most, as torch.cuda.max_memory_allocated() has it.
        reserved_bytes: the most, as torch.cuda.max_memory_reserved() has it. Where it does not fit, what a larger device
            would have reserved.
        fits: into the device's memory less the context's.
        beyond_bytes: that are reserved beyond the budget, if steps do what their plan says. A session does not let that
            be: it evicts more, and takes longer, than was planned.
        extra_percent: of the plain step's time, spent on recomputing; estimated.
    """

    budget_bytes: int | None
    share_percent: float
    allocated_bytes: int
    reserved_bytes: int
    fits: bool
    beyond_bytes: int
    extra_percent: float


@dataclasses.dataclass(frozen=True)
class DeviceEstimate:
    """What a training loop would take of a GPU: parameters, buffers and the optimizer's state, its update, and steps whose
    gradients ``optimizer.zero_grad()`` frees. ``str()`` is a table.

    Attributes:
        memory_bytes: of the device.
        context_bytes: of it, taken by CUDA's context, and by cuBLAS and cuDNN for their work: an assumption.
        allocator_settings: of PyTorch's allocator.
        baseline_bytes: parameters, buffers and the optimizer's state.
        plain: without remat.
        curve: a :class:`DevicePoint` for each budget up to what the device has, the largest first.
        largest: the largest budget that fits, which need not be one of the curve; None where plain fits, or none does.
    """

    memory_bytes: int
    context_bytes: int
    allocator_settings: str
    baseline_bytes: int
    plain: DevicePoint
    curve: tuple[DevicePoint, ...]
    largest: DevicePoint | None

    def __str__(self) -> str:
        size = _C.format_bytes
        text = (
            f"On a GPU of {size(self.memory_bytes)}, {size(self.context_bytes)} of it the context's (an assumption), "
            "predicted:\n\n"
            "budget       share     allocated    reserved     fits   extra time (estimated)\n"
        )
        for point in (self.plain, *self.curve):
            name = "plain" if point.budget_bytes is None else size(point.budget_bytes)
            text += (
                f"{name:<13}{point.share_percent:<10.0f}{size(point.allocated_bytes):<13}"
                f"{size(point.reserved_bytes):<13}{'yes' if point.fits else 'no':<7}{point.extra_percent:.1f} %\n"
            )
        return text + "\n" + self._verdict() + "\n"

    def _verdict(self) -> str:
        size = _C.format_bytes
        if self.plain.fits:
            return "It fits without remat."
        if self.largest is None:
            return "No budget fits. Take a smaller batch, or a larger GPU."
        point = self.largest
        text = (
            f'The largest budget that fits: {size(point.budget_bytes)}, "{point.share_percent:.0f}%" of the activations, '
            f"at {point.extra_percent:.1f} % more time."
        )
        if point.beyond_bytes > 0:
            text += (
                f" Holes between blocks reserve {size(point.beyond_bytes)} beyond it; a session keeps what is reserved to "
                "its budget, and evicts more than planned for them."
            )
        return text


@dataclasses.dataclass(frozen=True)
class Device:
    """The GPU that is asked for, as :func:`remat.estimate.estimate` is given it."""

    memory_bytes: int
    context_bytes: int
    allocator_settings: str

    @property
    def room(self) -> int:
        """For tensors."""
        return self.memory_bytes - self.context_bytes


def device_with(memory: int | str, context: int | str = DEFAULT_CONTEXT, allocator_settings: str | None = None) -> Device:
    """Raises Error for what is no number of bytes, a context that leaves nothing, and settings that are not modelled."""
    if allocator_settings is None:
        allocator_settings = next((os.environ[name] for name in _SETTINGS if name in os.environ), "")
    memory_bytes = parse_bytes(memory, "estimate", "the device's memory")
    context_bytes = 0 if context in (0, "0") else parse_bytes(context, "estimate", "the context")
    if context_bytes >= memory_bytes:
        raise Error(
            f"[estimate] a context of {_C.format_bytes(context_bytes)} leaves nothing of a device of "
            f"{_C.format_bytes(memory_bytes)}; give the memory that the whole device has"
        )
    _C.simulate_allocator([], memory_bytes, allocator_settings)  # says what it does not know
    return Device(memory_bytes, context_bytes, allocator_settings)


def model_blocks(model: nn.Module) -> list[int]:
    """Bytes of parameters and buffers, in the order in which ``model.to(device)`` moves them."""
    seen: set[int] = set()
    return list(_blocks_of(model, seen))


def _blocks_of(module: nn.Module, seen: set[int]) -> Iterator[int]:
    for child in module.children():
        yield from _blocks_of(child, seen)
    for tensor in (*module._parameters.values(), *module._buffers.values()):
        if tensor is not None and id(tensor) not in seen:
            seen.add(id(tensor))
            yield tensor.nbytes


def optimizer_blocks(optimizer: str, parameters: Iterable[torch.Tensor]) -> tuple[list[int], list[int]]:
    """What torch.optim keeps on the device for trainable parameters, and what a step of it has there at once beside, in
    its form for CUDA (foreach). Of adafactor the latter is not known."""
    state, update = [], []
    for parameter in parameters:
        size = parameter.nbytes
        if optimizer in ("adamw", "adam"):
            state += [size, size]
            update.append(size)  # the roots of the second moments
        elif optimizer == "sgd-momentum":
            state.append(size)
        elif optimizer == "adafactor":
            if parameter.dim() < 2:
                state.append(size)
            else:
                rows, columns = parameter.shape[-2:]
                matrices = parameter.shape[:-2].numel()
                state += [matrices * rows * parameter.itemsize, matrices * columns * parameter.itemsize]
    return state, update


@dataclasses.dataclass(frozen=True)
class Recorded:
    """A step as a CUDA device would run it: its graph, without times, its allocations, and what is around it."""

    graph: dict[str, Any]
    allocations: _C.StepAllocations
    model: list[int]
    state: list[int]
    update: list[int]


def record_step(
    make_model: Callable[[], nn.Module], loss_of: Callable[[nn.Module], torch.Tensor], optimizer: str
) -> Recorded:
    """On the meta device, which must be the default and counted. Gradients are made in the step."""
    with operators_of_cuda():
        model = make_model().train()
        notes = _C.AllocationNotes()
        session = Session(device=META, planner="keep-all")
        with session.step():
            loss_of(model).backward()
        graph, allocations = session.graph(), notes.take()
    state, update = optimizer_blocks(optimizer, [p for p in model.parameters() if p.requires_grad])
    graph["baseline_bytes"] += sum(state)
    return Recorded(graph, allocations, model_blocks(model), state, update)


def smallest_budget(graph_json: str, lowest: _C.Plan, baseline: int, plain_peak: int) -> int:
    """That a session can do with, whose first step has no plan; `lowest`: the plan that takes least."""
    smallest = max(lowest.predicted_peak_bytes, _C.smallest_online_budget(graph_json))
    return min(smallest + (smallest - baseline) // _PART_FOR_TIMES, plain_peak)


class Predictor:
    """Plans and predicts trainings on a device."""

    def __init__(self, recorded: Recorded, graph_json: str, device: Device) -> None:
        self._recorded = recorded
        self._device = device
        self._graph_json = graph_json
        self._step = _C.DeviceStep(graph_json, recorded.allocations)
        self._baseline = recorded.graph["baseline_bytes"]
        self._plain_peak = _C.plain_peak_bytes(graph_json)

    def point(self, plan: _C.Plan | None) -> DevicePoint:
        recorded, device = self._recorded, self._device
        peaks = self._step.predict(
            recorded.model, recorded.state, recorded.update, device.room, device.allocator_settings, plan
        )
        budget = self._plain_peak if plan is None else plan.budget_bytes
        activations = self._plain_peak - self._baseline
        return DevicePoint(
            budget_bytes=None if plan is None else budget,
            share_percent=100 * (budget - self._baseline) / activations if activations > 0 else 100.0,
            allocated_bytes=peaks.allocated_bytes,
            reserved_bytes=peaks.reserved_bytes,
            fits=peaks.fits,
            beyond_bytes=peaks.beyond_bytes,
            extra_percent=0.0 if plan is None else 100 * plan.predicted_seconds / recorded.graph["step_seconds"],
        )

    def curve(self, shares: Iterable[int]) -> list[DevicePoint]:
        """For these shares, and all of the device where plain takes more."""
        activations = self._plain_peak - self._baseline
        budgets = {self._baseline + activations * share // 100 for share in shares}
        budgets = {budget for budget in budgets if budget <= self._device.room}
        if self._device.room < self._plain_peak:
            budgets.add(self._device.room)
        *plans, lowest = _C.plan_curve(self._graph_json, sorted(budgets, reverse=True))
        smallest = smallest_budget(self._graph_json, lowest, self._baseline, self._plain_peak)
        plans = [plan for plan in plans if plan.budget_bytes > smallest]
        if smallest < min(self._plain_peak, self._device.room):
            plans.append(self._plan(smallest))
        return [self.point(plan) for plan in plans]

    def _plan(self, budget: int) -> _C.Plan:
        return _C.make_plan(self._graph_json, budget, "auto", False, False)

    def largest(self, curve: list[DevicePoint]) -> DevicePoint | None:
        """The largest budget that fits: of the curve, or between it and the next larger one."""
        fitting = next((place for place, point in enumerate(curve) if point.fits), None)
        if fitting is None:
            return None
        best = curve[fitting]
        if fitting == 0:
            return best
        low, high = best.budget_bytes or 0, curve[fitting - 1].budget_bytes or 0
        for _ in range(_TRIES):
            middle = (low + high) // 2
            point = self.point(self._plan(middle))
            if point.fits:
                best, low = point, middle
            else:
                high = middle
        return best


def predict(recorded: Recorded, graph_json: str, device: Device, shares: Iterable[int]) -> DeviceEstimate:
    """`graph_json`: of the recorded graph, with times."""
    predictor = Predictor(recorded, graph_json, device)
    plain = predictor.point(None)
    curve = predictor.curve(shares)
    return DeviceEstimate(
        memory_bytes=device.memory_bytes,
        context_bytes=device.context_bytes,
        allocator_settings=device.allocator_settings,
        baseline_bytes=recorded.graph["baseline_bytes"],
        plain=plain,
        curve=tuple(curve),
        largest=None if plain.fits else predictor.largest(curve),
    )
