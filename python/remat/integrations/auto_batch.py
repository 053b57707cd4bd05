"""The micro-batch of transformers' Trainer, by measurement: ``RematCallback(budget=..., auto_batch=True)``.

The effective batch stays what the arguments say (``per_device_train_batch_size * gradient_accumulation_steps``); how it
is split is chosen. Nothing of the search is left behind: training goes on with the bits that it has where the split that
was found is given by hand.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch
from torch import nn
from torch.utils._pytree import tree_leaves
from transformers import Trainer

from remat.device import META, fork_host_generators, is_host
from remat.errors import BudgetError, Error
from remat.fit import Fit, fit
from remat.integrations.replaced_step import ReplacedStep

_EXAMPLES = 1000  # of the data set, of which the largest is tried


class AutoBatch:
    """Waits for the Trainer to make the data loader of its training, and splits the batch before."""

    def __init__(self, trainer: Trainer, budget: int | str | None) -> None:
        self.found: Fit | None = None
        self._budget = budget
        self._loader = ReplacedStep(trainer, self._make_loader, "get_train_dataloader")

    def _make_loader(self, own: Callable[[], Any]) -> Any:
        trainer = self._loader.owner
        if trainer.is_in_train:
            self.found = _split_batch(trainer, own, self._budget)
            self._loader.put_back()
        return own()


def _split_batch(trainer: Trainer, make_loader: Callable[[], Any], budget: int | str | None) -> Fit:
    args = trainer.args
    if args.world_size > 1 or trainer.is_deepspeed_enabled or trainer.is_fsdp_enabled or not is_host(args.device):
        raise Error(
            "[transformers] auto_batch is for one process on the CPU; leave it out, and set "
            "per_device_train_batch_size"
        )
    whole = args.per_device_train_batch_size * args.gradient_accumulation_steps
    with _unchanged(trainer), _state_of_optimizer(trainer):
        make_batch = _batches(make_loader())

        def make_step(size: int) -> Callable[[], None]:
            batch = make_batch(size)
            # The Trainer has the inputs of all micro-batches of an update at once, beside those of the update before.
            others = torch.empty(2 * (whole // size) * _bytes_of(batch), dtype=torch.uint8)

            def step(_held: torch.Tensor = others) -> None:
                trainer.model.zero_grad()
                trainer.training_step(trainer.model, dict(batch))

            return step

        sizes = [size for size in range(1, whole + 1) if whole % size == 0]
        found = fit(make_step, sizes, budget, what="micro-batch", effective=whole)
    if found.split is None:
        raise BudgetError(
            f"[transformers] no division of a batch of {whole} fits {found.budget_bytes} bytes; give more, or a smaller "
            "per_device_train_batch_size"
        )
    args.per_device_train_batch_size = trainer._train_batch_size = found.split.step.size
    args.gradient_accumulation_steps = found.split.steps
    return found


def _batches(loader: Any) -> Callable[[int], dict[str, Any]]:
    """Makes a batch of a size: the largest of the data set's first examples, as often as that. Where lengths differ,
    no batch of these takes more."""
    dataset = loader.dataset
    if not hasattr(dataset, "__getitem__") or not hasattr(dataset, "__len__"):
        raise Error(
            "[transformers] auto_batch needs a data set with a length, whose examples can be looked at; leave it out, and "
            "set per_device_train_batch_size"
        )

    largest = max(range(min(len(dataset), _EXAMPLES)), key=lambda index: _bytes_of(loader.collate_fn([dataset[index]])))
    return lambda size: loader.collate_fn([dataset[largest] for _ in range(size)])


def _bytes_of(batch: Mapping[str, Any]) -> int:
    return sum(leaf.nbytes for leaf in tree_leaves(dict(batch)) if isinstance(leaf, torch.Tensor))


@contextlib.contextmanager
def _unchanged(trainer: Trainer) -> Iterator[None]:
    """What steps change is afterwards as it was: buffers, gradients, modes, generators. Steps run in the Trainer's
    precision, which the model gets only later."""
    model: nn.Module = trainer.model
    buffers = [
        (module, name, buffer, buffer.detach().clone())
        for module in model.modules()
        for name, buffer in module.named_buffers(recurse=False)
    ]
    gradients = [(parameter, parameter.grad) for parameter in model.parameters()]
    modes = [(module, module.training) for module in model.modules()]
    if not hasattr(trainer, "current_gradient_accumulation_steps"):
        trainer.current_gradient_accumulation_steps = 1
    precision = ReplacedStep(trainer, lambda own: trainer.accelerator.autocast(), "compute_loss_context_manager")
    for parameter, _ in gradients:
        parameter.grad = None
    try:
        with fork_host_generators():
            yield
    finally:
        precision.put_back()
        with torch.no_grad():
            for module, name, buffer, before in buffers:
                module._buffers[name] = buffer  # forward may have put another in its place
                buffer.copy_(before)
        for parameter, gradient in gradients:
            parameter.grad = gradient
        for module, mode in modes:
            module.training = mode


@contextlib.contextmanager
def _state_of_optimizer(trainer: Trainer) -> Iterator[None]:
    """As many bytes are alive as the optimizer's state will take."""
    held = torch.empty(_state_bytes(trainer), dtype=torch.uint8)
    yield
    del held


def _state_bytes(trainer: Trainer) -> int:
    """By a step of such an optimizer on the meta device."""
    if trainer.optimizer is not None and trainer.optimizer.state:
        return 0  # alive already
    if trainer.optimizer is not None:
        kind, options = type(trainer.optimizer), dict(trainer.optimizer.defaults)
    else:
        kind, options = Trainer.get_optimizer_cls_and_kwargs(trainer.args, trainer.model)
    if "fused" in options:
        options["fused"] = None  # which the meta device does not have
    stand_ins = [torch.empty_like(p, device=META) for p in trainer.model.parameters() if p.requires_grad]
    for stand_in in stand_ins:
        stand_in.requires_grad_().grad = torch.empty_like(stand_in)
    try:
        optimizer = kind(stand_ins, **options)
        optimizer.step()
    except Exception as error:
        raise Error(
            f"[transformers] auto_batch cannot tell what {kind.__name__} keeps for each parameter ({error}); leave it out, "
            "and set per_device_train_batch_size"
        ) from error
    leaves = tree_leaves(list(optimizer.state.values()))
    return sum(leaf.nbytes for leaf in leaves if isinstance(leaf, torch.Tensor))
