"""RematCallback(auto_batch=True): the Trainer's batch, split by measurement, with the bits of that split."""

from __future__ import annotations

import copy
import pickle

import pytest
import torch
from integrations_test import trained

import remat

integration = pytest.importorskip("remat.integrations.transformers", reason="transformers is not installed")
pytest.importorskip("accelerate", reason="accelerate is not installed")

BATCH = dict(per_device_train_batch_size=24, gradient_accumulation_steps=2, max_steps=2)


def budget_between(tmp_path, share):
    """Within what the batch of 24 adds in plain."""
    callback = integration.RematCallback()
    trained(tmp_path / "plain", [callback], **BATCH)
    report = callback.session.report()
    return report.baseline_bytes + int(report.plain_activation_peak_bytes * share)


@pytest.mark.parametrize("options", [{}, dict(bf16=True)], ids=["float32", "bf16"])
def test_splits_the_batch_and_keeps_the_bits(tmp_path, options):
    budget = budget_between(tmp_path, 0.6)
    callback = integration.RematCallback(budget=budget, auto_batch=True)
    ours = trained(tmp_path / "ours", [callback], **BATCH, **options)
    split = callback.fit.split
    assert split.step.size * split.steps == 48
    assert split.step.measured and split.step.peak_bytes <= budget
    assert ours.args.per_device_train_batch_size == split.step.size
    assert ours.args.gradient_accumulation_steps == split.steps
    assert ours.state.global_step == 2
    assert "get_train_dataloader" not in vars(ours) and "compute_loss_context_manager" not in vars(ours)
    by_hand = dict(per_device_train_batch_size=split.step.size, gradient_accumulation_steps=split.steps, max_steps=2)
    theirs = trained(tmp_path / "theirs", [], **by_hand, **options)
    for a, b in zip(ours.model.parameters(), theirs.model.parameters()):
        assert torch.equal(a, b)


def test_the_optimizers_state_counts_before_it_is_there(tmp_path):
    from remat.integrations.auto_batch import _state_bytes

    trainer = trained(tmp_path, [], max_steps=1)
    state = [value for each in trainer.optimizer.state.values() for value in each.values()]
    trainer.optimizer = None
    assert _state_bytes(trainer) == sum(value.nbytes for value in state if isinstance(value, torch.Tensor))


def test_what_does_not_fit_is_an_error(tmp_path):
    with pytest.raises(remat.BudgetError, match="no micro-batch fits"):
        trained(tmp_path, [integration.RematCallback(budget=10_000, auto_batch=True)], **BATCH)


def test_needs_bytes_and_the_constructor(tmp_path):
    with pytest.raises(remat.Error, match="auto_batch has no meaning with pressure"):
        integration.RematCallback(budget="pressure", auto_batch=True)
    with pytest.raises(remat.Error, match="auto_batch has no meaning with 40%"):
        integration.RematCallback(budget="40%", auto_batch=True)
    with pytest.raises(remat.Error, match="auto_batch is 1"):
        integration.RematCallback(budget="1GiB", auto_batch=1)
    trainer = trained(tmp_path, [], max_steps=1)
    trainer.add_callback(integration.RematCallback(budget="1GiB", auto_batch=True))
    with pytest.raises(remat.Error, match="give the callback to its constructor"):
        trainer.train()


def test_copies_and_pickles_split_too(tmp_path):
    callback = integration.RematCallback(budget="1GiB", auto_batch=True)
    for copied in (copy.deepcopy(callback), pickle.loads(pickle.dumps(callback))):
        assert copied.fit is None
        trained(tmp_path, [copied], max_steps=1)
        assert copied.fit.split.step.size * copied.fit.split.steps == 8
