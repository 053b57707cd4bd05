"""remat.wrap: what is around the model: scopes, torch's checkpoints, another device."""

from __future__ import annotations

import warnings

import pytest
import torch
from compare import blocks
from torch import nn
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from torch.utils import checkpoint as theirs
from wrapped import batch, both

import remat
from remat import _C, model_session
from remat.device import device_of


@pytest.fixture
def no_warnings():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        yield


def in_a_policy(model):
    with remat.policy():
        return model(batch())


def in_a_checkpoint(model):
    return remat.checkpoint(model, batch())


def in_an_enabled_block(model):
    block = nn.Sequential(model)
    return remat.enable(block, blocks=[block])(batch())


@pytest.mark.parametrize("call", [in_a_policy, in_a_checkpoint, in_an_enabled_block])
def test_a_scope_around_a_wrapped_model_is_told_of_once(call):
    model = remat.wrap(blocks(2), budget="50%")
    with pytest.warns(RuntimeWarning, match=r"\[wrap\].*budget does not hold; put the scope inside the model"):
        call(model).sum().backward()
    with pytest.raises(remat.Error, match="no step has ended"):
        remat.session_of(model).report()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        call(model).sum().backward()


@pytest.mark.parametrize("call", [in_a_policy, in_a_checkpoint, in_an_enabled_block])
def test_a_scope_in_a_step_is_not_told_of(call, no_warnings):
    inner = remat.wrap(blocks(2), budget="50%")
    session = remat.Session(budget="50%")
    with session.step():
        call(inner).sum().backward()
    assert session.report().completed

    class Outer(nn.Module):
        def __init__(self):
            super().__init__()
            self.before, self.inner = blocks(1), [inner]

        def forward(self, x):
            return call(self.inner[0]) + self.before(x)

    model = remat.wrap(Outer(), budget="50%")
    model(batch()).sum().backward()
    assert remat.session_of(model).report().completed


def in_a_hook(model):
    """As GradCache does: once without gradients, and with them in a hook of the loss over what that gave."""
    with torch.no_grad():
        made = model(batch())
    made.requires_grad_()
    loss = made.square().mean()

    def with_gradients(_):
        with torch.enable_grad():
            model(batch()).sum().backward()

    loss.register_hook(with_gradients)
    return loss


def in_a_reentrant_checkpoint(model):
    return theirs.checkpoint(model, batch().requires_grad_(), use_reentrant=True)


@pytest.mark.parametrize("call", [in_a_hook, in_a_reentrant_checkpoint])
def test_calls_inside_of_backward_alone_are_told_of_once(call):
    model = remat.wrap(blocks(2), budget="50%")
    with pytest.warns(RuntimeWarning, match=r"\[wrap\].*inside of a backward.*budget does not hold; begin one around"):
        call(model).sum().backward()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        call(model).sum().backward()


@pytest.mark.parametrize("call", [in_a_hook, in_a_reentrant_checkpoint])
def test_calls_inside_of_a_steps_backward_are_not_told_of(call, no_warnings):
    model = remat.wrap(blocks(2), budget="50%")
    session = remat.Session()
    with session.step():
        call(model).sum().backward()
    assert session.report().completed


def ended(step):
    step.end()
    return step


def left(step):
    with step:
        return step


@pytest.mark.parametrize("over", [ended, left, lambda step: None])  # a step that is forgotten ends
def test_a_scope_after_a_step_is_told_of(over):
    held = over(remat.Session().step())
    model = remat.wrap(blocks(2), budget="50%")
    with pytest.warns(RuntimeWarning, match="budget does not hold"):
        in_a_policy(model)
    del held


def test_evaluation_in_a_scope_is_not_told_of(no_warnings):
    model = remat.wrap(blocks(2), budget="50%")
    with torch.no_grad():
        in_a_policy(model)


@pytest.mark.parametrize("early_stop", [True, False])
def test_their_checkpoint_around_a_wrapped_model_leaves_its_step(early_stop):
    in_a_step = []

    def loop(model):
        in_a_step.clear()
        for _ in range(3):
            x = batch().requires_grad_()
            with theirs.set_checkpoint_early_stop(early_stop):
                y = theirs.checkpoint(model, x.exp(), use_reentrant=False)
                loss = y.square().mean()
                y.register_hook(lambda _: in_a_step.append(_C.is_recording()))
                x.register_hook(lambda _: in_a_step.append(_C.is_recording()))
                loss.backward()
            in_a_step.append(_C.is_recording())

    report = both(loop, budget=None).report()
    assert (report.step, report.completed) == (3, True)
    assert in_a_step == 3 * [True, True, False]


def test_their_reentrant_checkpoint_around_a_wrapped_model_has_no_step():
    def loop(model):
        for _ in range(3):
            x = batch().requires_grad_()
            theirs.checkpoint(model, x, use_reentrant=True).square().mean().backward()

    with pytest.warns(RuntimeWarning, match="inside of a backward"):
        session = both(loop)
    with pytest.raises(remat.Error, match="no step has ended"):
        session.report()


def test_a_model_that_calls_itself_without_gradients_is_in_one_call():
    in_a_step = []

    class Teaches(nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = blocks(3)

        def forward(self, x, again=True):
            if not again:
                return self.inner(x)
            with torch.no_grad():
                target = self(x, again=False)
            in_a_step.append(_C.is_recording())
            return (self.inner(x) - target).square().mean()

    def loop(model):
        in_a_step.clear()
        for _ in range(3):
            model(batch()).backward()

    report = both(loop, make=Teaches).report()
    assert (report.step, report.completed) == (3, True)
    assert in_a_step == [True] * 3


@pytest.fixture
def cuda_elsewhere(monkeypatch):
    """As on a machine with a device that the model is not on."""
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 0)
    assert device_of(None).type == "cuda"


def test_a_models_session_is_for_the_device_that_the_model_is_on(cuda_elsewhere):
    model = remat.wrap(blocks(3), budget="60%")
    for _ in range(2):
        model(batch()).square().mean().backward()
    report = remat.session_of(model).report()
    assert report.plan is not None
    assert report.peak_bytes <= report.budget_bytes


def test_a_model_that_has_moved_has_a_session_for_its_new_device(monkeypatch):
    model = remat.wrap(blocks(1))
    model(batch()).square().mean().backward()
    assert remat.session_of(model).report().step == 1
    before = remat.session_of(model)
    assert remat.session_of(model) is before
    monkeypatch.setattr(model_session, "device_of_model", lambda model: torch.device("meta"))
    assert remat.session_of(model) is not before
    named = remat.wrap(blocks(1), device="cpu")
    assert remat.session_of(named) is remat.session_of(named)


class OnMps(nn.Module):
    """As a model whose parameters are on a device that sessions do not know, which no test needs to have."""

    def parameters(self, recurse=True):
        yield FakeTensor(FakeTensorMode(), torch.empty(2, device="meta"), torch.device("mps"))

    def forward(self, x):
        return x * 2


def test_a_model_on_a_device_that_cannot_be_counted_is_refused_by_its_name():
    model = remat.wrap(OnMps(), budget="1GiB")
    with pytest.raises(remat.Error, match="mps.* is not supported"):
        model(batch())


@pytest.mark.parametrize("library", ["transformers", "lightning"])
def test_callbacks_budgets_are_for_the_device_that_the_model_is_on(cuda_elsewhere, library):
    integration = pytest.importorskip(f"remat.integrations.{library}", reason=f"{library} is not installed")
    callback = integration.RematCallback(budget="60%")
    model = blocks(3)
    session = model_session.ModelSession(callback._options).of(model)
    with session.step():
        model(batch()).square().mean().backward()
    assert session.report().peak_bytes > 0


def test_a_result_that_torch_func_jvp_unwraps_is_under_the_budget():
    """Its loss comes after jvp() has returned, and the wrapper that the model gave back is gone."""
    torch.manual_seed(3)
    model, x = blocks(2), batch()

    def run():
        y, tangent = torch.func.jvp(model, (x,), (torch.ones_like(x),))
        (y.repeat(1, 200).tanh().square().mean() + tangent.square().mean()).backward()

    remat.memory.reset_peak("cpu")
    before = remat.memory.current("cpu")
    run()
    needed = remat.memory.peak("cpu") - before
    model.zero_grad()
    remat.wrap(model, budget=remat.memory.current("cpu") + needed // 3)
    with pytest.raises(remat.BudgetError):
        run()
    remat.wrap(model, budget="device")
    run()
    report = remat.session_of(model).report()
    assert report.completed and report.peak_bytes - report.baseline_bytes > 0.9 * needed
