"""What goes wrong in the middle of a step leaves the model, the generator and the session usable."""

from __future__ import annotations

import contextlib
import gc
import signal
import threading

import pytest
import torch
from compare import blocks, run, same_bits
from scopes import Dropping, doing_in_backward, loss_of
from torch import nn

import remat


class Mine(Exception):
    pass


def fail_in_forward(model, kind):
    def hook(*_):
        raise kind

    handle = model[2].register_forward_hook(hook)
    try:
        model(torch.randn(64, 64))
    finally:
        handle.remove()


def fail_in_a_tensor_hook(model, kind):
    y = model[0](torch.randn(64, 64))

    def hook(_):
        raise kind

    y.register_hook(hook)
    loss_of(model[1](y)).backward()


def fail_in_a_module_backward_hook(model, kind):
    def hook(*_):
        raise kind

    handle = model[1].register_full_backward_hook(hook)
    try:
        loss_of(model(torch.randn(64, 64))).backward()
    finally:
        handle.remove()


def fail_in_a_function(model, kind):
    def fail():
        raise kind

    loss_of(model[1](doing_in_backward(fail).apply(model[0](torch.randn(64, 64))))).backward()


def fail_in_an_operator(model, kind):
    try:
        model(torch.randn(64, 65))
    except RuntimeError:
        raise kind from None


FAILURES = [
    fail_in_forward,
    fail_in_a_tensor_hook,
    fail_in_a_module_backward_hook,
    fail_in_a_function,
    fail_in_an_operator,
]


@pytest.mark.parametrize("fail", FAILURES)
@pytest.mark.parametrize("kind", [Mine, KeyboardInterrupt])
def test_after_an_exception_the_next_steps_have_plains_bits(fail, kind):
    model = blocks(4, norm=True)

    def train(scope):
        def program(m):
            for _ in range(2):
                with pytest.raises(kind), scope():
                    fail(m, kind)
                m.zero_grad()
                with scope():
                    loss = loss_of(m(torch.randn(64, 64)))
                    loss.backward()
            return loss.detach()

        return run(model, program, contextlib.nullcontext, 1)

    plain = train(contextlib.nullcontext)
    for scope in (Dropping(), remat.Session(budget="80%").step, remat.policy):
        assert all(same_bits(a, b) for a, b in zip(plain, train(scope), strict=True))


@pytest.mark.parametrize("fail", FAILURES)
def test_a_failed_step_holds_nothing(fail):
    model = blocks(4)
    scope = Dropping()

    def attempt():
        with contextlib.suppress(Mine), scope():
            fail(model, Mine)
        model.zero_grad()
        gc.collect()

    attempt()
    before = remat.memory.current("cpu")
    for _ in range(3):
        attempt()
    assert remat.memory.current("cpu") <= before
    assert not scope.session.report().completed


def test_an_exception_inside_of_nested_scopes_closes_them_all():
    model = blocks(2)
    with pytest.raises(Mine), remat.Session().step(), remat.policy(), remat.policy(keep="all"):
        remat.checkpoint(lambda x: (_ for _ in ()).throw(Mine()), model(torch.randn(8, 64)))
    with remat.Session().step():
        loss_of(model(torch.randn(8, 64))).backward()


@pytest.fixture
def interrupts():
    """Ctrl-C as at a terminal: where the tests run in the background, it is ignored."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("interrupts")
def test_a_signal_in_the_middle():
    model = blocks(4)
    session = remat.Session()
    started = threading.Event()

    def interrupt():
        started.wait()
        signal.pthread_kill(threading.main_thread().ident, signal.SIGINT)

    for _ in range(3):
        started.clear()
        thread = threading.Thread(target=interrupt)
        thread.start()
        with pytest.raises(KeyboardInterrupt):
            with session.step(), remat.policy():
                for i in range(100000):
                    loss = loss_of(model(torch.randn(32, 64)))
                    loss.backward()
                    if i == 3:
                        started.set()
        thread.join()
        model.zero_grad()
    plain = run(model, lambda m: loss_of(m(torch.randn(8, 64))).backward(), contextlib.nullcontext, 1)
    ours = run(model, lambda m: loss_of(m(torch.randn(8, 64))).backward(), Dropping(), 1)
    assert all(same_bits(a, b) for a, b in zip(plain, ours, strict=True))


def test_a_step_ended_twice_or_left_open_by_a_generator():
    model = blocks(2)
    session = remat.Session()
    step = session.step()
    loss_of(model(torch.randn(8, 64))).backward()
    assert step.end().completed and step.end().completed

    def batches():
        with session.step():
            yield loss_of(model(torch.randn(8, 64)))

    generator = batches()
    next(generator).backward()
    generator.close()
    with session.step():
        loss_of(model(torch.randn(8, 64))).backward()
    assert session.report().completed


def test_a_step_that_is_forgotten_ends():
    session = remat.Session()
    session.step()
    with session.step():
        loss_of(blocks(2)(torch.randn(8, 64))).backward()
    report = session.report()
    assert report.completed and report.ops_recorded > 0


def test_a_session_after_a_wrapped_call_that_was_interrupted():
    class Interrupted(nn.Module):
        def forward(self, x):
            raise KeyboardInterrupt

    model = remat.wrap(nn.Sequential(nn.Linear(64, 64), Interrupted()), budget="60%")
    for _ in range(2):
        with pytest.raises(KeyboardInterrupt):
            model(torch.randn(8, 64))
        with remat.Session().step():
            pass
    del model[1]
    loss_of(model(torch.randn(8, 64))).backward()
    assert remat.session_of(model).report().completed
