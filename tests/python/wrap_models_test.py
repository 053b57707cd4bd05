"""remat.wrap on models that fail, nest, are copied, or return more than a tensor."""

from __future__ import annotations

import contextlib
import copy
import dataclasses
import pickle
import threading
import weakref

import pytest
import torch
from compare import blocks, outcome, same_bits
from torch import nn
from wrapped import batch, both

import remat
from remat import _C
from remat.wrap import _steps_of


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


def wrapped_pair(loop):
    """A generator and a critic, each wrapped, after `loop` trained them to the bits that it gives them unwrapped."""
    torch.manual_seed(3)
    pair = nn.ModuleList([blocks(3), blocks(3)])
    results = []
    for wrapped in (False, True):
        ours = copy.deepcopy(pair)
        if wrapped:
            remat.wrap(ours[0], budget="60%")
            remat.wrap(ours[1], budget="60%")
        torch.manual_seed(11)
        loop(*ours)
        results.append(outcome(ours, []))
    assert all(same_bits(a, b) for a, b in zip(*results))
    return ours


def test_two_models_of_an_adversarial_pair_have_their_steps():
    def loop(generator, critic):
        for _ in range(3):
            fake = generator(batch())
            (critic(fake.detach()).mean() - critic(batch()).mean()).backward()
            critic.zero_grad()
            critic(fake).mean().neg().backward()
            critic(batch()).mean().backward()

    assert [remat.session_of(part).report().step for part in wrapped_pair(loop)] == [3, 3]


def test_a_model_whose_graph_was_dropped_does_not_keep_the_next_from_its_step():
    def loop(generator, critic):
        for _ in range(4):
            fake = generator(batch()).detach()
            (critic(fake).mean() - critic(batch()).mean()).backward()

    generator, critic = (remat.session_of(part).report() for part in wrapped_pair(loop))
    assert (generator.step, generator.completed) == (4, False), "no backward comes to it"
    assert (critic.step, critic.completed) == (4, True)
    assert critic.values_dropped > 0


def test_a_teacher_whose_results_are_held_does_not_make_one_endless_step():
    def loop(teacher, student):
        for _ in range(5):
            target = teacher(batch())  # by someone who forgot no_grad; the last iteration's is freed now
            (student(batch()) - target.detach()).square().mean().backward()

    report = remat.session_of(wrapped_pair(loop)[0]).report()
    assert (report.step, report.completed) == (4, True)


def test_a_result_that_is_kept_for_ever_does_not_make_one_endless_step():
    kept = []

    def loop(first, second):
        kept.append(first(batch()))
        for _ in range(40):
            second(batch()).square().mean().backward()

    first, second = wrapped_pair(loop)
    assert remat.session_of(first).report().completed
    assert remat.session_of(second).report().step == 40 - 32


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
    with pytest.raises(remat.Error, match="no torch.nn.Module"):
        remat.wrap(lambda x: x)
    with pytest.raises(remat.Error, match="not wrapped"):
        remat.session_of(lambda x: x)
    with pytest.raises(remat.Error, match="TorchScript"):
        remat.wrap(torch.jit.script(nn.Linear(3, 3)))


@pytest.mark.parametrize("container", [nn.ModuleList, nn.ModuleDict, nn.Module])
def test_a_module_that_is_never_called_is_refused_when_wrapping(container):
    with pytest.raises(remat.Error, match=r"has no forward\(\)"):
        remat.wrap(container())


def test_a_module_with_a_forward_of_its_own_is_wrapped():
    model = nn.ModuleList([nn.Linear(64, 64)])
    model.forward = lambda x: model[0](x)
    remat.wrap(model, budget="50%")
    model(batch()).square().mean().backward()
    assert remat.session_of(model).report().completed


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


def test_losses_that_are_held_do_not_hold_their_steps():
    model = remat.wrap(blocks(3), budget="60%")
    losses, steps = [], []
    for _ in range(3):
        losses.append(model(batch()).square().mean())
        steps.append(weakref.ref(_steps_of(model).step))
        losses[-1].backward()
    assert [step() for step in steps] == [None, None, None]


class Slotted:
    __slots__ = "loss"

    def __init__(self, loss):
        self.loss = loss


def test_results_in_an_object_with_slots_are_found():
    class Returns(nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = blocks()

        def forward(self, x):
            return Slotted(self.inner(x).square().mean())

    def loop(model):
        for _ in range(3):
            model(batch()).loss.backward()

    report = both(loop, make=Returns).report()
    assert (report.step, report.completed) == (3, True)


def test_results_that_cannot_be_found_are_told_of():
    class Hides(nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = blocks()

        def forward(self, x):
            loss = self.inner(x).square().mean()
            return lambda: loss

    model = remat.wrap(Hides(), budget="50%")
    with pytest.warns(RuntimeWarning, match=r"outside the budget; return tensors"):
        loss = model(batch())
    loss().backward()


class Lazy(nn.Module):
    """Runs its blocks when somebody asks for the next result."""

    def __init__(self):
        super().__init__()
        self.inner = blocks()

    def forward(self, x):
        for block in self.inner:
            x = block(x)
            yield x


class Awaited(Lazy):
    async def forward(self, x):
        return self.inner(x)


@pytest.mark.parametrize("make", [Lazy, Awaited])
def test_results_that_run_the_model_later_are_told_of(make):
    model = remat.wrap(make(), budget="50%")
    with pytest.warns(RuntimeWarning, match=r"runs it after forward has returned"):
        result = model(batch())
    if make is Awaited:
        result.close()
    else:
        sum(y.square().mean() for y in result).backward()
