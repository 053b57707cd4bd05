"""Models for the tests, and training steps whose bits can be compared."""

import contextlib

import torch
import torch.nn as nn
import torch.nn.functional as F

BATCH, WIDTH = 4096, 64


def block(dropout):
    layers = nn.Linear(WIDTH, 4 * WIDTH), nn.GELU(), nn.Dropout(dropout), nn.Linear(4 * WIDTH, WIDTH), nn.LayerNorm(WIDTH)
    return nn.Sequential(*layers)


def blocks(count=8, dropout=0.1):
    torch.manual_seed(0)
    return nn.Sequential(*(block(dropout) for _ in range(count)))


def inputs(device):
    return torch.randn(BATCH, WIDTH, generator=torch.Generator().manual_seed(1)).to(device)


class ResNet(nn.Module):
    """BatchNorm, whose statistics change in each forward pass, and activations that are written in place."""

    def __init__(self, width=16, count=4):
        super().__init__()
        torch.manual_seed(0)
        self.stem = nn.Conv2d(3, width, 3, padding=1)
        self.blocks = nn.ModuleList(self.residual(width) for _ in range(count))
        self.head = nn.Linear(width, 10)

    @staticmethod
    def residual(width):
        def convolution():
            return nn.Conv2d(width, width, 3, padding=1, bias=False), nn.BatchNorm2d(width)

        return nn.Sequential(*convolution(), nn.ReLU(inplace=True), *convolution())

    def forward(self, x):
        x = self.stem(x)
        for layer in self.blocks:
            x = F.relu(x + layer(x), inplace=True)
        return self.head(x.mean((2, 3)))


class Gpt(nn.Module):
    def __init__(self, tokens=100, width=64, count=4):
        super().__init__()
        torch.manual_seed(0)
        self.embedding = nn.Embedding(tokens, width)
        self.layers = nn.ModuleList(
            nn.TransformerEncoderLayer(width, 4, 4 * width, 0.1, "gelu", batch_first=True, norm_first=True)
            for _ in range(count)
        )
        self.head = nn.Linear(width, tokens)

    def forward(self, tokens):
        x = self.embedding(tokens)
        length = tokens.shape[1]
        mask = torch.triu(torch.full((length, length), float("-inf"), device=tokens.device), 1)
        for layer in self.layers:
            x = layer(x, src_mask=mask)
        return self.head(x)


class Lstm(nn.Module):
    def __init__(self, width=32):
        super().__init__()
        torch.manual_seed(0)
        self.lstm = nn.LSTM(width, width, 2, dropout=0.1)
        self.head = nn.Linear(width, 10)

    def forward(self, x):
        return self.head(self.lstm(x)[0])


def in_step(session):
    """A step of it; nothing where there is none."""
    return contextlib.nullcontext() if session is None else session.step()


class Step:
    """A training step of a model. Each begins with the same seed and buffers, and without gradients."""

    def __init__(self, model, loss):
        self.model = model
        self.loss = loss
        self.buffers = {name: buffer.clone() for name, buffer in model.named_buffers()}

    def __call__(self, session=None):
        """What it leaves on the model: gradients and buffers."""
        torch.manual_seed(7)
        self.model.zero_grad()
        with torch.no_grad():
            for name, buffer in self.model.named_buffers():
                buffer.copy_(self.buffers[name])
        with in_step(session):
            self.loss(self.model).backward()
        left = [parameter.grad for parameter in self.model.parameters()] + list(self.model.buffers())
        return [tensor.detach().cpu().clone() for tensor in left]


def block_step(device, dropout=0.1):
    x = inputs(device)
    return Step(blocks(dropout=dropout).to(device), lambda model: model(x).square().mean())


def same_bits(values, others):
    return len(values) == len(others) and all(map(torch.equal, values, others))
