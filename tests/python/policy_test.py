"""Selective checkpoints: with lists of operators and with policy functions, ours and torch.utils.checkpoint's."""

from __future__ import annotations

import functools

import pytest
import torch
from compare import assert_exact, blocks
from scopes import loss_of
from torch.utils.checkpoint import CheckpointPolicy, create_selective_checkpoint_contexts

import remat

ATEN = torch.ops.aten


def replays_of(call):
    """The operators that backward replays after `call()` in a step."""
    session = remat.Session()
    with session.step():
        loss_of(call()).backward()
    return {operator.name: operator.count for operator in session.report().replayed}


def test_a_list_of_operators():
    contexts = functools.partial(create_selective_checkpoint_contexts, [ATEN.addmm.default, ATEN.mul.Tensor])
    model = blocks(3)
    replayed = replays_of(lambda: remat.checkpoint(model, torch.randn(32, 64), context_fn=contexts))
    assert not {"aten::addmm", "aten::mul"} & set(replayed)
    everything = replays_of(lambda: remat.checkpoint(model, torch.randn(32, 64)))
    assert {"aten::addmm", "aten::mul"} <= set(everything)


@pytest.mark.parametrize(
    "saved",
    [CheckpointPolicy.MUST_SAVE, CheckpointPolicy.PREFER_SAVE, True],
)
def test_a_policy_function(saved):
    seen = []

    def choose(context, operator, *args, **kwargs):
        seen.append(context.is_recompute)
        if operator == ATEN.addmm.default:
            return saved
        return CheckpointPolicy.PREFER_RECOMPUTE if saved is not True else False

    contexts = functools.partial(create_selective_checkpoint_contexts, choose)
    model = blocks(3)
    replayed = replays_of(lambda: remat.checkpoint(model, torch.randn(32, 64), use_reentrant=False, context_fn=contexts))
    assert "aten::addmm" not in replayed and "aten::gelu" in replayed
    assert not any(seen)


def test_a_policy_function_that_needs_the_arguments_is_refused():
    contexts = functools.partial(
        create_selective_checkpoint_contexts, lambda context, operator, *args: args[0].numel() > 4
    )
    with pytest.raises(remat.Error, match="without its arguments"):
        remat.checkpoint(blocks(1), torch.randn(4, 64), context_fn=contexts)


def test_the_bits_of_selective_checkpoints():
    contexts = functools.partial(create_selective_checkpoint_contexts, [ATEN.addmm.default])
    active = [False]

    def program(model):
        x = torch.randn(32, 64, requires_grad=True)
        y = x
        for block in model:
            y = remat.checkpoint(block, y, context_fn=contexts) if active[0] else block(y)
        loss = loss_of(y)
        loss.backward()
        return loss.detach(), x.grad

    class Ours:
        def __enter__(self):
            active[0] = True

        def __exit__(self, *_):
            active[0] = False

    assert_exact(blocks(norm=True), program, Ours, steps=2)


@pytest.mark.parametrize(
    "keep", [[], "compute", "all", ["aten::gelu"], ["aten::mul.Tensor", ATEN.addmm], [ATEN.gelu.default]]
)
def test_policies_are_exact_and_nest(keep):
    def program(model):
        x = model[1](model[0](torch.randn(32, 64)))
        with remat.policy(keep=keep):
            x = model[2](x)
            with remat.policy(keep="all"):
                x = model[3](x)
        loss = loss_of(x)
        loss.backward()
        return loss.detach()

    assert_exact(blocks(4, norm=True), program, lambda: remat.policy(keep=keep), steps=2)


def test_policies_keep_what_they_say():
    model = blocks(3)

    def under(keep):
        def call():
            with remat.policy(keep=keep):
                return model(torch.randn(32, 64))

        return replays_of(call)

    assert "aten::addmm" in under([])
    assert "aten::addmm" not in under("compute") and "aten::gelu" in under("compute")
    assert under("all") == {}
    assert "aten::mul" in under([]) and "aten::mul" not in under(["aten::mul.Tensor"])


def test_operators_that_do_not_exist_are_errors():
    with pytest.raises(remat.Error, match="no operator"):
        remat.policy(keep=["aten::nothing"])
    with pytest.raises(remat.Error, match="no operator"):
        remat.policy(keep=[torch.exp])
    with pytest.raises(remat.Error, match="keep is"):
        remat.policy(keep="some")


def test_a_kept_tensor_is_not_replayed():
    model = blocks(1, dropout=0.0)

    def call(keep):
        def run():
            with remat.policy():
                y = model[0][0](torch.randn(32, 64))
                if keep:
                    y = remat.keep(y)
                return model[0][3](model[0][1](y))

        return replays_of(run)

    assert call(False)["aten::addmm"] > call(True).get("aten::addmm", 0)
