"""What docs/finetuning.md says of the predictions of a large vocabulary, and of what makes them in pieces."""

from __future__ import annotations

import pytest
import torch
from compare import same_bits
from torch.nn import functional

import remat

VOCABULARY, WIDTH, TOKENS = 8192, 16, 512
LOGITS = TOKENS * VOCABULARY * 4


def measured(loss_of, budget=None, steps=2):
    """The report of the last step, and the bits of it."""
    torch.manual_seed(0)
    weight = torch.nn.Parameter(torch.randn(VOCABULARY, WIDTH))
    hidden = torch.randn(TOKENS, WIDTH, requires_grad=True)
    target = torch.randint(VOCABULARY, (TOKENS,))
    session = remat.Session(budget)
    for _ in range(steps):
        weight.grad = hidden.grad = None
        with session.step():
            loss = loss_of(hidden, weight, target)
            loss.backward()
    return session.report(), [loss.detach(), weight.grad, hidden.grad]


def whole(hidden, weight, target):
    return functional.cross_entropy(functional.linear(hidden, weight), target)


def activations(report, of):
    return (getattr(report, of) - report.baseline_bytes) / LOGITS


def test_three_tensors_of_their_size_meet_in_plain_and_two_under_a_budget():
    plain, bits = measured(whole)
    assert 3 <= activations(plain, "plain_peak_bytes") < 3.2
    assert 2 <= activations(plain, "min_budget_bytes") < 2.2
    held = sum(each.nbytes for each in bits)  # here, beside the second training
    least, found = measured(whole, plain.min_budget_bytes + held, steps=4)
    assert 2 <= activations(least, "peak_bytes") < 2.2
    assert all(map(same_bits, bits, found))


@pytest.mark.skipif(not hasattr(torch.nn, "LinearCrossEntropyOptions"), reason="since torch 2.13")
def test_pytorch_makes_them_in_pieces_under_remat_too():
    options = torch.nn.LinearCrossEntropyOptions(batch_chunk_size=32)
    in_pieces = lambda *inputs: functional.linear_cross_entropy(*inputs, options=options)  # noqa: E731
    report, bits = measured(in_pieces)
    assert activations(report, "peak_bytes") < 0.5
    torch.testing.assert_close(bits, measured(whole)[1])  # not the same bits: sums are in another order
