"""remat.linear_cross_entropy has the bits of F.cross_entropy(F.linear(...)), and never the logits as a whole."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
import torch
from compare import same_bits
from known_processor import HAS_TILES, needs_tiles
from torch.nn import functional

import remat


def plain(input, linear_weight, target, *, linear_bias=None, whole_trial=None, **options):
    return functional.cross_entropy(functional.linear(input, linear_weight, linear_bias), target, **options)


def outcome(
    function, tokens, width, classes, *, dtype=torch.float32, bias=False, weighted=False, autocast=False, frozen=(), **options
):
    """The loss, the gradients, and the generator's state."""
    torch.manual_seed(0)
    tensors = {
        "input": torch.randn(tokens, width),
        "weight": torch.randn(classes, width) * 0.1,
        "bias": torch.randn(classes) * 0.1 if bias else None,
    }
    tensors = {
        name: tensor if tensor is None else tensor.to(dtype).requires_grad_(name not in frozen)
        for name, tensor in tensors.items()
    }
    target = torch.randint(0, classes, (tokens,))
    target[::7] = options.get("ignore_index", -100)
    with torch.autocast("cpu", torch.bfloat16, enabled=autocast):
        loss = function(
            tensors["input"],
            tensors["weight"],
            target,
            linear_bias=tensors["bias"],
            weight=torch.rand(classes, dtype=torch.float32 if autocast else dtype) if weighted else None,
            **options,
        )
    loss.backward(torch.linspace(0.5, 1.5, loss.numel(), dtype=loss.dtype).view(loss.shape))
    gradients = [tensor.grad for tensor in tensors.values() if tensor is not None]
    return [loss.detach(), *gradients, torch.get_rng_state()]


def assert_same(*shape, **options):
    """Returns the choice that was made."""
    expected = outcome(plain, *shape, **options)
    found = outcome(remat.linear_cross_entropy, *shape, **options)
    choice = remat.last_tile_choice()
    names = ("loss", "gradient", "gradient", "gradient or state", "state")
    for name, a, b in zip(names, expected, found, strict=False):
        assert same_bits(a, b), f"{name} differs: {choice}"
    return choice


@pytest.fixture(params=[1, 2], autouse=True)
def threads(request):
    before = torch.get_num_threads()
    torch.set_num_threads(request.param)
    yield request.param
    torch.set_num_threads(before)


SHAPES = [(1, 8, 5), (2, 1, 1), (37, 16, 50), (192, 32, 300), (193, 33, 301), (384, 64, 512), (385, 64, 512), (577, 61, 1009), (1000, 48, 700)]


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_every_shape_has_the_bits_of_plain(shape):
    choice = assert_same(*shape)
    if HAS_TILES:
        assert choice.rows == shape[0] if shape[0] < 208 else 0 < choice.rows < shape[0]


@pytest.mark.parametrize(
    "options",
    [
        {"bias": True},
        {"weighted": True},
        {"reduction": "sum"},
        {"reduction": "none"},
        {"reduction": "none", "weighted": True, "bias": True},
        {"reduction": "sum", "weighted": True},
        {"ignore_index": 3},
        {"ignore_index": 3, "weighted": True, "label_smoothing": 0.2},
        {"label_smoothing": 0.1},
        {"label_smoothing": 0.1, "bias": True, "reduction": "none"},
        {"label_smoothing": 0.1, "weighted": True, "reduction": "sum"},
        {"label_smoothing": 1.0},
        {"frozen": ("weight",)},
        {"frozen": ("input",)},
        {"frozen": ("input", "weight"), "bias": True},
        {"autocast": True},
        {"autocast": True, "bias": True, "weighted": True},
    ],
    ids=str,
)
def test_every_option_has_the_bits_of_plain_in_tiles(options):
    # Sums over tiles of tokens alone serve label smoothing, and MKL has these for matrices that are not small.
    choice = assert_same(*((1000, 256, 611) if "label_smoothing" in options else (453, 29, 611)), **options)
    if HAS_TILES:
        assert choice.rows > 0, choice


@pytest.mark.parametrize("options", [{"dtype": torch.bfloat16}, {"autocast": True, "label_smoothing": 0.1}], ids=str)
def test_what_has_no_tiles_of_the_same_bits_is_whole(options):
    """Sums over tiles of tokens are rounded to bfloat16 each time, and these have no blocks of classes."""
    assert assert_same(453, 29, 611, **options).is_whole


def test_float64_has_the_bits_of_plain():
    """In tiles or not: by one thread in each shape that was tried, by two in some."""
    assert_same(453, 29, 611, dtype=torch.float64)
    assert_same(700, 32, 640, dtype=torch.float64, bias=True)


def test_without_onednn(threads):
    with torch.backends.mkldnn.flags(enabled=False):
        assert_same(453, 29, 611)
        assert_same(453, 29, 611, autocast=True)


@needs_tiles
def test_slices_decide_where_the_whole_is_too_large():
    """The logits of a large head are tried in two slices, which may suit fewer kinds of tiles than the whole."""
    sliced = assert_same(1000, 256, 4000)
    assert sliced.reason.startswith("a trial with ") and "of the classes" in sliced.reason
    whole = assert_same(1000, 256, 4000, whole_trial=True)
    assert "all classes" in whole.reason


@pytest.mark.parametrize("shape", [(800, 64, 20011), (1955, 384, 1847), (2757, 256, 2872), (1737, 768, 1913)], ids=str)
def test_products_are_tried_at_their_full_size(shape):
    """With MKL's kernels for AVX-512 slices of these have the bits of tiles, and the whole has others."""
    assert_same(*shape)
    assert_same(*shape, frozen=("weight",))


def test_a_trial_does_not_depend_on_the_numbers_of_the_call():
    """Of zeros every sum has the same bits."""
    shape = (1737, 768, 1913)
    zeros = [torch.zeros(size, requires_grad=True) for size in ((1737, 768), (1913, 768))]
    remat.linear_cross_entropy(*zeros, torch.zeros(1737, dtype=torch.int64)).backward()
    choice = remat.last_tile_choice()
    assert assert_same(*shape) == choice


@pytest.mark.parametrize("capability", ["default", "avx2"])
def test_other_instructions(capability, threads):
    """A process of its own, since PyTorch chooses its kernels once."""
    if threads == 1:
        pytest.skip("the process is for one thread and for two")
    program = (
        "import torch\n"
        "from linear_cross_entropy_test import assert_same\n"
        "for threads in (1, 2):\n"
        "    torch.set_num_threads(threads)\n"
        "    for options in ({}, {'bias': True}, {'weighted': True, 'label_smoothing': 0.1}, {'autocast': True}):\n"
        "        assert_same(453, 29, 611, **options)\n"
    )
    environment = os.environ | {
        "ATEN_CPU_CAPABILITY": capability,
        "MKL_ENABLE_INSTRUCTIONS": "AVX2",
        "PYTHONPATH": os.pathsep.join([os.path.dirname(__file__), *sys.path]),
    }
    subprocess.run([sys.executable, "-c", program], env=environment, check=True)


def test_other_arguments_are_plain_s():
    """What the tiles are not for: one token without a batch, (N, C, d), probabilities, views, nothing."""
    torch.manual_seed(0)
    weight = torch.randn(6, 4)
    for input, target in [
        (torch.randn(4), torch.tensor(3)),
        (torch.randn(3, 5, 4), torch.randint(0, 5, (3, 6))),
        (torch.randn(3, 4), torch.rand(3, 6)),
        (torch.randn(4, 3).t(), torch.randint(0, 6, (3,))),
        (torch.randn(0, 4), torch.zeros(0, dtype=torch.long)),
    ]:
        assert same_bits(remat.linear_cross_entropy(input, weight, target), plain(input, weight, target))
        assert remat.last_tile_choice().is_whole
        assert remat.last_tile_choice().reason
    rows_of_more = torch.randn(300, 9)[:, :4]
    target = torch.randint(0, 6, (300,))
    assert same_bits(remat.linear_cross_entropy(rows_of_more, weight, target), plain(rows_of_more, weight, target))
    assert same_bits(
        remat.linear_cross_entropy(rows_of_more, weight, target.byte()), plain(rows_of_more, weight, target.byte())
    )


def error_of(function, *arguments, **options):
    with pytest.raises(Exception) as caught:  # noqa: PT011
        function(*arguments, **options)
    return type(caught.value), str(caught.value)


@pytest.mark.parametrize("tokens", [100, 600])
def test_doubles_within_autocast_stay_doubles(tokens):
    def step(function):
        torch.manual_seed(0)
        input, weight = (torch.randn(size, dtype=torch.float64, requires_grad=True) for size in ((tokens, 16), (50, 16)))
        with torch.autocast("cpu", torch.bfloat16):
            loss = function(input, weight, torch.arange(tokens) % 50)
        loss.backward()
        return [loss.detach(), input.grad, weight.grad]

    assert all(map(same_bits, step(remat.linear_cross_entropy), step(plain)))


def test_targets_of_bytes_and_many_classes():
    input, weight = torch.randn(600, 8), torch.randn(300, 8)
    target = (torch.arange(600) % 256).to(torch.uint8)
    assert same_bits(remat.linear_cross_entropy(input, weight, target), plain(input, weight, target))


def test_weights_that_are_one_number():
    input, weight = torch.randn(600, 8), torch.randn(300, 8)
    options = {"weight": torch.ones(1).expand(300), "linear_bias": torch.zeros(1).expand(300)}
    target = torch.arange(600) % 300
    assert same_bits(remat.linear_cross_entropy(input, weight, target, **options), plain(input, weight, target, **options))


@needs_tiles
def test_other_threads_in_backward_are_refused(threads):
    input = torch.randn(600, 8, requires_grad=True)
    loss = remat.linear_cross_entropy(input, torch.randn(300, 8), torch.arange(600) % 300)
    torch.set_num_threads(3 - threads)
    with pytest.raises(remat.Error, match=r"\[linear_cross_entropy\] threads, or settings"):
        loss.backward()


def test_wrong_arguments_have_the_errors_of_plain():
    input, weight, target = torch.randn(300, 4), torch.randn(6, 4), torch.zeros(300, dtype=torch.long)
    for arguments, options in [
        ((input, weight, target[:7]), {}),
        ((input, weight[:, :3], target), {}),
        ((input, weight.double(), target), {}),
        ((input, weight, target.int()), {}),
        ((input, weight, target), {"weight": torch.ones(5)}),
        ((input, weight, target), {"linear_bias": torch.ones(5)}),
        ((input, weight, target), {"reduction": "median"}),
        ((input, weight, target + 6), {}),
        ((input, weight, target - 1), {}),
    ]:
        assert error_of(remat.linear_cross_entropy, *arguments, **options) == error_of(plain, *arguments, **options)


def test_all_ignored_and_no_gradients():
    input, weight = torch.randn(300, 4, requires_grad=True), torch.randn(6, 4, requires_grad=True)
    target = torch.full((300,), -100)
    gradients = []
    for function in (plain, remat.linear_cross_entropy):
        loss = function(input, weight, target)
        assert loss.isnan()
        gradients.append(torch.autograd.grad(loss, (input, weight)))
    assert all(map(same_bits, *gradients))
    with torch.no_grad():
        assert not remat.linear_cross_entropy(input, weight, target).requires_grad


def test_tied_weights_and_gradients_that_add_up():
    def step(function):
        torch.manual_seed(0)
        table = torch.randn(500, 16, requires_grad=True)
        for seed in range(2):
            torch.manual_seed(seed)
            tokens = torch.randint(0, 500, (401,))
            function(functional.embedding(tokens, table).sin(), table, tokens.roll(-1)).backward()
        return table.grad

    assert same_bits(step(plain), step(remat.linear_cross_entropy))


def test_double_backward_is_refused():
    input = torch.randn(300, 4, requires_grad=True)
    loss = remat.linear_cross_entropy(input, torch.randn(6, 4), torch.zeros(300, dtype=torch.long))
    with pytest.raises(remat.Error, match=r"\[linear_cross_entropy\] .*create_graph"):
        torch.autograd.grad(loss, input, create_graph=True)


def test_gradients_of_several_passes_at_once_are_refused():
    input = torch.randn(300, 4, requires_grad=True)
    losses = remat.linear_cross_entropy(input, torch.randn(6, 4), torch.zeros(300, dtype=torch.long), reduction="none")
    with pytest.raises(remat.Error, match=r"\[linear_cross_entropy\] .*no plain tensors, as is_grads_batched"):
        torch.autograd.grad(losses, input, torch.eye(300)[:3], is_grads_batched=True)


def test_a_pass_that_asks_for_some_gradients_makes_no_others():
    def gradients_of(function, *asked):
        torch.manual_seed(0)
        tensors = {name: torch.randn(size, requires_grad=True) for name, size in (("input", (600, 8)), ("weight", (300, 8)), ("bias", (300,)))}
        loss = function(tensors["input"], tensors["weight"], torch.arange(600) % 300, linear_bias=tensors["bias"])
        with torch.profiler.profile() as profile:
            found = torch.autograd.grad(loss, [tensors[name] for name in asked])
        return found, sum(event.count for event in profile.key_averages() if event.key in ("aten::mm", "aten::addmm"))

    _, products = gradients_of(remat.linear_cross_entropy, "input", "weight", "bias")
    for asked in (("input",), ("weight",), ("bias",), ("weight", "bias")):
        found, fewer = gradients_of(remat.linear_cross_entropy, *asked)
        assert all(map(same_bits, gradients_of(plain, *asked)[0], found))
        assert fewer < products or not HAS_TILES


def test_a_part_of_the_columns_of_more():
    def step(function):
        torch.manual_seed(0)
        table = torch.randn(600, 90, requires_grad=True)
        weight = torch.randn(300, 40, requires_grad=True)
        function(table[:, 20:60], weight, torch.arange(600) % 300).backward()
        return table.grad, weight.grad

    assert all(map(same_bits, step(plain), step(remat.linear_cross_entropy)))


@pytest.mark.parametrize("sizes", [(600, 1, 300), (600, 8, 1), (1, 8, 300)], ids=str)
def test_strides_of_dimensions_with_one_number(sizes):
    tokens, width, classes = sizes

    def step(function):
        torch.manual_seed(0)
        input = torch.randn(tokens * width).as_strided((tokens, width), (width, 1 if width > 1 else 7)).requires_grad_()
        weight = torch.randn(classes * width).as_strided((classes, width), (width if classes > 1 else 99, 1)).requires_grad_()
        loss = function(input, weight, torch.arange(tokens) % classes)
        return [loss.detach(), *torch.autograd.grad(loss, [input, weight])]

    assert all(map(same_bits, step(plain), step(remat.linear_cross_entropy)))


class Named(torch.Tensor):
    """Keeps its class."""


def test_subclasses_keep_their_class():
    input, weight = torch.randn(300, 4).as_subclass(Named), torch.randn(6, 4)
    target = torch.zeros(300, dtype=torch.long)
    found, expected = remat.linear_cross_entropy(input, weight, target), plain(input, weight, target)
    assert type(found) is type(expected) is Named
    assert same_bits(found.as_subclass(torch.Tensor), expected.as_subclass(torch.Tensor))


def test_backward_within_autocast_of_a_plain_forward_is_refused():
    input = torch.randn(300, 4, requires_grad=True)
    loss = remat.linear_cross_entropy(input, torch.randn(6, 4), torch.zeros(300, dtype=torch.long))
    with torch.autocast("cpu", torch.bfloat16), pytest.raises(remat.Error, match="outside of autocast"):
        loss.backward()


def test_the_trial_draws_from_no_generator_and_leaves_no_bytes():
    torch.manual_seed(0)
    state = torch.get_rng_state()
    remat.memory.start_accounting()
    input, weight = torch.randn(700, 24, requires_grad=True), torch.randn(900, 24, requires_grad=True)
    target = torch.randint(0, 900, (700,))
    torch.set_rng_state(state)
    before = remat.memory.current()
    remat.linear_cross_entropy(input, weight, target)
    assert torch.equal(torch.get_rng_state(), state)
    assert remat.memory.current() == before


TOKENS, WIDTH, CLASSES = 4000, 64, 10_000
LOGITS = TOKENS * CLASSES * 4


@needs_tiles
@pytest.mark.parametrize("budgeted", [False, True])
def test_a_large_vocabulary_never_has_all_of_its_logits(budgeted, threads):
    """Above parameters, inputs and gradients less than an eighth of the logits is alive, and in the first step, with the
    trial, less than a quarter, where plain has twice them."""
    if threads == 1:
        pytest.skip("the same with two")

    def run(function, session=None):
        torch.manual_seed(0)
        table = torch.nn.Parameter(torch.randn(CLASSES, WIDTH))
        tokens = torch.randint(0, CLASSES, (TOKENS,))
        peaks = []
        for _ in range(3):
            table.grad = None
            remat.memory.reset_peak()
            before = remat.memory.current()
            with session.step() if session else torch.enable_grad():
                loss = function(functional.embedding(tokens, table).tanh(), table, tokens.roll(-1))
                loss.backward()
            peaks.append(remat.memory.peak() - before)
        return peaks, [loss.detach(), table.grad]

    remat.memory.start_accounting()
    peaks, expected = run(plain)
    assert min(peaks) > 2 * LOGITS
    # The embedding, its tanh and their gradients; two gradients of the table, one of each use.
    others = 4 * TOKENS * WIDTH * 4 + 2 * CLASSES * WIDTH * 4
    session = remat.Session(remat.memory.current() + others + LOGITS // 4) if budgeted else None
    peaks, found = run(remat.linear_cross_entropy, session)
    assert all(map(same_bits, expected, found))
    assert peaks[0] < others + LOGITS // 4
    assert max(peaks[1:]) < others + LOGITS // 8
    assert remat.last_tile_choice().rows > 0
