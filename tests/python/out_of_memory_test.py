"""A BudgetError is an out-of-memory error to whoever mends those."""

from __future__ import annotations

import copy
import pickle

import pytest
import torch
from compare import blocks
from scopes import loss_of
from torch import nn

import remat


def refused(batch=512):
    model = remat.wrap(blocks(), budget=remat.memory.current() + (1 << 20))
    loss_of(model(torch.randn(batch, 64))).backward()


def planned():
    session = remat.Session()
    with session.step():
        loss_of(blocks()(torch.randn(512, 64))).backward()
    remat.make_plan(session.graph(), 1000)


@pytest.mark.parametrize("refuse", [refused, planned])
def test_it_is_caught_as_torchs(refuse):
    with pytest.raises(torch.OutOfMemoryError) as caught:
        refuse()
    assert isinstance(caught.value, remat.BudgetError) and isinstance(caught.value, remat.Error)


def test_what_others_look_for_is_in_its_argument_alone():
    with pytest.raises(remat.BudgetError) as caught:
        refused()
    error = caught.value
    (argument,) = error.args
    assert "DefaultCPUAllocator: can't allocate memory" in argument and argument.startswith(str(error))
    assert "DefaultCPUAllocator" not in str(error) and " out of memory." in str(error)
    for again in (pickle.loads(pickle.dumps(error)), copy.copy(error), type(error)(str(error))):
        assert (str(again), again.args) == (str(error), error.args)
        assert again.needed_bytes == error.needed_bytes and again.budget_bytes == error.budget_bytes
    assert str(remat.BudgetError()) == ""


def test_lightnings_tuner_finds_a_batch(tmp_path):
    lightning = pytest.importorskip("lightning", reason="Lightning is not installed")
    from lightning.pytorch.tuner import Tuner
    from lightning_trainer import make_trainer

    class Model(lightning.LightningModule):
        def __init__(self):
            super().__init__()
            self.batch_size = 4
            self.inner = remat.wrap(blocks(), budget=remat.memory.current() + (6 << 20))
            self.refusals = 0

        def training_step(self, batch, index):
            try:
                return self.inner(batch).square().mean()
            except remat.BudgetError:
                self.refusals += 1
                raise

        def train_dataloader(self):
            return torch.utils.data.DataLoader(torch.randn(4096, 64), batch_size=self.batch_size)

        def configure_optimizers(self):
            return torch.optim.SGD(self.parameters(), lr=1e-3)

    remat.memory.start_accounting()
    model = Model()
    found = Tuner(make_trainer(tmp_path, None)).scale_batch_size(model, mode="binsearch", max_trials=12)
    assert 4 < found < 4096 and model.batch_size == found
    assert model.refusals > 0


def test_a_loop_of_ones_own():
    model = nn.Sequential(*[nn.Linear(64, 64) for _ in range(8)])
    remat.wrap(model, budget=remat.memory.current() + (1 << 20))
    batch = 1 << 14
    while True:
        try:
            loss_of(model(torch.randn(batch, 64))).backward()
            break
        except torch.OutOfMemoryError:
            model.zero_grad()
            batch //= 2
    assert 1 <= batch < 1 << 14
