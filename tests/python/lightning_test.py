"""remat in Lightning's training loop."""

from __future__ import annotations

import copy
import gc
import pickle

import pytest
import torch
from compare import blocks, outcome, same_bits

import remat
from remat import _C

lightning = pytest.importorskip("lightning", reason="Lightning is not installed: pip install lightning")

from lightning_trainer import make_trainer  # noqa: E402

from remat.integrations.lightning import RematCallback  # noqa: E402

DATA = torch.randn(8 * 128, 64, generator=torch.Generator().manual_seed(1))


class Model(lightning.LightningModule):
    def __init__(self, layers=6, manual=False, optimizer=torch.optim.AdamW, **options):
        super().__init__()
        self.inner = blocks(layers, norm=True)
        self.automatic_optimization = not manual
        self.optimizer, self.options = optimizer, options
        self.starts, self.peaks = [], []

    def training_step(self, batch, index):
        remat.memory.reset_peak("cpu")
        self.starts.append(remat.memory.current("cpu"))
        loss = self.inner(batch).square().mean()
        if not self.automatic_optimization:
            self.optimizers().zero_grad()
            self.manual_backward(loss)
            self.optimizers().step()
        return loss

    def on_after_backward(self):
        self.peaks.append(remat.memory.peak("cpu"))

    def configure_optimizers(self):
        return self.optimizer(self.parameters(), lr=1e-3, **self.options)


def fit(model, callback, path, **options):
    trainer = make_trainer(path, callback, **options)
    torch.manual_seed(11)
    trainer.fit(model, torch.utils.data.DataLoader(DATA, batch_size=128))
    assert not _C.is_recording()
    assert "training_step" not in vars(trainer.strategy)
    return trainer


def make(**options):
    torch.manual_seed(5)
    return Model(**options)


@pytest.mark.parametrize("manual", [False, True], ids=["automatic", "manual"])
def test_a_fit_has_the_same_bits_within_a_budget_and_logs_it(tmp_path, manual):
    options = {} if manual else dict(accumulate_grad_batches=2)
    results = []
    for callback in (None, RematCallback(budget="50%")):
        model = make(manual=manual)
        trainer = fit(model, callback, tmp_path, **options)
        results.append(outcome(model, []))
    assert all(same_bits(a, b) for a, b in zip(*results, strict=True))
    report = callback.session.report()
    assert (report.step, report.completed) == (8, True)
    assert report.plan is not None
    assert report.peak_bytes <= report.budget_bytes < report.plain_peak_bytes
    assert trainer.callback_metrics["remat/peak_bytes"] == report.peak_bytes


def test_an_optimizer_that_calls_its_closure_again_has_a_step_in_each(tmp_path):
    options = dict(optimizer=torch.optim.LBFGS, max_iter=3, history_size=2)
    gc.collect()
    before = remat.memory.current("cpu")
    plain = make(**options)
    fit(plain, None, tmp_path)
    expected = outcome(plain, [])
    needed = max(start + (peak - start) * 6 // 10 for start, peak in zip(plain.starts, plain.peaks, strict=True))
    del plain
    gc.collect()
    budget = needed - before + remat.memory.current("cpu")
    callback = RematCallback(budget=budget)
    model = make(**options)
    fit(model, callback, tmp_path)
    assert len(model.peaks) > 8
    assert max(model.peaks) <= budget
    assert all(same_bits(a, b) for a, b in zip(expected, outcome(model, []), strict=True))
    assert callback.session.report().step == len(model.peaks)


class Skips(Model):
    def on_train_batch_start(self, batch, index):
        return -1 if index == 2 else None  # skips the rest of the epoch


class ReturnsNothing(Model):
    def training_step(self, batch, index):
        loss = super().training_step(batch, index)
        return None if index % 2 else loss


@pytest.mark.parametrize("kind", [Skips, ReturnsNothing])
def test_a_batch_without_backward_leaves_no_step(tmp_path, kind):
    torch.manual_seed(5)
    model = kind()
    callback = RematCallback(budget=remat.memory.current("cpu") + (4 << 20))
    fit(model, callback, tmp_path)
    assert remat.memory.limit("cpu") > 2 << 30
    torch.zeros(8 << 20)
    with remat.Session().step():
        pass


def test_a_fit_that_fails_leaves_no_step(tmp_path):
    class Fails(Model):
        def training_step(self, batch, index):
            loss = super().training_step(batch, index)
            if index == 2:
                raise ValueError("mine")
            return loss

    callback = RematCallback(budget=remat.memory.current("cpu") + (4 << 20))
    with pytest.raises(ValueError, match="mine"):
        fit(Fails(), callback, tmp_path)
    assert not _C.is_recording()
    assert not callback.session.report().completed
    torch.zeros(8 << 20)


def test_a_share_is_of_the_module_that_is_fitted(tmp_path):
    callback = RematCallback(budget="50%")
    first = make(layers=12)
    fit(first, callback, tmp_path)
    session = callback.session
    fit(first, callback, tmp_path)
    assert callback.session is session
    fit(make(layers=4), callback, tmp_path)
    report = callback.session.report()
    assert report.activation_peak_bytes < 0.6 * report.plain_activation_peak_bytes


def test_a_callback_can_be_copied_and_pickled(tmp_path):
    callback = RematCallback(budget="50%", planner="online")
    fit(make(), callback, tmp_path)
    for other in (copy.deepcopy(callback), pickle.loads(pickle.dumps(callback))):
        with pytest.raises(remat.Error, match="before the first batch"):
            _ = other.session
        fit(make(), other, tmp_path)
        assert other.session.report().completed


def test_a_fit_inside_of_another_leaves_that_its_budget(tmp_path):
    callback = RematCallback(budget="50%")
    gc.collect()

    class Nests(lightning.Callback):
        def on_train_batch_end(self, trainer, module, outputs, batch, index):
            if index == 2:
                outer = callback.session
                fit(make(layers=4), callback, tmp_path / "inner")
                assert callback.session is outer

    model = make(layers=12)
    trainer = lightning.Trainer(
        max_epochs=1,
        accelerator="cpu",
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        default_root_dir=tmp_path,
        callbacks=[callback, Nests()],
    )
    trainer.fit(model, torch.utils.data.DataLoader(DATA, batch_size=128))
    report = callback.session.report()
    assert report.step == 8
    assert report.activation_peak_bytes < 0.6 * report.plain_activation_peak_bytes
    assert max(model.peaks[4:]) <= report.budget_bytes


def test_two_callbacks_in_one_trainer_are_an_error(tmp_path):
    trainer = lightning.Trainer(
        accelerator="cpu", logger=False, enable_checkpointing=False, callbacks=[RematCallback(), RematCallback()]
    )
    with pytest.raises(remat.Error, match="two RematCallbacks"):
        trainer.fit(make(), torch.utils.data.DataLoader(DATA, batch_size=128))
