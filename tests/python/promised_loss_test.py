"""Promised logits: the loss in tiles, and every reader sees the numbers and gradients of plain PyTorch."""

from __future__ import annotations

import copy
import pickle

import pytest
import torch
from compare import same_bits
from known_processor import HAS_TILES, needs_tiles
from torch import nn
from torch.nn import functional

import remat
from remat.promise import PromisedTensor
from remat.promised_loss import PromisingMode

WIDTH, CLASSES = 24, 611


def parameters(bias=True, dtype=torch.float32):
    torch.manual_seed(0)
    table = nn.Embedding(CLASSES, WIDTH).to(dtype)
    return table, nn.Linear(WIDTH, WIDTH).to(dtype), nn.Linear(WIDTH, CLASSES, bias=bias).to(dtype)


def logits_of(head, hidden, choices=None):
    """What the head gives; promised, where `choices` is a list of what was chosen for the loss."""
    if choices is None:
        return head(hidden)
    with PromisingMode(0, lambda: True, choices.append):
        return head(hidden)


def loss_of(logits, target, **options):
    return functional.cross_entropy(logits.float().view(-1, CLASSES), target.view(-1), **options)


def step(choices, *, use=None, bias=True, dtype=torch.float32, autocast=False, frozen=(), **options):
    """All that a step leaves. `use`: makes the loss of logits and targets."""
    table, body, head = parameters(bias, dtype)
    for name in frozen:
        getattr(head, name).requires_grad_(False)
    torch.manual_seed(1)
    tokens, target = torch.randint(CLASSES, (2, 4, 103))
    target[:, ::7] = -100
    with torch.autocast("cpu", torch.bfloat16, enabled=autocast):
        logits = logits_of(head, body(table(tokens)).tanh(), choices)
        assert isinstance(logits, PromisedTensor) is (choices is not None)
        loss = use(logits, target) if use else loss_of(logits, target, **options)
    loss.backward(torch.linspace(0.5, 1.5, loss.numel(), dtype=loss.dtype).view(loss.shape))
    bits = [loss.detach(), *(each.grad for module in (table, body, head) for each in module.parameters())]
    return bits, logits


def assert_same(**options):
    """Returns the last choice and the promised logits, which nobody has read."""
    choices = []
    expected, plain = step(None, **options)
    found, logits = step(choices, **options)
    assert all(map(same_bits, expected, found))
    was_made = logits.promise.is_made()
    assert same_bits(plain.detach(), logits.detach())
    return choices[-1], was_made


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"bias": False},
        {"reduction": "sum"},
        {"reduction": "none"},
        {"ignore_index": 3},
        {"autocast": True},
        {"autocast": True, "bias": False},
        {"dtype": torch.bfloat16},
        {"frozen": ("weight",)},
        {"frozen": ("weight", "bias")},
    ],
    ids=str,
)
@pytest.mark.parametrize("threads", [1, 2])
def test_a_loss_alone_leaves_logits_unmade(options, threads):
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        options = {"ignore_index": -100} | options
        if options["ignore_index"] == 3:
            options = {"use": lambda logits, target: loss_of(logits, target.clamp(min=3), ignore_index=3)}
        choice, was_made = assert_same(**options)
    finally:
        torch.set_num_threads(before)
    if HAS_TILES:
        assert choice.rows > 0, choice
        assert not was_made


USES = {
    "a mean beside it": lambda logits, target: loss_of(logits, target) + logits.pow(2).mean(),
    "a mean before it": lambda logits, target: logits.pow(2).mean() + loss_of(logits, target),
    "two losses": lambda logits, target: loss_of(logits, target) + loss_of(logits, target.flip(0), reduction="sum"),
    "losses of a part": lambda logits, target: loss_of(logits[:, :-1].contiguous(), target[:, 1:].contiguous()),
    "smoothing": lambda logits, target: loss_of(logits, target, label_smoothing=0.1),
    "class weights": lambda logits, target: loss_of(logits, target, weight=torch.linspace(0, 1, CLASSES)),
    "probabilities": lambda logits, target: functional.cross_entropy(logits.view(-1, CLASSES), logits.detach().view(-1, CLASSES).softmax(1)),
    "a scale": lambda logits, target: loss_of(logits / 3, target),
    "changed in place": lambda logits, target: loss_of(logits.mul_(2), target),
    "changed after it": lambda logits, target: (loss_of(logits, target), logits.mul_(2))[0] + logits.mean(),
    "log-probabilities": lambda logits, target: (
        lambda found: functional.nll_loss(found, target.view(-1)) + found.exp().mean()
    )(functional.log_softmax(logits.view(-1, CLASSES), -1)),
    "an index": lambda logits, target: logits[0, 3, 5] + loss_of(logits, target),
    "a function of autograd": lambda logits, target: Square.apply(logits).mean() + loss_of(logits, target),
    "a scaled gradient": lambda logits, target: 3 * loss_of(logits, target) / 7,
}


class Square(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x * x

    @staticmethod
    def backward(ctx, gradient):
        return 2 * ctx.saved_tensors[0] * gradient


@needs_tiles
@pytest.mark.parametrize("use", USES)
def test_other_readers_have_the_bits_of_plain(use):
    _, was_made = assert_same(use=USES[use])
    assert was_made is (use != "a scaled gradient")


def test_hooks_see_the_gradient_of_logits():
    def with_hooks(logits, target):
        seen.clear()
        logits.register_hook(lambda gradient: seen.append(gradient * 2) or gradient * 3)
        logits.retain_grad()
        return loss_of(logits, target)

    seen = []
    expected, plain = step(None, use=with_hooks)
    gradient, of_plain = seen[0], plain.grad
    found, logits = step([], use=with_hooks)
    assert all(map(same_bits, expected, found))
    assert same_bits(gradient, seen[0])
    assert same_bits(of_plain, logits.grad.clone())


def test_gradients_of_gradients():
    def penalty(logits, target):
        loss = loss_of(logits, target)
        (gradient,) = torch.autograd.grad(loss, logits, create_graph=True)
        return loss + gradient.pow(2).sum()

    assert_same(use=penalty)


def test_a_graph_that_is_kept_gives_its_gradients_again():
    for choices in (None, []):
        _, _, head = parameters()
        hidden = torch.linspace(-1, 1, 300 * WIDTH).view(300, WIDTH).requires_grad_()
        loss = loss_of(logits_of(head, hidden, choices), torch.arange(300))
        first = torch.autograd.grad(loss, [hidden, head.weight], retain_graph=True)
        again = torch.autograd.grad(loss, [head.weight], retain_graph=True)
        last = torch.autograd.grad(loss, [hidden, head.bias])
        bits = [*first, *again, *last]
        expected = bits if choices is None else expected
        assert all(map(same_bits, expected, bits))


def promised():
    _, _, head = parameters()
    hidden = torch.linspace(-1, 1, 300 * WIDTH).view(300, WIDTH).requires_grad_()
    logits = logits_of(head, hidden, [])
    return head, logits, loss_of(logits, torch.arange(300)), head(hidden).detach()


@pytest.mark.parametrize(
    "read",
    [
        lambda logits: torch.from_numpy(logits.detach().numpy()),
        lambda logits: torch.tensor(logits.tolist()),
        lambda logits: logits.data,
        lambda logits: copy.deepcopy(logits.detach()),
        lambda logits: pickle.loads(pickle.dumps(logits.detach())),
        lambda logits: torch.from_dlpack(logits.detach()),
        lambda logits: torch.stack([logits[i].detach() for i in range(len(logits))]),
        lambda logits: torch.empty(logits.shape).copy_(logits.detach()),
        lambda logits: torch.add(logits.detach(), 0, out=torch.empty(logits.shape)),
    ],
)
def test_numbers_are_there_whoever_asks(read):
    _, logits, _, expected = promised()
    found = read(logits)
    assert type(found) is torch.Tensor
    assert same_bits(found, expected)


def test_what_is_asked_of_a_tensor_makes_no_numbers():
    head, logits, loss, expected = promised()
    assert isinstance(logits, torch.Tensor)
    assert (logits.shape, logits.dtype, logits.device, logits.stride()) == (
        expected.shape, expected.dtype, expected.device, expected.stride(),
    )
    assert logits.requires_grad and not logits.is_leaf and len(logits) == 300 and logits.is_contiguous()
    assert not logits.promise.is_made()
    assert repr(logits)[:9] == repr(expected)[:9]


@pytest.mark.parametrize("write", [lambda weight: weight.add_(1), lambda weight: weight.data.add_(1)])
def test_logits_of_weights_that_have_changed_are_refused(write):
    head, logits, loss, expected = promised()
    loss.backward()
    with torch.no_grad():
        write(head.weight)
    with pytest.raises(remat.Error, match=r"\[head\] the logits were not computed .*optimizer's step"):
        logits.argmax()


def test_gradients_of_weights_that_have_changed_are_refused():
    head, logits, loss, expected = promised()
    head.weight.data.add_(1)
    with pytest.raises(remat.Error, match=r"\[head\] the logits"):
        loss.backward()


def test_logits_that_were_read_stay_as_they_were():
    head, logits, loss, expected = promised()
    logits.argmax()
    with torch.no_grad():
        head.weight.add_(1)
    assert same_bits(logits.detach(), expected)


def test_the_errors_of_plain():
    for target, error in ((torch.full((300,), CLASSES), IndexError), (torch.zeros(300), RuntimeError), (torch.zeros(7).long(), ValueError)):
        with pytest.raises(error) as plain:
            loss_of(promised()[3], target)
        with pytest.raises(error) as found:
            loss_of(promised()[1], target)
        assert str(found.value) == str(plain.value)


def test_what_is_small_or_elsewhere_is_not_promised():
    _, _, head = parameters()
    for hidden in (torch.randn(207, WIDTH), torch.randn(300, 2 * WIDTH)[:, :WIDTH], torch.randn(0, WIDTH), torch.randn(WIDTH)):
        assert type(logits_of(head, hidden.requires_grad_(), [])) is torch.Tensor
    frozen = head.requires_grad_(False)
    assert type(logits_of(frozen, torch.randn(300, WIDTH), [])) is torch.Tensor
    assert type(logits_of(frozen, torch.randn(300, WIDTH).requires_grad_(), [])) is PromisedTensor


def test_steps_leave_nothing_alive():
    remat.memory.start_accounting()

    def run():
        choices = []
        step(choices)
        step(choices, use=USES["a mean beside it"])

    run()
    before = remat.memory.current()
    run()
    assert remat.memory.current() == before
