"""remat.checkpoint as a decorator, and the arguments that newer versions of torch.utils.checkpoint have."""

from __future__ import annotations

import functools
import inspect

import pytest
import torch
from compare import blocks
from scopes import loss_of
from torch import nn
from torch.utils import checkpoint as theirs

import remat


def dropped(program):
    """The values that a step of it drops."""
    session = remat.Session()
    with session.step():
        program()
    return session.report().values_dropped


@pytest.mark.parametrize("options", [None, {}, {"use_reentrant": False, "respect_saved_tensors_hooks": True}])
def test_a_decorator(options):
    """Bare as jax.checkpoint, or with options as torch's since 2.14."""
    decorate = remat.checkpoint if options is None else remat.checkpoint(**options)

    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.layers = blocks(2)

        def forward(self, x, *, scale):
            "mine"
            return self.layers(x) * scale

    class Checkpointed(Model):
        forward = decorate(Model.forward)

    assert Checkpointed.forward.__doc__ == "mine"
    torch.manual_seed(0)
    model = Model()
    method = Checkpointed()
    method.load_state_dict(model.state_dict())

    @decorate
    def function(x, debug):  # an option's name is the function's own here
        return model(x, scale=debug)

    x = torch.randn(8, 64)

    def gradients(call):
        model.zero_grad()
        method.zero_grad()

        def program():
            torch.manual_seed(1)
            loss_of(call()).backward()

        count = dropped(program)
        return count, [p.grad for m in (model, method) for p in m.parameters() if p.grad is not None]

    count, plain = gradients(lambda: model(x, scale=0.5))
    assert count == 0
    for call in (
        lambda: method(x, scale=0.5),
        lambda: function(x, debug=0.5),
        lambda: decorate(model)(x, scale=0.5),
        lambda: remat.checkpoint(model, x, scale=0.5, respect_saved_tensors_hooks=False),
    ):
        count, found = gradients(call)
        assert count > 0
        assert len(plain) == len(found) and all(map(torch.equal, plain, found))


def test_a_decorated_function_keeps_what_its_context_says():
    products = functools.partial(theirs.create_selective_checkpoint_contexts, [torch.ops.aten.addmm.default])
    model, x = blocks(2), torch.randn(8, 64)
    run = lambda options: dropped(lambda: loss_of(remat.checkpoint(**options)(model)(x)).backward())  # noqa: E731
    assert 0 < run({"context_fn": products}) < run({})


def test_a_function_without_arguments_is_called_or_decorated():
    model, x = blocks(2), torch.randn(8, 64)
    calls = []

    def run(times=1):
        calls.append(times)
        return model(x)

    assert torch.is_tensor(remat.checkpoint(run)) and calls == [1]  # as torch's does
    decorated = remat.checkpoint()(run)
    assert calls == [1]
    assert torch.is_tensor(decorated(times=2)) and calls == [1, 2]


def test_what_is_no_function_is_said():
    with pytest.raises(TypeError, match=r"\[checkpoint\] a Tensor cannot be called; the function comes first"):
        remat.checkpoint(torch.randn(8, 64), blocks(2))
    with pytest.raises(TypeError, match=r"\[checkpoint\] there is no option early_stopp"):
        remat.checkpoint(early_stopp=True)


def test_all_options_of_this_torch_are_taken():
    ours, options = (inspect.signature(f).parameters for f in (remat.checkpoint, theirs.checkpoint))
    assert options.keys() - {"function", "args", "kwargs"} <= ours.keys()
