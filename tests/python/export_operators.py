"""Operators of docs/export.md as small modules, in groups that are exported together: export_kernels_test.py."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

Function = Callable[[Tensor], Tensor]

FUNCTIONS: dict[str, Function] = {
    "relu": F.relu, "relu6": F.relu6, "hardtanh": lambda v: F.hardtanh(v, -0.5, 0.75), "leaky_relu": F.leaky_relu,
    "leaky_relu 0.3": lambda v: F.leaky_relu(v, 0.3), "elu": F.elu, "elu 0.7": lambda v: F.elu(v, 0.7), "gelu": F.gelu,
    "gelu_tanh": lambda v: F.gelu(v, approximate="tanh"), "silu": F.silu, "sigmoid": torch.sigmoid, "tanh": torch.tanh,
    "hardswish": F.hardswish, "hardsigmoid": F.hardsigmoid, "softplus": F.softplus,
    "softplus 2": lambda v: F.softplus(v, 2.0, 5.0), "exp": torch.exp, "log": torch.log, "sqrt": torch.sqrt,
    "rsqrt": torch.rsqrt, "reciprocal": torch.reciprocal, "abs": torch.abs, "sign": torch.sign, "neg": torch.neg,
    "square": torch.square, "pow -2": lambda v: v**-2, "pow -1": lambda v: v**-1, "pow -0.5": lambda v: v**-0.5,
    "pow 0": lambda v: v**0 + v, "pow 0.5": lambda v: v**0.5, "pow 1": lambda v: v**1, "pow 1.5": lambda v: v**1.5,
    "pow 2": lambda v: v**2, "pow 3": lambda v: v**3, "pow 4": lambda v: v**4, "add 2": lambda v: v + 2,
    "sub 2": lambda v: v - 2, "1 -": lambda v: 1 - v, "mul 3": lambda v: v * 3, "div 3": lambda v: v / 3, "2 /": lambda v: 2 / v,
    "clamp": lambda v: v.clamp(-0.5, 0.75), "clamp min": lambda v: v.clamp(min=-0.5), "clamp_min": lambda v: v.clamp_min(0.25),
    "clamp max": lambda v: v.clamp(max=0.5), "clamp low above high": lambda v: v.clamp(0.75, -0.5),
    "add alpha": lambda v: torch.add(v, 1.5, alpha=2), "sub alpha": lambda v: torch.sub(v, 1.5, alpha=2),
}  # fmt: skip
_OF_POSITIVE = {"log", "sqrt", "rsqrt", "reciprocal", "2 /", *(f"pow {e}" for e in (-2, -1, -0.5, 0.5, 1.5))}


@dataclasses.dataclass
class Case:
    """A module of one input; its results are multiplied by weights and summed for the loss."""

    module: nn.Module
    x: Tensor
    weights: Tensor


class Apply(nn.Module):
    """A function of the input, and of parameters of these sizes."""

    def __init__(self, function: Callable[..., Tensor], *sizes: tuple[int, ...], low: float = -1.0) -> None:
        super().__init__()
        self.function = function
        self.own = nn.ParameterList(nn.Parameter(torch.rand(size) * (1.5 - low) + low) for size in sizes)

    def forward(self, x: Tensor) -> Tensor:
        return self.function(x, *self.own)


def _case(module: nn.Module | Callable[..., Tensor], x: Tensor, *sizes: tuple[int, ...], low: float = -1.0) -> Case:
    made = module if isinstance(module, nn.Module) else Apply(module, *sizes, low=low)
    with torch.no_grad():
        result = made(x)
    return Case(made, x, torch.randn_like(result))


def _functions() -> dict[str, Case]:
    torch.manual_seed(1)
    return {
        name: _case(f, torch.rand(3, 7) * 2 + 0.2 if name in _OF_POSITIVE else torch.randn(3, 7) * 3)
        for name, f in FUNCTIONS.items()
    }


def _between_products() -> dict[str, Case]:
    """Where backward computes a function's gradient within a product, and forward a relu."""
    torch.manual_seed(2)
    names = "relu relu6 leaky_relu elu gelu gelu_tanh silu sigmoid tanh hardswish hardsigmoid softplus".split()

    class Between(nn.Module):
        def __init__(self, f: Function) -> None:
            super().__init__()
            self.first, self.f, self.second = nn.Linear(5, 9), f, nn.Linear(9, 6)

        def forward(self, x: Tensor) -> Tensor:
            return self.second(self.f(self.first(x)))

    cases = {name: _case(Between(FUNCTIONS[name]), torch.randn(7, 5) * 2) for name in names}
    cases["softmax"] = _case(Between(lambda v: v.softmax(-1)), torch.randn(7, 5) * 2)
    cases["log_softmax"] = _case(Between(lambda v: v.log_softmax(-1)), torch.randn(7, 5) * 2)
    cases["scaled"] = _case(Between(lambda v: v * 0.3), torch.randn(7, 5))
    return cases


def _broadcasting() -> dict[str, Case]:
    torch.manual_seed(3)
    functions: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
        "add": lambda a, b: a + b, "sub": lambda a, b: a - b, "mul": lambda a, b: a * b, "div": lambda a, b: a / b,
        "rsub": lambda a, b: b - a, "add 3": lambda a, b: torch.add(a, b, alpha=3), "sub 3": lambda a, b: torch.sub(a, b, alpha=3),
    }  # fmt: skip
    sizes = [((2, 3, 4), (2, 3, 4)), ((2, 3, 4), (4,)), ((2, 3, 4), (3, 1)), ((2, 3, 4), (2, 1, 1)), ((3, 1), (1, 4)), ((4,), (2, 3, 1)),
             ((2, 3, 4), (1, 3, 1)), ((2, 3, 2, 2), (1, 3, 1, 1)), ((5,), ())]  # fmt: skip
    return {
        f"{name} {a} {b}": _case(f, torch.rand(a) + 0.5, b, low=0.5)
        for name, f in functions.items()
        for a, b in (sizes if name in ("add", "mul", "div") else sizes[:3])
    }


def _convolutions() -> dict[str, Case]:
    torch.manual_seed(4)
    cases = {}
    for c, o, kernel, options in (
        (3, 5, 3, {}), (3, 5, 3, dict(bias=False)), (4, 4, 1, {}), (5, 5, 1, {}), (5, 7, 1, {}), (4, 6, 1, dict(stride=2)),
        (3, 4, (2, 3), dict(stride=2)), (3, 5, 3, dict(padding=1)), (3, 4, 3, dict(padding=2, dilation=2)),
        (3, 6, (3, 1), dict(stride=(1, 2), padding=(2, 0))), (4, 6, 3, dict(groups=2)), (4, 4, 3, dict(groups=4, padding=1)),
        (4, 4, 3, dict(groups=4)), (4, 4, 3, dict(groups=4, stride=2, padding=1)), (4, 8, 3, dict(groups=4, padding=1)),
        (4, 4, (3, 2), dict(groups=4, padding=(2, 1))), (6, 6, 5, dict(groups=6, padding=2)), (4, 4, 3, dict(groups=4, padding=3)),
        (4, 4, 3, dict(groups=4, padding=2, dilation=2)), (1, 9, (7, 3), dict(stride=2, padding=(5, 1))),
        (4, 4, 3, dict(padding="same")), (4, 4, 1, dict(groups=4)),
    ):  # fmt: skip
        cases[f"conv2d {c} {o} {kernel} {options}"] = _case(nn.Conv2d(c, o, kernel, **options), torch.randn(2, c, 7, 6))
    for c, o, kernel, options in (
        (3, 4, 3, {}), (3, 4, 1, {}), (4, 4, 1, {}), (4, 4, 3, dict(groups=4, padding=1)), (3, 4, 5, dict(stride=3, padding=2)),
        (4, 6, 3, dict(dilation=3, groups=2, padding=1)), (4, 4, 3, dict(groups=4, padding=2, dilation=2)),
    ):  # fmt: skip
        cases[f"conv1d {c} {o} {kernel} {options}"] = _case(nn.Conv1d(c, o, kernel, **options), torch.randn(2, c, 11))
    for name, f in (("relu", F.relu), ("silu", F.silu), ("hardswish", F.hardswish)):
        for kernel, groups in ((3, 1), (1, 1), (3, 4)):
            chain = nn.Sequential(nn.Conv2d(4, 4, kernel, groups=groups, padding=kernel // 2), Apply(f), nn.Conv2d(4, 4, 1))
            cases[f"{name} after {kernel}, {groups}"] = _case(chain, torch.randn(2, 4, 5, 6))
    return cases


def _pooling() -> dict[str, Case]:
    torch.manual_seed(5)
    modules = [
        nn.MaxPool2d(2), nn.MaxPool2d(3, 2, 1), nn.MaxPool2d((2, 3), (1, 2)), nn.MaxPool2d(3, 1, 1), nn.AvgPool2d(2), nn.AvgPool2d(3, 2, 1),
        nn.AvgPool2d(3, 2, 1, count_include_pad=False), nn.AvgPool2d((3, 2), (1, 2), (1, 1)), nn.AdaptiveAvgPool2d(1),
        nn.AdaptiveAvgPool2d((4, 2)), nn.AdaptiveAvgPool2d((None, 1)),
    ]  # fmt: skip
    return {str(module): _case(module, torch.randn(2, 3, 8, 6)) for module in modules}


def _randomized(module: nn.Module) -> nn.Module:
    with torch.no_grad():
        for tensor in [*module.parameters(), *(b for b in module.buffers() if b.is_floating_point())]:
            tensor.uniform_(0.5, 1.5)
    return module


def _norms() -> dict[str, Case]:
    torch.manual_seed(6)
    image = (4, 6, 3, 2)
    makers: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...]]] = {
        "layer_norm": (lambda: nn.LayerNorm(6), (4, 3, 6)), "layer_norm 2": (lambda: nn.LayerNorm((3, 6)), (4, 3, 6)),
        "layer_norm eps": (lambda: nn.LayerNorm(6, eps=0.1, bias=False), (4, 6)),
        "layer_norm plain": (lambda: nn.LayerNorm(6, elementwise_affine=False), (4, 6)),
        "group_norm": (lambda: nn.GroupNorm(2, 6), image), "group_norm 1": (lambda: nn.GroupNorm(1, 6), image),
        "group_norm 6": (lambda: nn.GroupNorm(6, 6), image), "group_norm plain": (lambda: nn.GroupNorm(3, 6, affine=False), (4, 6)),
        "batch_norm 2d": (lambda: nn.BatchNorm2d(6), image), "batch_norm 1d": (lambda: nn.BatchNorm1d(6), (5, 6)),
        "batch_norm 1d of 3": (lambda: nn.BatchNorm1d(6, eps=0.01, momentum=0.3), (3, 6, 4)),
        "batch_norm plain": (lambda: nn.BatchNorm2d(6, affine=False), image), "batch_norm evaluated": (lambda: nn.BatchNorm2d(6).eval(), image),
        "batch_norm untracked": (lambda: nn.BatchNorm1d(6, track_running_stats=False), (5, 6)),
        "batch_norm untracked plain": (lambda: nn.BatchNorm2d(6, affine=False, track_running_stats=False), image),
        "instance_norm": (lambda: nn.InstanceNorm2d(6, affine=True), image), "instance_norm plain": (lambda: nn.InstanceNorm2d(6), image),
        "instance_norm 1d": (lambda: nn.InstanceNorm1d(3, affine=True, eps=0.01), (4, 3, 6)),
        "batch_norm plain evaluated": (lambda: nn.BatchNorm1d(6, affine=False).eval(), (4, 6)),
    }  # fmt: skip
    return {name: _case(_randomized(make()), torch.randn(size) * 2 + 0.5) for name, (make, size) in makers.items()}


def _order() -> dict[str, Case]:
    torch.manual_seed(7)
    x = torch.randn(2, 3, 4)
    cases = {
        "cat 0": _case(lambda v, p: torch.cat([v, p, v], 0), x, (1, 3, 4)), "cat 1": _case(lambda v, p: torch.cat([p, v], 1), x, (2, 1, 4)),
        "cat -1": _case(lambda v, p: torch.cat([v, p, v], -1), x, (2, 3, 2)), "stack 0": _case(lambda v, p: torch.stack([v, p]), x, (2, 3, 4)),
        "stack 2": _case(lambda v, p: torch.stack([v, p], 2), x, (2, 3, 4)), "pad": _case(lambda v: F.pad(v, (1, 2, 0, 1)), x),
        "pad less": _case(lambda v: F.pad(v, (-1, 2, 1, -1)), x), "pad 2d": _case(nn.ZeroPad2d(1), torch.randn(1, 2, 3, 3)),
        "transpose": _case(lambda v: v.transpose(0, 2).reshape(4, 6) * 2, x), "permute": _case(lambda v: torch.tanh(v.permute(1, 2, 0)), x),
        "select": _case(lambda v: v[:, 1] * v[:, -1], x), "slice": _case(lambda v: v[:, 1:, :-1] * v[:, :2, 1:], x),
        "split": _case(lambda v: v.split([1, 2], 1)[1] * v.chunk(3, 1)[0], x), "unbind": _case(lambda v: v.unbind(1)[0] - v.unbind(1)[2], x),
        "expand": _case(lambda v: v[:, :1].expand(2, 5, 4) * 2, x), "squeeze": _case(lambda v: v[:, :1].squeeze(1) + v.unsqueeze(0)[0, :, 1], x),
        "flatten": _case(lambda v: v.flatten(1).unflatten(1, (4, 3)), x),
    }  # fmt: skip
    index = torch.tensor([[1, 0, 4], [4, 4, 2]])
    cases["embedding"] = _case(nn.Embedding(6, 3), index)
    cases["embedding padding"] = _case(nn.Embedding(6, 3, padding_idx=4), index)
    cases["embedding twice"] = _case(lambda i, table: F.embedding(i, table) * F.embedding(i.view(3, 2), table).view(2, 3, 3), index, (6, 3))
    for dims in ((0,), (1,), (2,), (0, 1), (1, 2), (0, 2), (0, 1, 2)):
        cases[f"sum {dims}"] = _case(lambda v, dims=dims: v.sum(dims), x + 2)
        cases[f"mean {dims}"] = _case(lambda v, dims=dims: v.mean(dims, keepdim=True) * v, x + 2)
    for dim in (-1, 2):
        cases[f"softmax {dim}"] = _case(lambda v, dim=dim: v.softmax(dim), x * 4)
        cases[f"log_softmax {dim}"] = _case(lambda v, dim=dim: v.log_softmax(dim), x * 4)
    cases["matmul"] = _case(lambda v, w: v @ w, x, (4, 5))
    cases["bmm"] = _case(lambda v, w: torch.bmm(v, w), x, (2, 4, 5))
    cases["bmm transposed"] = _case(lambda v, w: torch.bmm(w.transpose(1, 2), v.transpose(1, 2)), x, (2, 4, 5))
    cases["attention"] = _case(
        lambda v, q, k: F.scaled_dot_product_attention(v + q, v * k, v), torch.randn(2, 2, 5, 4), (2, 2, 5, 4), (2, 2, 5, 4)
    )
    return cases


def _masks() -> dict[str, Case]:
    """What is compared and chosen, what is hidden from a softmax."""
    torch.manual_seed(9)
    x, low = torch.randn(2, 5, 5), torch.ones(5, 5, dtype=torch.bool).tril()
    heads = torch.randn(2, 2, 5, 4)
    tokens = torch.tensor([[3, 0, 2, 7, 1], [7, 7, 4, 0, 3]])

    def attention(mask: Tensor | None = None, causal: bool = False) -> Callable[..., Tensor]:
        def run(v: Tensor, q: Tensor, k: Tensor) -> Tensor:
            own = mask.to(v.dtype) if mask is not None and mask.is_floating_point() else mask
            return F.scaled_dot_product_attention(v + q, v * k, v, own, is_causal=causal)

        return run

    def hidden(value: float) -> Callable[[Tensor], Tensor]:
        return lambda v: v.masked_fill(~torch.ones(5, 5, dtype=torch.bool).tril(), value).softmax(-1)

    sizes = ((2, 2, 5, 4), (2, 2, 5, 4))
    cases = {
        "causal": _case(attention(causal=True), heads, *sizes), "attn_mask": _case(attention(low), heads, *sizes),
        "attn_mask added": _case(attention(torch.randn(5, 5)), heads, *sizes),
        "attn_mask infinite": _case(attention(torch.zeros(5, 5).masked_fill(~low, float("-inf"))), heads, *sizes),
        "triu of infinite": _case(lambda v: (v + torch.full((5, 5), float("-inf")).triu(1)).softmax(-1), x),
        "masked_fill": _case(hidden(float("-inf")), x), "masked_fill finite": _case(hidden(-1e9), x),
        "masked_fill of what is read": _case(lambda v: v.masked_fill(v > 0.5, 0.25) * v, x),
        "where": _case(lambda v, p: torch.where(v > p, v * 2, p), x, (5,)), "where number": _case(lambda v: torch.where(v >= 0.1, v, -v), x),
        "where zero": _case(lambda v: torch.where(v <= 0.1, v * v, 0.0), x), "ne": _case(lambda v: torch.where(v.sign() != 1, v, v * 3), x),
        "and or not": _case(lambda v: torch.where(((v < 1) & (v > -1)) | ~(v < 2), v, 0.5), x),
        "lt tensor": _case(lambda v, p: torch.where(v < p, v, p) + torch.where(v.eq(v), v, p), x, (5, 5)),
        "mask as a factor": _case(lambda v: v * (v > 0).to(v.dtype) * (v.detach() < 1), x),
        "padding": _case(lambda i, table: F.embedding(i, table) * (i != 7).unsqueeze(-1), tokens, (8, 3)),
        "integers": _case(lambda i, p: i.to(p.dtype) * p, tokens, (5,)),
        "flip": _case(lambda v: v.flip(1) * v.flip((0, 2)), x), "flip of a view": _case(lambda v: v[:, 1:, :4].transpose(1, 2).flip(2) * 2, x),
        "repeat": _case(lambda v, p: v.repeat(1, 2, 1) * p.repeat(2, 1), x, (5, 5)), "arange": _case(lambda v: v * torch.arange(5.0), x),
    }  # fmt: skip
    for kind in (nn.RNN, nn.LSTM, nn.GRU):
        cases[f"{kind.__name__} both ways"] = _case(_First(kind(4, 3, bidirectional=True, batch_first=True)), torch.randn(2, 3, 4))
    return cases


class _First(nn.Module):
    def __init__(self, layer: nn.Module) -> None:
        super().__init__()
        self.layer = layer

    def forward(self, x: Tensor) -> Tensor:
        return self.layer(x)[0]


class _Loss(nn.Module):
    def __init__(self, loss: Callable[..., Tensor], target: Tensor, options: dict[str, Any]) -> None:
        super().__init__()
        self.loss, self.options = loss, options
        self.register_buffer("target", target)

    def forward(self, x: Tensor) -> Tensor:
        options = {k: v.to(x.dtype) if isinstance(v, Tensor) else v for k, v in self.options.items()}
        return self.loss(x, self.target, **options)


def _losses() -> dict[str, Case]:
    torch.manual_seed(8)
    cases: dict[str, Case] = {}

    def add(name: str, x: Tensor, loss: Callable[..., Tensor], target: Tensor, **options: Any) -> None:
        for reduction in ("mean", "sum", "none"):
            cases[f"{name} {reduction}"] = _case(_Loss(loss, target, dict(options, reduction=reduction)), x)

    logits, classes = torch.randn(6, 5) * 3, torch.tensor([0, 4, 2, 2, 1, 3])
    add("cross_entropy", logits, F.cross_entropy, classes)
    add("cross_entropy ignored", logits, F.cross_entropy, torch.tensor([0, -100, 2, -100, 1, 3]))
    add("cross_entropy ignore_index", logits, F.cross_entropy, classes, ignore_index=2)
    add("cross_entropy of shares", logits, F.cross_entropy, torch.softmax(torch.randn(6, 5), -1))
    weight = torch.tensor([1.0, 0.5, 2.0, 0.25, 3.0])
    add("cross_entropy weights", logits, F.cross_entropy, torch.tensor([0, -100, 2, 4, 1, 3]), weight=weight)
    add("cross_entropy smooth", logits, F.cross_entropy, torch.tensor([0, -100, 2, 4, 1, 3]), label_smoothing=0.2)
    add("cross_entropy both", logits, F.cross_entropy, torch.tensor([0, -100, 2, 4, 1, 3]), label_smoothing=0.2, weight=weight)
    add("cross_entropy of shares with both", logits, F.cross_entropy, torch.softmax(torch.randn(6, 5), -1), label_smoothing=0.2,
        weight=weight)  # fmt: skip
    for name, far in (("huber_loss", {"delta": 0.7}), ("smooth_l1_loss", {"beta": 0.7})):
        add(name, logits, getattr(F, name), torch.randn(6, 5))
        add(f"{name} {far}", logits, getattr(F, name), torch.randn(6, 5), **far)
    add("l1_loss", logits, F.l1_loss, torch.randn(6, 5))
    add("nll_loss", torch.randn(6, 5), F.nll_loss, classes)
    add("mse_loss", logits, F.mse_loss, torch.randn(6, 5))
    add("binary_cross_entropy", torch.rand(6, 5) * 0.9 + 0.05, F.binary_cross_entropy, torch.rand(6, 5))
    add("with_logits", logits, F.binary_cross_entropy_with_logits, torch.rand(6, 5))
    return cases


GROUPS: dict[str, Callable[[], dict[str, Case]]] = {
    "functions": _functions, "products": _between_products, "broadcasting": _broadcasting, "convolutions": _convolutions,
    "pooling": _pooling, "norms": _norms, "order": _order, "masks": _masks, "losses": _losses,
}  # fmt: skip


def extreme_losses() -> dict[str, tuple[Callable[..., Tensor], Tensor, Tensor]]:
    far = torch.tensor([[1000.0, -1000.0, 0.0], [-90.0, 88.0, 89.0], [1e30, -1e30, 0.0], [-1e-30, 1e-30, 0.0]])
    return {
        "cross_entropy": (F.cross_entropy, far, torch.tensor([0, 2, 1, 1])),
        "binary_cross_entropy": (F.binary_cross_entropy, torch.tensor([0.0, 1.0, 0.0, 1.0, 1e-30, 1e-5, 0.5]),
                                 torch.tensor([0.0, 1.0, 1.0, 0.0, 1.0, 0.0, 1.0])),
        "logits": (F.binary_cross_entropy_with_logits, torch.tensor([100.0, -100.0, 1e4, -1e4, 20.0, -20.0, 0.0]),
                   torch.tensor([1.0, 0.0, 0.0, 1.0, 1.0, 0.0, 1.0])),
        "nothing counts": (F.cross_entropy, torch.randn(2, 3), torch.tensor([-100, -100])),
    }  # fmt: skip


class Small(nn.Module):
    """A table that is used twice, a convolution, norms."""

    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Embedding(5, 6)
        self.convolution = nn.Conv1d(6, 6, 3, padding=1)
        self.norm = nn.LayerNorm(6)
        self.batch = nn.BatchNorm1d(6)
        self.head = nn.Linear(6, 3, bias=False)

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.norm(self.convolution(self.table(tokens).transpose(1, 2)).relu().transpose(1, 2))
        x = x + torch.tanh(x @ self.table.weight.t()) @ self.table.weight
        return self.head(self.batch(x.mean(1)))
