"""Heads of Hugging Face's language models in the Trainer: promised in its steps, and nowhere else."""

from __future__ import annotations

import copy
import pickle

import pytest
import torch
from compare import same_bits
from heads_test import HAS_TILES, WORDS, make
from torch import nn

from remat.heads import find_heads
from remat.promise import Promised

transformers = pytest.importorskip("transformers")


def trained(tmp_path, callbacks, loss=None, cls=transformers.Trainer, **options):
    torch.manual_seed(0)
    samples = [{"input_ids": row, "labels": row} for row in torch.randint(3, WORDS, (24, 70))]
    arguments = transformers.TrainingArguments(
        output_dir=str(tmp_path), report_to=[], save_strategy="no", disable_tqdm=True, use_cpu=True, max_steps=3,
        logging_steps=1, per_device_train_batch_size=4, **options,
    )
    trainer = cls(
        model=make("GPT2"), args=arguments, train_dataset=samples, eval_dataset=samples[:4], callbacks=callbacks,
        compute_loss_func=loss,
    )
    trainer.train()
    losses = [entry.get("loss", entry.get("eval_loss")) for entry in trainer.state.log_history]
    return losses, [each.detach() for each in trainer.model.parameters()], trainer


def own_loss(outputs, labels, num_items_in_batch=None):
    logits = outputs.logits[:, :-1].reshape(-1, WORDS)
    return nn.functional.cross_entropy(logits, labels[:, 1:].flatten(), reduction="sum") / num_items_in_batch


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"gradient_accumulation_steps": 2},
        {"label_smoothing_factor": 0.1},
        {"bf16": True},
        {"eval_strategy": "steps", "eval_steps": 1},
        {"gradient_checkpointing": True},
        {"loss": own_loss},
    ],
    ids=str,
)
def test_trainer(tmp_path, options):
    integration = pytest.importorskip("remat.integrations.transformers")
    callback = integration.RematCallback(head="tiles")
    losses, expected, _ = trained(tmp_path, [], **options)
    found_losses, found, trainer = trained(tmp_path, [callback], **options)
    assert losses == found_losses and all(map(same_bits, expected, found))
    whole = "label_smoothing_factor" in options or "loss" in options
    head = callback.session.report().head
    assert head == "" or head.startswith("whole" if whole else "tiles") or not HAS_TILES
    assert not find_heads(trainer.model)[0]._forward_pre_hooks


def test_trainer_says_what_was_done(tmp_path):
    integration = pytest.importorskip("remat.integrations.transformers")
    heads = []

    class Note(transformers.TrainerCallback):
        def on_step_end(self, args, state, control, **kwargs):
            heads.append(callback.session.report().head)

    callback = integration.RematCallback(head="tiles")
    trained(tmp_path, [callback, Note()])
    assert len(heads) == 3 and all(head.startswith("tiles of ") or not HAS_TILES for head in heads)


def is_promised(model):
    return type(model(input_ids=torch.ones(4, 70, dtype=torch.long)).logits) is not torch.Tensor


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt])
@pytest.mark.parametrize("inside", [True, False], ids=["in the step", "after it"])
def test_nothing_is_promised_after_a_training_that_failed(tmp_path, error, inside):
    integration = pytest.importorskip("remat.integrations.transformers")
    models = []

    class Fails(transformers.TrainerCallback):
        def on_step_end(self, args, state, control, model, **kwargs):
            models.append(model)
            raise error

    def failing(outputs, labels, num_items_in_batch=None):
        models.append(trainers[0].model)
        assert is_promised(models[0])
        raise error

    class Noted(transformers.Trainer):
        def __init__(self, *args, **kwargs):
            super().__init__(*args, **kwargs)
            trainers.append(self)

    trainers = []
    callbacks = [integration.RematCallback(head="tiles"), *([] if inside else [Fails()])]
    with pytest.raises(error):
        trained(tmp_path, callbacks, loss=failing if inside else None, cls=Noted)
    (model,) = models
    assert find_heads(model)[0]._forward_pre_hooks and not is_promised(model)


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda model: pickle.loads(pickle.dumps(model))])
def test_copies_of_a_model_in_training_promise_nothing(tmp_path, copied):
    integration = pytest.importorskip("remat.integrations.transformers")
    found = []

    class Copying(transformers.Trainer):
        def compute_loss(self, model, inputs, *args, **kwargs):
            found.append((is_promised(model), is_promised(copied(model))))
            return super().compute_loss(model, inputs, *args, **kwargs)

    trained(tmp_path, [integration.RematCallback(head="tiles")], cls=Copying)
    assert found == [(True, False)] * 3


class Keeping(transformers.Trainer):
    """Its outputs, and the gradients of logits."""

    def compute_loss(self, model, inputs, return_outputs=False, **kwargs):
        loss, self.outputs = super().compute_loss(model, inputs, return_outputs=True, **kwargs)
        self.held = []
        self.outputs.logits.register_hook(self.held.append)
        return (loss, self.outputs) if return_outputs else loss


def test_outputs_that_a_trainer_keeps_can_be_read_after_the_optimizer_s_step(tmp_path):
    integration = pytest.importorskip("remat.integrations.transformers")

    def logits(*callbacks):
        trainer = trained(tmp_path, list(callbacks), cls=Keeping)[2]
        assert (type(trainer.outputs.logits) is torch.Tensor) is (not callbacks)
        return trainer.outputs.logits.detach().clone(), trainer.held[0].clone()

    assert all(map(same_bits, logits(), logits(integration.RematCallback(head="tiles"))))


@pytest.mark.skipif(not HAS_TILES, reason="tiles have other bits here")
def test_no_logits_are_made_that_nobody_reads(tmp_path, monkeypatch):
    integration = pytest.importorskip("remat.integrations.transformers")
    made, own = [], Promised.made
    monkeypatch.setattr(Promised, "made", lambda self: made.append(self.function) or own(self))
    trained(tmp_path, [integration.RematCallback(head="tiles")])
    assert not made
