"""remat.wrap: steps that begin and end by themselves, whatever the loop around them does."""

from __future__ import annotations

import contextlib
import copy
import dataclasses
import pickle
import threading

import pytest
import torch
from compare import blocks, outcome, same_bits
from torch import nn

import remat
from remat import _C
from remat.wrap import _steps_of


def batch():
    return torch.randn(128, 64)


def both(loop, budget="50%", make=blocks):
    """Runs `loop(model)` on a plain model and on a wrapped one: same bits, and no step left. Returns the session."""
    torch.manual_seed(3)
    model = make()
    results = []
    for wrapped in (False, True):
        ours = copy.deepcopy(model)
        if wrapped:
            assert remat.wrap(ours, budget=budget) is ours
        torch.manual_seed(11)
        results.append(outcome(ours, loop(ours)))
    assert len(results[0]) == len(results[1])
    assert all(same_bits(a, b) for a, b in zip(*results))
    assert not _C.is_recording()
    return remat.session_of(ours)


def test_every_iteration_is_a_step_and_every_later_one_follows_a_plan():
    reports = []

    def loop(model):
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
        losses = []
        for _ in range(20):
            optimizer.zero_grad()
            loss = model(batch()).square().mean()
            loss.backward()
            if model._forward_hooks:
                reports.append(remat.session_of(model).report())
            optimizer.step()
            losses.append(loss.detach())
        return losses

    both(loop)
    assert [report.step for report in reports] == list(range(1, 21))
    assert all(report.completed and report.peak_bytes <= report.budget_bytes for report in reports)
    assert all(report.plan is not None and report.values_dropped > 0 for report in reports[1:])


def test_gradient_accumulation_has_a_step_for_each_micro_batch():
    def loop(model):
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
        for _ in range(3):
            for _ in range(4):
                (model(batch()).square().mean() / 4).backward()
            optimizer.step()
            optimizer.zero_grad()

    report = both(loop).report()
    assert report.step == 12
    assert report.plan is not None


@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
def test_two_forwards_before_the_backward_passes_are_one_step(order):
    def loop(model):
        for _ in range(3):
            losses = [model(batch()).square().mean().exp() for _ in range(2)]
            for which in order:
                losses[which].backward()

    report = both(loop).report()
    assert (report.step, report.completed) == (3, True)
    assert report.plan is not None


def test_two_forwards_and_one_backward_are_one_step():
    def loop(model):
        for _ in range(3):
            (model(batch()) - model(batch())).square().mean().backward()

    assert both(loop).report().step == 3


def test_a_retained_graph_stays_in_its_step_until_the_last_backward():
    def loop(model):
        for _ in range(3):
            loss = model(batch()).square().mean()
            loss.backward(retain_graph=True)
            loss.backward(retain_graph=True)
            loss.backward()

    report = both(loop).report()
    assert (report.step, report.completed) == (3, True)


def test_a_penalty_on_gradients_is_part_of_the_step():
    def loop(model):
        for _ in range(3):
            x = batch().requires_grad_()
            loss = model(x).square().mean()
            (gradient,) = torch.autograd.grad(loss, x, create_graph=True)
            (loss + gradient.square().sum()).backward()

    assert both(loop, budget="90%").report().step == 3


def test_a_forward_without_backward_ends_at_the_next_call():
    def loop(model):
        for _ in range(3):
            model(batch())
            model(batch()).square().mean().backward()

    report = both(loop).report()
    assert (report.step, report.completed) == (6, True)


def test_results_without_backward_that_live_for_a_while_do_not_hold_up_steps():
    def loop(model):
        loss = None
        for _ in range(4):  # evaluation by someone who forgot no_grad
            loss = model(batch()).square().mean()
        del loss
        for _ in range(3):
            model(batch()).square().mean().backward()

    session = both(loop)
    assert session.report().completed
    assert session.report().plan is not None


def test_evaluation_without_gradients_is_no_step():
    def loop(model):
        results = []
        for _ in range(3):
            model.train()
            model(batch()).square().mean().backward()
            model.eval()
            with torch.no_grad():
                results.append(model(batch()))
            with torch.inference_mode():
                results.append(model(batch()).clone())
        return results

    assert both(loop, make=lambda: blocks(norm=True)).report().step == 3


def test_no_grad_between_forward_and_backward_leaves_the_step_alone():
    def loop(model):
        for _ in range(3):
            loss = model(batch()).square().mean()
            with torch.no_grad():
                model(batch())
            loss.backward()

    assert both(loop).report().step == 3


class Fails(nn.Module):
    """Raises `error` once, in its second call."""

    def __init__(self, error):
        super().__init__()
        self.inner, self.after, self.error, self.calls = blocks(3), blocks(3), error, 0

    def forward(self, x):
        x = self.inner(x)
        self.calls += 1
        if self.calls == 2:
            raise self.error
        return self.after(x)


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt])
def test_an_error_in_forward_ends_the_step_and_the_next_call_begins_one(error):
    def loop(model):
        for _ in range(5):
            with contextlib.suppress(error):
                model(batch()).square().mean().backward()

    report = both(loop, make=lambda: Fails(error)).report()
    assert (report.step, report.completed) == (5, True)
    assert report.plan is not None


def test_an_error_in_backward_ends_the_step_at_the_next_call():
    class Raises(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x, fails):
            ctx.fails = fails
            return x.clone()

        @staticmethod
        def backward(ctx, gradient):
            if ctx.fails:
                raise ValueError
            return gradient, None

    def loop(model):
        for i in range(4):
            x = Raises.apply(batch().requires_grad_(), i == 1)
            with contextlib.suppress(ValueError):
                model(x).square().mean().backward()
            model.zero_grad()

    report = both(loop).report()
    assert (report.step, report.completed) == (4, True)


def test_too_small_a_budget_is_an_error_and_the_model_can_be_tried_again():
    model = remat.wrap(blocks(), budget=remat.memory.current("cpu") + (300 << 10))
    with pytest.raises(remat.BudgetError):
        model(batch()).square().mean().backward()
    model.zero_grad()
    remat.wrap(model, budget="50%")
    for _ in range(3):
        model(batch()).square().mean().backward()
    assert remat.session_of(model).report().plan is not None


def test_a_wrapped_model_in_a_wrapped_model_is_part_of_its_step():
    inner = blocks(3)
    model = remat.wrap(nn.Sequential(remat.wrap(inner, budget="60%"), blocks(3)), budget="50%")
    for _ in range(3):
        model(batch()).square().mean().backward()
    assert remat.session_of(model).report().step == 3
    with pytest.raises(remat.Error, match="step"):
        remat.session_of(inner).report()


def test_in_a_step_of_the_users_the_model_has_none_of_its_own():
    model = remat.wrap(blocks(), budget="50%")
    session = remat.Session(budget="60%")
    for _ in range(2):
        with session.step():
            model(batch()).square().mean().backward()
    assert session.report().step == 2
    with pytest.raises(remat.Error):
        remat.session_of(model).report()


def test_two_models_of_an_adversarial_pair_have_their_steps():
    torch.manual_seed(3)
    pair = nn.ModuleList([blocks(3), blocks(3)])

    def loop(pair):
        generator, critic = pair
        for _ in range(3):
            fake = generator(batch())
            (critic(fake.detach()).mean() - critic(batch()).mean()).backward()
            critic.zero_grad()
            critic(fake).mean().neg().backward()
            critic(batch()).mean().backward()

    results = []
    for wrapped in (False, True):
        ours = copy.deepcopy(pair)
        if wrapped:
            remat.wrap(ours[0], budget="60%")
            remat.wrap(ours[1], budget="60%")
        torch.manual_seed(11)
        loop(ours)
        results.append(outcome(ours, []))
    assert all(same_bits(a, b) for a, b in zip(*results))
    assert [remat.session_of(part).report().step for part in ours] == [3, 3]


@dataclasses.dataclass
class Output:
    loss: torch.Tensor
    unused: list


class Cached(nn.Module):
    """Returns, beside its loss, results that no backward comes to, as caches of keys and values are."""

    def __init__(self):
        super().__init__()
        self.inner, self.side = blocks(), blocks(2)

    def forward(self, x):
        side = self.side(x)
        return Output(self.inner(x).square().mean(), [{"side": (side,)}])


@pytest.mark.parametrize("keeps", [False, True])
def test_results_that_no_backward_reaches_do_not_hold_up_the_end(keeps):
    kept = []

    def loop(model):
        kept.clear()
        for _ in range(4):
            output = model(batch())
            if keeps:
                kept.append(output.unused)
            output.loss.backward()
            del output

    report = both(loop, make=Cached, budget="70%").report()
    assert (report.step, report.completed) == (4, True)
    assert report.plan is not None


def test_a_model_that_hands_out_its_parameter_gathers_no_hooks():
    class Tied(nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = blocks(3)

        def forward(self, x):
            return self.inner(x), self.inner[0][0].weight

    model = remat.wrap(Tied(), budget="60%")
    for _ in range(3):
        result, weight = model(batch())
        (result.square().mean() + weight.square().mean()).backward()
    assert not weight._backward_hooks
    assert remat.session_of(model).report().step == 3


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda model: pickle.loads(pickle.dumps(model))])
def test_copies_are_wrapped_with_a_session_of_their_own(copied):
    model = remat.wrap(blocks(), budget="50%")
    model(batch()).square().mean().backward()
    other = copied(model)
    for _ in range(2):
        other(batch()).square().mean().backward()
    assert remat.session_of(model).report().step == 1
    assert remat.session_of(other).report().step == 2
    assert remat.unwrap(other) is other
    with pytest.raises(remat.Error, match="not wrapped"):
        remat.session_of(other)
    assert _steps_of(model) is not None


def test_unwrapping_ends_the_step_and_leaves_no_hooks():
    model = remat.wrap(blocks(), budget="50%")
    loss = model(batch()).square().mean()
    assert _C.is_recording()
    remat.unwrap(model)
    assert not _C.is_recording()
    loss.backward()
    assert not model._forward_hooks and not model._forward_pre_hooks
    assert not model._forward_hooks_always_called
    assert remat.unwrap(model) is model


def test_nonsense_is_refused_when_wrapping():
    model = blocks()
    with pytest.raises(remat.Error):
        remat.wrap(model, budget="much")
    with pytest.raises(remat.Error, match="not wrapped"):
        remat.session_of(model)


def test_another_thread_may_train_its_copy():
    model = remat.wrap(blocks(3))  # no percent budget: what one thread has counts for the other's limit
    errors = []

    def work(model):
        try:
            for _ in range(4):
                model(batch()).square().mean().backward()
        except Exception as error:
            errors.append(error)

    copies = [copy.deepcopy(model) for _ in range(2)]
    threads = [threading.Thread(target=work, args=(each,)) for each in copies]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not errors
    assert [remat.session_of(each).report().step for each in copies] == [4, 4]
