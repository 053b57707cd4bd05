"""Tensor subclasses: what they make is kept, and the bits are plain's."""

from __future__ import annotations

import torch
from compare import blocks
from scopes import assert_exact_when_dropped, loss_of
from torch import nn
from torch.utils._pytree import tree_map

import remat


class Named(torch.Tensor):
    """Overrides functions: its data are in itself."""

    calls = 0

    @classmethod
    def __torch_function__(cls, function, types, args=(), kwargs=None):
        Named.calls += 1
        return super().__torch_function__(function, types, args, kwargs or {})


class Wrapper(torch.Tensor):
    """Wraps a tensor, and sees operators below autograd; multiplies every product by two, so that a replay without it
    shows."""

    @staticmethod
    def __new__(cls, inner):
        return torch.Tensor._make_wrapper_subclass(
            cls, inner.shape, dtype=inner.dtype, device=inner.device, requires_grad=inner.requires_grad
        )

    def __init__(self, inner):
        self.inner = inner

    @classmethod
    def __torch_dispatch__(cls, function, types, args=(), kwargs=None):
        unwrapped = tree_map(lambda t: t.inner if isinstance(t, cls) else t, (args, kwargs or {}))
        result = function(*unwrapped[0], **unwrapped[1])
        if function is torch.ops.aten.mul.Tensor:
            result = result * 2
        return tree_map(lambda t: cls(t) if isinstance(t, torch.Tensor) else t, result)


class ToPlain(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x.inner.clone()

    @staticmethod
    def backward(ctx, g):
        return Wrapper(g)


class FromPlain(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return Wrapper(x)

    @staticmethod
    def backward(ctx, g):
        return g.inner if isinstance(g, Wrapper) else g


def test_a_function_subclass():
    def program(model):
        x = torch.randn(32, 64).as_subclass(Named)
        y = model(x)
        assert isinstance(y, Named)
        loss = loss_of(y.exp().tanh())
        loss.backward()
        return loss.detach().as_subclass(torch.Tensor)

    assert_exact_when_dropped(blocks(3), program)
    assert Named.calls > 0


def test_a_wrapper_subclass():
    def program(model):
        y = model[0](torch.randn(32, 64)).exp()
        w = FromPlain.apply(y)
        w = (w.sigmoid() * w).tanh()
        assert isinstance(w, Wrapper)
        loss = loss_of(model[1](ToPlain.apply(w)).exp())
        loss.backward()
        return loss.detach()

    assert_exact_when_dropped(blocks(2), program)


def test_buffers_and_parameters_are_tensors():
    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = nn.Parameter(torch.randn(64, 64))
            self.mean = nn.Buffer(torch.zeros(64))

        def forward(self, x):
            y = (x @ self.weight).tanh()
            self.mean.mul_(0.9).add_(y.detach().mean(0), alpha=0.1)
            return (y - self.mean).exp()

    def program(model):
        loss = loss_of(model(torch.randn(32, 64)))
        loss.backward()
        return loss.detach()

    assert_exact_when_dropped(Model(), program, steps=3)


def test_a_dispatch_mode_of_the_users():
    from torch.utils._python_dispatch import TorchDispatchMode

    seen = []

    class Watch(TorchDispatchMode):
        def __torch_dispatch__(self, function, types, args=(), kwargs=None):
            if function is not torch.ops.aten.detach.default:  # autograd detaches what any saved-tensor hook gets
                seen.append(str(function))
            return function(*args, **(kwargs or {}))

    def program(model):
        y = model[0](torch.randn(32, 64))  # to be replayed while the mode looks on
        with Watch():
            loss = loss_of(model[1:](y))
            loss.backward()
        return loss.detach()

    assert_exact_when_dropped(blocks(3), program, steps=1)
    assert seen[: len(seen) // 2] == seen[len(seen) // 2 :]


def test_a_dispatch_mode_that_changes_results():
    from torch.utils._python_dispatch import TorchDispatchMode

    class Doubles(TorchDispatchMode):
        def __torch_dispatch__(self, function, types, args=(), kwargs=None):
            result = function(*args, **(kwargs or {}))
            return result * 2 if function is torch.ops.aten.gelu.default else result

    def program(model):
        with Doubles():
            loss = loss_of(model(torch.randn(32, 64)))
        loss.backward()
        return loss.detach()

    def backward_inside(model):
        loss = loss_of(model(torch.randn(32, 64)))
        with Doubles():
            loss.backward()
        return loss.detach()

    assert_exact_when_dropped(blocks(3), program, drops=False)
    assert_exact_when_dropped(blocks(3), backward_inside)


def test_a_function_mode_of_the_users():
    from torch.overrides import TorchFunctionMode

    class Doubles(TorchFunctionMode):
        def __torch_function__(self, function, types, args=(), kwargs=None):
            result = function(*args, **(kwargs or {}))
            return result * 2 if function is torch.nn.functional.gelu else result

    def program(model):
        with Doubles():
            loss = loss_of(model(torch.randn(32, 64)))
        loss.backward()
        return loss.detach()

    assert_exact_when_dropped(blocks(3), program)


class Scaled(torch.Tensor):
    """Wraps bytes and a scale, and says so: what autograd saves of it is these."""

    @staticmethod
    def __new__(cls, codes, scale):
        return torch.Tensor._make_wrapper_subclass(cls, codes.shape, dtype=scale.dtype, device=codes.device)

    def __init__(self, codes, scale):
        self.codes, self.scale = codes, scale

    def __tensor_flatten__(self):
        return ["codes", "scale"], None

    @staticmethod
    def __tensor_unflatten__(inner, context, sizes, strides):
        return Scaled(inner["codes"], inner["scale"])

    @classmethod
    def __torch_dispatch__(cls, function, types, args=(), kwargs=None):
        if function in (torch.ops.aten.detach.default, torch.ops.aten.t.default):
            return Scaled(function(args[0].codes), args[0].scale)
        whole = tree_map(lambda t: t.codes.to(t.scale.dtype) * t.scale if isinstance(t, Scaled) else t, (args, kwargs or {}))
        return function(*whole[0], **whole[1])


def test_a_wrapper_that_says_of_what_it_is_made():
    def program(model):
        weight = Scaled(torch.randint(-100, 100, (64, 64), dtype=torch.int8), torch.tensor(0.01))
        x = torch.randn(512, 64, requires_grad=True)
        y = x
        for layer in model:
            y = torch.sin(nn.functional.linear(layer(y), weight))
        loss = loss_of(y)
        loss.backward()
        return loss.detach(), x.grad

    assert_exact_when_dropped(blocks(4), program)


class LooksAtParts(torch.autograd.Function):
    """Its backward makes a view of a part of what it saved, as collectives on a DTensor's local tensor do."""

    @staticmethod
    def forward(ctx, x, scaled):
        ctx.save_for_backward(x, scaled)
        return x * scaled.scale

    @staticmethod
    def backward(ctx, gradient):
        x, scaled = ctx.saved_tensors
        assert scaled.scale._version == 0
        return gradient * scaled.scale.view(1), None


def test_parts_are_tensors_like_any_other():
    def program(model):
        y = model(torch.randn(32, 64)).sin()
        scaled = Scaled(torch.ones(64, dtype=torch.int8), y.detach().abs().mean())
        loss = loss_of(LooksAtParts.apply(y, scaled).exp())
        loss.backward()
        return loss.detach()

    assert_exact_when_dropped(blocks(2), program)


def test_nested_tensors_of_several_lengths():
    def program(model):
        x = torch.nested.nested_tensor([torch.randn(n, 64) for n in (30, 10, 20)], layout=torch.jagged)
        y = model(x)
        heads = y.unflatten(-1, (4, 16)).transpose(1, 2)
        z = nn.functional.scaled_dot_product_attention(heads, heads, heads).transpose(1, 2).flatten(2)
        loss = loss_of((y + z).values())
        loss.backward()
        return loss.detach()

    assert_exact_when_dropped(blocks(3), program, drops=False)  # they are kept whole


class Handled(torch.Tensor):
    """As PyTorch's page "Extending torch" has it: functions that are not in a table are refused."""

    functions = (torch.nn.functional.linear, torch.nn.functional.gelu, torch.sum)

    @classmethod
    def __torch_function__(cls, function, types, args=(), kwargs=None):
        if function not in cls.functions:
            return NotImplemented
        return super().__torch_function__(function, types, args, kwargs or {})


def test_wrap_asks_subclasses_nothing_that_the_model_does_not():
    model = remat.wrap(nn.Sequential(nn.Linear(8, 8), nn.GELU(), nn.Linear(8, 8)), budget="1GiB")
    loss = torch.sum(model(torch.randn(4, 8).as_subclass(Handled)))
    with torch._C.DisableTorchFunctionSubclass():
        loss.backward()
    assert remat.session_of(model).report().completed


def test_wrap_is_not_seen_by_function_modes():
    """One that draws would leave another generator state."""
    from torch.overrides import TorchFunctionMode

    class Draws(TorchFunctionMode):
        def __torch_function__(self, function, types, args=(), kwargs=None):
            torch.rand(())
            return function(*args, **(kwargs or {}))

    def next_draw(wrap):
        torch.manual_seed(0)
        model = wrap(nn.Sequential(nn.Linear(8, 8), nn.GELU(), nn.Linear(8, 8)))
        with Draws():
            for _ in range(2):
                model(torch.ones(4, 8)).sum().backward()
        return torch.rand(1)

    assert torch.equal(next_draw(lambda model: model), next_draw(lambda model: remat.wrap(model, budget="1GiB")))
