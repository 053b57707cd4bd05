"""remat.checkpoint takes the place of torch.utils.checkpoint: the behaviours that people rely on, and both in one step."""

from __future__ import annotations

import contextlib

import pytest
import torch
from compare import assert_exact, blocks
from scopes import assert_exact_when_dropped, loss_of
from torch import nn
from torch.utils import checkpoint as theirs

import remat


def exact(model, program, steps=1):
    """remat.checkpoint, without a session, against the same program with plain calls."""
    plain = lambda function, *args, **kwargs: function(  # noqa: E731
        *args,
        **{
            name: value
            for name, value in kwargs.items()
            if name not in ("use_reentrant", "preserve_rng_state", "early_stop", "debug", "determinism_check")
        },
    )
    current = [plain]

    @contextlib.contextmanager
    def ours():
        current[0] = remat.checkpoint
        yield
        current[0] = plain

    assert_exact(model, lambda m: program(m, lambda *a, **k: current[0](*a, **k)), ours, steps)


def test_each_block():
    def program(model, checkpoint):
        x = torch.randn(64, 64, requires_grad=True)
        y = x
        for block in model:
            y = checkpoint(block, y)
        loss = loss_of(y)
        loss.backward()
        return loss.detach(), x.grad

    exact(blocks(norm=True), program, steps=3)


def test_the_function_runs_once():
    calls = []

    def program(model, checkpoint):
        loss = loss_of(checkpoint(lambda x: (calls.append(1), model(x))[1], torch.randn(8, 64)))
        loss.backward()
        return loss.detach()

    exact(blocks(2), program)
    assert len(calls) == 2  # plain's and ours


@pytest.mark.parametrize("use_reentrant", [True, False, None])
@pytest.mark.parametrize("preserve_rng_state", [True, False])
def test_random_numbers_are_the_same_whatever_the_arguments_say(use_reentrant, preserve_rng_state):
    def program(model, checkpoint):
        options = dict(use_reentrant=use_reentrant, preserve_rng_state=preserve_rng_state)
        y = checkpoint(model, torch.randn(64, 64), **options)
        loss = loss_of(y * torch.rand_like(y))
        loss.backward()
        return y.detach(), loss.detach()

    exact(blocks(dropout=0.5), program)


@pytest.mark.parametrize("early_stop", [True, False])
def test_early_stop_and_debug_and_determinism_checks_are_taken(early_stop):
    def program(model, checkpoint):
        with theirs.set_checkpoint_early_stop(early_stop):
            y = checkpoint(
                model, torch.randn(64, 64), use_reentrant=False, early_stop=early_stop, debug=True,
                determinism_check="none",
            )  # fmt: skip
        loss = loss_of(y)
        loss.backward()
        return loss.detach()

    exact(blocks(3), program)


def test_arguments_and_results_of_every_kind():
    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = blocks(2)

        def forward(self, pair, number, *, scale, table, nothing=None):
            assert number == 3 and nothing is None and table["deep"][0] == "text"
            a = self.layer(pair[0]) * scale
            b = self.layer(pair[1]).exp() * table["tensor"]
            return {"a": a, "list": [b, 5]}, None, "text"

    def program(model, checkpoint):
        pair = (torch.randn(8, 64, requires_grad=True), torch.randn(8, 64))
        table = {"deep": ["text"], "tensor": torch.randn(64, requires_grad=True)}
        result, nothing, text = checkpoint(model, pair, 3, scale=torch.tensor(0.5), table=table)
        assert nothing is None and text == "text" and result["list"][1] == 5
        loss = loss_of(result["a"]) + loss_of(result["list"][0])
        loss.backward()
        return loss.detach(), pair[0].grad, table["tensor"].grad

    exact(Model(), program)


def test_inputs_without_gradient_still_train_the_parameters():
    def program(model, checkpoint):
        loss = loss_of(checkpoint(model, torch.randn(8, 64), use_reentrant=False))
        loss.backward()
        assert all(p.grad is not None for p in model.parameters())
        return loss.detach()

    exact(blocks(2), program)


def test_without_gradients_nothing_happens():
    def program(model, checkpoint):
        with torch.no_grad():
            y = checkpoint(model, torch.randn(8, 64))
        assert not y.requires_grad
        with torch.inference_mode():
            z = checkpoint(model, torch.randn(8, 64))
        return y, z.clone()

    exact(blocks(2), program)


def test_a_function_that_detaches_and_parts_without_gradient():
    def program(model, checkpoint):
        def function(x):
            with torch.no_grad():
                target = model[0](x)
            y = model[1](x)
            return y, (y.detach() - target).exp()

        y, difference = checkpoint(function, torch.randn(8, 64))
        assert not difference.requires_grad
        loss = loss_of(y * difference)
        loss.backward()
        return loss.detach()

    exact(blocks(2), program)


def test_nested_checkpoints():
    def program(model, checkpoint):
        def inner(x):
            return checkpoint(model[1], model[0](x))

        def outer(x):
            return model[3](checkpoint(inner, model[2](x)))

        loss = loss_of(checkpoint(outer, checkpoint(inner, torch.randn(32, 64))))
        loss.backward()
        return loss.detach()

    exact(blocks(4, norm=True), program)


def test_double_backward_and_grad_and_retained_graphs():
    def program(model, checkpoint):
        x = torch.randn(16, 64, requires_grad=True)
        y = checkpoint(model, x, use_reentrant=False)
        (gradient,) = torch.autograd.grad(y.sum(), x, create_graph=True)
        loss = gradient.square().sum() + loss_of(y)
        loss.backward(retain_graph=True)
        loss.backward()
        return loss.detach(), x.grad

    exact(blocks(2, dropout=0.0), program)


def test_backward_through_a_part_of_the_results():
    def program(model, checkpoint):
        a, b = checkpoint(lambda x: (model[0](x).exp(), model[1](x).exp()), torch.randn(16, 64))
        loss = loss_of(b)
        loss.backward()
        assert model[0][0].weight.grad is None
        return a.detach(), loss.detach()

    exact(blocks(2), program)


def test_one_parameter_in_several_checkpoints():
    def program(model, checkpoint):
        x = torch.randn(16, 64)
        for _ in range(4):
            x = checkpoint(model[0], x)
        loss = loss_of(x)
        loss.backward()
        return loss.detach()

    exact(blocks(1), program)


def test_an_exception_inside_leaves_nothing_behind():
    def program(model, checkpoint):
        def fails(x):
            model(x)
            raise ValueError("mine")

        with pytest.raises(ValueError, match="mine"):
            checkpoint(fails, torch.randn(8, 64))
        loss = loss_of(checkpoint(model, torch.randn(8, 64)))
        loss.backward()
        return loss.detach()

    exact(blocks(2), program)


def test_a_context_around_the_call():
    entered = []

    @contextlib.contextmanager
    def context(name):
        entered.append(name)
        yield

    model = blocks(2)
    y = remat.checkpoint(
        model, torch.randn(8, 64), use_reentrant=False, context_fn=lambda: (context("forward"), context("recompute"))
    )
    y.sum().backward()
    assert entered == ["forward"]


@pytest.mark.parametrize("segments", [1, 2, 3, 6])
@pytest.mark.parametrize("sequential", [True, False])
def test_sequential(segments, sequential):
    model = blocks(5, norm=True)
    model.append(model[0])  # runs twice

    def program(checkpointed):
        def run(m):
            functions = m if sequential else [lambda x, b=b: b(x) for b in m]
            x = torch.randn(32, 64, requires_grad=True)
            y = remat.checkpoint_sequential(functions, segments, x, use_reentrant=False) if checkpointed[0] else m(x)
            loss = loss_of(y)
            loss.backward()
            return loss.detach(), x.grad

        return run

    checkpointed = [False]

    @contextlib.contextmanager
    def ours():
        checkpointed[0] = True
        yield

    assert_exact(model, program(checkpointed), ours, steps=2)


def test_wrong_arguments():
    with pytest.raises(remat.Error, match="segments is 7"):
        remat.checkpoint_sequential(blocks(6), 7, torch.randn(8, 64))
    with pytest.raises(TypeError):
        remat.checkpoint_sequential(blocks(6), 2, torch.randn(8, 64), unknown=1)


@pytest.mark.parametrize("use_reentrant", [True, False])
def test_their_checkpoint_inside_of_a_step(use_reentrant):
    def program(model):
        x = torch.randn(32, 64, requires_grad=True)
        y = model[0](x)
        y = theirs.checkpoint(model[1], y, use_reentrant=use_reentrant)
        y = model[2](y)
        y = theirs.checkpoint(
            lambda v: model[4](theirs.checkpoint(model[3], v, use_reentrant=use_reentrant)), y,
            use_reentrant=use_reentrant,
        )  # fmt: skip
        loss = loss_of(model[5](y))
        loss.backward()
        return loss.detach(), x.grad

    assert_exact_when_dropped(blocks(6), program)


def test_their_checkpoint_inside_of_ours_and_ours_inside_of_theirs():
    def program(model):
        x = torch.randn(32, 64)
        y = remat.checkpoint(lambda v: theirs.checkpoint(model[0], model[1](v), use_reentrant=False), x)
        y = theirs.checkpoint(lambda v: remat.checkpoint(model[2], model[3](v)), y, use_reentrant=False)
        loss = loss_of(y)
        loss.backward()
        return loss.detach()

    plain = lambda function, *args, **kwargs: function(*args)  # noqa: E731
    ours = remat.checkpoint

    def program_of(checkpoint):
        def run(model):
            remat.checkpoint = checkpoint
            try:
                return program(model)
            finally:
                remat.checkpoint = ours

        return run

    import compare

    model = blocks(4)
    a = compare.run(model, program_of(plain), contextlib.nullcontext, 1)
    b = compare.run(model, program_of(ours), contextlib.nullcontext, 1)
    assert all(compare.same_bits(u, v) for u, v in zip(a, b, strict=True))
