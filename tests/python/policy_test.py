"""Selective checkpoints: with lists of operators and with policy functions, ours and torch.utils.checkpoint's."""

from __future__ import annotations

import copy
import functools
import pickle
import threading

import pytest
import torch
from compare import assert_exact, blocks
from scopes import loss_of
from torch.utils.checkpoint import CheckpointPolicy, create_selective_checkpoint_contexts

import remat
from remat import _C, selective

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
    [True, *(each for each in CheckpointPolicy if "RECOMPUTE" not in each.name)],  # some go to the host and come back
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
    replayed = replays_of(
        lambda: remat.checkpoint(model, torch.randn(32, 64), use_reentrant=False, context_fn=contexts)
    )
    assert "aten::addmm" not in replayed and "aten::gelu" in replayed
    assert not any(seen)


def asked_by(choose, steps=2):
    """How often checkpoints ask a policy function for each of `steps` steps."""
    counts = [0]
    contexts = functools.partial(create_selective_checkpoint_contexts, choose)
    for _ in range(steps):
        before = choose.count
        remat.checkpoint(blocks(1), torch.randn(4, 64), context_fn=contexts).sum().backward()
        counts.append(choose.count - before)
    return counts[1:]


class Counting:
    def __init__(self):
        self.count, self.operators = 0, set()

    def __call__(self, context, operator, *args, **kwargs):
        self.count += 1
        self.operators.add(operator)
        return operator is ATEN.addmm.default


class Unhashable(Counting):
    __hash__ = None


def test_a_policy_function_is_asked_in_the_first_step_alone():
    first, second = asked_by(Counting())
    assert first > 1000
    assert second == 0
    first, second = asked_by(Unhashable())  # as it cannot be found again
    assert first == second > 1000


def test_a_policy_function_is_asked_about_operators_that_come_later():
    choose = Counting()
    asked_by(choose)
    library = torch.library.Library("remat_policy_test", "FRAGMENT")
    library.define("later(Tensor x) -> Tensor")
    assert asked_by(choose)[0] > 1000
    assert torch.ops.remat_policy_test.later.default in choose.operators
    library._destroy()


def test_a_list_is_not_asked_about():
    contexts = functools.partial(create_selective_checkpoint_contexts, [ATEN.addmm.default])
    assert selective._listed(contexts()[0].policy_fn) == (ATEN.addmm.default,)
    assert selective._listed(Counting()) is None
    assert selective._listed(lambda context, operator: False) is None


@pytest.mark.parametrize("period", [2, 3, 4])
def test_a_policy_function_that_counts_calls_is_refused(period):
    seen = []

    def every(context, operator, *args, **kwargs):
        if operator != ATEN.addmm.default:
            return CheckpointPolicy.PREFER_RECOMPUTE
        seen.append(operator)
        return CheckpointPolicy.MUST_SAVE if len(seen) % period == 0 else CheckpointPolicy.PREFER_RECOMPUTE

    contexts = functools.partial(create_selective_checkpoint_contexts, every)
    with pytest.raises(remat.Error, match=r"aten.addmm.default . of the 4 times.*put remat.policy"):
        remat.checkpoint(blocks(1), torch.randn(4, 64), context_fn=contexts)


def test_one_policy_may_be_entered_by_several_threads():
    scope = remat.policy()
    entered, left = threading.Event(), threading.Event()
    recording = []

    def work():
        with scope:
            entered.set()
            left.wait(60)
            recording.append(_C.is_recording())
        recording.append(_C.is_recording())

    thread = threading.Thread(target=work)
    with scope:
        thread.start()
        entered.wait(60)
    recording.append(_C.is_recording())
    left.set()
    thread.join()
    assert recording == [False, True, False]


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


def test_a_scope_may_be_left_on_another_thread():
    policy = remat.policy()
    policy.__enter__()
    other = threading.Thread(target=policy.__exit__, args=(None, None, None))
    other.start()
    other.join()
    with pytest.raises(remat.Error, match="left more often than it was entered"):
        policy.__exit__(None, None, None)
    with policy:  # as before
        assert _C.is_recording()


def test_policies_are_copied_with_the_models_that_have_them():
    with remat.policy(keep=["aten::mm", ATEN.addmm.default]) as policy:
        for copied in (copy.deepcopy(policy), copy.copy(policy), pickle.loads(pickle.dumps(policy))):
            with copied:
                pass
    assert isinstance(copy.deepcopy(remat.policy("compute")), remat.policy)


@pytest.mark.parametrize(
    ("name", "call"),
    [
        ("aten::linear", lambda x: torch.nn.functional.linear(x, x, x[0])),
        ("aten::linear", lambda x: torch.nn.functional.linear(x, x)),
        ("aten::matmul", lambda x: x @ x),
        ("aten::softmax.int", lambda x: x.softmax(1)),
        ("aten::layer_norm", lambda x: torch.nn.functional.layer_norm(x, [64])),
        ("aten::dropout", lambda x: torch.nn.functional.dropout(x, 0.2)),
        ("aten::einsum", lambda x: torch.einsum("ij,jk->ik", x, x)),
        ("aten::conv1d", lambda x: torch.nn.functional.conv1d(x[None], x[..., None])),
        ("aten::scaled_dot_product_attention", lambda x: torch.nn.functional.scaled_dot_product_attention(*3 * [x])),
        ("aten::std.dim", lambda x: x.std(1)),
    ],
)
def test_composites_are_refused_with_the_names_of_their_parts(name, call):
    with pytest.raises(remat.Error, match=r"\[policy\] .* is made of other operators") as refused:
        remat.policy(keep=[name])
    parts = str(refused.value).rpartition("name these: ")[2].split(", ")
    remat.policy(keep=parts)
    session = remat.Session()
    with session.step():
        call(torch.randn(64, 64, requires_grad=True))
    recorded = {operator["name"] for operator in session.graph()["operators"]}
    assert recorded & {part.partition(".")[0] for part in parts}


def test_views_are_refused():
    for view in (ATEN.transpose, ATEN.view.default, "aten::t"):
        with pytest.raises(remat.Error, match=r"\[policy\] .* is a view"):
            remat.policy(keep=[view])
    with pytest.raises(remat.Error, match=r"declare those: aten::mm, aten::addmm"):
        remat.repeatable("aten::linear")
    with pytest.raises(remat.Error, match="is made of other operators"):
        remat.enable(blocks(), policies={"*": ["aten::linear"]})


@pytest.mark.parametrize("how", ["list", "function"])
def test_composites_in_torchs_policies_say_nothing(how):
    """As without remat: they are asked about the parts."""
    names = [ATEN.linear.default, ATEN.transpose.int, ATEN.mul.Tensor]

    def choose(context, operator, *args, **kwargs):
        return operator in names

    contexts = functools.partial(create_selective_checkpoint_contexts, names if how == "list" else choose)
    replayed = replays_of(lambda: remat.checkpoint(blocks(2), torch.randn(32, 64), context_fn=contexts))
    assert "aten::addmm" in replayed and "aten::mul" not in replayed
