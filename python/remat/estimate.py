"""What training would take, before it: on the meta device, where tensors have sizes but neither memory nor contents.

The bytes are those of a real step, except that nothing is held packed (masks as bits), so that a real run may do with
less. The times are a model's: floating-point operations and bytes by rates measured on this machine's CPU.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import re
import time
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import torch
from torch import nn
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

from remat import _C, memory
from remat.device import HOST, META
from remat.device_estimate import (
    DEFAULT_CONTEXT,
    Device,
    DeviceEstimate,
    DevicePoint as DevicePoint,
    device_with,
    predict,
    record_step,
    smallest_budget,
)
from remat.device_operators import operators_of_cuda
from remat.errors import Error, InternalError
from remat.session import Session

OPTIMIZERS = ("adamw", "adam", "sgd", "sgd-momentum", "adafactor", "none")
SHARES = (100, 90, 80, 70, 60, 50, 40, 30, 20, 10)  # of the plain step's activation peak, in percent
_BACKWARD = 2.0  # times the forward pass
_OVERHEAD_SECONDS = 2e-6  # of an operator that does nothing
# What PyTorch says where something looks at the contents of a tensor on the meta device, or has no such kernel.
_NO_CONTENTS = re.compile(r"(?<![a-z])meta(?![a-z])", re.IGNORECASE)


@dataclasses.dataclass(frozen=True)
class Point:
    """What a budget would take and cost.

    Attributes:
        budget_bytes: the budget, everything counted.
        peak_bytes: the most alive in a step.
        extra_percent: of the plain step's time, spent on recomputing.
    """

    budget_bytes: int
    peak_bytes: int
    extra_percent: float


@dataclasses.dataclass(frozen=True)
class Estimate:
    """Bytes of one training step; gradients exist when it begins, as they do in gradient accumulation. ``str()`` is a
    table.

    Attributes:
        parameter_bytes: of parameters, trainable or not.
        gradient_bytes: of trainable parameters' gradients.
        optimizer: whose state is counted, by name.
        optimizer_bytes: of its state, which comes to stay in its first step.
        baseline_bytes: alive when the step begins: parameters, gradients, the optimizer's state, buffers, inputs.
        plain_peak_bytes: the most alive in a plain step.
        min_budget_bytes: the smallest budget that a session can do with, in its first step and in later ones.
        operators: of the forward pass.
        curve: a :class:`Point` for each budget, from plain's peak down to the smallest.
        device: what a training loop would take of a GPU; None where none was asked for.
    """

    parameter_bytes: int
    gradient_bytes: int
    optimizer: str
    optimizer_bytes: int
    baseline_bytes: int
    plain_peak_bytes: int
    min_budget_bytes: int
    operators: int
    curve: tuple[Point, ...]
    device: DeviceEstimate | None = None

    def to_json(self) -> str:
        """Every figure, as one JSON object."""
        return json.dumps(dataclasses.asdict(self), indent=1)

    def __str__(self) -> str:
        size = _C.format_bytes
        lines = [
            ("parameters", size(self.parameter_bytes)),
            ("gradients", size(self.gradient_bytes)),
            (f"state of {self.optimizer}", size(self.optimizer_bytes)),
            ("alive before the step", size(self.baseline_bytes)),
            ("plain peaks at", size(self.plain_peak_bytes)),
            ("smallest budget", size(self.min_budget_bytes)),
        ]
        text = "".join(f"{name:<23}{value}\n" for name, value in lines)
        text += "\nbudget       peak         extra time (estimated)\n"
        for point in self.curve:
            text += f"{size(point.budget_bytes):<13}{size(point.peak_bytes):<13}{point.extra_percent:.1f} %\n"
        return text if self.device is None else f"{text}\n{self.device}"


def optimizer_state_bytes(optimizer: str, parameters: Iterable[torch.Tensor]) -> int:
    """What an optimizer of torch.optim keeps for trainable parameters, of their types: "adamw", "adam" (two values for
    each), "sgd-momentum" (one), "adafactor" (one for each row and column of a matrix), "sgd", "none" (nothing). Raises
    Error for any other name."""
    if optimizer not in OPTIMIZERS:
        raise Error(f"[estimate] there is no optimizer {optimizer!r}; there are {', '.join(OPTIMIZERS)}")
    return sum(_state_bytes(optimizer, parameter) for parameter in parameters)


def _state_bytes(optimizer: str, parameter: torch.Tensor) -> int:
    step = torch.float32.itemsize
    if optimizer in ("adamw", "adam"):
        return 2 * parameter.nbytes + step
    if optimizer == "sgd-momentum":
        return parameter.nbytes
    if optimizer == "adafactor":
        if parameter.dim() < 2:
            return parameter.nbytes + step
        rows, columns = parameter.shape[-2:]
        matrices = parameter.shape[:-2].numel()
        return matrices * (rows + columns) * parameter.itemsize + step
    return 0


def estimate(
    make_model: Callable[[], nn.Module],
    loss_of: Callable[[nn.Module], torch.Tensor],
    optimizer: str = "adamw",
    *,
    device_memory: int | str | None = None,
    device_context: int | str = DEFAULT_CONTEXT,
    allocator_settings: str | None = None,
) -> Estimate:
    """What a step of a model would take.

    Args:
        make_model: makes the model. It is called with the meta device as the default, so that nothing is filled.
        loss_of: makes the loss from the model, with inputs that it makes itself on the default device.
        optimizer: whose state is alive too; see :func:`optimizer_state_bytes`. What its own step takes for a moment is
            not in the figures: a session's budget holds until backward is through.
        device_memory: of a GPU, in bytes or as "24GiB". Then :attr:`Estimate.device` says what a training loop would
            allocate and reserve there, and which budget fits. No GPU is needed, and none has confirmed it.
        device_context: of that memory, what CUDA's context, cuBLAS and cuDNN take. The default is an assumption.
        allocator_settings: of PyTorch's allocator, as in PYTORCH_ALLOC_CONF; None: that variable's of this process.

    Raises Error where forward or backward looks at the contents of a tensor: there are none, and for an optimizer that
    is not known. What else the model raises is handed on.
    """
    optimizer_state_bytes(optimizer, [])  # before the work
    gpu = None if device_memory is None else device_with(device_memory, device_context, allocator_settings)
    memory.start_accounting(META)
    on_device = None if gpu is None else _on_device(make_model, loss_of, optimizer, gpu)
    with torch.device(META), AttentionOfTheCPU():
        model = make_model().train()
        parameters = list(model.parameters())
        for parameter in parameters:
            if parameter.requires_grad:
                parameter.grad = torch.empty_like(parameter)
        session = Session(device=META, planner="keep-all")
        with _contents_are_missing():
            with session.step():
                loss_of(model).backward()
            costs = _Costs()
            with costs:
                loss_of(model)
    graph = session.graph()
    _put_times(graph, costs.operators)
    trainable = [p for p in parameters if p.requires_grad]
    state = optimizer_state_bytes(optimizer, trainable)
    graph["baseline_bytes"] += state
    return _with_curve(
        graph,
        parameter_bytes=sum(p.nbytes for p in parameters),
        gradient_bytes=sum(p.nbytes for p in trainable),
        optimizer=optimizer,
        optimizer_bytes=state,
        device=on_device,
    )


def _on_device(
    make_model: Callable[[], nn.Module], loss_of: Callable[[nn.Module], torch.Tensor], optimizer: str, gpu: Device
) -> DeviceEstimate:
    with torch.device(META), _contents_are_missing():
        recorded = record_step(make_model, loss_of, optimizer)
        costs = _Costs()
        with operators_of_cuda():
            model = make_model().train()
            with costs:
                loss_of(model)
    _put_times(recorded.graph, costs.operators)
    return predict(recorded, json.dumps(recorded.graph), gpu, SHARES[1:])


def _with_curve(graph: dict[str, Any], **figures: Any) -> Estimate:
    text = json.dumps(graph)
    plain = _C.plain_peak_bytes(text)
    baseline = graph["baseline_bytes"]
    # Of 100 % nothing is dropped, though a plan may do with less in the same time.
    *planned, lowest = _C.plan_curve(text, [baseline + (plain - baseline) * share // 100 for share in SHARES[1:]])
    smallest = smallest_budget(text, lowest, baseline, plain)
    points = [Point(plain, plain, 0.0)] + [
        Point(budget, plan.predicted_peak_bytes, 100 * plan.predicted_seconds / graph["step_seconds"])
        for budget, plan in [(p.budget_bytes, p) for p in planned if p.budget_bytes > smallest] + [(smallest, lowest)]
        if budget < plain
    ]
    return Estimate(
        **figures,
        baseline_bytes=baseline,
        plain_peak_bytes=plain,
        min_budget_bytes=smallest,
        operators=len(graph["operators"]),
        curve=tuple(points),
    )


@contextlib.contextmanager
def _contents_are_missing() -> Iterator[None]:
    try:
        yield
    except (RuntimeError, TypeError) as error:
        if isinstance(error, (Error, InternalError)) or not _NO_CONTENTS.search(str(error)):
            raise
        raise Error(
            f"[estimate] the model cannot run without contents: {error}; it looks at values of tensors, or uses an "
            "operator that the meta device does not have. Measure a real step instead: remat.Session().step()"
        ) from error


class AttentionOfTheCPU(TorchFunctionMode):
    """Attention on the meta device would be the one that writes all scores down. The CPU has a better one, where
    nothing is dropped out."""

    def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if function is not nn.functional.scaled_dot_product_attention:
            return function(*args, **kwargs)
        return _attention(*args, **kwargs)


def _attention(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attn_mask: torch.Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> torch.Tensor:
    fused = dropout_p == 0.0 and query.dim() == 4 and query.shape[-1] == key.shape[-1] == value.shape[-1]
    fused = fused and not enable_gqa and not (attn_mask is not None and attn_mask.requires_grad)
    if not fused:
        return nn.functional.scaled_dot_product_attention(
            query, key, value, attn_mask, dropout_p, is_causal, scale=scale, enable_gqa=enable_gqa
        )
    if attn_mask is not None and attn_mask.dtype == torch.bool:
        attn_mask = torch.zeros_like(attn_mask, dtype=query.dtype).masked_fill_(attn_mask.logical_not(), -torch.inf)
    return torch.ops.aten._scaled_dot_product_flash_attention_for_cpu(
        query, key, value, 0.0, is_causal, attn_mask=attn_mask, scale=scale
    )[0]


class _Costs(TorchDispatchMode):
    """Notes each operator's floating-point operations and bytes."""

    def __init__(self) -> None:
        super().__init__()
        self.operators: list[tuple[str, float, int]] = []

    def __torch_dispatch__(self, operator: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        from torch.utils._pytree import tree_leaves
        from torch.utils.flop_counter import flop_registry

        kwargs = kwargs or {}
        result = operator(*args, **kwargs)
        count = flop_registry.get(operator._overloadpacket)
        flops = count(*args, **kwargs, out_val=result) if count else 0
        moved = sum(t.nbytes for t in tree_leaves((args, kwargs, result)) if isinstance(t, torch.Tensor))
        self.operators.append((operator._schema.name, float(flops), moved))
        return result


def _rates() -> tuple[float, float]:
    """Floating-point operations and bytes in a second, of this machine's CPU."""
    with torch.no_grad():
        a, memory = torch.ones(768, 768, device=HOST), torch.ones(1 << 23, device=HOST)
        return 2 * 768**3 / _seconds(lambda: a @ a), 2 * memory.nbytes / _seconds(lambda: memory * 2)


def _seconds(work: Callable[[], Any]) -> float:
    """The least of several times: what disturbs only adds."""
    times = []
    for _ in range(5):
        begin = time.perf_counter()
        work()
        times.append(time.perf_counter() - begin)
    return min(times)


def _put_times(graph: dict[str, Any], costs: list[tuple[str, float, int]]) -> None:
    """Gives the graph's operators the times of their costs. Both are in the order of the forward pass; the costs have
    operators besides that were not recorded, such as views."""
    flops_per_second, bytes_per_second = _rates()
    place = 0
    for operator in graph["operators"]:
        found = next((i for i in range(place, len(costs)) if costs[i][0] == operator["name"]), None)
        seconds = _OVERHEAD_SECONDS
        if found is not None:
            _, flops, moved = costs[found]
            seconds += max(flops / flops_per_second, moved / bytes_per_second)
            place = found + 1
        share = operator["replay_seconds"] / operator["seconds"] if operator["seconds"] > 0 else 1.0
        operator["seconds"], operator["replay_seconds"] = seconds, share * seconds
    graph["step_seconds"] = (1 + _BACKWARD) * sum(operator["seconds"] for operator in graph["operators"])
