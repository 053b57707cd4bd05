"""TorchScript, exports, copies and files of wrapped models and of what they return: as without remat."""

from __future__ import annotations

import contextlib
import copy
import io
import pickle
import warnings

import pytest
import torch
from compare import assert_same
from scopes import loss_of
from torch import nn

import remat


class Layer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(64, 64)

    def forward(self, x):
        return torch.nn.functional.gelu(self.linear(x))


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(*[Layer() for _ in range(4)])

    def forward(self, x):
        return self.layers(x).sin()


def inner_wrapped(model):
    remat.wrap(model.layers[1])
    return model


def with_layers(model):
    """While a step notes its layers."""
    stack.enter_context(remat.Session().step(layers=model))
    return model


WAYS = {
    "wrapped": remat.wrap,
    "wrapped inside": inner_wrapped,
    "enabled": remat.enable,
    "both": lambda model: remat.wrap(remat.enable(model)),
    "layers": with_layers,
}
stack = contextlib.ExitStack()


@pytest.fixture(autouse=True)
def _open_steps():
    yield
    stack.close()


pytestmark = pytest.mark.filterwarnings("ignore:.*torch.jit.*deprecated:DeprecationWarning")


def hooks_of(model):
    return [[*m._forward_pre_hooks.items(), *m._forward_hooks.items()] for m in model.modules()]


def train(model):
    torch.manual_seed(3)
    loss = loss_of(model(torch.randn(32, 64)))
    loss.backward()
    return [loss.detach(), *(p.grad for p in model.parameters())]


def make():
    torch.manual_seed(0)
    return Model()


@pytest.mark.parametrize("way", WAYS)
def test_scripts(way):
    model = WAYS[way](make())
    before = hooks_of(model)
    scripted = torch.jit.script(model)
    assert hooks_of(model) == before and sum(map(len, before)) > 0
    assert_same(train(torch.jit.script(make())), train(scripted))
    again = io.BytesIO()
    torch.jit.save(scripted, again)
    again.seek(0)
    assert torch.equal(torch.jit.load(again)(torch.ones(1, 64)), make()(torch.ones(1, 64)))


def test_a_wrapped_model_that_was_scripted_is_wrapped_still():
    model = remat.wrap(make(), budget="70%")
    torch.jit.script(model)
    train(model)
    assert remat.session_of(model).report().step == 1


def test_hooks_of_others_are_scripted():
    class Doubles(nn.Module):
        def forward(self, x):
            return x + 1

    def doubled(self, input, result):
        # type: (Tuple[Tensor], Tensor) -> Tensor
        return result * 2

    for wrap in (lambda m: m, remat.wrap):
        model = Doubles()
        model.register_forward_hook(doubled)
        wrap(model)
        assert torch.jit.script(model)(torch.ones(1)).item() == 4


def test_a_script_that_fails_leaves_the_hooks():
    class Odd(nn.Module):
        def forward(self, x):
            return x if hash(x) else eval("x")

    model = remat.wrap(Odd())
    before = hooks_of(model)
    with pytest.raises(Exception, match="eval|hash"):
        torch.jit.script(model)
    assert hooks_of(model) == before


@pytest.mark.parametrize("way", ["wrapped", "wrapped inside", "enabled"])
def test_traces_and_exports(way):
    x = torch.randn(8, 64)
    expected = make()(x)
    for export in (
        lambda model: torch.jit.trace(model, x),
        torch.fx.symbolic_trace,
        lambda model: torch.export.export(model, (x,)).module(),
    ):
        assert torch.equal(export(WAYS[way](make()))(x), expected)


@pytest.mark.parametrize("way", ["wrapped", "enabled"])
def test_a_strict_export_says_what_to_do(way):
    model = WAYS[way](make())
    with pytest.raises(Exception, match=r"remat.unwrap\(model\) or remat.disable\(model\)"):
        torch.export.export(model, (torch.randn(8, 64),), strict=True)
    remat.disable(remat.unwrap(model))
    torch.export.export(model, (torch.randn(8, 64),), strict=True)


def through_a_file(something):
    file = io.BytesIO()
    torch.save(something, file)
    file.seek(0)
    return torch.load(file, weights_only=False)


@pytest.mark.parametrize("copied", [copy.copy, lambda y: pickle.loads(pickle.dumps(y)), through_a_file])
def test_results_are_saved_without_a_warning(copied):
    first, second = remat.wrap(make()), remat.wrap(make())
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        y = first(torch.randn(8, 64))
        assert torch.equal(copied(y), y)
        z = second(y)  # in the first one's step
        assert torch.equal(copied({"y": z})["y"], z)
    z.sum().backward()
