"""Training with an optimizer whose state is in a file, for tests."""

from __future__ import annotations

import pytest
import torch
from compare import same_bits
from torch import nn
from torch.utils._pytree import tree_flatten

import remat


def assert_same(ours, expected):
    """Whatever they are made of, to the bit."""
    (leaves, structure), (others, other_structure) = tree_flatten(ours), tree_flatten(expected)
    assert structure == other_structure
    for leaf, other in zip(leaves, others):
        is_tensor = isinstance(leaf, torch.Tensor)
        assert same_bits(leaf, other) and leaf.stride() == other.stride() if is_tensor else leaf == other


def make_model():
    torch.manual_seed(2)
    middle = nn.Linear(256, 130, bias=False)
    return nn.Sequential(nn.Linear(128, 256), nn.GELU(), nn.LayerNorm(256), middle, nn.Linear(130, 128))


def batch(step):
    return torch.randn(8, 128, generator=torch.Generator().manual_seed(step))


def train(model, optimizer, steps, in_backward=False):
    losses = []
    for step in steps:
        loss = (model(batch(step)) - batch(step)).square().mean()
        loss.backward()
        optimizer.step()
        if not in_backward:
            optimizer.zero_grad()
        losses.append(loss.detach())
    return losses


def in_order(state_dict):
    """Backward comes to the parameters in another order than step()."""
    return {**state_dict, "state": dict(sorted(state_dict["state"].items()))}


def outcome(make, steps=6, dir=None, in_backward=False, **options):
    """Losses, parameters and state."""
    model = make_model()
    optimizer = make(list(model.parameters()))
    if dir is not None:
        remat.paged(optimizer, dir=dir, **options)
    if in_backward:
        remat.optimizer_in_backward(optimizer)
    losses = train(model, optimizer, range(steps), in_backward)
    return losses, dict(model.named_parameters()), in_order(optimizer.state_dict())


@pytest.fixture
def adamw(tmp_path):
    """A model and its paged optimizer after two steps."""
    model = make_model()
    optimizer = torch.optim.AdamW(model.parameters())
    pages = remat.paged(optimizer, dir=tmp_path)
    train(model, optimizer, range(2))
    return model, optimizer, pages
