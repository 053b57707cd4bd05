"""Layers and kinds of tensors that are not a plain chain of products."""

from __future__ import annotations

import pytest
import torch
from compare import blocks
from scopes import assert_exact_when_dropped, assert_exact_within, loss_of
from torch import nn
from torch.nn import functional as F
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence
from torch.utils.data import DataLoader, Dataset


@pytest.mark.parametrize("kind", [nn.LSTM, nn.GRU, nn.RNN])
@pytest.mark.parametrize("packed", [False, True])
def test_recurrent_layers(kind, packed):
    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.embedding = nn.Embedding(50, 16)
            self.layer = kind(16, 24, num_layers=2, dropout=0.2, bidirectional=True, batch_first=True)
            self.out = nn.Linear(48, 50)

    def program(model):
        tokens = torch.randint(0, 50, (8, 20))
        x = model.embedding(tokens)
        if packed:
            lengths = torch.randint(1, 21, (8,))
            y, _ = model.layer(pack_padded_sequence(x, lengths, batch_first=True, enforce_sorted=False))
            y, _ = pad_packed_sequence(y, batch_first=True)
        else:
            y, _ = model.layer(x)
        loss = F.cross_entropy(model.out(y.tanh()).flatten(0, 1), tokens[:, : y.shape[1]].flatten())
        loss.backward()
        return loss.detach()

    assert_exact_when_dropped(Model(), program)


def test_state_carried_from_step_to_step():
    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.cell = nn.LSTMCell(16, 32)
            self.out = nn.Linear(32, 16)
            self.state = None

    def program(model):
        losses = []
        state = model.state or (torch.zeros(8, 32), torch.zeros(8, 32))
        for _ in range(6):  # truncated backpropagation through time: a backward every second piece
            x = torch.randn(8, 16)
            state = model.cell(x, state)
            losses.append(loss_of(model.out(state[0].exp())))
            if len(losses) % 2 == 0:
                (losses[-1] + losses[-2]).backward()
                state = tuple(s.detach() for s in state)
        model.state = state
        return [loss.detach() for loss in losses], state

    assert_exact_when_dropped(Model(), program, steps=3)


@pytest.mark.parametrize("mask", [None, "causal", "bool", "float"])
@pytest.mark.parametrize("dropout", [0.0, 0.2])
def test_attention(mask, dropout):
    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.qkv = nn.Linear(32, 96)
            self.out = nn.Linear(32, 32)

    def program(model):
        q, k, v = (t.unflatten(-1, (4, 8)).transpose(1, 2) for t in model.qkv(torch.randn(4, 16, 32)).chunk(3, -1))
        allowed = {
            "bool": torch.rand(4, 1, 16, 16) > 0.3,
            "float": torch.zeros(16, 16).masked_fill(torch.ones(16, 16).triu(1).bool(), float("-inf")),
        }.get(mask)
        y = F.scaled_dot_product_attention(q, k, v, allowed, dropout, is_causal=mask == "causal")
        loss = loss_of(model.out(y.transpose(1, 2).flatten(2)).exp())
        loss.backward()
        return loss.detach()

    assert_exact_when_dropped(Model(), program)


def test_transformer_layers():
    model = nn.TransformerEncoder(
        nn.TransformerEncoderLayer(32, 4, 64, batch_first=True, norm_first=True), 3, enable_nested_tensor=False
    )

    def program(m):
        y = m(torch.randn(16, 32, 32), mask=nn.Transformer.generate_square_subsequent_mask(32), is_causal=True)
        loss = loss_of(y)
        loss.backward()
        return loss.detach()

    assert_exact_when_dropped(model, program)
    assert_exact_within(model, program, budget="70%")


def test_channels_last():
    model = nn.Sequential(
        nn.Conv2d(3, 16, 3), nn.BatchNorm2d(16), nn.ReLU(inplace=True), nn.MaxPool2d(2), nn.Conv2d(16, 16, 3, groups=4),
        nn.GroupNorm(4, 16), nn.SiLU(), nn.Dropout2d(0.2), nn.ConvTranspose2d(16, 8, 3), nn.AdaptiveAvgPool2d(2),
    ).to(memory_format=torch.channels_last)  # fmt: skip

    def program(m):
        y = m(torch.randn(4, 3, 16, 16).contiguous(memory_format=torch.channels_last))
        assert y.is_contiguous(memory_format=torch.channels_last)
        loss = loss_of(y)
        loss.backward()
        return loss.detach()

    assert_exact_when_dropped(model, program, steps=3)


@pytest.mark.parametrize("sparse", [True, False])
def test_embeddings(sparse):
    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.embedding = nn.Embedding(100, 16, sparse=sparse, padding_idx=0)
            self.bag = nn.EmbeddingBag(100, 16, mode="sum", sparse=sparse)
            self.out = nn.Linear(16, 4)

    def program(model):
        tokens = torch.randint(0, 100, (8, 10))
        y = model.embedding(tokens).mean(1).exp() * model.bag(tokens).sigmoid()
        loss = loss_of(model.out(y))
        loss.backward()
        return loss.detach()

    assert_exact_when_dropped(Model(), program)


def test_sparse_products():
    def program(model):
        dense = torch.randn(32, 32) * (torch.rand(32, 32) > 0.8)
        y = model[0](torch.randn(32, 64))
        y = torch.sparse.mm(dense.to_sparse(), y).exp() + (dense.to_sparse_csr() @ y.sigmoid())
        loss = loss_of(model[1](y))
        loss.backward()
        return loss.detach()

    assert_exact_when_dropped(blocks(2), program)


def test_complex_numbers():
    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.linear = nn.Linear(32, 32, dtype=torch.complex64)
            self.weight = nn.Parameter(torch.randn(17, dtype=torch.complex64))

    def program(model):
        x = torch.randn(8, 32)
        y = torch.fft.irfft(torch.fft.rfft(x) * model.weight)
        z = model.linear(torch.complex(y, y.exp())).conj()
        z = z * z.imag + z.real.tanh() + torch.view_as_real(z.resolve_conj()).sum(-1)
        z = torch.view_as_complex(torch.stack([z.real, z.imag.sin()], -1)).mH @ z
        loss = z.abs().mean()
        loss.backward()
        return loss.detach(), z.detach()

    assert_exact_when_dropped(Model(), program)


def test_shapes_and_operators_that_depend_on_the_data():
    def program(model):
        y = model[0](torch.randn(32, 64))
        rows = torch.nonzero(y[:, 0] > 0).squeeze(1)
        y = y[rows] if len(rows) > 1 else y
        y = torch.cat([y, y[y[:, 1] > 0].exp()])
        values, places = y.topk(8, dim=1)
        y = y.scatter_add(1, places, values.softmax(1))
        y = torch.where(y > 0, y.sqrt(), y.sort(1).values)
        y = torch.linalg.qr(y.t() @ y + torch.eye(64) * 64).Q.to(torch.float32) + torch.einsum("ij,ik->jk", y, y)
        loss = loss_of(model[1](y * 0.01)) + torch.logsumexp(y * 0.01, 0).mean()
        loss.backward()
        return loss.detach()

    assert_exact_when_dropped(blocks(2), program)


def test_loss_functions():
    def program(model):
        logits = model(torch.randn(32, 64))
        targets = torch.randint(0, 64, (32,))
        loss = (
            F.cross_entropy(logits, targets, label_smoothing=0.1)
            + F.kl_div(logits.log_softmax(1), torch.rand(32, 64).softmax(1), reduction="batchmean")
            + F.huber_loss(logits, torch.zeros(32, 64))
            + F.binary_cross_entropy_with_logits(logits, torch.rand(32, 64))
            + F.ctc_loss(logits.view(16, 2, 64).log_softmax(2), torch.randint(1, 64, (2, 5)), (16, 16), (5, 4))
        )
        loss.backward()
        return loss.detach()

    assert_exact_when_dropped(blocks(2), program)


class Numbers(Dataset):
    def __len__(self):
        return 64

    def __getitem__(self, i):
        return torch.full((64,), float(i)).sin() + torch.rand(64)


def test_loader_workers_and_steps():
    def program(model):
        losses = []
        for batch in DataLoader(Numbers(), batch_size=16, num_workers=2, shuffle=True):  # forked inside of the step
            loss = loss_of(model(batch))
            loss.backward()
            losses.append(loss.detach())
        return losses

    assert_exact_when_dropped(blocks(2), program, steps=1)
