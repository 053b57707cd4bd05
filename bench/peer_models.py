"""The models that remat is compared on with other ways to save memory, each with made-up data of a fixed seed.

A model's repeated blocks are in `blocks`, and it calls them through `run_block`, so that a variant can change how blocks
are run and nothing else. Shapes are those of app/zoo/ where both exist.
"""

import functools

import torch
import torch.nn.functional as F
from torch import nn


class Model(nn.Module):
    """What all have: `loss()` of one batch."""

    is_chain = True  # each block takes the result of the one before, and nothing else
    frees_gradients = False  # between steps, as zero_grad() does: a step's peak counts them then

    def __init__(self):
        super().__init__()
        self.run_block = lambda index, block, x: block(x)

    def run_blocks_by(self, run):
        """From now on run(index, block, inputs...) stands for block(inputs...)."""
        self.run_block = run

    def run_blocks(self, x):
        for index, block in enumerate(self.blocks):
            x = self.run_block(index, block, x)
        return x


class AttentionBlock(nn.Module):
    def __init__(self, width, heads, dropout):
        super().__init__()
        self.heads, self.dropout = heads, nn.Dropout(dropout)
        self.norm_attention, self.norm_mlp = nn.LayerNorm(width), nn.LayerNorm(width)
        self.query_key_value, self.projection = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(approximate="tanh"), nn.Linear(4 * width, width))

    def forward(self, x):
        heads = (
            part.unflatten(-1, (self.heads, -1)).transpose(1, 2)
            for part in self.query_key_value(self.norm_attention(x)).chunk(3, dim=-1)
        )
        attended = F.scaled_dot_product_attention(*heads, is_causal=True).transpose(1, 2).flatten(2)
        x = x + self.dropout(self.projection(attended))
        return x + self.dropout(self.mlp(self.norm_mlp(x)))


class GPT(Model):
    """12 layers, width 512, 8 heads, 256 tokens, vocabulary 8192, dropout 0.1."""

    def __init__(self, batch=8, length=256, vocabulary=8192, width=512, heads=8):
        super().__init__()
        self.tokens, self.places = nn.Embedding(vocabulary, width), nn.Embedding(length, width)
        nn.init.normal_(self.tokens.weight, std=0.02)
        nn.init.normal_(self.places.weight, std=0.02)
        self.dropout = nn.Dropout(0.1)
        self.blocks = nn.ModuleList(AttentionBlock(width, heads, 0.1) for _ in range(12))
        self.norm = nn.LayerNorm(width)
        self.text = torch.randint(vocabulary, (batch, length + 1))

    def loss(self):
        given, wanted = self.text[:, :-1], self.text[:, 1:]
        x = self.dropout(self.tokens(given) + self.places.weight)
        x = self.norm(self.run_blocks(x))
        return F.cross_entropy(F.linear(x, self.tokens.weight).flatten(0, 1), wanted.flatten())


class Experts(nn.Module):
    """Each token goes through two of eight networks, which a router chooses. Some are chosen rarely, and those that no token
    chose do not run."""

    def __init__(self, width, hidden, count=8):
        super().__init__()
        self.router = nn.Linear(width, count)
        with torch.no_grad():
            self.router.bias.copy_(torch.linspace(0, -2, count))
        self.experts = nn.ModuleList(
            nn.Sequential(nn.Linear(width, hidden), nn.GELU(), nn.Linear(hidden, width)) for _ in range(count)
        )

    def forward(self, x):
        tokens = x.flatten(0, 1)
        shares, chosen = self.router(tokens).softmax(-1).topk(2)
        result = torch.zeros_like(tokens)
        for number, expert in enumerate(self.experts):
            rows, places = torch.where(chosen == number)
            if len(rows):
                result = result.index_add(0, rows, expert(tokens[rows]) * shares[rows, places, None])
        return result.view_as(x)


class ExpertBlock(AttentionBlock):
    def __init__(self, width, heads, dropout):
        super().__init__(width, heads, dropout)
        self.mlp = Experts(width, 2 * width)


class Mixture(GPT):
    """A mixture of experts: the GPT with 6 layers of 8 experts, batches of other tokens in each step."""

    def __init__(self, batch=8, length=128, vocabulary=8192, width=512):
        super().__init__(batch, length, vocabulary, width)
        self.blocks = nn.ModuleList(ExpertBlock(width, 8, 0.1) for _ in range(6))
        self.vocabulary = vocabulary

    def choose(self, number):
        """The batch of a number."""
        generator = torch.Generator().manual_seed(number)
        self.text = torch.randint(self.vocabulary, self.text.shape, generator=generator)


class Bottleneck(nn.Module):
    def __init__(self, before, width, stride):
        super().__init__()
        after = 4 * width
        self.layers = nn.Sequential(
            nn.Conv2d(before, width, 1, bias=False),
            nn.BatchNorm2d(width),
            nn.ReLU(inplace=True),
            nn.Conv2d(width, width, 3, stride, 1, bias=False),
            nn.BatchNorm2d(width),
            nn.ReLU(inplace=True),
            nn.Conv2d(width, after, 1, bias=False),
            nn.BatchNorm2d(after),
        )
        self.shortcut = nn.Identity()
        if stride != 1 or before != after:
            self.shortcut = nn.Sequential(nn.Conv2d(before, after, 1, stride, bias=False), nn.BatchNorm2d(after))

    def forward(self, x):
        return F.relu(self.layers(x) + self.shortcut(x), inplace=True)


class ResNet(Model):
    """ResNet-50 on images of 128 x 128."""

    def __init__(self, batch=16, size=128, classes=1000):
        super().__init__()
        self.stem = nn.Sequential(
            nn.Conv2d(3, 64, 7, 2, 3, bias=False), nn.BatchNorm2d(64), nn.ReLU(inplace=True), nn.MaxPool2d(3, 2, 1)
        )
        widths = [64 << stage for stage, depth in enumerate((3, 4, 6, 3)) for _ in range(depth)]
        befores = [64] + [4 * width for width in widths[:-1]]
        self.blocks = nn.ModuleList(
            Bottleneck(before, width, 2 if before == 2 * width else 1) for before, width in zip(befores, widths)
        )
        self.head = nn.Linear(4 * widths[-1], classes)
        self.images, self.classes = torch.randn(batch, 3, size, size), torch.randint(classes, (batch,))

    def loss(self):
        x = self.run_blocks(self.stem(self.images))
        return F.cross_entropy(self.head(x.mean((2, 3))), self.classes)


class MLP(Model):
    """40 layers of width 1024."""

    def __init__(self, batch=2048, width=1024):
        super().__init__()
        self.blocks = nn.ModuleList(nn.Sequential(nn.Linear(width, width), nn.GELU()) for _ in range(40))
        self.given, self.wanted = torch.randn(batch, width), torch.randn(batch, width)

    def loss(self):
        return F.mse_loss(self.run_blocks(self.given), self.wanted)


class Deep(Model):
    """100 residual blocks of width 256."""

    class Block(nn.Module):
        def __init__(self, width, hidden):
            super().__init__()
            self.layers = nn.Sequential(
                nn.LayerNorm(width), nn.Linear(width, hidden), nn.GELU(), nn.Linear(hidden, width)
            )

        def forward(self, x):
            return x + self.layers(x)

    def __init__(self, batch=1024, width=256, hidden=512):
        super().__init__()
        self.blocks = nn.ModuleList(self.Block(width, hidden) for _ in range(100))
        self.norm = nn.LayerNorm(width)
        self.given, self.wanted = torch.randn(batch, width), torch.randn(batch, width)

    def loss(self):
        return F.mse_loss(self.norm(self.run_blocks(self.given)), self.wanted)


class UNet(Model):
    """U-Net of 4 levels from 32 channels on images of 128 x 128. Blocks: the pairs of convolutions."""

    is_chain = False

    def __init__(self, batch=16, size=128, classes=8, levels=4, width=32):
        super().__init__()
        widths = [width << level for level in range(levels + 1)]
        down = [self.block(before, after) for before, after in zip([3, *widths], widths)]
        up = [self.block(2 * after, after) for after in widths[-2::-1]]
        self.blocks = nn.ModuleList(down + up)
        self.ups = nn.ModuleList(nn.ConvTranspose2d(2 * after, after, 2, 2) for after in widths[-2::-1])
        self.classify = nn.Conv2d(width, classes, 1)
        self.images, self.classes = torch.randn(batch, 3, size, size), torch.randint(classes, (batch, size, size))

    @staticmethod
    def block(before, after):
        return nn.Sequential(
            nn.Conv2d(before, after, 3, padding=1, bias=False),
            nn.GroupNorm(8, after),
            nn.ReLU(inplace=True),
            nn.Conv2d(after, after, 3, padding=1, bias=False),
            nn.GroupNorm(8, after),
            nn.ReLU(inplace=True),
        )

    def loss(self):
        x, skips, levels = self.images, [], len(self.ups)
        for index, block in enumerate(self.blocks[: levels + 1]):
            x = self.run_block(index, block, F.max_pool2d(x, 2) if index else x)
            skips.append(x)
        skips.pop()
        for index, (up, block) in enumerate(zip(self.ups, self.blocks[levels + 1 :]), levels + 1):
            x = self.run_block(index, block, torch.cat([skips.pop(), up(x)], 1))
        return F.cross_entropy(self.classify(x), self.classes)


class LSTM(Model):
    """A language model of LSTM cells, 2 layers of width 512, 96 tokens, dropout 0.2. Blocks: the layers."""

    is_chain = False  # too short to be cut into segments

    class Layer(nn.Module):
        def __init__(self, width):
            super().__init__()
            self.cell, self.dropout = nn.LSTMCell(width, width), nn.Dropout(0.2)

        def forward(self, x):
            hidden = memory = x.new_zeros(x.shape[1:])
            outputs = []
            for token in x.unbind():
                hidden, memory = self.cell(token, (hidden, memory))
                outputs.append(hidden)
            return self.dropout(torch.stack(outputs))

    def __init__(self, batch=64, length=96, vocabulary=1024, width=512):
        super().__init__()
        self.tokens, self.dropout = nn.Embedding(vocabulary, width), nn.Dropout(0.2)
        self.blocks = nn.ModuleList(self.Layer(width) for _ in range(2))
        self.output = nn.Linear(width, vocabulary)
        self.given, self.wanted = (torch.randint(vocabulary, (length, batch)) for _ in range(2))

    def loss(self):
        x = self.output(self.run_blocks(self.dropout(self.tokens(self.given))))
        return F.cross_entropy(x.flatten(0, 1), self.wanted.flatten())


class HuggingFace(Model):
    """A model of transformers, unmodified: another way to run a block is put in the place of the block's own call."""

    is_chain = False  # segments of several blocks are not possible from outside

    def __init__(self, model, batch):
        super().__init__()
        self.model, self.batch = model, batch

    def run_blocks_by(self, run):
        for index, block in enumerate(self.blocks):
            block.forward = functools.partial(run, index, block.forward)

    def loss(self):
        return self.model(**self.batch).loss


class Bert(HuggingFace):
    """BERT-base as a classifier, 128 tokens."""

    def __init__(self, batch=8, length=128):
        from transformers import BertConfig, BertForSequenceClassification

        config = BertConfig(num_labels=2)
        super().__init__(
            BertForSequenceClassification(config),
            {
                "input_ids": torch.randint(config.vocab_size, (batch, length)),
                "attention_mask": torch.ones(batch, length, dtype=torch.long),
                "labels": torch.randint(2, (batch,)),
            },
        )
        self.blocks = self.model.bert.encoder.layer


class BertWithGradients(Bert):
    """Where little else is kept, the gradients are the peak: 438 MB at the end of the backward pass."""

    frees_gradients = True


class BertOfLengths(Bert):
    """BERT-base as a classifier, each batch as long as its longest text: 24 to 160 tokens."""

    SHORTEST, LONGEST = 24, 160

    def __init__(self, batch=8):
        super().__init__(batch, self.LONGEST)
        self.texts = batch

    def choose(self, number):
        """The batch of a number; 0 is one of the longest."""
        generator = torch.Generator().manual_seed(number)
        length = int(torch.randint(self.SHORTEST, self.LONGEST + 1, (1,), generator=generator)) if number else self.LONGEST
        self.batch = {
            "input_ids": torch.randint(self.model.config.vocab_size, (self.texts, length), generator=generator),
            "attention_mask": torch.ones(self.texts, length, dtype=torch.long),
            "labels": torch.randint(2, (self.texts,), generator=generator),
        }


class GPT2(HuggingFace):
    """GPT-2 small as a language model, 256 tokens."""

    def __init__(self, batch=4, length=256):
        from transformers import GPT2Config, GPT2LMHeadModel

        config = GPT2Config(use_cache=False)
        text = torch.randint(config.vocab_size, (batch, length))
        super().__init__(GPT2LMHeadModel(config), {"input_ids": text, "labels": text})
        self.blocks = self.model.transformer.h


class LoRA(GPT2):
    """Adapters of rank 8 on the frozen attention weights of GPT-2 small, one text of 64 tokens: the weights are read where
    there is the least to compute."""

    def __init__(self, batch=1, length=64):
        import peft

        super().__init__(batch, length)
        config = peft.LoraConfig(r=8, lora_alpha=16, target_modules=["c_attn"], fan_in_fan_out=True)
        self.model = peft.get_peft_model(self.model, config)


MODELS = {
    "gpt": GPT,
    "bert": Bert,
    "gpt2": GPT2,
    "resnet": ResNet,
    "unet": UNet,
    "lstm": LSTM,
    "mlp": MLP,
    "deep": Deep,
    "lora": LoRA,
    "bert-gradients": BertWithGradients,
    "bert-lengths": BertOfLengths,
    "mixture": Mixture,
}


def make(name, batch=None):
    torch.manual_seed(1)
    return MODELS[name](**({} if batch is None else {"batch": batch})).train()
