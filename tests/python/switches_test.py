"""PyTorch's switches for types, denormals and warnings that are others in backward than they were in forward."""

from __future__ import annotations

import threading
import warnings

import pytest
import torch
from scopes import Dropping

import remat


def dropping(step):
    """What `step()` returns with everything dropped."""
    scope = Dropping()
    with scope():
        result = step()
    assert scope.dropped > 0
    return result


def ends(kind):
    numbers = (torch.tensor(0.0), torch.tensor(1.0))
    return {"tensors": numbers, "first": (numbers[0], 1.0), "second": (0.0, numbers[1]), "numbers": (0.0, 1.0)}[kind]


@pytest.fixture
def default_type():
    yield
    torch.set_default_dtype(torch.float32)


@pytest.mark.usefixtures("default_type")
@pytest.mark.parametrize("types", [(torch.float16, torch.bfloat16), (torch.float64, torch.float32)], ids=str)
@pytest.mark.parametrize("kind", ["tensors", "first", "second", "numbers"])
@pytest.mark.parametrize("factory", [torch.linspace, torch.logspace])
def test_what_a_factory_makes_of_tensors_has_the_type_of_then(factory, kind, types):
    def step():
        torch.manual_seed(0)
        w = torch.randn(16, 16, requires_grad=True)
        torch.set_default_dtype(types[0])
        t = factory(*ends(kind), 16).exp()
        y = ((w * w).sin() * t).sin()
        del t
        torch.set_default_dtype(types[1])
        y.sum().backward()
        torch.set_default_dtype(torch.float32)
        return w.grad

    assert torch.equal(step(), dropping(step))


@pytest.fixture
def three_threads():
    threads = torch.get_num_threads()
    yield
    torch.set_flush_denormal(False)
    torch.set_num_threads(threads)


@pytest.mark.usefixtures("three_threads")
@pytest.mark.parametrize("elsewhere", [False, True])
def test_threads_that_a_replay_would_make_flush_no_denormals_afterwards(elsewhere):
    """In plain the pool's threads are made in backward, by operators that do not flush."""
    w, g = torch.nn.Parameter(torch.rand(400, 400)), torch.ones(400, 400)

    def step():
        torch.set_num_threads(3)
        torch.set_flush_denormal(True)
        y = (w * g).sigmoid().sin().sin()
        torch.set_num_threads(2)
        torch.set_flush_denormal(False)
        torch.ones(400, 400)  # the third thread ends
        torch.set_num_threads(3)
        w.grad, small = None, []

        def backward():
            y.backward(g)
            small.append((g * 1e-39).mul(1.0))

        if elsewhere:
            thread = threading.Thread(target=backward)
            thread.start()
            thread.join()
        else:
            backward()
        return small[0]

    plain, ours = step(), dropping(step)
    assert torch.equal(plain, ours) and (plain != 0).all()


@pytest.mark.usefixtures("three_threads")
def test_threads_that_a_replay_with_fewer_ends_are_there_again_with_their_modes():
    """In plain the pool's threads, made before the mode was changed on this one, live on."""
    w, g = torch.nn.Parameter(torch.rand(400, 400)), torch.ones(400, 400)

    def step():
        torch.set_num_threads(2)
        w.grad = None
        y = (w * g).sigmoid().sin()
        torch.set_num_threads(5)
        z = (y * 1.5).sin()
        torch.set_flush_denormal(True)
        z.backward(g)
        torch.set_flush_denormal(False)
        return (g * 1e-39).mul(1.0)

    plain, ours = step(), dropping(step)
    assert torch.equal(plain, ours) and (plain != 0).all()


def test_attention_of_operators_of_ones_own_chooses_the_kernel_of_forward():
    @torch.library.custom_op("switches::attention", mutates_args=())
    def attention(x: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.scaled_dot_product_attention(x, x, x)

    @attention.register_kernel("cpu")
    def _(x):
        return torch.nn.functional.scaled_dot_product_attention(x, x, x)

    remat.repeatable(attention)
    x = torch.randn(2, 4, 64, 32)
    w = torch.randn(32, requires_grad=True)

    def step():
        w.grad = None
        with torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.MATH):
            y = (attention(x).sin() * w).sin()
        y.sum().backward()
        return w.grad.clone()

    assert torch.equal(step(), dropping(step))


def test_what_forward_warned_of_is_not_warned_of_again():
    w = torch.randn(32, 32, requires_grad=True)

    def step():
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            s = w.detach()[:1].exp().std(0).nan_to_num(0).exp()
            y = (w * s).sin().sum()
            del s
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            y.backward()

    step()
    dropping(step)


def test_warnings_are_as_many_as_in_plain():
    w = torch.randn(1, 8, 8, requires_grad=True)
    pool, unpool = torch.nn.MaxPool2d(2, return_indices=True), torch.nn.MaxUnpool2d(2)

    def step():
        with warnings.catch_warnings(record=True) as seen:
            warnings.simplefilter("always")
            unpool(*pool(w.exp())).sin().sum().backward()
        return len(seen)

    torch.use_deterministic_algorithms(True, warn_only=True)
    try:
        plain, ours = step(), dropping(step)
    finally:
        torch.use_deterministic_algorithms(False)
    assert plain == ours > 0
