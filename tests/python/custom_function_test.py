"""Functions that define their own backward in Python."""

from __future__ import annotations

import contextlib

import pytest
import torch
from compare import blocks, same_bits
from scopes import assert_exact_when_dropped, assert_no_higher_peak, loss_of
from torch.autograd import Function
from torch.autograd.function import once_differentiable
from torch.func import grad, jacrev, vjp, vmap
from torch.fx.experimental.proxy_tensor import make_fx

import remat


class Gate(Function):
    """Saves an input, an intermediate and an output, and takes arguments that are no tensors."""

    @staticmethod
    def forward(ctx, x, factor, name, table):
        inner = torch.sigmoid(x * factor)
        result = inner * x
        ctx.save_for_backward(x, inner, result)
        ctx.factor, ctx.name, ctx.table = factor, name, table
        return result

    @staticmethod
    def backward(ctx, g):
        x, inner, result = ctx.saved_tensors
        assert ctx.name == "gate" and ctx.table == {"a": [1]}
        return g * (inner + ctx.factor * result * (1 - inner)), None, None, None


class NewStyle(Function):
    @staticmethod
    def forward(x, y):
        return x * y.exp(), y.exp()

    @staticmethod
    def setup_context(ctx, inputs, output):
        x, y = inputs
        ctx.save_for_backward(x, y, *output)
        ctx.mark_non_differentiable(output[1])

    @staticmethod
    def backward(ctx, g, _):
        x, y, product, exponential = ctx.saved_tensors
        return g * exponential, g * product


class KeepsGradients(Function):
    """Its backward keeps things on the parameters that it saved, as fused kernels for large models do."""

    @staticmethod
    def forward(ctx, x, weight, frozen):
        ctx.save_for_backward(x, weight, frozen, weight.t())
        return x.exp() @ weight * frozen

    @staticmethod
    def backward(ctx, g):
        x, weight, frozen, transposed = ctx.saved_tensors
        weight.main_grad = x.exp().t() @ (g * frozen)
        frozen.seen = getattr(frozen, "seen", 0) + 1
        assert weight.requires_grad and transposed.requires_grad
        return (g * frozen) @ transposed * x.exp(), None, None


class InPlace(Function):
    @staticmethod
    def forward(ctx, x):
        x.mul_(2).tanh_()
        ctx.mark_dirty(x)
        ctx.save_for_backward(x)
        return x

    @staticmethod
    @once_differentiable
    def backward(ctx, g):
        (y,) = ctx.saved_tensors
        return 2 * g * (1 - y * y)


class TwoResults(Function):
    @staticmethod
    def forward(ctx, x):
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(x)
        return x.sin(), x.cos(), [1, "kept"], None

    @staticmethod
    def backward(ctx, g_sin, g_cos, *_):
        (x,) = ctx.saved_tensors
        assert g_cos is None
        return g_sin * x.cos()


class OnContext(Function):
    """Keeps tensors as attributes, which autograd does not know of."""

    @staticmethod
    def forward(ctx, x):
        ctx.inner = x.detach().exp()
        return ctx.inner.log1p()

    @staticmethod
    def backward(ctx, g):
        return g * ctx.inner / (1 + ctx.inner)


class WritesWithNumpy(Function):
    """Makes its result where no operator is seen."""

    @staticmethod
    def forward(ctx, x):
        result = torch.from_numpy(x.detach().numpy() * 3)
        filled = torch.empty_like(x)
        filled.numpy()[:] = result.numpy() + 1
        ctx.save_for_backward(result, filled)
        return filled * result

    @staticmethod
    def backward(ctx, g):
        result, filled = ctx.saved_tensors
        return 3 * g * (result + filled)


class Straight(Function):
    @staticmethod
    def forward(ctx, x):
        return x.round()

    @staticmethod
    def backward(ctx, g):
        return g


class Doubled(Function):
    """Differentiable twice: its backward is another function."""

    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x**3

    @staticmethod
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        return Gate.apply(g * 3 * x * x, 0.5, "gate", {"a": [1]})


class CallsAutograd(Function):
    """Runs a graph of its own in forward, as reentrant checkpoints do in backward."""

    @staticmethod
    def forward(ctx, x):
        with torch.enable_grad():
            inner = x.detach().requires_grad_()
            result = inner.exp().tanh()
        ctx.inner, ctx.result = inner, result
        return result.detach()

    @staticmethod
    def backward(ctx, g):
        return torch.autograd.grad(ctx.result, ctx.inner, g)[0]


def around(function):
    """A program with `function` between the blocks of a model."""

    def program(model):
        x = torch.randn(32, 64, requires_grad=True)
        y = x
        for block in model:
            y = function(block(y))
        loss = loss_of(y)
        loss.backward()
        return loss.detach(), x.grad

    return program


def test_inputs_intermediates_outputs_and_other_arguments():
    assert_exact_when_dropped(blocks(3), around(lambda x: Gate.apply(x, 0.5, "gate", {"a": [1]})))


def test_setup_context():
    assert_exact_when_dropped(blocks(3), around(lambda x: NewStyle.apply(x, x * 0.1)[0]))


def test_mark_dirty_and_once_differentiable():
    assert_exact_when_dropped(blocks(3), around(lambda x: InPlace.apply(x.clone())))
    assert_exact_when_dropped(blocks(3), around(InPlace.apply))


def test_results_without_gradient_and_results_that_are_no_tensors():
    assert_exact_when_dropped(blocks(3), around(lambda x: TwoResults.apply(x)[0]))


def test_tensors_kept_on_the_context():
    assert_exact_when_dropped(blocks(3), around(OnContext.apply))


def test_results_made_outside_of_pytorch():
    assert_exact_when_dropped(blocks(3), around(WritesWithNumpy.apply))


def test_straight_through():
    assert_exact_when_dropped(blocks(3), around(Straight.apply))


def test_a_graph_inside_of_forward():
    assert_exact_when_dropped(blocks(3), around(CallsAutograd.apply))


def test_twice_differentiated():
    def program(model):
        x = torch.randn(16, 64, requires_grad=True)
        y = Doubled.apply(model(x))
        (gradient,) = torch.autograd.grad(y.sum(), x, create_graph=True)
        loss = gradient.square().mean() + loss_of(y)
        loss.backward()
        return loss.detach(), x.grad

    assert_exact_when_dropped(blocks(2), program)


def test_each_forward_and_backward_runs_once():
    calls = []

    class Counted(Function):
        @staticmethod
        def forward(ctx, x):
            calls.append("forward")
            ctx.save_for_backward(x.exp())
            return x.exp()

        @staticmethod
        def backward(ctx, g):
            calls.append("backward")
            return g * ctx.saved_tensors[0]

    assert_exact_when_dropped(blocks(1), around(Counted.apply), steps=1)
    assert calls == ["forward", "backward"] * 2  # plain's and ours


def test_saved_parameters_are_the_parameters_themselves():
    weight, frozen = torch.nn.Parameter(torch.randn(64, 64)), torch.rand(64)

    def program(model):
        weight.main_grad, frozen.seen = None, 0
        loss = loss_of(KeepsGradients.apply(model[0](torch.randn(8, 64)), weight, frozen).cos())
        loss.backward()
        assert frozen.seen == 1
        return loss.detach(), weight.main_grad

    assert_exact_when_dropped(blocks(1), program)


class Tanh(Function):
    """Saves what it is given, what it is differentiated by, and what it returns."""

    generate_vmap_rule = True

    @staticmethod
    def forward(x, w):
        return (x @ w).tanh()

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs, output)

    @staticmethod
    def backward(ctx, g):
        x, w, out = ctx.saved_tensors
        g = g * (1 - out * out)
        return g @ w.t(), x.t() @ g


def loss_of_tanh(w, x):
    return Tanh.apply(x, w).square().mean()


def per_row(w, x):
    return vmap(grad(lambda w, row: loss_of_tanh(w, row[None])), (None, 0))(w, x).mean(0)


TRANSFORMS = {
    "grad": grad(loss_of_tanh),
    "vjp": lambda w, x: vjp(lambda w: loss_of_tanh(w, x), w)[1](torch.ones(()))[0],
    "jacrev": jacrev(loss_of_tanh),
    "vmap of grad": per_row,
    "grad of vmap": grad(lambda w, x: vmap(lambda row: loss_of_tanh(w, row[None]))(x).mean()),
}


@pytest.mark.parametrize("recorded", [False, True])
@pytest.mark.parametrize("transform", TRANSFORMS)
def test_saved_tensors_under_transforms(transform, recorded):
    """They are functorch's wrappers, which have no storage."""
    w, x = torch.randn(5, 5, requires_grad=True), torch.randn(8, 5)
    expected = torch.autograd.grad((x @ w).tanh().square().mean(), w)[0]
    with remat.Session().step() if recorded else contextlib.nullcontext():
        torch.testing.assert_close(TRANSFORMS[transform](w, x), expected)


class Product(Function):
    @staticmethod
    def forward(ctx, a, b):
        ctx.save_for_backward(a, b)
        return torch.mm(a, b)

    @staticmethod
    def backward(ctx, g):
        a, b = ctx.saved_tensors
        return g @ b.t(), None


@pytest.mark.parametrize("layout", [torch.sparse_coo, torch.sparse_csr])
def test_saved_leaves_without_storage(layout):
    a = torch.eye(4).to_sparse(layout=layout).requires_grad_()
    Product.apply(a, torch.randn(4, 3)).sum().backward()
    assert a.grad is not None


@pytest.mark.parametrize("mode", ["real", "fake"])
def test_saved_leaves_of_a_traced_function(mode):
    def gradient(a):
        return torch.autograd.grad(Product.apply(a.requires_grad_(), torch.ones(4, 3)).sum(), a)

    a = torch.randn(4, 4)
    assert same_bits(make_fx(gradient, tracing_mode=mode)(a)(a)[0], gradient(a)[0])


class Rebuilt(Function):
    """Makes its activations in backward, as reversible layers do, and differentiates what is computed of them there."""

    @staticmethod
    def forward(ctx, x, w):
        ctx.save_for_backward(x, w)
        return (x @ w).tanh()

    @staticmethod
    def backward(ctx, g):
        x, w = ctx.saved_tensors
        y = x * 1
        with torch.enable_grad():
            y.requires_grad_()
            out = (y @ w).tanh()
            torch.autograd.backward(out, g)
        return y.grad, None


@pytest.mark.parametrize("budget", [None, "100%"])
def test_activations_rebuilt_in_backward_are_freed_as_in_plain(budget):
    weights = [torch.randn(128, 128).requires_grad_() for _ in range(8)]
    x = torch.randn(512, 128)

    def forget_gradients():
        for w in weights:
            w.grad = None

    def train():
        h = x.clone().requires_grad_()
        for w in weights:
            h = Rebuilt.apply(h, w)
        h.sum().backward()

    assert_no_higher_peak(forget_gradients, train, budget)
