"""The models that are measured on a GPU, in shapes that people train, and small ones to try the scripts: see
peer_models.py for what a model has. They need torch alone."""

import torch
import torch.nn.functional as F
from peer_models import GPT, Model, ResNet
from torch import nn


class GPT2(GPT):
    """GPT-2 small, under autocast to bfloat16."""

    def __init__(self, batch=16, length=1024, vocabulary=50257, width=768, heads=12):
        super().__init__(batch, length, vocabulary, width, heads)

    def loss(self):
        with torch.autocast(self.text.device.type, torch.bfloat16):
            return super().loss()


class RMSNorm(nn.Module):
    """As transformers computes it, in float32."""

    def __init__(self, width):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))

    def forward(self, x):
        wide = x.float()
        return self.weight * (wide * (wide.square().mean(-1, keepdim=True) + 1e-5).rsqrt()).to(x.dtype)


class LlamaBlock(nn.Module):
    def __init__(self, width, heads, groups, hidden, rotation):
        super().__init__()
        self.heads, self.groups, size = heads, groups, width // heads
        self.norm_attention, self.norm_mlp = RMSNorm(width), RMSNorm(width)
        self.query = nn.Linear(width, width, bias=False)
        self.key, self.value = (nn.Linear(width, groups * size, bias=False) for _ in range(2))
        self.projection = nn.Linear(width, width, bias=False)
        self.gate, self.up = (nn.Linear(width, hidden, bias=False) for _ in range(2))
        self.down = nn.Linear(hidden, width, bias=False)
        self.rotation = rotation  # cosines and sines, which all blocks share

    def rotated(self, x):
        cosines, sines = self.rotation
        first, second = x.chunk(2, -1)
        return x * cosines + torch.cat([-second, first], -1) * sines

    def forward(self, x):
        normed = self.norm_attention(x)
        query, key, value = (
            layer(normed).unflatten(-1, (count, -1)).transpose(1, 2)
            for layer, count in ((self.query, self.heads), (self.key, self.groups), (self.value, self.groups))
        )
        key, value = (part.repeat_interleave(self.heads // self.groups, 1) for part in (self.rotated(key), value))
        attended = F.scaled_dot_product_attention(self.rotated(query), key, value, is_causal=True)
        x = x + self.projection(attended.transpose(1, 2).flatten(2))
        normed = self.norm_mlp(x)
        return x + self.down(F.silu(self.gate(normed)) * self.up(normed))


class Llama(Model):
    """The shape of Llama 3.2 1B, in bfloat16."""

    def __init__(self, batch=8, length=1024, vocabulary=128256, width=2048, heads=32, groups=8, hidden=8192, depth=16):
        super().__init__()
        frequencies = 500000.0 ** -torch.linspace(0, 1, width // heads // 2 + 1)[:-1]
        angles = torch.outer(torch.arange(length), frequencies).repeat(1, 2)
        rotation = [part.to(torch.bfloat16) for part in (angles.cos(), angles.sin())]
        self.tokens, self.norm = nn.Embedding(vocabulary, width), RMSNorm(width)
        nn.init.normal_(self.tokens.weight, std=0.02)
        self.blocks = nn.ModuleList(LlamaBlock(width, heads, groups, hidden, rotation) for _ in range(depth))
        self.to(torch.bfloat16)
        self.text = torch.randint(vocabulary, (batch, length + 1))

    def loss(self):
        x = self.norm(self.run_blocks(self.tokens(self.text[:, :-1])))
        return F.cross_entropy(F.linear(x, self.tokens.weight).flatten(0, 1), self.text[:, 1:].flatten())


class Bert(Model):
    """BERT-base as a classifier, in float32."""

    def __init__(self, batch=32, length=512, vocabulary=30522, width=768, heads=12, depth=12):
        super().__init__()
        self.tokens, self.places = nn.Embedding(vocabulary, width), nn.Embedding(length, width)
        self.norm, self.dropout = nn.LayerNorm(width), nn.Dropout(0.1)
        self.blocks = nn.ModuleList(
            nn.TransformerEncoderLayer(width, heads, 4 * width, 0.1, "gelu", batch_first=True) for _ in range(depth)
        )
        self.pooler, self.head = nn.Linear(width, width), nn.Linear(width, 2)
        self.text, self.labels = torch.randint(vocabulary, (batch, length)), torch.randint(2, (batch,))

    def loss(self):
        x = self.run_blocks(self.dropout(self.norm(self.tokens(self.text) + self.places.weight)))
        return F.cross_entropy(self.head(self.dropout(torch.tanh(self.pooler(x[:, 0])))), self.labels)


class ResNet50(ResNet):
    """ResNet-50 on images of 224 x 224, in float32."""

    def __init__(self, batch=128, size=224, classes=1000):
        super().__init__(batch, size, classes)


MODELS = {"gpt2": GPT2, "llama": Llama, "bert": Bert, "resnet": ResNet50}
SMALL = {
    "gpt2": {"batch": 4, "length": 64, "vocabulary": 256, "width": 64, "heads": 4},
    "llama": {"batch": 4, "length": 64, "vocabulary": 256, "width": 64, "heads": 4, "groups": 2, "hidden": 128, "depth": 4},
    "bert": {"batch": 4, "length": 64, "vocabulary": 256, "width": 64, "heads": 4, "depth": 4},
    "resnet": {"batch": 4, "size": 64, "classes": 10},
}


def make(name, device, small):
    """The model of a name, which may say another batch: "gpt2:4"."""
    torch.manual_seed(1)
    name, _, batch = name.partition(":")
    shape = (SMALL[name] if small else {}) | ({"batch": int(batch)} if batch else {})
    with torch.device(device):
        return MODELS[name](**shape).train()
