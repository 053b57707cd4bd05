"""torch.inference_mode() around parts of a step: backward, what reads saved tensors, forward."""

from __future__ import annotations

import contextlib

import pytest
import torch
from compare import assert_same, blocks, run
from scopes import assert_exact_when_dropped, assert_exact_within, loss_of
from torch import nn
from torch.testing._internal.two_tensor import TwoTensor
from torch.utils._pytree import tree_leaves

import remat

pytestmark = pytest.mark.usefixtures("one_thread")


class Mixed(nn.Module):
    """Layers whose replays differ: random numbers, statistics, softmax, integers, writes in place, views."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(32, 64)
        self.body = blocks(3, norm=True)
        self.head = nn.Linear(64, 16)

    def forward(self, ids):
        y = self.body(self.embedding(ids))
        y = torch.cat([(y[:, :32] * 3).mul_(2), torch.max(y[:, 32:], 0 * y[:, 32:])], 1)
        return self.head(y).log_softmax(1)


def mixed(model):
    return nn.functional.nll_loss(model(torch.randint(32, (512,))), torch.randint(16, (512,)))


@pytest.mark.filterwarnings("ignore:Using backward.. with create_graph")
@pytest.mark.parametrize("create_graph", [False, True])
def test_backward(create_graph):
    def program(model):
        loss = mixed(model)
        with torch.inference_mode():
            loss.backward(create_graph=create_graph)
        gradients = [p.grad.clone() for p in model.parameters()]
        assert all(p.grad.is_inference() for p in model.parameters())
        model.zero_grad()
        return loss.detach(), gradients

    assert_exact_when_dropped(Mixed(), program)
    assert_exact_within(Mixed(), program)


def test_backward_through_a_retained_graph():
    """What one backward has recomputed is read by the next, which makes a graph of its own."""

    def program(model):
        x = torch.randn(64, 64, requires_grad=True)
        loss = loss_of(model(x))
        with torch.inference_mode():
            first = torch.autograd.grad(loss, x, retain_graph=True)
        (second,) = torch.autograd.grad(loss, x, create_graph=True)
        second.square().sum().backward(retain_graph=True)
        with torch.inference_mode():
            loss.backward()
        return loss.detach(), first, second.detach()

    def cleared(model):
        model.zero_grad()
        return program(model)

    assert_exact_when_dropped(blocks(), cleared)


def test_saved_tensors_that_a_user_reads():
    def program(model):
        hidden = [torch.randn(512, 64)]
        for block in model:
            hidden.append(block(hidden[-1]).sin())
        loss = loss_of(hidden[-1])
        with torch.inference_mode():
            saved = [h.grad_fn._saved_self for h in hidden[1:]]
        kinds = [(t.is_inference(), t._version) for t in saved]
        again = [t * 2 for t in saved]
        loss.backward()
        return loss.detach(), saved, again, torch.tensor(kinds)

    assert_exact_when_dropped(blocks(), program)


def test_custom_functions():
    seen = []

    class Cube(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return x**3

        @staticmethod
        def backward(ctx, gradient):
            (x,) = ctx.saved_tensors
            seen.append((x.is_inference(), torch.is_inference_mode_enabled(), torch.is_grad_enabled()))
            return 3 * gradient * x**2

    def program(model):
        loss = loss_of(Cube.apply(model(torch.randn(512, 64)).tanh()))
        with torch.inference_mode():
            loss.backward()
        kinds = torch.tensor(seen[-1])
        model.zero_grad()
        return loss.detach(), kinds

    assert_exact_when_dropped(blocks(), program)


def test_operators_with_kernels_at_autograds_keys(library="inference_mode_test"):
    """A replay calls the kernel that forward called."""
    definitions = torch.library.Library(library, "FRAGMENT")
    definitions.define("scale(Tensor x) -> Tensor")
    definitions.impl("scale", lambda x: x * 3, "Autograd")
    definitions.impl("scale", lambda x: x * 5, "CPU")
    remat.operators.repeatable(f"{library}::scale")

    def program(model):
        loss = loss_of(model(getattr(torch.ops, library).scale(model[0](torch.randn(512, 64))).sin()))
        with torch.inference_mode():
            loss.backward()
        gradients = [p.grad.clone() for p in model.parameters()]
        model.zero_grad()
        return loss.detach(), gradients

    assert_exact_when_dropped(blocks(), program)


@pytest.mark.parametrize("amp", [False, True])
@pytest.mark.parametrize("scope", ["wrap", "enable", "checkpoint"])
def test_other_scopes(scope, amp):
    def program(model):
        with torch.autocast("cpu", torch.bfloat16, enabled=amp):
            loss = loss_of(model(torch.randn(512, 64)))
        with torch.inference_mode():
            loss.backward()
        gradients = [p.grad.clone() for p in model.parameters()]
        model.zero_grad()
        return loss.detach(), gradients

    class Checkpointed(nn.Module):
        def __init__(self):
            super().__init__()
            self.body = blocks()

        def forward(self, x):
            for block in self.body:
                x = remat.checkpoint(block, x) if self.remat else block(x)
            return x

    def results(ours):
        torch.manual_seed(0)
        model = Checkpointed()
        model.remat = ours and scope == "checkpoint"
        if ours and scope == "wrap":
            remat.wrap(model, budget="60%")
        if ours and scope == "enable":
            remat.enable(model)
        return [program(model) for _ in range(3)]

    assert_same(tree_leaves(results(False)), tree_leaves(results(True)))


def test_a_part_of_forward_and_hooks():
    """The mode around what is no backward: an evaluation in the step, and a hook that runs inside of backward."""

    def program(model):
        x = torch.randn(512, 64)
        with torch.inference_mode():
            target = model(x).mean()
            x.mul_(2)
        y = model(x)

        def hook(gradient):
            with torch.inference_mode():
                gradient = gradient * 2
            return gradient.clone()

        y.register_hook(hook)
        loss = loss_of(y - target.clone())
        loss.backward()
        return loss.detach()

    assert_exact_when_dropped(blocks(), program)


def test_a_step_inside_of_the_mode():
    def program(model):
        with torch.inference_mode(False):
            loss = loss_of(model(torch.randn(512, 64)))
        loss.backward()
        gradients = [p.grad.clone() for p in model.parameters()]
        model.zero_grad()
        return loss.detach(), gradients

    session = remat.Session(budget="60%")

    @contextlib.contextmanager
    def scope():
        with torch.inference_mode(), session.step():
            yield

    model = blocks()
    assert_same(run(model, program, torch.inference_mode, 3), run(model, program, scope, 3))
    assert session.report().values_dropped > 0


def two():
    return TwoTensor(torch.randn(64, 8, requires_grad=True), torch.randn(64, 8, requires_grad=True))


def jagged():
    return torch.nested.nested_tensor([torch.randn(2, 8), torch.randn(3, 8)], layout=torch.jagged, requires_grad=True)


@pytest.mark.parametrize("make", [two, jagged])
def test_tensors_made_of_others_are_refused(make):
    """PyTorch makes an inference tensor of what any unpack hook gives it, and fails."""
    with remat.Session().step():
        x = make()
        y = (x.sin() * 2).cos()
        with torch.inference_mode(), pytest.raises(remat.Error, match=r"\[backward\] a tensor that wraps others"):
            _ = y.grad_fn._saved_self
        with torch.no_grad():
            assert y.grad_fn._saved_self.shape == x.shape


def test_constants_made_of_others():
    def program(model):
        scale = TwoTensor(torch.randn(512, 64), torch.randn(512, 64))
        y = scale.sin() * TwoTensor(*2 * [torch.randn(512, 64)]).requires_grad_()
        with torch.inference_mode():
            saved = y.grad_fn._saved_self
        return saved.a, saved.b, torch.tensor([saved.is_inference(), saved.a.is_inference()])

    assert_exact_when_dropped(blocks(1), program)


@pytest.mark.parametrize("in_backward", [False, True])
def test_updates(in_backward):
    def train(ours):
        torch.manual_seed(0)
        model = blocks(norm=True)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
        session = remat.Session(budget="70%")
        if ours and in_backward:
            remat.optimizer_in_backward(optimizer)
        for _ in range(3):
            with session.step() if ours else contextlib.nullcontext():
                loss = loss_of(model(torch.randn(512, 64)))
                with torch.inference_mode():
                    loss.backward()
                    if not (ours and in_backward):
                        optimizer.step()
                        optimizer.zero_grad()
        assert not ours or session.report().values_dropped > 0
        return [loss.detach(), *model.state_dict().values()]

    assert_same(train(False), train(True))
