"""remat in Lightning's training loop, on two processes."""

from __future__ import annotations

import functools
import os
import time

import pytest
import torch
from compare import blocks, outcome, same_bits
from processes import run_on_processes
from torch import distributed as dist

import remat

lightning = pytest.importorskip("lightning", reason="Lightning is not installed: pip install lightning")

from lightning_trainer import make_trainer  # noqa: E402

from remat.integrations.lightning import RematCallback  # noqa: E402

DATA = torch.randn(6 * 2 * 128, 64, generator=torch.Generator().manual_seed(1))


class Model(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.inner = blocks(6, norm=True)

    def training_step(self, batch, index):
        return self.inner(batch).square().mean()

    def configure_optimizers(self):
        return torch.optim.AdamW(self.parameters(), lr=1e-3)


def fit(rank, folder, callback, data=DATA):
    """A model after six batches by DistributedDataParallel. The group is there, as if torchrun had started the process."""
    os.environ |= {
        **dict(RANK=str(rank), LOCAL_RANK=str(rank), GROUP_RANK="0", WORLD_SIZE="2", LOCAL_WORLD_SIZE="2"),
        **dict(MASTER_ADDR="127.0.0.1", MASTER_PORT="29500", TORCHELASTIC_RUN_ID="one"),
    }
    torch.manual_seed(5)
    model = Model()
    trainer = make_trainer(folder, callback, strategy="ddp", devices=2)
    assert trainer.world_size == 2
    torch.manual_seed(11)
    trainer.fit(model, torch.utils.data.DataLoader(data, batch_size=128))
    return model


def the_same_bits(folder, rank):
    plain = outcome(fit(rank, folder, None), [])
    callback = RematCallback(budget="60%")
    assert all(same_bits(a, b) for a, b in zip(plain, outcome(fit(rank, folder, callback), []), strict=True))
    report = callback.session.report()
    assert report.completed and report.step == 6
    assert report.peak_bytes <= report.budget_bytes < report.plain_peak_bytes


def told(folder, rank):
    remat.memory.start_accounting("cpu")
    budget = remat.memory.current("cpu") + (1 << 30 if rank == 0 else 1 << 20)
    begin = time.monotonic()
    with pytest.raises(remat.BudgetError) as caught:
        fit(rank, folder, RematCallback(budget=budget))
    assert time.monotonic() - begin < 30, "one waited for the other"
    assert ("rank 1 is out of memory" in str(caught.value)) == (rank == 0), caught.value
    dist.barrier()


class FailsOnOneRank(torch.utils.data.Dataset):
    """Which no process reads before its first batch."""

    def __init__(self, rank):
        self.rank = rank

    def __len__(self):
        return len(DATA)

    def __getitem__(self, index):
        if self.rank == 1:
            raise OSError("mine")
        return DATA[index]


def not_waiting(folder, rank):
    begin = time.monotonic()
    with pytest.raises(OSError if rank == 1 else RuntimeError):
        fit(rank, folder, RematCallback(budget="60%"), FailsOnOneRank(rank))
    assert time.monotonic() - begin < 30, "one waited for the other"


def test_a_fit_has_the_same_bits_within_a_budget(tmp_path):
    run_on_processes(functools.partial(the_same_bits, tmp_path), tmp_path)


def test_all_are_told_of_a_budget_that_is_refused(tmp_path):
    run_on_processes(functools.partial(told, tmp_path), tmp_path)


def test_a_process_that_fails_before_its_first_batch_is_not_waited_for(tmp_path):
    run_on_processes(functools.partial(not_waiting, tmp_path), tmp_path)
