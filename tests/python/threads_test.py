"""Threads that train at once, each with its own session, scope or none."""

from __future__ import annotations

import contextlib
import sys
import threading
import warnings

import numpy as np
import pytest
import torch
from compare import blocks, same_bits
from scopes import Dropping, loss_of

import remat
from remat import _C


def train(scope, seed):
    generator = torch.Generator().manual_seed(seed)
    model = blocks(3, dropout=0.0)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=generator) * 0.1)
    optimizer = torch.optim.Adam(model.parameters())
    losses = []
    for _ in range(5):
        optimizer.zero_grad()
        with scope():
            x = model(torch.randn(256, 64, generator=generator))
            loss = loss_of(x * torch.rand(x.shape, generator=generator))
            loss.backward()
        optimizer.step()
        losses.append(loss.detach())
    return losses + list(model.parameters())


def test_each_thread_has_plains_bits():
    torch.set_num_threads(torch.get_num_threads())
    kinds = [contextlib.nullcontext, Dropping, lambda: remat.Session(planner="online").step, lambda: remat.policy]
    plain, ours, errors = {}, {}, []

    def work(results, seed, make):
        try:
            scope = make() if make is not contextlib.nullcontext else make
            results[seed] = train(scope, seed)
        except BaseException as error:
            errors.append(error)

    for results in (plain, ours):
        threads = [
            threading.Thread(target=work, args=(results, seed, contextlib.nullcontext if results is plain else kind))
            for seed, kind in enumerate(kinds * 2)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert not errors
    for seed in plain:
        assert all(same_bits(a, b) for a, b in zip(plain[seed], ours[seed], strict=True))


def test_forward_work_of_another_thread_is_kept():
    from compare import blocks
    from scopes import assert_exact_when_dropped

    def program(model):
        made = []
        state = torch.get_rng_state()

        def work():
            made.append(model[0](torch.ones(32, 64)).exp())

        thread = threading.Thread(target=work)
        thread.start()
        thread.join()
        torch.set_rng_state(state)
        loss = loss_of(model[1](made[0]).exp())
        loss.backward()
        return loss.detach()

    assert_exact_when_dropped(blocks(2), program)


def test_two_backwards_of_one_graph_at_once():
    model = blocks(3, dropout=0.0)
    x = torch.randn(64, 64, requires_grad=True)
    y = model(x)
    expected = [torch.autograd.grad(loss_of(y * k), x, retain_graph=True)[0] for k in (1, 2)]
    for _ in range(5):
        with Dropping()():
            y = model(x)
            losses = [loss_of(y * k) for k in (1, 2)]
            found = [None, None]

            def work(i, losses=losses, found=found):
                (found[i],) = torch.autograd.grad(losses[i], x, retain_graph=True)

            threads = [threading.Thread(target=work, args=(i,)) for i in range(2)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
        assert all(same_bits(a, b) for a, b in zip(expected, found, strict=True))


def test_threads_that_call_one_model_at_once_share_its_steps():
    torch.manual_seed(3)
    model = blocks(3, dropout=0.0)
    x = torch.randn(128, 64)

    def gradients():
        return torch.autograd.grad(model(x).square().mean(), list(model.parameters()))

    plain = gradients()
    remat.wrap(model)
    different, errors = [], []

    def work():
        try:
            for _ in range(20):
                different.extend(i for i, (a, b) in enumerate(zip(gradients(), plain)) if not same_bits(a, b))
        except Exception as error:
            errors.append(error)

    threads = [threading.Thread(target=work, daemon=True) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert not any(thread.is_alive() for thread in threads)
    assert not errors and not different
    gradients()
    assert remat.session_of(model).report().completed
    remat.unwrap(model)


def test_a_step_that_a_thread_left_behind_ends_at_the_next_call_of_another():
    model = remat.wrap(blocks(3), budget="60%")
    thread = threading.Thread(target=lambda: model(torch.randn(128, 64)))  # its result is dropped
    thread.start()
    thread.join()
    for _ in range(3):
        model(torch.randn(128, 64)).square().mean().backward()
    report = remat.session_of(model).report()
    assert (report.step, report.completed) == (4, True)
    assert report.plan is not None


@pytest.mark.parametrize("keeper", ["dead", "alive"])
def test_a_result_that_another_thread_keeps_does_not_switch_the_budget_off(keeper):
    model = remat.wrap(blocks(2), budget="1GiB")
    kept = []

    def call():
        kept.append(model(torch.randn(16, 64)))

    def go_on(times):
        for _ in range(times):
            model(torch.randn(16, 64)).square().mean().backward()

    first = threading.Thread(target=call)
    if keeper == "dead":
        first.start()
        first.join()
        go_on(3)
        assert remat.session_of(model).report().step == 4
        return
    call()
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        second = threading.Thread(target=go_on, args=(8,))
        second.start()
        second.join()
    assert [str(each.message)[:6] for each in told] == ["[wrap]"]
    assert remat.session_of(model).report().step == 1 + 4


@pytest.mark.parametrize("grad", [True, False])
def test_a_call_on_another_thread_leaves_a_step_whose_backward_goes_on(grad):
    model = remat.wrap(blocks(2), budget="1GiB")
    in_a_step = []

    def call():
        with torch.set_grad_enabled(grad):
            model(torch.randn(16, 64))

    def hook(_):
        for _ in range(6):
            thread = threading.Thread(target=call)
            thread.start()
            thread.join()
        in_a_step.append(_C.is_recording())

    x = torch.randn(16, 64, requires_grad=True)
    x.register_hook(hook)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model(x).square().mean().backward()
    assert in_a_step == [True]
    report = remat.session_of(model).report()
    assert (report.step, report.completed) == (1, True)


def test_arrays_are_freed_in_a_step_while_another_thread_assigns_data():
    """The memory of arrays is freed with the interpreter's lock, which the other thread has while it asks for the
    step's record."""
    model = blocks(3, dropout=0.0)
    session = remat.Session(budget="3MiB")
    parameter, other = torch.nn.Parameter(torch.zeros(4)), torch.ones(4)
    ended = threading.Event()

    def assign():
        while not ended.wait(1e-5):
            for _ in range(20):
                parameter.data = other

    def step():
        x = sum(torch.from_numpy(np.full((64, 64), k, np.float32)).exp() for k in range(4))
        loss_of(model(x)).backward()

    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    thread = threading.Thread(target=assign)
    thread.start()
    try:
        for _ in range(100):
            with session.step():
                step()
    finally:
        ended.set()
        thread.join()
        sys.setswitchinterval(interval)
