"""Ways to save memory with planted faults: the audit names the value, the step and the operator of each."""

from __future__ import annotations

import functools

import pytest
import torch
from torch import nn
from torch.optim import optimizer as optimizers
from torch.utils.checkpoint import checkpoint

import remat
from remat.audit.calls import in_backward
from remat.audit.ways import built_in

pytestmark = pytest.mark.usefixtures("one_thread")


class Block(nn.Module):
    def __init__(self, norm: bool = False, dropout: float = 0.0, in_place: bool = False) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(8, 16), nn.Linear(16, 8)
        self.norm = nn.BatchNorm1d(16) if norm else nn.Identity()
        self.dropout = nn.Dropout(dropout)
        self.in_place = in_place

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if self.in_place:
            x.detach().add_(0.5)
        return x + self.second(self.dropout(torch.tanh(self.norm(self.first(x)))))


def steps_of(**options):
    """A function as remat.audit() takes it: a network of three blocks, two micro-batches for each update."""

    def make_step():
        model = nn.Sequential(nn.Linear(8, 8), *(Block(**options) for _ in range(3)))
        optimizer = torch.optim.Adam(model.parameters(), lr=0.01)

        def step():
            optimizer.zero_grad()
            for _ in range(2):
                (nn.functional.mse_loss(model(torch.randn(6, 8)), torch.randn(6, 8)) / 2).backward()
            optimizer.step()

        return step

    return make_step


def found(way, steps=2, **options):
    result = remat.audit(steps_of(**options), {"way": way}, steps=steps)
    assert result.noise == 0
    row = result.row("way")
    assert not result.same and row.status == "differs", row.error
    assert f"[audit] way: {row.differing} of {row.compared} values differ, first in {row.first}" in str(result)
    return row


def checkpointed(model, **options):
    for block in remat.find_blocks(model):
        block.forward = functools.partial(checkpoint, block.forward, use_reentrant=False, **options)


def test_a_recompute_that_draws_other_random_numbers():
    row = found(functools.partial(checkpointed, preserve_rng_state=False), dropout=0.5)
    # Of the last block, whose backward comes first: what is recomputed there has drawn from the generator by the second loss.
    assert (row.first.step, row.first.kind, row.first.name) == (1, "loss", "loss 2")
    assert row.operator["module"] == "3.dropout" and row.operator["phase"] == "recomputed"
    assert "bernoulli" in row.operator["operator"] or "dropout" in row.operator["operator"]


def test_a_batch_norm_that_counts_twice():
    row = found(built_in("checkpoint"), norm=True)
    assert (row.first.step, row.first.kind, row.first.name) == (1, "buffer", "1.norm.running_mean")
    assert (row.first.elements, row.first.total) == (16, 16) and row.first.largest > 0
    assert row.operator == {"operator": "aten::native_batch_norm", "module": "3.norm", "phase": "recomputed"}


def test_gradients_scaled_once_more_under_accumulation():
    def divided(model):
        for parameter in model.parameters():
            parameter.register_hook(lambda gradient: gradient / 2)

    row = found(divided)
    assert (row.first.step, row.first.kind, row.first.name) == (1, "gradient", "3.second.bias")
    assert row.first.elements == 8 and row.operator == {"operator": "aten::div", "module": "", "phase": "backward"}


def test_a_loss_that_is_scaled():
    row = found(lambda model: lambda x: model(x) * 1.0001)
    assert (row.first.step, row.first.kind, row.first.name) == (1, "loss", "loss 1")
    assert row.first.elements == 1 and row.first.ulps > 0
    assert row.operator["operator"] == "aten::mul" and row.operator["phase"] == "forward"


def test_an_activation_that_recompute_casts():
    def cast(model):
        for block in remat.find_blocks(model):

            def forward(x, run=block.forward):
                return run(x.bfloat16().float() if in_backward() else x)

            block.forward = functools.partial(checkpoint, forward, use_reentrant=False)

    row = found(cast)
    assert (row.first.step, row.first.kind, row.first.name) == (1, "gradient", "3.second.weight")
    assert row.operator == {"operator": "aten::_to_copy", "module": "", "phase": "recomputed"}


def test_activations_that_are_saved_in_fewer_bits():
    def compressed(model):
        def call(x):
            with torch.autograd.graph.saved_tensors_hooks(lambda t: t.bfloat16(), lambda t: t.float()):
                return model(x)

        return call

    row = found(compressed)
    assert (row.first.step, row.first.kind, row.first.name) == (1, "gradient", "3.second.weight")
    assert row.operator["operator"] == "aten::_to_copy"


class RoughTanh(torch.autograd.Function):
    """Keeps its result in half the bytes."""

    @staticmethod
    def forward(ctx, x):
        y = torch.tanh(x)
        ctx.save_for_backward(y.bfloat16())
        return y

    @staticmethod
    def backward(ctx, gradient):
        (y,) = ctx.saved_tensors
        return gradient * (1 - y.float() ** 2)


def test_a_function_with_another_backward():
    def rough(model):
        for block in list(model)[1:2]:
            block.norm.forward = RoughTanh.apply  # tanh of tanh, in plain the first is an identity
            block.forward = lambda x, block=block: x + block.second(RoughTanh.apply(block.first(x)))

    row = found(rough)
    assert (row.first.step, row.first.kind, row.first.name) == (1, "gradient", "1.first.bias")
    assert row.operator["phase"] in ("backward", "forward") and row.operator["operator"] in ("aten::_to_copy", "aten::pow")


def test_a_parameter_that_is_left_out_of_training():
    def frozen(model):
        model[2].first.weight.requires_grad_(False)

    row = found(frozen)
    assert (row.first.step, row.first.kind, row.first.name) == (1, "gradient", "2.first.weight")
    assert (row.first.plain, row.first.other) == ("float32 [16, 8]", "absent")


class Replayed(torch.autograd.Function):
    """Holds its input itself, so that autograd does not look at its version."""

    @staticmethod
    def forward(ctx, run, x):
        ctx.run, ctx.x = run, x
        return run(x)

    @staticmethod
    def backward(ctx, gradient):
        with torch.enable_grad():
            x = ctx.x.detach().requires_grad_()
            torch.autograd.backward(ctx.run(x), gradient)
        return None, x.grad


def test_a_replayed_input_that_was_changed_in_place():
    def replayed(model):
        for block in remat.find_blocks(model):
            block.forward = functools.partial(Replayed.apply, block.forward)

    row = found(replayed, in_place=True)
    assert (row.first.step, row.first.kind, row.first.name) == (1, "gradient", "3.second.weight")
    assert row.operator == {"operator": "aten::add_", "module": "", "phase": "recomputed"}


def test_a_way_that_draws_from_the_global_generator():
    row = found(lambda model: torch.rand(1) and None)
    assert (row.first.step, row.first.kind) == (1, "generator")
    assert row.first.name == "torch before the model's call"
    assert "fork_rng" in str(remat.audit(steps_of(), [lambda model: torch.rand(1) and None], steps=1))


def test_a_state_of_an_optimizer_that_is_stored_in_fewer_bits():
    hooks = []

    def rough(optimizer, args, kwargs):
        state = optimizer.state[optimizer.param_groups[0]["params"][3]]
        state["exp_avg"] = state["exp_avg"].bfloat16().float()

    def watch(optimizer, args, kwargs):
        if not optimizer._optimizer_step_post_hooks:
            optimizer.register_step_post_hook(rough)

    try:
        row = found(lambda model: None if hooks else hooks.append(optimizers.register_optimizer_step_pre_hook(watch)))
    finally:
        for hook in hooks:
            hook.remove()
    # The parameters of the first step are those of plain.
    assert (row.first.step, row.first.kind) == (1, "state")
    assert row.first.name == "exp_avg of 1.first.bias"


def test_another_mode():
    row = found(lambda model: model[2].dropout.eval() and None, dropout=0.5)
    assert (row.first.step, row.first.kind, row.first.name) == (1, "mode", "2.dropout")
    assert (row.first.plain, row.first.other) == ("train", "eval")


def test_saved_values_in_a_buffer_that_is_written_to_too_early():
    """As a race in an offload does: what is saved later takes the place of what was saved before."""
    buffers: dict[torch.Size, torch.Tensor] = {}

    def pack(tensor):
        if isinstance(tensor, nn.Parameter) or not tensor.is_floating_point() or tensor.shape != (6, 16):
            return tensor
        return buffers.setdefault(tensor.shape, torch.empty(tensor.shape)).copy_(tensor.detach())

    def offloaded(model):
        def call(x):
            with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
                return model(x)

        return call

    row = found(offloaded)
    assert (row.first.step, row.first.kind) == (1, "gradient")
    assert row.first.name == "2.second.weight"  # the third block's are in the buffer, rightly
    assert row.operator["phase"] == "backward"


def test_a_difference_in_a_later_step_alone():
    calls = []

    def late(model):
        def call(x):
            calls.append(x)
            return model(x) * (1 if len(calls) < 5 else 1.5)

        return call

    row = found(late, steps=3)
    assert (row.first.step, row.first.where, row.first.kind, row.first.name) == (3, "step 3", "loss", "loss 1")


def test_another_learning_rate():
    def scaled(optimizer, args, kwargs):
        for group in optimizer.param_groups:
            group["lr"] = 0.02

    hooks = []
    try:
        row = found(lambda model: hooks.append(optimizers.register_optimizer_step_pre_hook(scaled)) if not hooks else None)
    finally:
        for hook in hooks:
            hook.remove()
    assert (row.first.step, row.first.kind, row.first.name) == (1, "option", "lr of group 0")
    assert (row.first.plain, row.first.other) == ("0.01", "0.02")
