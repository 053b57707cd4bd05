"""Models that are exported in tests and in bench/: each function gives a module, a loss, an input and a target, as
``python -m remat export`` wants them."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

Example = tuple[nn.Module, object, Tensor, Tensor]


def _labels(batch: int, classes: int) -> Tensor:
    return torch.arange(batch) % classes


def mlp(batch: int = 8, width: int = 32, layers: int = 10) -> Example:
    """Fully connected, 64 inputs, 10 classes."""
    sizes = [64] + [width] * (layers - 1) + [10]
    parts: list[nn.Module] = []
    for a, b in zip(sizes, sizes[1:], strict=False):
        parts += [nn.Linear(a, b), nn.ReLU()]
    return nn.Sequential(*parts[:-1]), F.cross_entropy, torch.randn(batch, 64), _labels(batch, 10)


def cnn(batch: int = 4) -> Example:
    """Three convolutions over digits of 28 x 28."""
    model = nn.Sequential(
        nn.Conv2d(1, 8, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(8, 16, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(16, 16, 3, padding=1), nn.ReLU(), nn.Flatten(), nn.Linear(16 * 49, 10),
    )  # fmt: skip
    return model, F.cross_entropy, torch.randn(batch, 1, 28, 28), _labels(batch, 10)


def ds_cnn(batch: int = 1, channels: int = 64, blocks: int = 4, norm: bool = False) -> Example:
    """The keyword spotter of MLPerf Tiny: 49 frames of 10 coefficients, 12 words. Norms are folded into the biases,
    unless asked for."""

    def block(convolution: nn.Conv2d) -> list[nn.Module]:
        return [convolution, *([nn.BatchNorm2d(channels)] if norm else []), nn.ReLU()]

    parts = block(nn.Conv2d(1, channels, (10, 4), stride=2, padding=(5, 1)))
    for _ in range(blocks):
        parts += block(nn.Conv2d(channels, channels, 3, padding=1, groups=channels))
        parts += block(nn.Conv2d(channels, channels, 1))
    model = nn.Sequential(*parts, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(channels, 12))
    return model, F.cross_entropy, torch.randn(batch, 1, 49, 10), _labels(batch, 12)


class _Residual(nn.Module):
    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.first = nn.Conv2d(inputs, outputs, 3, stride, 1)
        self.norm1 = nn.BatchNorm2d(outputs)
        self.second = nn.Conv2d(outputs, outputs, 3, 1, 1)
        self.norm2 = nn.BatchNorm2d(outputs)
        self.shortcut = nn.Identity() if stride == 1 else nn.Conv2d(inputs, outputs, 1, stride)

    def forward(self, x: Tensor) -> Tensor:
        y = self.norm2(self.second(F.relu(self.norm1(self.first(x)))))
        return F.relu(y + self.shortcut(x))


def resnet8(batch: int = 1) -> Example:
    """MLPerf Tiny's for pictures of 32 x 32; the norms' statistics stay."""
    model = nn.Sequential(
        nn.Conv2d(3, 16, 3, 1, 1), nn.BatchNorm2d(16), nn.ReLU(),
        _Residual(16, 16, 1), _Residual(16, 32, 2), _Residual(32, 64, 2),
        nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(64, 10),
    )  # fmt: skip
    for module in model.modules():
        if isinstance(module, nn.BatchNorm2d):
            module.eval()
    return model, F.cross_entropy, torch.randn(batch, 3, 32, 32), _labels(batch, 10)


def autoencoder(batch: int = 1) -> Example:
    """MLPerf Tiny's for sounds of machines: 640 values, 8 in the middle."""
    sizes = [640, 128, 128, 128, 128, 8, 128, 128, 128, 128, 640]
    parts: list[nn.Module] = []
    for a, b in zip(sizes, sizes[1:], strict=False):
        parts += [nn.Linear(a, b), nn.ReLU()]
    x = torch.randn(batch, 640)
    return nn.Sequential(*parts[:-1]), F.mse_loss, x, x.clone()


class _Attention(nn.Module):
    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.qkv = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)

    def forward(self, x: Tensor) -> Tensor:
        batch, frames, width = x.shape
        q, k, v = (
            part.reshape(batch, frames, self.heads, -1).transpose(1, 2) for part in self.qkv(x).split(width, 2)
        )
        scores = (q @ k.transpose(2, 3)) * (width // self.heads) ** -0.5
        return self.out((scores.softmax(-1) @ v).transpose(1, 2).reshape(batch, frames, width))


class _Layer(nn.Module):
    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attention = _Attention(width, heads)
        self.wide, self.narrow = nn.Linear(width, 2 * width), nn.Linear(2 * width, width)

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.attention(self.norm1(x))
        return x + self.narrow(F.gelu(self.wide(self.norm2(x)), approximate="tanh"))


class _Transformer(nn.Module):
    def __init__(self, width: int, layers: int, heads: int) -> None:
        super().__init__()
        self.embedding = nn.Linear(10, width)
        self.position = nn.Parameter(torch.randn(49, width) * 0.02)
        self.layers = nn.Sequential(*(_Layer(width, heads) for _ in range(layers)))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, 12)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.norm(self.layers(self.embedding(x) + self.position)).mean(1))


def transformer(batch: int = 1, width: int = 32, layers: int = 4, heads: int = 2) -> Example:
    """A keyword spotter: 49 frames of 10 coefficients, 12 words."""
    return _Transformer(width, layers, heads), F.cross_entropy, torch.randn(batch, 49, 10), _labels(batch, 12)


def mobilenet(batch: int = 1, size: int = 96) -> Example:
    """MobileNetV1 at a quarter of its width, for two classes: 0.8 MB of parameters."""
    parts: list[nn.Module] = [nn.Conv2d(3, 8, 3, 2, 1), nn.ReLU()]
    channels = 8
    for outputs, stride in ((16, 1), (32, 2), (32, 1), (64, 2), (64, 1), (128, 2), *[(128, 1)] * 5, (256, 2), (256, 1)):
        parts += [nn.Conv2d(channels, channels, 3, stride, 1, groups=channels), nn.ReLU()]
        parts += [nn.Conv2d(channels, outputs, 1), nn.ReLU()]
        channels = outputs
    model = nn.Sequential(*parts, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(channels, 2))
    return model, F.cross_entropy, torch.randn(batch, 3, size, size), _labels(batch, 2)


class _Everything(nn.Module):
    """What the others do not have: embeddings, other functions, pools, norms, dropout."""

    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Embedding(20, 6)
        self.conv = nn.Conv1d(6, 8, 3, stride=2, padding=2, dilation=2)
        self.group = nn.GroupNorm(2, 8)
        self.conv2 = nn.Conv2d(8, 12, 3, groups=2, bias=False)
        self.batch = nn.BatchNorm2d(12)
        self.average = nn.AvgPool2d(2, 1, 1)
        self.most = nn.MaxPool2d(3, 2, 1)
        self.dropout = nn.Dropout(0.25)
        self.head = nn.Linear(48, 3)

    def forward(self, tokens: Tensor) -> Tensor:
        x = F.silu(self.group(self.conv(self.table(tokens).transpose(1, 2))))
        x = torch.cat([x, torch.tanh(x)], 2).reshape(x.shape[0], 8, 4, -1)
        x = F.hardswish(self.average(F.relu6(self.batch(self.conv2(x)))))
        x = self.most(F.leaky_relu(F.gelu(x)) + F.softplus(x) - F.elu(x))
        x = F.pad(x, (1, 0, 0, 1)).mean((2, 3), keepdim=True) * torch.sigmoid(x)
        return self.head(self.dropout(x.flatten(1)))


def everything(batch: int = 3) -> Example:
    tokens = torch.arange(batch * 16).reshape(batch, 16) % 20
    return _Everything(), F.binary_cross_entropy_with_logits, tokens, torch.rand(batch, 3)


ALL = {f.__name__: f for f in (mlp, cnn, ds_cnn, resnet8, autoencoder, transformer, mobilenet, everything)}
