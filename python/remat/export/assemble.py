"""A step from a module, a loss and example tensors: captured, lowered, and made smaller where backward allows it."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import nn

# What lowers operators registers itself.
from remat.export import lower_convolutions, lower_copies, lower_elementwise, lower_masks, lower_norms  # noqa: F401
from remat.export import lower_products, lower_reductions  # noqa: F401
from remat.errors import Error
from remat.export.capture import Captured, capture_prediction, capture_training, tensors_of_loss
from remat.export.find_operator import explain
from remat.export.lowering import Lowering, Missing, constant_buffer
from remat.export.step import Buffer, Step, View

Tensors = Sequence[torch.Tensor]


def training_step(
    module: nn.Module, loss: Callable[..., torch.Tensor], inputs: Tensors, targets: Tensors, name: str = "model"
) -> Step:
    """The step that trains ``module`` by ``loss(module(*inputs), *targets)``, and its prediction.

    Parameters that require no gradient are constants. Raises Error, with the operator, tensor or type that cannot be
    exported.
    """
    _check(module, inputs, targets)
    if isinstance(loss, nn.Module) and any(parameter.requires_grad for parameter in loss.parameters()):
        raise Error("[export] the loss has parameters that require gradients; make them parameters of the model")
    try:
        with torch.random.fork_rng(devices=[]):  # what is drawn while graphs are made is not the user's
            captured = capture_training(module, loss, inputs, targets)
            prediction = capture_prediction(module, inputs)
    except Error:
        raise
    except Exception as error:
        first = str(error).strip().partition("\n")[0]
        raise Error(
            f"[export] the step cannot be captured ({type(error).__name__}: {first}); it must run without looking at "
            "values of tensors, in sizes that are the examples', without hooks and custom autograd functions"
        ) from error
    step = Step(name)
    buffers = _buffers(step, module, loss, captured, inputs, targets)
    try:
        lowering = Lowering(step, captured, "forward", buffers)
        lowering.run()
        step.loss = lowering.loss or lowering.view(lowering.nodes[captured.loss or ""]).buffer
        _check_written(step, lowering, captured, buffers)
        for output, parameter in captured.gradients.items():
            _gradient(step, lowering, lowering.view(lowering.nodes[output]), buffers[parameter])
        _masks(step)
        predicting = Lowering(step, prediction, "predict", buffers)
        predicting.run()
        step.output = _output(predicting, predicting.nodes[prediction.outputs[0]])
    except Missing as missing:
        raise Error(explain(module, loss, inputs, targets, missing.name, missing.why)) from None
    _drop_unread(step)
    return step


def _check(module: nn.Module, inputs: Tensors, targets: Tensors) -> None:
    kinds = (torch.float32, torch.int64, torch.int32)
    for what, tensors in (("input", inputs), ("target", targets)):
        for index, tensor in enumerate(tensors):
            if not isinstance(tensor, torch.Tensor) or tensor.dtype not in kinds:
                kind = str(tensor.dtype).removeprefix("torch.") if isinstance(tensor, torch.Tensor) else type(tensor).__name__
                raise Error(f"[export] {what} {index} is {kind}; give tensors of float32, or of int64 for indices")
            if 0 in tensor.shape:
                raise Error(f"[export] {what} {index} has no elements; give an example of the size that is exported")
            if any(not isinstance(size, int) for size in tensor.shape):
                raise Error(f"[export] {what} {index} has a symbolic size; give an example of the size that is exported")
    for name, parameter in module.named_parameters():
        if parameter.dtype != torch.float32:
            kind = str(parameter.dtype).removeprefix("torch.")
            raise Error(f'[export] parameter "{name}" is {kind}; exports are float32: call .float()')
    for name, part in module.named_modules():
        if isinstance(part, nn.modules.batchnorm._NormBase) and part.training and part.track_running_stats and part.momentum is None:
            raise Error(
                f'[export] {type(part).__name__} "{name}" has momentum=None, with which a factor depends on a value; give it a '
                "momentum, as 0.1"
            )
    if not any(parameter.requires_grad for parameter in module.parameters()):
        raise Error("[export] no parameter requires a gradient, so there is nothing to train; set requires_grad")


def _buffers(
    step: Step, module: nn.Module, loss: Callable[..., torch.Tensor], captured: Captured, inputs: Tensors, targets: Tensors
) -> dict[str, Buffer]:
    """By name: parameters, buffers, and inputs as "input i"."""
    mutated, trained = set(captured.mutated.values()), set(captured.gradients.values())
    made: dict[str, Buffer] = {}
    for name, parameter in module.named_parameters():
        made[name] = constant_buffer(step, parameter, name, "parameter" if name in trained else "constant")
    for name, tensor in module.named_buffers():
        if name.endswith("num_batches_tracked"):
            continue  # read by no kernel
        if name in mutated and not name.endswith(("running_mean", "running_var")):
            raise _written(name)
        made[name] = constant_buffer(step, tensor, name, "state" if name in mutated else "constant")
    for name, tensor in tensors_of_loss(loss).items():
        made[name] = constant_buffer(step, tensor, name, "constant")
    for index, tensor in enumerate([*inputs, *targets]):
        own, number = ("input", index) if index < len(inputs) else ("target", index - len(inputs))
        several = len(inputs if own == "input" else targets) > 1
        kind = "float32" if tensor.dtype == torch.float32 else "int32"
        made[f"input {index}"] = step.buffer("input", kind, tensor.shape, f"{own}{number if several else ''}")
    return made


def _written(name: str) -> Error:
    return Error(f'[export] buffer "{name}" is written to by the model; of mutated buffers BatchNorm\'s alone are exported')


def _check_written(step: Step, lowering: Lowering, captured: Captured, buffers: dict[str, Buffer]) -> None:
    """Buffers that the model writes are BatchNorm's alone, by their kernel, and nothing else reads them: what is
    recomputed would read what is written by then."""
    for output, name in captured.mutated.items():
        view = lowering.values[lowering.nodes[output]]
        if name in buffers and not (isinstance(view, View) and view.buffer is buffers[name] and view.is_whole()):
            raise _written(name)
    for o in step.operators:
        read = [place[0].name for place in o.inputs if place is not None and place[0].kind == "state"]
        if read and o.kernel not in ("running", "dropout"):
            raise Error(
                f'[export] buffer "{read[0]}" is written to by the model, and read for its loss; of such buffers '
                "BatchNorm's running statistics are exported, read in evaluation mode alone"
            )


def _gradient(step: Step, lowering: Lowering, view: View, parameter: Buffer) -> None:
    """A gradient must be all of a value, in the parameter's order or with columns for rows."""
    if not view.is_whole() and len(view.shape) > 1:
        try:
            columns = View(view.buffer, view.layout.view(view.shape[0], -1).t())
        except RuntimeError:  # the other dimensions are not one
            columns = view
        if columns.is_whole():
            step.gradients.append((parameter, view.buffer, True))
            return
    step.gradients.append((parameter, lowering.own(view).buffer, False))


def _output(lowering: Lowering, node: torch.fx.Node) -> Buffer:
    return lowering.own(lowering.view(node)).buffer


def _masks(step: Step) -> None:
    """Backward of relu needs the signs alone. They are kept as bits, where that lets go of the result itself: because
    backward reads it nowhere else, or a gradient may be stored over it."""
    for made in step.operators:
        if made.phase != "forward" or not (made.kernel == "relu" or made.arguments.get("relu")):
            continue
        y = made.results[0]
        readers = [o for o in step.operators if o.phase == "backward" and y is not None and o.reads(y)]
        signs = [o for o in readers if o.kernel == "relu_grad" and o.inputs[1] is not None and o.inputs[1][0] is y]
        others = [o for o in readers if o not in signs]
        if not signs or (others and not any(o.kernel == "conv2d_grad_weight" and o.in_place for o in others)):
            continue
        mask = step.buffer("value", "bits", y.shape)
        made.results[1] = mask
        for o in signs:
            o.kernel = "relu_grad_mask"
            o.inputs[1] = (mask, 0)
            o.in_place = [pair for pair in o.in_place if pair[0] == 0]


def _drop_unread(step: Step) -> None:
    """Operators whose results nobody needs, as the copy of a view that became another one."""
    while True:
        needed = {step.loss, step.output, *(gradient for _, gradient, _ in step.gradients)}
        needed |= {place[0] for o in step.operators for place in o.inputs if place is not None}
        kept = [o for o in step.operators if not o.results or any(b in needed for b in o.results if b is not None)]
        if len(kept) == len(step.operators):
            break
        step.operators = kept
    # Buffers that are left over go, and the others are numbered anew.
    used = {place[0] for o in step.operators for place in o.inputs if place is not None}
    used |= {b for o in step.operators for b in o.results if b is not None}
    step.buffers = [b for b in step.buffers if b in used or b.kind not in ("value", "constant")]
    for number, buffer in enumerate(step.buffers):
        buffer.number = number
