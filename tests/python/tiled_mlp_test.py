"""remat.tiled_mlp has the bits of linear layers and activations, and never the hidden layer as a whole."""

from __future__ import annotations

import functools

import pytest
import torch
from compare import same_bits
from known_processor import HAS_TILES, needs_tiles
from torch.nn import functional

import remat

ACTIVATIONS = {
    "gelu": functional.gelu,
    "gelu_tanh": functools.partial(functional.gelu, approximate="tanh"),
    "silu": functional.silu,
    "relu": functional.relu,
}


def plain(input, up, down, *, activation, gate=None, up_bias=None, gate_bias=None, down_bias=None, dropout=0.0, whole_trial=0):
    if gate is None:
        hidden = ACTIVATIONS[activation](functional.linear(input, up, up_bias))
    else:
        hidden = ACTIVATIONS[activation](functional.linear(input, gate, gate_bias)) * functional.linear(input, up, up_bias)
    return functional.linear(functional.dropout(hidden, dropout), down, down_bias)


def outcome(
    function, shape, hidden, *, gated=False, biased=True, dtype=torch.float32, autocast=False, frozen=False, **options
):
    torch.manual_seed(0)
    width = shape[-1]
    sizes = {"up": (hidden, width), "down": (width + 1, hidden)}
    if gated:
        sizes["gate"] = (hidden, width)
    if biased:
        sizes |= {f"{name}_bias": size[:1] for name, size in sizes.items()}
    tensors = {name: (torch.randn(size) * 0.1).to(dtype).requires_grad_(not frozen) for name, size in sizes.items()}
    input = torch.randn(shape).to(dtype).requires_grad_()
    with torch.autocast("cpu", torch.bfloat16, enabled=autocast):
        result = function(input, **tensors, **options)
    result.backward(torch.randn(result.shape).to(result.dtype))
    return [result.detach(), input.grad, *(tensor.grad for tensor in tensors.values()), torch.get_rng_state()]


def assert_same(shape, hidden, activation="gelu", **options):
    """Returns the choice that was made."""
    expected = outcome(plain, shape, hidden, activation=activation, **options)
    found = outcome(remat.tiled_mlp, shape, hidden, activation=activation, **options)
    choice = remat.last_tile_choice()
    assert [same_bits(a, b) for a, b in zip(expected, found, strict=True)] == [True] * len(found), choice
    return choice


@pytest.fixture(params=[1, 2], autouse=True)
def threads(request):
    before = torch.get_num_threads()
    torch.set_num_threads(request.param)
    yield request.param
    torch.set_num_threads(before)


@pytest.mark.parametrize("activation", ACTIVATIONS)
@pytest.mark.parametrize("gated", [False, True])
@pytest.mark.parametrize("biased", [False, True])
def test_every_block_has_the_bits_of_plain_in_tiles(activation, gated, biased):
    choice = assert_same((4, 262, 256), 384, activation, gated=gated, biased=biased)  # of fewer numbers, sums may be whole
    if HAS_TILES:
        assert choice.rows > 0, choice


@pytest.mark.parametrize(
    ("shape", "hidden"), [((1, 4), 8), ((7, 1), 1), ((192, 16), 64), ((193, 16), 64), ((578, 16), 64), ((997, 61), 256), ((500, 48), 101)], ids=str
)
def test_every_shape_has_the_bits_of_plain(shape, hidden):
    assert_same(shape, hidden)
    assert_same(shape, hidden, "silu", gated=True, biased=False)


@pytest.mark.parametrize(
    "options", [{"dtype": torch.float64}, {"frozen": True}, {"frozen": True, "autocast": True}, {"whole_trial": True}], ids=str
)
def test_types_and_frozen_weights_in_tiles(options):
    choice = assert_same((2, 524, 256), 384, **options)
    if HAS_TILES:
        assert choice.rows > 0, choice


@needs_tiles
def test_slices_decide_where_the_whole_is_too_large():
    """The hidden layer of a large block is tried in two slices, and `whole_trial` agrees."""
    sliced = assert_same((2048, 512), 2048)
    assert "of the hidden units" in sliced.reason
    assert sliced.rows == assert_same((2048, 512), 2048, whole_trial=True).rows


@pytest.mark.parametrize(
    "options", [{"autocast": True}, {"dtype": torch.bfloat16}, {"dropout": 0.25}], ids=str
)
def test_what_has_no_tiles_of_the_same_bits_is_whole(options):
    assert assert_same((2, 300, 32), 256, **options).is_whole


@pytest.mark.parametrize("tokens", [100, 600])
@pytest.mark.parametrize("frozen", [False, True])
@pytest.mark.parametrize("autocast", [False, True])
def test_gradients_of_an_input_that_others_read_add_up_in_plain_s_order(tokens, frozen, autocast):
    def step(function):
        torch.manual_seed(0)
        weights = [(torch.randn(size) * 0.1).requires_grad_(not frozen) for size in ((256, 32), (32, 256), (256, 32))]
        leaf = torch.randn(tokens, 32, requires_grad=True)
        with torch.autocast("cpu", torch.bfloat16, enabled=autocast):
            x = functional.layer_norm(leaf, (32,))
            made = function(x, weights[0], weights[1], activation="silu", gate=weights[2])
            result = x * 3 + made + x.sin()
        result.backward(torch.randn(result.shape, dtype=result.dtype))
        return [result.detach(), leaf.grad, *(weight.grad for weight in weights if not frozen)]

    assert all(map(same_bits, step(remat.tiled_mlp), step(plain)))


def test_a_gradient_that_is_expanded_has_the_bits_of_plain():
    def step(function):
        torch.manual_seed(0)
        tensors = [torch.randn(size, requires_grad=True) for size in ((600, 32), (256, 32), (32, 256))]
        function(*tensors, activation="gelu").sum().backward()
        return [tensor.grad for tensor in tensors]

    assert all(map(same_bits, step(remat.tiled_mlp), step(plain)))


@needs_tiles
def test_other_threads_in_backward_are_refused(threads):
    input = torch.randn(600, 32, requires_grad=True)
    result = remat.tiled_mlp(input, torch.randn(256, 32), torch.randn(32, 256))
    torch.set_num_threads(3 - threads)
    with pytest.raises(remat.Error, match=r"\[tiled_mlp\] threads, or settings"):
        result.backward(torch.ones_like(result))


def test_views_and_nothing_are_plain_s():
    up, down = torch.randn(8, 4), torch.randn(4, 8)
    for input in (torch.randn(4, 300).t(), torch.randn(4), torch.randn(0, 4)):
        assert same_bits(remat.tiled_mlp(input, up, down), plain(input, up, down, activation="gelu"))
        assert remat.last_tile_choice().is_whole


def test_wrong_arguments_are_refused():
    input, up, down = torch.randn(300, 4), torch.randn(8, 4), torch.randn(4, 8)
    with pytest.raises(remat.Error, match="there is no activation 'tanh'"):
        remat.tiled_mlp(input, up, down, activation="tanh")
    for arguments in ((input, up, down[:, :7]), (input, up[:, :3], down), (input, up.double(), down)):
        with pytest.raises(RuntimeError) as expected:
            plain(*arguments, activation="gelu")
        with pytest.raises(RuntimeError) as found:
            remat.tiled_mlp(*arguments)
        assert str(expected.value) == str(found.value)


def test_a_bias_of_no_gate_is_refused():
    with pytest.raises(remat.Error, match="a bias of a gate and no gate"):
        remat.tiled_mlp(torch.randn(300, 4), torch.randn(8, 4), torch.randn(4, 8), gate_bias=torch.randn(8))


def test_double_backward_is_refused():
    input = torch.randn(300, 4, requires_grad=True)
    result = remat.tiled_mlp(input, torch.randn(64, 4), torch.randn(4, 64))
    with pytest.raises(remat.Error, match=r"\[tiled_mlp\] .*create_graph"):
        torch.autograd.grad(result.sum(), input, create_graph=True)


@needs_tiles
def test_the_hidden_layer_is_never_whole(threads):
    if threads == 2:
        pytest.skip("MKL may divide sums over many tokens among threads, and none in tiles")
    tokens, width, hidden = 4096, 256, 2048
    remat.memory.start_accounting()

    def peak(function):
        torch.manual_seed(0)
        input = torch.randn(tokens, width, requires_grad=True)
        up, down = torch.randn(hidden, width, requires_grad=True), torch.randn(width, hidden, requires_grad=True)
        before = remat.memory.current()
        remat.memory.reset_peak()
        result = function(input, up, down, activation="gelu")
        result.backward(torch.ones_like(result))
        return remat.memory.peak() - before, [result.detach(), input.grad, up.grad, down.grad]

    plain_bytes, expected = peak(plain)
    tiled_bytes, found = peak(remat.tiled_mlp)
    layer = tokens * hidden * 4
    assert plain_bytes > 2 * layer
    assert tiled_bytes < layer * 1.2  # of the trial, and of which a third is for gradients
    assert all(map(same_bits, expected, found))


@pytest.mark.parametrize("gated", [False, True])
def test_a_pass_that_asks_for_some_gradients(gated):
    names = ("input", "up", "down", "gate", "up_bias", "gate_bias", "down_bias")
    sizes = {"input": (400, 16), "up": (64, 16), "down": (16, 64), "up_bias": (64,), "down_bias": (16,)}
    if gated:
        sizes |= {"gate": (64, 16), "gate_bias": (64,)}

    def gradients_of(function, *asked):
        torch.manual_seed(0)
        tensors = {name: torch.randn(sizes[name], requires_grad=True) for name in names if name in sizes}
        result = function(**tensors, activation="silu")
        return torch.autograd.grad(result, [tensors[name] for name in asked], torch.ones_like(result))

    for asked in [*((name,) for name in sizes), ("up", "down_bias"), ("input", "down")]:
        assert all(map(same_bits, gradients_of(plain, *asked), gradients_of(remat.tiled_mlp, *asked))), asked


@needs_tiles
def test_gradients_of_several_passes_at_once_are_refused():
    input = torch.randn(300, 8, requires_grad=True)
    result = remat.tiled_mlp(input, torch.randn(64, 8), torch.randn(8, 64))
    with pytest.raises(remat.Error, match=r"\[tiled_mlp\] .*no plain tensors, as is_grads_batched"):
        torch.autograd.grad(result, input, torch.ones(2, 300, 8), is_grads_batched=True)


class Named(torch.Tensor):
    """Keeps its class."""


def test_subclasses_keep_their_class():
    input, up, down = torch.randn(300, 8).as_subclass(Named), torch.randn(64, 8), torch.randn(8, 64)
    found, expected = remat.tiled_mlp(input, up, down), plain(input, up, down, activation="gelu")
    assert type(found) is type(expected) is Named
    assert same_bits(found.as_subclass(torch.Tensor), expected.as_subclass(torch.Tensor))
