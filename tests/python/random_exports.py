"""Random modules of the operators that export has: graphs of several ranks, with values and parameters that are used
several times, views, frozen and unused parameters."""

from __future__ import annotations

import dataclasses
import math
import random
from collections.abc import Callable
from typing import Any

import numpy
import torch
import torch.nn.functional as F
from torch import Tensor, nn

MOST = 700  # elements of a value


class Dropout(nn.Module):
    """The numbers that remat_dropout() draws, or with `counted` None an nn.Dropout, which export replaces by those."""

    def __init__(self, p: float) -> None:
        super().__init__()
        self.p = p
        self.counted: list[int] | None = None  # seed, step, site: shared by all of a model

    def forward(self, x: Tensor) -> Tensor:
        if self.counted is None or not self.training:
            return F.dropout(x, self.p, self.training)
        seed, step, site = self.counted
        self.counted[2] += 1
        with numpy.errstate(over="ignore"):
            golden = numpy.uint32(0x9E3779B9)
            key = _mix(numpy.uint32(seed) ^ _mix(numpy.uint32(step) + _mix(numpy.uint32(site) + golden)))
            drawn = _mix(key + numpy.arange(x.numel(), dtype=numpy.uint32) * golden)
        mask = torch.from_numpy((drawn < round((1 - self.p) * 2**32)).astype(numpy.float64)).view(x.shape)
        return x * (mask * float(numpy.float32(1 / (1 - self.p)))).to(x.dtype)


def _mix(v: Any) -> Any:
    v = ((v ^ (v >> numpy.uint32(16))) * numpy.uint32(0x7FEB352D)).astype(numpy.uint32)
    v = ((v ^ (v >> numpy.uint32(15))) * numpy.uint32(0x846CA68B)).astype(numpy.uint32)
    return v ^ (v >> numpy.uint32(16))


FUNCTIONS: list[Callable[[Tensor], Tensor]] = [
    F.relu, F.relu, F.relu, F.relu6, F.hardtanh, F.leaky_relu, F.elu, F.gelu, lambda v: F.gelu(v, approximate="tanh"), F.silu,
    torch.sigmoid, torch.tanh, F.hardswish, F.hardsigmoid, F.softplus, lambda v: (v * 0.5).sigmoid().log(), torch.abs,
    lambda v: torch.exp(-v.square()), lambda v: torch.rsqrt(v * v + 1), lambda v: v * 1.5 - 0.25, lambda v: 1 - v, lambda v: v**3 / 8,
    lambda v: v.clamp(-0.5, 0.75), lambda v: v.clamp_min(-0.25), lambda v: torch.where(v > 0, v, v * 0.25), lambda v: v.flip(-1),
    lambda v: v.masked_fill(v < 0, 0.0), lambda v: (v + 0.5) * (v > -0.5).to(v.dtype),
]  # fmt: skip


@dataclasses.dataclass
class Node:
    """One operator: what it does to earlier values."""

    text: str
    function: Callable[..., Tensor]
    of: list[int]


class Graph(nn.Module):
    """Values 0... are inputs; each node adds one. Values that nothing reads go to the head."""

    def __init__(self) -> None:
        super().__init__()
        self.nodes: list[Node] = []
        self.parts = nn.ModuleList()
        self.own = nn.ParameterList()
        self.ends: list[int] = []
        self.heads = nn.ModuleList()

    def forward(self, *inputs: Tensor) -> Tensor:
        values = list(inputs)
        for node in self.nodes:
            values.append(node.function(self, *(values[i] for i in node.of)))
        outs = [head(values[i].flatten(1)) for i, head in zip(self.ends, self.heads, strict=True)]
        return sum(outs[1:], outs[0])


class _First(nn.Module):
    def __init__(self, layer: nn.Module) -> None:
        super().__init__()
        self.layer = layer

    def forward(self, x: Tensor) -> Tensor:
        return self.layer(x)[0]


class Builder:
    def __init__(self, seed: int) -> None:
        self.r = random.Random(seed)
        torch.manual_seed(seed)
        self.graph = Graph()
        self.inputs: list[Tensor] = []
        self.values: list[Tensor] = []
        self.used: set[int] = set()

    # ---- What nodes are made of.

    def part(self, module: nn.Module) -> Callable[[Graph, Tensor], Tensor]:
        index = len(self.graph.parts)
        self.graph.parts.append(module)
        return lambda graph, *x: graph.parts[index](*x)

    def parameter(self, *sizes: int) -> int:
        self.graph.own.append(nn.Parameter(torch.randn(sizes) * 0.5))
        return len(self.graph.own) - 1

    def add(self, text: str, function: Callable[..., Tensor], *of: int) -> bool:
        """False, and nothing is added, where the result would be too large or empty."""
        with torch.no_grad():
            result = function(self.graph, *(self.values[i] for i in of))
        if not 0 < result.numel() <= MOST or result.dim() < 2:
            return False
        self.graph.nodes.append(Node(text, function, list(of)))
        self.values.append(result)
        self.used.update(of)
        return True

    def pick(self) -> int:
        """A value of floats, rather a late one."""
        late = self.r.random() < 0.7
        count = len(self.values)
        while True:
            i = self.r.randrange(max(0, count - 3), count) if late else self.r.randrange(count)
            if self.values[i].is_floating_point():
                return i
            late = False

    # ---- The operators, by rank.

    def grow(self) -> None:
        i = self.pick()
        shape = tuple(self.values[i].shape)
        kinds = [self.function, self.function, self.combine, self.combine, self.join, self.view, self.reduce, self.dropout]
        kinds += {2: [self.rows] * 7, 3: [self.sequence] * 8, 4: [self.image] * 9}.get(len(shape), [])
        self.r.choice(kinds)(i, shape)

    def function(self, i: int, shape: tuple[int, ...]) -> None:
        f = self.r.choice(FUNCTIONS)
        self.add("function", lambda _, x: f(x), i)

    def dropout(self, i: int, shape: tuple[int, ...]) -> None:
        if self.r.random() < 0.5:
            self.add("dropout", self.part(Dropout(self.r.choice([0.1, 0.25, 0.5]))), i)

    def combine(self, i: int, shape: tuple[int, ...]) -> None:
        """With another value of the size, with a parameter that is broadcast, or with itself."""
        f = self.r.choice([torch.add, torch.sub, torch.mul, lambda a, b: a / (b * b + 1), lambda a, b: torch.add(a, b, alpha=0.5)])
        others = [j for j, v in enumerate(self.values) if v.shape == shape and v.is_floating_point()]
        if self.r.random() < 0.6:
            self.add("combine", lambda _, a, b: f(a, b), i, self.r.choice(others))
            return
        sizes = [d if self.r.random() < 0.6 else 1 for d in shape][self.r.randrange(len(shape)) :]
        known = [k for k, p in enumerate(self.graph.own) if tuple(p.shape) == tuple(sizes)]
        at = self.r.choice(known) if known and self.r.random() < 0.5 else self.parameter(*sizes)
        if self.r.random() < 0.3:
            self.add("parameter first", lambda graph, a: f(graph.own[at].expand(a.shape), a), i)
        else:
            self.add("parameter", lambda graph, a: f(a, graph.own[at]), i)

    def join(self, i: int, shape: tuple[int, ...]) -> None:
        dim = self.r.randrange(1, len(shape))
        others = [j for j, v in enumerate(self.values) if v.is_floating_point() and v.dim() == len(shape)
                  and all(a == b for d, (a, b) in enumerate(zip(v.shape, shape, strict=True)) if d != dim)]  # fmt: skip
        j, k = self.r.choice(others), self.r.choice(others)
        if self.r.random() < 0.3:
            same = [j for j in others if self.values[j].shape == shape]
            j = self.r.choice(same)
            self.add("stack", lambda _, a, b: torch.stack([a, b], dim).flatten(dim, dim + 1), i, j)
        elif self.r.random() < 0.7:
            self.add("cat", lambda _, a, b: torch.cat([a, b], dim), i, j)
        else:
            self.add("cat 3", lambda _, a, b, c: torch.cat([a, b, c], dim), i, j, k)

    def view(self, i: int, shape: tuple[int, ...]) -> None:
        dim = self.r.randrange(1, len(shape))
        size = shape[dim]
        low, high = sorted(self.r.sample(range(size + 1), 2))
        order = [0, *self.r.sample(range(1, len(shape)), len(shape) - 1)]
        choices: list[Callable[[Any, Tensor], Tensor]] = [
            lambda _, x: x.narrow(dim, low, high - low), lambda _, x: x.permute(order), lambda _, x: x.permute(order).reshape(shape),
            lambda _, x: F.pad(x, (self_pad[0], self_pad[1])), lambda _, x: x.split([low, size - low], dim)[0] if low else x * 2,
        ]  # fmt: skip
        self_pad = (self.r.randrange(2), self.r.randrange(3))
        if len(shape) > 2:
            index = self.r.randrange(size)
            choices += [lambda _, x: x.select(dim, index), lambda _, x: x.flatten(1), lambda _, x: x.flatten(len(shape) - 2)]
        rest = math.prod(shape[1:])
        factors = [d for d in range(2, 9) if rest % d == 0]
        if factors:
            d = self.r.choice(factors)
            choices.append(lambda _, x: x.reshape(shape[0], d, rest // d))
            inner = [e for e in range(2, 9) if rest // d % e == 0]
            if inner:
                e = self.r.choice(inner)
                choices.append(lambda _, x: x.reshape(shape[0], rest // d // e, d, e))
        if self.r.random() < 0.2:
            choices.append(lambda _, x: x[:, :1].expand(shape))
        self.add("view", self.r.choice(choices), i)

    def reduce(self, i: int, shape: tuple[int, ...]) -> None:
        dim, keep = self.r.randrange(1, len(shape)), self.r.random() < 0.5
        f = self.r.choice([torch.sum, torch.mean])
        if self.r.random() < 0.3:
            self.add("centre", lambda _, x: x - f(x, dim, keepdim=True) / 4, i)
        elif self.r.random() < 0.3:
            self.add("over the batch", lambda _, x: x * torch.tanh(f(x, 0)), i)
        else:
            self.add("reduce", lambda _, x: f(x, dim, keepdim=keep), i)

    def linear(self, inputs: int, outputs: int) -> Callable[..., Tensor]:
        known = [k for k, p in enumerate(self.graph.parts)
                 if isinstance(p, nn.Linear) and (p.in_features, p.out_features) == (inputs, outputs)]  # fmt: skip
        if known and self.r.random() < 0.5:
            k = self.r.choice(known)
            return lambda graph, x: graph.parts[k](x)
        tied = [k for k, p in enumerate(self.graph.parts)
                if isinstance(p, nn.Linear) and (p.out_features, p.in_features) == (inputs, outputs)]  # fmt: skip
        if tied and self.r.random() < 0.5:
            k = self.r.choice(tied)
            return lambda graph, x: x @ graph.parts[k].weight
        return self.part(nn.Linear(inputs, outputs, bias=self.r.random() < 0.7))

    def rows(self, i: int, shape: tuple[int, ...]) -> None:
        width = shape[1]
        outputs = self.r.choice([4, 5, 8, width])
        trains = self.r.random() < 0.7 and shape[0] > 1  # of one row there is no variance
        choice = self.r.randrange(6)
        if choice <= 2:
            f = self.linear(width, outputs)
            self.add("linear", f, i)
        elif choice == 3:
            norm: nn.Module = nn.LayerNorm(width) if self.r.random() < 0.5 or width < 2 else nn.BatchNorm1d(width)
            self.add("norm", self.part(norm.train(trains)), i)
        elif choice == 4:
            self.add("softmax", lambda _, x: x.softmax(-1), i)
        else:
            self.add("log_softmax", lambda _, x: x.log_softmax(-1), i)

    def sequence(self, i: int, shape: tuple[int, ...]) -> None:
        _, frames, width = shape
        choice = self.r.randrange(9)
        if choice == 0:
            self.add("linear", self.linear(width, self.r.choice([4, 6, width])), i)
        elif choice == 1:
            self.add("layer_norm", self.part(nn.LayerNorm(width, elementwise_affine=self.r.random() < 0.8)), i)
        elif choice == 2:
            q, k = self.linear(width, 4), self.linear(width, 4)
            self.add("attention", lambda g, x: (q(g, x) @ k(g, x).transpose(1, 2) * 0.5).softmax(-1) @ x, i)
        elif choice == 4:
            q = self.linear(width, 4)
            self.add("causal", lambda g, x: F.scaled_dot_product_attention(q(g, x), q(g, x), x, is_causal=True), i)
        elif choice == 5:
            hidden = torch.ones(frames, frames, dtype=torch.bool).triu(1 + self.r.randrange(2))
            self.add("hidden", lambda _, x: (x @ x.transpose(1, 2) * 0.3).masked_fill(hidden, float("-inf")).softmax(-1) @ x, i)
        elif choice == 6:
            layer = _First(self.r.choice([nn.RNN, nn.GRU, nn.LSTM])(width, 3, bidirectional=self.r.random() < 0.7, batch_first=True))
            self.add("recurrent", self.part(layer), i)
        elif choice == 3:
            others = [j for j, v in enumerate(self.values) if v.dim() == 3 and v.is_floating_point() and v.shape[1] == width]
            if others:
                self.add("bmm", lambda _, a, b: torch.bmm(a, b) * 0.25, i, self.r.choice(others))
        else:
            kernel, groups = self.r.choice([1, 3, 5]), frames if self.r.random() < 0.4 else 1
            outputs = frames * self.r.choice([1, 1, 2]) if groups > 1 else self.r.choice([3, 4, frames])
            convolution = nn.Conv1d(frames, outputs, kernel, padding=kernel // 2, stride=self.r.choice([1, 1, 2]), groups=groups)
            self.add("conv1d", self.part(convolution), i)

    def image(self, i: int, shape: tuple[int, ...]) -> None:
        n, c, h, w = shape
        choice = self.r.randrange(10)
        if choice <= 4:
            kernel = self.r.choice([1, 1, 3, 3, 2, 5])
            groups = self.r.choice([1, 1, c, *([2] if c % 2 == 0 else [])])
            outputs = c if groups == c and self.r.random() < 0.7 else groups * self.r.choice([1, 2, 4] if groups == 1 else [1, 2])
            if self.r.random() < 0.3:
                outputs = c
            dilation = self.r.choice([1, 1, 1, 2])
            if (kernel - 1) * dilation >= min(h, w) + 2 * (kernel // 2):
                return
            convolution = nn.Conv2d(c, outputs, kernel, self.r.choice([1, 1, 1, 2]), kernel // 2, dilation, groups,
                                    bias=self.r.random() < 0.7)  # fmt: skip
            self.add("conv2d", self.part(convolution), i)
        elif choice == 5:
            self.add("batch_norm", self.part(nn.BatchNorm2d(c).train(self.r.random() < 0.7 and n * h * w > 1)), i)
        elif choice == 6:
            if self.r.random() < 0.4 and h * w > 1:
                self.add("instance_norm", self.part(nn.InstanceNorm2d(c, affine=self.r.random() < 0.5)), i)
            elif self.r.random() < 0.3 and n * h * w > 1:
                self.add("batch_norm untracked", self.part(nn.BatchNorm2d(c, track_running_stats=False)), i)
            else:
                self.add("group_norm", self.part(nn.GroupNorm(self.r.choice([1, c]), c)), i)
        elif choice == 7 and min(h, w) >= 2:
            kernel, stride, padding = self.r.choice([(2, 2, 0), (3, 2, 1), (3, 1, 1), (2, 1, 1)])
            pool = nn.MaxPool2d if self.r.random() < 0.5 else nn.AvgPool2d
            self.add("pool", self.part(pool(kernel, stride, padding)), i)
        elif choice == 8:
            self.add("adaptive", self.part(nn.AdaptiveAvgPool2d(1)), i)
        else:
            self.add("mean", lambda _, x: x.mean((2, 3), keepdim=True).sigmoid() * x, i)

    # ---- The whole.

    def build(self) -> tuple[Graph, Callable[..., Tensor], list[Tensor], list[Tensor]]:
        r, batch = self.r, self.r.choice([1, 2, 2, 3, 4])
        for _ in range(r.choice([1, 1, 2])):
            self.inputs.append(r.choice([
                lambda: torch.randn(batch, r.choice([4, 7, 8])), lambda: torch.randn(batch, 6, r.choice([4, 5])),
                lambda: torch.randn(batch, r.choice([1, 2, 4]), r.choice([5, 8]), 6), lambda: torch.randint(0, 7, (batch, 5)),
            ])())  # fmt: skip
        self.values = list(self.inputs)
        for i, x in enumerate(self.inputs):
            if not x.is_floating_point():
                self.add("embedding", self.part(nn.Embedding(7, r.choice([4, 6]), padding_idx=r.choice([None, 0]))), i)
        for _ in range(r.randrange(4, 22)):
            self.grow()
        self.graph.ends = [i for i in range(len(self.inputs), len(self.values)) if i not in self.used] or [len(self.values) - 1]
        classes = r.choice([3, 4])
        for i in self.graph.ends:
            self.graph.heads.append(nn.Linear(self.values[i].flatten(1).shape[1], classes))
        if r.random() < 0.15:
            self.graph.own.append(nn.Parameter(torch.randn(3)))  # that nothing uses
        for p in self.graph.parameters():
            if r.random() < 0.15:
                p.requires_grad_(False)
        self.graph.heads[0].bias.requires_grad_(True)
        loss, target = r.choice([
            (F.cross_entropy, torch.arange(batch) % classes), (F.mse_loss, torch.randn(batch, classes)),
            (lambda out, target: F.cross_entropy(out, target, label_smoothing=0.1), torch.arange(batch) % classes),
            (lambda out, target: F.cross_entropy(out, target, weight=torch.arange(1.0, classes + 1, dtype=out.dtype)), torch.arange(batch) % classes),
            (lambda out, target: F.huber_loss(out, target, delta=0.5), torch.randn(batch, classes)),
            (lambda out, target: F.smooth_l1_loss(out[:, 0], target.to(out.dtype)), torch.arange(batch) % classes),
            (F.binary_cross_entropy_with_logits, torch.rand(batch, classes)),
            (lambda out, target: (out * target).sum(), torch.randn(batch, classes)),
        ])  # fmt: skip
        return self.graph, loss, self.inputs, [target]
