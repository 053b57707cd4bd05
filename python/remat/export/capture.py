"""From a module and a loss to the joint graph of a training step: all that depends on PyTorch's private interfaces."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch import nn

from remat.errors import Error

TRIED = ("2.13", "2.14")  # versions of torch whose graphs are known


class TrainingStep(nn.Module):
    """The loss of a module's output."""

    def __init__(self, module: nn.Module, loss: Callable[..., torch.Tensor], inputs: int) -> None:
        super().__init__()
        self.module = module
        self.loss = loss
        self.inputs = inputs

    def forward(self, *tensors: torch.Tensor) -> tuple[torch.Tensor]:
        return (self.loss(self.module(*tensors[: self.inputs]), *tensors[self.inputs :]),)


class Prediction(nn.Module):
    """A module's output, as AOTAutograd wants it: in a tuple."""

    def __init__(self, module: nn.Module) -> None:
        super().__init__()
        self.module = module

    def forward(self, *tensors: torch.Tensor) -> tuple[torch.Tensor]:
        return (self.module(*tensors),)


@dataclasses.dataclass
class Captured:
    """A graph of ATen's operators. ``names``: by placeholder, the parameter, buffer or "input i" that it stands for."""

    graph: torch.fx.GraphModule
    names: dict[str, str]
    mutated: dict[str, str]  # outputs that are new contents of buffers
    gradients: dict[str, str]  # outputs that are gradients, and of which parameters
    loss: str | None
    outputs: list[str]


def check_version() -> None:
    if not torch.__version__.startswith(TRIED):
        raise Error(
            f"[export] torch {torch.__version__} has graphs that export was not tried with; use torch "
            f"{' or '.join(TRIED)} to export, any version for the rest"
        )


@contextlib.contextmanager
def _plain_kernels() -> Iterator[None]:
    """Attention as products and a softmax."""
    from torch.nn.attention import SDPBackend, sdpa_kernel

    fast = torch.backends.mha.get_fastpath_enabled()
    torch.backends.mha.set_fastpath_enabled(False)
    try:
        with sdpa_kernel(SDPBackend.MATH):
            yield
    finally:
        torch.backends.mha.set_fastpath_enabled(fast)


def _export(module: nn.Module, tensors: Sequence[torch.Tensor], joint: bool) -> tuple[torch.fx.GraphModule, Any]:
    from torch._functorch.aot_autograd import aot_export_module

    options = {"trace_joint": True, "output_loss_index": 0} if joint else {"trace_joint": False}
    with _plain_kernels():
        return aot_export_module(module, tuple(tensors), **options)


def _captured(graph: torch.fx.GraphModule, signature: Any, count: int) -> Captured:
    def own(names: dict[str, str]) -> dict[str, str]:  # as the module calls them
        return {key: name.removeprefix("module.") for key, name in names.items()}

    names = own(signature.inputs_to_parameters) | own(signature.inputs_to_buffers)
    for index, name in enumerate(signature.user_inputs[:count]):
        names[name] = f"input {index}"
    backward = signature.backward_signature
    return Captured(
        graph,
        names,
        own(signature.buffers_to_mutate),
        own(backward.gradients_to_parameters) if backward else {},
        # backward.loss_output is another output where buffers are mutated.
        signature.user_outputs[0] if backward else None,
        list(signature.user_outputs),
    )


def capture_training(
    module: nn.Module, loss: Callable[..., torch.Tensor], inputs: Sequence[torch.Tensor], targets: Sequence[torch.Tensor]
) -> Captured:
    """Forward and backward. Names of parameters are those within ``module``."""
    check_version()
    tensors = [*inputs, *targets]
    graph, signature = _export(TrainingStep(module, loss, len(inputs)), tensors, joint=True)
    return _captured(graph, signature, len(tensors))


def capture_prediction(module: nn.Module, inputs: Sequence[torch.Tensor]) -> Captured:
    """Forward, in evaluation mode."""
    training = {m: m.training for m in module.modules()}
    module.eval()
    try:
        with torch.no_grad():
            graph, signature = _export(Prediction(module), inputs, joint=False)
    finally:
        for m, was in training.items():
            m.training = was
    return _captured(graph, signature, len(inputs))
