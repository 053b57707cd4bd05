"""From a module and a loss to the joint graph of a training step: all that depends on PyTorch's private interfaces."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable, Collection, Iterator, Sequence
from typing import Any

import torch
from torch import nn

from remat.errors import Error

TRIED = ("2.13", "2.14", "2.15")  # versions of torch whose graphs are known


class Prediction(nn.Module):
    """A module's output, as AOTAutograd wants it: in a tuple. Each tensor of the module is a parameter or buffer here once,
    whatever names it has there; only those in `trained` require gradients. Parameters are given to the module as views, so
    that two with the same gradient have each its own node."""

    def __init__(self, module: nn.Module, trained: Collection[str] = ()) -> None:
        super().__init__()
        self.names: dict[str, str] = {}  # by own name, the module's
        self._given = [module]  # in a list: no submodule
        for index, (name, parameter) in enumerate(module.named_parameters()):
            own = f"parameter{index}"
            self.register_parameter(own, nn.Parameter(parameter.detach(), requires_grad=name in trained))
            self.names[own] = name
        for index, (name, buffer) in enumerate(module.named_buffers()):
            self.register_buffer(f"buffer{index}", buffer)
            self.names[f"buffer{index}"] = name
        # By place in the module, of which a module that is used twice has one, the own name: functional_call() would give
        # such a module its tensors twice, and restore the first ones.
        own_names = {id(tensor): own for own, tensor in zip(self.names, [*module.parameters(), *module.buffers()], strict=True)}
        self._places = {
            f"{path}.{name}" if path else name: own_names[id(tensor)]
            for path, part in module.named_modules()
            for name, tensor in [*part._parameters.items(), *part._buffers.items()]
            if tensor is not None
        }

    def forward(self, *tensors: torch.Tensor) -> tuple[torch.Tensor]:
        given = {own: getattr(self, own) for own in self.names}
        views = {own: t.view(t.shape) if t.requires_grad else t for own, t in given.items()}
        placed = {place: views[own] for place, own in self._places.items()}
        return (torch.func.functional_call(self._given[0], placed, tensors, tie_weights=False),)


def tensors_of_loss(loss: Callable[..., torch.Tensor]) -> dict[str, torch.Tensor]:
    """Those of a loss that is a module, by name. They are constants, with names that no tensor of the model has."""
    return {f"(loss) {k}": t for k, t in loss.state_dict(keep_vars=True).items()} if isinstance(loss, nn.Module) else {}


class TrainingStep(Prediction):
    """The loss of a module's output."""

    def __init__(
        self, module: nn.Module, loss: Callable[..., torch.Tensor], inputs: int, trained: Collection[str]
    ) -> None:
        super().__init__(module, trained)
        self._loss = [loss]
        self._of_loss: dict[str, str] = {}  # own names, by the loss's
        for index, (name, tensor) in enumerate(tensors_of_loss(loss).items()):
            own = self._of_loss[name.removeprefix("(loss) ")] = f"loss{index}"
            self.register_buffer(own, tensor.detach())
            self.names[own] = name
        self.inputs = inputs

    def forward(self, *tensors: torch.Tensor) -> tuple[torch.Tensor]:
        arguments = (super().forward(*tensors[: self.inputs])[0], *tensors[self.inputs :])
        if not self._of_loss:
            return (self._loss[0](*arguments),)
        given = {name: getattr(self, own) for name, own in self._of_loss.items()}
        return (torch.func.functional_call(self._loss[0], given, arguments),)


@dataclasses.dataclass
class Captured:
    """A graph of ATen's operators. ``names``: by placeholder, the parameter, buffer or "input i" that it stands for."""

    graph: torch.fx.GraphModule
    names: dict[str, str]
    buffers: set[str]  # those of the names that are of buffers
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
    """Attention as products and a softmax, LSTMs as products and functions of elements."""
    from torch.nn.attention import SDPBackend, sdpa_kernel

    fast = torch.backends.mha.get_fastpath_enabled()
    mkldnn = torch._C._get_mkldnn_enabled()  # backends.mkldnn.flags() warns of GPUs
    torch.backends.mha.set_fastpath_enabled(False)
    torch._C._set_mkldnn_enabled(False)
    try:
        with sdpa_kernel(SDPBackend.MATH):
            yield
    finally:
        torch.backends.mha.set_fastpath_enabled(fast)
        torch._C._set_mkldnn_enabled(mkldnn)


def _export(module: nn.Module, tensors: Sequence[torch.Tensor], joint: bool) -> tuple[torch.fx.GraphModule, Any]:
    from torch._functorch.aot_autograd import aot_export_module
    from torch._guards import TracingContext, tracing
    from torch._subclasses.fake_tensor import FakeTensorMode

    # Tensors that the functions have from elsewhere, as a loss its weights of classes, become constants.
    context = TracingContext(FakeTensorMode(allow_non_fake_inputs=True))
    options = {"trace_joint": True, "output_loss_index": 0} if joint else {"trace_joint": False}
    with _plain_kernels(), tracing(context):
        return aot_export_module(module, tuple(tensors), **options)


def _captured(graph: torch.fx.GraphModule, signature: Any, called: dict[str, str], count: int) -> Captured:
    def own(names: dict[str, str]) -> dict[str, str]:  # as the module calls them
        return {key: called[name] for key, name in names.items()}

    names = own(signature.inputs_to_parameters) | own(signature.inputs_to_buffers)
    for index, name in enumerate(signature.user_inputs[:count]):
        names[name] = f"input {index}"
    backward = signature.backward_signature
    return Captured(
        graph,
        names,
        set(own(signature.inputs_to_buffers).values()),
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
    step = TrainingStep(module, loss, len(inputs), _trained(module, loss, inputs, targets))
    graph, signature = _export(step, tensors, joint=True)
    return _captured(graph, signature, step.names, len(tensors))


def _trained(
    module: nn.Module, loss: Callable[..., torch.Tensor], inputs: Sequence[torch.Tensor], targets: Sequence[torch.Tensor]
) -> list[str]:
    """The parameters that the loss depends on: of others PyTorch has no gradient, and changes none."""
    wanted = [name for name, parameter in module.named_parameters() if parameter.requires_grad]
    with fake_step(module, loss, inputs, targets, wanted) as (step, tensors):
        (value,) = step(*tensors)
        if not value.requires_grad:
            raise Error("[export] the loss depends on no parameter that requires a gradient, so there is nothing to train")
        parameters = [(step.names[own], p) for own, p in step.named_parameters() if p.requires_grad]
        gradients = torch.autograd.grad(value, [p for _, p in parameters], allow_unused=True)
    return [name for (name, _), gradient in zip(parameters, gradients, strict=True) if gradient is not None]


@contextlib.contextmanager
def fake_step(
    module: nn.Module, loss: Callable[..., torch.Tensor], inputs: Sequence[torch.Tensor], targets: Sequence[torch.Tensor],
    wanted: Collection[str],
) -> Iterator[tuple[TrainingStep, list[torch.Tensor]]]:  # fmt: skip
    """A step of tensors without contents, and its arguments: no buffer of the module and no generator changes by it."""
    from torch._subclasses.fake_tensor import FakeTensorMode

    with FakeTensorMode(allow_non_fake_inputs=True) as mode, _plain_kernels():
        step = TrainingStep(module, loss, len(inputs), wanted)
        for own, tensor in [*step.named_parameters(), *step.named_buffers()]:
            fake = mode.from_tensor(tensor.detach())
            if own in step._parameters:
                step._parameters[own] = nn.Parameter(fake, requires_grad=tensor.requires_grad)
            else:
                step._buffers[own] = fake
        yield step, [mode.from_tensor(tensor) for tensor in (*inputs, *targets)]


def capture_prediction(module: nn.Module, inputs: Sequence[torch.Tensor]) -> Captured:
    """Forward, in evaluation mode."""
    training = {m: m.training for m in module.modules()}
    module.eval()
    try:
        with torch.no_grad():
            prediction = Prediction(module)
            graph, signature = _export(prediction, inputs, joint=False)
    finally:
        for m, was in training.items():
            m.training = was
    return _captured(graph, signature, prediction.names, len(inputs))
