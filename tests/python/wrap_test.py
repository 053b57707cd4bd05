"""remat.wrap: steps that begin and end by themselves, whatever the loop around them does."""

from __future__ import annotations

import collections

import pytest
import torch
from compare import blocks
from torch import nn
from wrapped import batch, both

import remat
from remat import _C


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
    in_a_step = []

    def loop(model):
        in_a_step.clear()
        for _ in range(3):
            loss = model(batch()).square().mean()
            for retain in (True, True, False):
                loss.backward(retain_graph=retain)
                in_a_step.append(_C.is_recording())

    report = both(loop).report()
    assert (report.step, report.completed) == (3, True)
    assert in_a_step == 3 * [True, True, False]


@pytest.mark.parametrize("kind", ["retain_graph", "create_graph"])
@pytest.mark.filterwarnings("ignore:Using backward\\(\\) with create_graph=True")
def test_graphs_that_are_retained_in_vain_do_not_make_one_endless_step(kind):
    def loop(model):
        for _ in range(6):
            model.zero_grad()
            loss = model(batch()).square().mean()  # the last iteration's is freed now
            loss.backward(**{kind: True})
        model.zero_grad()

    report = both(loop, budget="90%").report()
    assert (report.step, report.completed) == (5, True)


def test_results_that_are_held_until_they_are_assigned_anew_do_not_make_one_endless_step():
    def loop(model):
        for _ in range(6):
            model.zero_grad()
            value = model(batch()).square().mean()
            target = model(batch())  # as in Q-learning by someone who forgot no_grad; the last iteration's is freed now
            (value - target.detach().mean()).backward()

    report = both(loop, budget="90%").report()
    assert (report.step, report.completed) == (5, True)


def test_an_evaluation_with_gradients_has_steps_of_its_own():
    def loop(model):
        for _ in range(3):
            model(batch()).square().mean().backward()
            for _ in range(4):
                result = model(batch())  # by someone who forgot no_grad; the last one's is there when training goes on
        del result

    assert both(loop).report().step == 3 * 5 - 1  # it is learned with the second result, which is in the first's step


def test_a_loop_that_never_comes_to_a_backward_has_steps_that_end():
    model = remat.wrap(blocks(2))
    results = collections.deque(maxlen=20)
    for _ in range(60):
        results.append(model(batch()))
    assert remat.session_of(model).report().step > 30
    remat.unwrap(model)


def test_a_session_begins_a_step_though_a_result_is_kept():
    model = remat.wrap(blocks(2))
    kept = model(batch())
    session = remat.Session()
    with session.step():
        model(batch()).square().mean().backward()
    assert session.report().values_saved > 0
    kept.square().mean().backward()


def test_a_backward_that_comes_after_the_next_call_is_waited_for_again_after_all():
    in_a_step = []

    def loop(model):
        in_a_step.clear()
        held = model(batch())
        for i in range(9):
            value, held = model(batch()).square().mean(), model(batch()).square().mean()
            value.backward()
            if i < 4:
                continue  # held in vain
            model(batch()).square().mean().backward()
            in_a_step.append(_C.is_recording())
            held.backward()

    both(loop)
    assert in_a_step == [False] + 4 * [True]


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


def test_a_result_that_is_dropped_late_does_not_hold_up_the_end():
    in_a_step = []

    def loop(model):
        in_a_step.clear()
        for _ in range(3):
            loss = model(batch()).square().mean()
            loss = model(batch()).square().mean()  # the first is there until this one is
            loss.backward()
            in_a_step.append(_C.is_recording())

    report = both(loop).report()
    assert (report.step, report.completed) == (3, True)
    assert in_a_step == [False, False, False]


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


def smooth():
    return nn.Sequential(*(nn.Sequential(nn.Linear(64, 128), nn.Softplus(), nn.Linear(128, 64)) for _ in range(5)))


def test_a_penalty_that_does_not_come_to_the_result_again_ends_with_its_backward():
    in_a_step = []

    def loop(critic):
        in_a_step.clear()
        for _ in range(4):  # a critic with a gradient penalty: `between` is held until the next one replaces it
            x = batch().requires_grad_()
            between = critic(x)
            (gradient,) = torch.autograd.grad(between.sum(), x, create_graph=True)
            penalty = (gradient.norm(dim=1) - 1).square().mean()
            (critic(batch()).mean() - critic(batch()).mean() + penalty).backward()
            in_a_step.append(_C.is_recording())

    report = both(loop, budget="90%", make=smooth).report()
    assert (report.step, report.completed) == (4, True)
    assert report.plan is not None
    assert in_a_step == 4 * [False]


def test_a_penalty_alone_ends_its_step_at_the_next_call():
    def loop(critic):
        for _ in range(4):
            x = batch().requires_grad_()
            held = critic(x)
            (gradient,) = torch.autograd.grad(held.sum(), x, create_graph=True)
            gradient.square().mean().backward()
        critic(batch()).mean().backward()

    report = both(loop, budget="90%", make=smooth).report()
    assert (report.step, report.completed) == (5, True)


def test_an_interleaved_backward_of_another_result_leaves_a_retained_graph_in_its_step():
    in_a_step = []

    def loop(model):
        in_a_step.clear()
        for _ in range(3):
            first, second = (model(batch()).square().mean() for _ in range(2))
            first.backward(retain_graph=True)
            second.backward()
            in_a_step.append(_C.is_recording())
            first.backward()

    assert both(loop).report().step == 3
    assert in_a_step == 3 * [True]


@pytest.mark.parametrize("before", [False, True])
def test_held_results_that_no_backward_comes_to_do_not_make_one_endless_step(before):
    reports = []

    def loop(model):
        reports.clear()
        held = []
        for _ in range(6):
            if before:
                held.append(model(batch()))
            model(batch()).square().mean().backward()
            if not before:
                held.append(model(batch()))
            if model._forward_hooks and len(held) > 2:
                reports.append(remat.session_of(model).report())
        model(batch()).square().mean().backward()
        held.clear()
        model(batch()).square().mean().backward()

    both(loop, budget="60%")
    assert [report.step for report in reports] == ([2, 3, 4, 5] if before else [3, 4, 5, 6])
    assert all(report.completed for report in reports)
    assert reports[-1].plan is not None


class Heads(nn.Module):
    """Two results, with a trunk in common or with nothing."""

    def __init__(self, trunk=None):
        super().__init__()
        self.trunk, self.left, self.right = trunk or nn.Identity(), blocks(3), blocks(3)

    def forward(self, x):
        x = self.trunk(x)
        return self.left(x), self.right(x)


def trained_heads(use, make=Heads, steps=4):
    """Which of the backward passes of a step left it in progress: of the left result and, in the steps that `use` says,
    of the right one. And the last report."""
    in_a_step = []

    def loop(model):
        in_a_step.clear()
        for step in range(steps):
            left, right = model(batch())
            left.square().mean().backward()
            in_a_step.append([_C.is_recording()])
            if use(step):
                right.square().mean().backward()
                in_a_step[-1].append(_C.is_recording())

    report = both(loop, make=make, budget="60%").report()
    assert (report.step, report.completed) == (steps, True)
    return in_a_step, report


def test_two_results_with_a_backward_for_each_are_one_step():
    in_a_step, report = trained_heads(lambda step: True)
    assert in_a_step == 4 * [[True, False]]
    assert report.plan is not None
    assert report.peak_bytes <= report.budget_bytes


def test_a_result_that_is_held_holds_up_the_first_step_alone():
    in_a_step, report = trained_heads(lambda step: False)
    assert in_a_step == [[True], [False], [False], [False]]
    assert report.plan is not None


def test_a_result_whose_graph_is_gone_in_part_is_not_waited_for():
    in_a_step, _ = trained_heads(lambda step: False, make=lambda: Heads(blocks(2)))
    assert in_a_step == 4 * [[False]]


def test_a_result_that_backward_comes_to_again_is_waited_for_again():
    in_a_step, _ = trained_heads(lambda step: step >= 2, steps=5)
    assert in_a_step == [[True], [False], [False, False], [True, False], [True, False]]


def test_a_retained_graph_of_two_results_stays_in_its_step_until_each_had_its_own():
    in_a_step = []

    def loop(model):
        in_a_step.clear()
        for _ in range(3):
            left, right = (each.square().mean() for each in model(batch()))
            (left + right).backward(retain_graph=True)
            in_a_step.append(_C.is_recording())
            left.backward()
            in_a_step.append(_C.is_recording())
            right.backward()
            in_a_step.append(_C.is_recording())

    report = both(loop, make=Heads).report()
    assert (report.step, report.completed) == (3, True)
    assert in_a_step == 3 * [True, True, False]
