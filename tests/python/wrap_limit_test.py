"""remat.wrap: where its budget holds, and where a step ends that nobody goes on with."""

from __future__ import annotations

import gc
import warnings

import pytest
import torch
from compare import blocks
from scopes import doing_in_backward
from torch import nn
from wrapped import batch, both

import remat
from remat import _C

TOO_MUCH = 64 << 20  # bytes


def too_much():
    """What a notebook's next cell does."""
    torch.zeros(TOO_MUCH // 4)
    a = torch.ones(TOO_MUCH // 8, requires_grad=True)  # training of another model
    (a * 2).sum().backward()


def wrapped(make=blocks, budget=1 << 20):
    """A wrapped model with `budget` bytes above what is alive."""
    model = make()
    x = batch()
    remat.wrap(model)
    model(x).sum().backward()  # its gradients are there now, and all is counted
    gc.collect()
    return remat.wrap(model, budget=remat.memory.current("cpu") + budget, planner="online"), x


def test_after_a_refusal_in_forward_nothing_is_refused():
    model, x = wrapped(budget=60_000)
    with pytest.raises(remat.BudgetError, match=r"step 1 of remat.wrap\(Sequential\)"):
        model(x)
    assert not _C.is_recording()
    too_much()


def fails(loss):
    """A backward that a hook of the user's makes fail."""

    def hook(_):
        raise ValueError("mine")

    loss.register_hook(hook)
    with pytest.raises(ValueError, match="mine"):
        loss.backward()


def fails_late(loss):
    def fail():
        raise ValueError("mine")

    with pytest.raises(ValueError, match="mine"):
        doing_in_backward(fail).apply(loss.exp()).backward()


class FailsInside(nn.Module):
    """Its backward fails behind the result."""

    def __init__(self):
        super().__init__()
        self.before, self.after = blocks(3), blocks(3)

    def forward(self, x):
        def hook(_):
            raise ValueError("mine")

        y = self.before(x)
        if self.training:
            y.register_hook(hook)
        return self.after(y)


def test_a_backward_that_fails_ends_its_step():
    model, x = wrapped(make=lambda: FailsInside().eval())
    model.train()
    loss = model(x).square().mean()
    with pytest.raises(ValueError, match="mine"):
        loss.backward()
    assert not _C.is_recording()
    report = remat.session_of(model).report()
    assert (report.step, report.completed) == (1, False)
    too_much()
    model.eval()
    model(x).square().mean().backward()
    report = remat.session_of(model).report()
    assert (report.step, report.completed) == (2, True)


def test_a_backward_that_fails_before_it_comes_to_the_result_ends_the_step():
    model, x = wrapped()
    out = model(x)
    fails_late(out.square().mean())
    assert not _C.is_recording()
    assert not remat.session_of(model).report().completed
    too_much()
    del out


def test_a_backward_that_fails_leaves_nothing_of_its_input_alive():
    model, x = wrapped(make=lambda: FailsInside().eval())
    model(x).square().mean().backward()
    model.zero_grad()
    del x
    before = remat.memory.current()
    model.train()
    x = torch.randn(128, 64)
    with pytest.raises(ValueError, match="mine"):
        model(x).square().mean().backward()
    model.zero_grad()
    del x
    assert remat.memory.current() <= before


def test_a_backward_that_is_refused_memory_ends_its_step():
    hungry = doing_in_backward(lambda: torch.zeros(TOO_MUCH // 4))
    for inside in (False, True):
        last = Apply(hungry) if inside else nn.Identity()
        model, x = wrapped(make=lambda last=last: nn.Sequential(blocks(3), last))
        out = model(x)
        loss = out.square().mean() if inside else hungry.apply(out.exp()).mean()
        with pytest.raises(remat.BudgetError, match=r"remat.wrap\(Sequential\)"):
            loss.backward()
        assert not _C.is_recording()
        too_much()


class Apply(nn.Module):
    def __init__(self, function):
        super().__init__()
        self.function, self.hungry = function, True

    def forward(self, x):
        return self.function.apply(x.exp())


def test_an_interrupt_in_forward_leaves_no_limit():
    class Interrupted(nn.Module):
        def forward(self, x):
            if self.training:
                raise KeyboardInterrupt
            return x.exp()

    model, x = wrapped(make=lambda: nn.Sequential(blocks(2), Interrupted()).eval())
    model.train()
    with pytest.raises(KeyboardInterrupt):
        model(x)
    too_much()
    model.eval()
    model(x).square().mean().backward()
    report = remat.session_of(model).report()
    assert (report.step, report.completed) == (2, True)


def test_an_exception_between_forward_and_backward_leaves_no_limit():
    model, x = wrapped()
    with pytest.raises(ValueError):
        out = model(x)
        raise ValueError
    too_much()
    del out


def test_a_result_that_is_kept_leaves_no_limit():
    model, x = wrapped()
    kept = [model(x)]
    too_much()
    model(x).square().mean().backward()
    too_much()
    assert kept[0].grad_fn is not None


def test_the_loss_is_refused_memory():
    model, x = wrapped(budget=2 << 20)
    out = model(x)
    with pytest.raises(remat.BudgetError, match=r"step 1 of remat.wrap"):
        out.repeat(200, 1)
    with pytest.raises(remat.BudgetError, match=r"step 1 of remat.wrap"):
        torch.cat([torch.ones(1), out.sum(dim=1).exp()]).outer(torch.ones(10_000)).exp()
    too_much()


def test_a_backward_through_the_model_is_refused_memory_before_it_comes_there():
    model, x = wrapped(budget=2 << 20)
    out = model(x)
    loss = out.sum().expand(2_500_000)[0]  # its backward needs 10 MB
    with pytest.raises(remat.BudgetError):
        loss.backward()
    assert not _C.is_recording()
    too_much()


def test_a_call_in_the_step_of_another_wrapped_model_is_refused_memory():
    second = remat.wrap(blocks(12))
    first, x = wrapped(budget=2 << 20)
    out = first(x)
    with pytest.raises(remat.BudgetError, match=r"step 1 of remat.wrap"):
        second(batch().repeat(40, 1))
    too_much()
    out.square().mean().backward()
    assert remat.session_of(first).report().completed


@pytest.mark.parametrize("budget", ["1GiB", "90%"])
def test_the_smaller_budget_of_two_models_holds_in_the_step_of_one(budget):
    """What a notebook does: it keeps a result of one model, and trains another."""
    second, x = wrapped(budget=400 << 10)
    first = remat.wrap(blocks(), budget=budget)
    for _ in range(2):
        first(x).sum().backward()
    kept = first(x)
    with pytest.raises(remat.BudgetError, match=r"step 3 of .*, with remat.wrap\(Sequential\) inside, is out of memory"):
        second(x.repeat(4, 1))
    with pytest.raises(remat.BudgetError, match=r"step \d of remat.wrap\(Sequential\) is out of memory"):
        second(x.repeat(4, 1))
    del kept
    gc.collect()
    first(x).sum().backward()
    assert remat.session_of(first).report().completed


def test_a_share_that_does_not_hold_in_the_step_of_another_model_is_told_of_once():
    first, second, third = (remat.wrap(blocks(2), budget=b) for b in ("60%", "50%", "60%"))
    kept = first(batch())
    with pytest.warns(RuntimeWarning, match=r"\[wrap\].*a share of its own steps, does not hold; let go of"):
        second(batch()).sum().backward()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        second(batch()).sum().backward()
        third(batch()).sum().backward()
    del kept


def refused_in_the_loss(out):
    with pytest.raises(remat.BudgetError):
        (out @ torch.ones(64, 16384)).exp().sum()


def refused_in_another_model(out):
    other = remat.wrap(blocks(), budget=remat.memory.current("cpu") + 1000, planner="online")
    with pytest.raises(remat.BudgetError):
        other(out.detach().repeat(40, 1))


@pytest.mark.parametrize("refuse", [refused_in_the_loss, refused_in_another_model])
def test_after_a_refusal_the_next_call_is_another_attempt(refuse):
    model, x = wrapped(budget=2 << 20)
    out = model(x)  # held, as a notebook holds what a cell has computed
    refuse(out)
    anew = remat.wrap(blocks(), budget="1GiB")
    for _ in range(2):
        result = anew(x)
        big = (result @ torch.ones(64, 16384)).exp().mean()
        big.backward()
    report = remat.session_of(anew).report()
    assert report.step == 2 and report.completed and report.budget_bytes == 1 << 30
    assert not remat.session_of(model).report().completed
    assert out.grad_fn is not None


def test_the_loss_makes_the_model_give_up_values():
    def loop(model):
        for _ in range(3):
            model(batch()).repeat(3, 1).square().mean().backward()

    report = both(loop, budget="60%").report()
    assert report.values_dropped > 0
    assert report.peak_bytes <= report.budget_bytes


def test_work_between_makes_the_model_give_up_values_and_goes_on():
    model, x = wrapped(budget=2 << 20)
    out = model(x)
    between = torch.zeros(1 << 18)
    out.square().mean().backward()
    del between
    report = remat.session_of(model).report()
    assert report.completed and report.values_dropped > 0
    assert report.peak_bytes <= report.budget_bytes


class Two(nn.Module):
    def __init__(self):
        super().__init__()
        self.body, self.head = blocks(3), blocks(2)

    def forward(self, x):
        return self.body(x).square().mean(), self.head(x.detach()).square().mean()


def test_a_step_with_a_result_that_gets_no_backward_ends_when_the_result_is_gone():
    model = remat.wrap(Two(), budget="60%")
    loss, aux = model(batch())
    loss.backward()
    assert _C.is_recording()
    del loss, aux
    assert not _C.is_recording()
    assert remat.session_of(model).report().completed


def test_a_step_whose_results_are_gone_has_ended():
    model = remat.wrap(blocks(), budget="60%")
    out = model(batch())
    assert _C.is_recording()
    del out
    assert not _C.is_recording()
    assert not remat.session_of(model).report().completed


def test_values_that_others_hold_keep_the_step_though_its_results_are_gone():
    held = []
    model = blocks()
    model[1].register_forward_hook(lambda *args: held.append(args[2]))
    remat.wrap(model, budget="90%")
    for _ in range(2):
        out = model(batch())
        del out
        assert _C.is_recording()
        held.pop().square().mean().backward()


@pytest.mark.parametrize("scope", [torch.no_grad, torch.inference_mode])
def test_a_step_with_a_result_that_gets_no_backward_ends_at_a_call_without_gradients(scope):
    model = remat.wrap(Two(), budget="60%")
    loss, aux = model(batch())
    loss.backward()
    assert _C.is_recording()
    with scope():
        model(batch())
    assert not _C.is_recording()
    assert aux.grad_fn is not None


def test_an_evaluation_while_a_result_waits_is_not_recorded():
    def loop(model):
        results = []
        for _ in range(3):
            out = model(batch())
            with torch.no_grad():
                target = model(batch()).tanh()
                results.append(target * 2)
            (out - target).square().mean().backward()
        return results

    session = both(loop, make=lambda: blocks(norm=True))
    operators = session.report().ops_recorded

    def with_more(model):
        for _ in range(3):
            out = model(batch())
            with torch.no_grad():
                for _ in range(50):
                    target = model(batch()).tanh()
            (out - target).square().mean().backward()

    assert both(with_more, make=lambda: blocks(norm=True)).report().ops_recorded <= operators


class Collecting(nn.Sequential):
    """The collector runs whenever it likes."""

    def forward(self, x):
        gc.collect()
        return super().forward(x)


def test_what_was_garbage_before_is_not_taken_off_the_first_step():
    """A notebook's cell that is run again has left a compiled model behind, in reference cycles."""

    def plain_peak(garbage):
        model = remat.wrap(Collecting(nn.Linear(64, 256), nn.GELU(), nn.Linear(256, 64)), "80%")
        cycle = [torch.zeros(1 << 16 if garbage else 1)]
        cycle.append(cycle)
        del cycle
        model(torch.randn(256, 64)).square().mean().backward()
        return remat.session_of(model).report().plain_activation_peak_bytes

    assert plain_peak(garbage=True) == plain_peak(garbage=False)
