"""Promised logits, where somebody writes to what they are of or to an alias, changes settings, or enters modes."""

from __future__ import annotations

import gc

import pytest
import torch
from compare import same_bits
from known_processor import HAS_TILES
from promised_loss_test import CLASSES, WIDTH, assert_same, logits_of, loss_of, parameters, promised
from torch.nn import functional
from torch.utils._python_dispatch import TorchDispatchMode

import remat
from remat.promise import PromisedTensor


@pytest.mark.parametrize("options", [{}, {"autocast": True}, {"dtype": torch.bfloat16}], ids=str)
def test_gradients_that_a_hook_has_rounded_stay_rounded(options):
    def rounded(logits, target):
        wide = logits.float()
        wide.register_hook(lambda gradient: gradient.half().float())
        return loss_of(wide, target)

    assert_same(use=rounded, **options)


ALIASES = {
    "detach": lambda logits: logits.detach(),
    "data": lambda logits: logits.data,
    "numpy": lambda logits: torch.from_numpy(logits.detach().numpy()),
    "storage": lambda logits: torch.empty(0, dtype=logits.dtype).set_(logits.untyped_storage()),
    "a slice": lambda logits: logits.detach()[1:],
    "a row": lambda logits: logits[0].detach(),
    "a view": lambda logits: logits.detach().view(-1),
}


@pytest.mark.parametrize("order", ["before the loss", "after it"])
@pytest.mark.parametrize("autocast", [False, True])
@pytest.mark.parametrize("alias", ALIASES)
def test_writes_to_an_alias_of_logits_are_not_in_the_loss(alias, autocast, order):
    if alias == "numpy" and autocast:
        pytest.skip("numpy has no bfloat16")

    def write(logits, target):
        logits.register_hook(lambda gradient: gradient * 2)  # reads what the loss is promised to give
        given = ALIASES[alias](logits) if order == "before the loss" else None
        loss = loss_of(logits, target)
        with torch.no_grad():
            (ALIASES[alias](logits) if given is None else given).mul_(0.5)
        return loss

    assert_same(use=write, autocast=autocast)


def test_writes_to_log_probabilities_are_in_their_gradients():
    def write(logits, target):
        found = functional.log_softmax(logits.view(-1, CLASSES), -1)
        loss = functional.nll_loss(found, target.view(-1))
        found.data.mul_(0.5)
        return loss

    assert_same(use=write)


def test_writes_to_a_gradient_of_logits_go_on_to_the_weights():
    def write(logits, target):
        def triple(gradient):
            gradient.detach().mul_(3)

        logits.register_hook(triple)
        return loss_of(logits, target)

    assert_same(use=write)


def test_autograd_notices_writes_to_what_it_has_saved():
    for choices in (None, []):
        _, _, head = parameters()
        logits = logits_of(head, torch.randn(300, WIDTH), choices)
        squares = logits.pow(2).sum()
        logits.detach().mul_(2)
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            squares.backward()


def test_logits_that_are_detached_can_be_leaves():
    def detached(logits, target):
        leaf = logits.detach().requires_grad_()
        (gradient,) = torch.autograd.grad(loss_of(leaf, target), leaf)
        return (logits * gradient).sum()

    assert_same(use=detached)


def test_data_of_logits_is_not_set():
    _, logits, _, _ = promised()
    with pytest.raises(remat.Error, match=r"\[head\] the .data of logits cannot be set"):
        logits.data = torch.zeros(logits.shape)


def test_targets_of_bytes():
    """156 is -100 as a byte."""
    choice, was_made = assert_same(
        use=lambda logits, target: loss_of(logits, torch.arange(target.numel()).remainder(256).to(torch.uint8))
    )
    if HAS_TILES:
        assert choice.rows > 0 and not was_made


@pytest.fixture
def settings():
    before = torch.get_num_threads(), torch.get_float32_matmul_precision()
    yield
    torch.set_num_threads(before[0])
    torch.set_float32_matmul_precision(before[1])
    torch.use_deterministic_algorithms(False)
    torch.backends.mkldnn.set_flags(True)


@pytest.mark.parametrize(
    "change",
    [
        lambda: torch.set_num_threads(torch.get_num_threads() + 1),
        lambda: torch.set_float32_matmul_precision("medium"),
        lambda: torch.use_deterministic_algorithms(True),
        lambda: torch.backends.mkldnn.set_flags(False),
    ],
)
def test_logits_are_refused_under_other_settings(settings, change):
    _, logits, loss, _ = promised()
    change()
    message = r"\[head\] the logits .* threads, or settings of PyTorch's libraries, are others"
    with pytest.raises(remat.Error, match=message):
        loss.backward()
    with pytest.raises(remat.Error, match=message):
        logits.argmax()


@pytest.mark.parametrize(
    "write",
    [
        lambda hidden, head: hidden.data[:, 5].add_(1),
        lambda hidden, head: head.weight.data[:, 5].add_(1),
        lambda hidden, head: head.bias.data.add_(1),
    ],
)
def test_writes_to_one_column_are_noticed(write):
    _, _, head = parameters()
    hidden = torch.randn(512, WIDTH, requires_grad=True)  # of which each 48th number is of the first column
    logits = logits_of(head, hidden, [])
    write(hidden, head)
    with pytest.raises(remat.Error, match="have changed since"):
        logits.argmax()


def gradient_of_logits(choices, write):
    _, _, head = parameters()
    hidden = torch.linspace(-1, 1, 300 * WIDTH).view(300, WIDTH).requires_grad_()
    logits, target, of_loss = logits_of(head, hidden, choices), torch.arange(300), torch.full((300,), 0.5)
    held = []
    logits.register_hook(held.append)  # retain_grad() would read it
    loss = loss_of(logits, target, reduction="none")
    if write == "before":
        target.data.fill_(7)
    loss.backward(of_loss)
    if write == "after":
        target.fill_(7)
        of_loss.fill_(7)
    return held[0].clone(), hidden.grad, head.weight.grad, head.bias.grad


@pytest.mark.parametrize("write", ["before", "after"])
def test_gradients_are_of_the_targets_that_backward_had(write):
    assert all(map(same_bits, gradient_of_logits(None, write), gradient_of_logits([], write)))


def test_hooks_inside_of_the_call_see_numbers():
    seen = []
    _, _, head = parameters()
    head.register_forward_hook(lambda module, args, result: seen.append(torch.from_numpy(result.detach().numpy())))
    head.register_forward_hook(lambda module, args, result: seen.append(torch.tensor(result.tolist())))
    hidden = torch.randn(300, WIDTH, requires_grad=True)
    logits = logits_of(head, hidden, [])
    assert isinstance(logits, PromisedTensor)
    logits_of(head, hidden)
    assert len(seen) == 4 and all(same_bits(each, seen[0]) for each in seen)


def test_numbers_are_ordinary_ones_wherever_they_were_made():
    _, logits, loss, expected = promised()
    with torch.inference_mode():
        logits.argmax()
    assert not logits.promise.made().is_inference() and not logits.promise.made().requires_grad
    assert same_bits(logits.data, expected)
    (logits.pow(2).sum() + loss).backward()


def test_numbers_that_were_made_keep_nothing_else_alive():
    remat.memory.start_accounting()

    def run():
        _, _, head = parameters()
        hidden = torch.randn(300, WIDTH, requires_grad=True)
        with torch.autocast("cpu", torch.bfloat16):
            logits = logits_of(head, hidden * 2, [])
        loss_of(logits, torch.arange(300)).backward()
        return logits.detach()

    run()
    gc.collect()
    before = remat.memory.current()
    kept = run()
    gc.collect()
    assert isinstance(kept, PromisedTensor)
    assert remat.memory.current() - before < 300 * CLASSES * 2 + 1000


def test_losses_that_are_dropped_keep_nothing_alive():
    """Python's collector sees no cycles that lead through autograd's graph."""
    remat.memory.start_accounting()

    def drop():
        _, _, head = parameters()
        hidden = torch.randn(300, WIDTH, requires_grad=True)
        return loss_of(logits_of(head, hidden, []), torch.arange(300)).detach()

    drop()
    gc.collect()
    before = remat.memory.current()
    for _ in range(3):
        drop()
    assert remat.memory.current() == before


class Doubling(TorchDispatchMode):
    """Of products."""

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        result = function(*args, **(kwargs or {}))
        return result * 2 if function in (torch.ops.aten.mm.default, torch.ops.aten.addmm.default) else result


def test_modes_below_see_the_product():
    _, _, head = parameters()
    hidden = torch.randn(300, WIDTH, requires_grad=True)
    with Doubling():
        expected, found = head(hidden), logits_of(head, hidden, [])
    assert type(found) is torch.Tensor and same_bits(expected, found)


def test_modes_above_do_not_see_it_late():
    _, logits, _, expected = promised()
    with Doubling():
        found = logits.detach().clone()
    assert same_bits(found, expected)


def test_losses_that_are_compiled():
    assert_same(use=torch.compile(lambda logits, target: 2 * loss_of(logits, target), backend="eager"))
