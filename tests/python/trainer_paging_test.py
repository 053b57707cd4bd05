"""A Trainer whose optimizer's state and gradients wait in files."""

from __future__ import annotations

import os

import pytest
import torch
from compare import same_bits
from integrations_test import gpt2, samples

import remat
from remat import paged_state

integration = pytest.importorskip("remat.integrations.transformers", reason="transformers is not installed")
pytest.importorskip("accelerate", reason="accelerate is not installed")
transformers = pytest.importorskip("transformers")


def trainer(directory, callbacks, **options):
    arguments = transformers.TrainingArguments(
        output_dir=str(directory),
        report_to=[],
        disable_tqdm=True,
        use_cpu=True,
        logging_steps=1,
        per_device_train_batch_size=2,
        gradient_accumulation_steps=2,
        learning_rate=1e-2,
        max_grad_norm=0.1,
        **options,
    )
    return transformers.Trainer(model=gpt2(), args=arguments, train_dataset=samples(), callbacks=callbacks)


def figures(owner):
    """What was logged of each step, and the parameters."""
    logged = [(log["loss"], log["grad_norm"]) for log in owner.state.log_history if "loss" in log]
    return logged, [parameter.detach().clone() for parameter in owner.model.parameters()]


def assert_same(ours, expected):
    assert ours[0] == expected[0]
    assert all(same_bits(one, other) for one, other in zip(ours[1], expected[1]))


@pytest.mark.parametrize("page_gradients", [False, True])
def test_bits_are_the_same_and_a_checkpoint_resumes_them(page_gradients, tmp_path, monkeypatch):
    monkeypatch.setattr(paged_state, "SMALLEST_BYTES", 1024)  # the model is small

    def callback():
        return integration.RematCallback(page_optimizer=tmp_path, page_gradients=page_gradients)

    plain = trainer(tmp_path / "plain", [], max_steps=4, save_strategy="no")
    plain.train()
    first = trainer(tmp_path / "first", [callback()], max_steps=4, save_steps=2)
    seen = []
    first.add_callback(Gradients(seen))
    first.train()
    assert_same(figures(first), figures(plain))
    assert any(isinstance(gradient, remat.StoredGradient) for gradient in seen) == page_gradients
    second = trainer(tmp_path / "second", [callback()], max_steps=4, save_strategy="no")
    second.train(resume_from_checkpoint=os.path.join(tmp_path, "first", "checkpoint-2"))
    assert_same(figures(second), figures(plain))
    weight = max(first.model.parameters(), key=torch.numel)
    assert first.optimizer.state[weight]["exp_avg"].device.type == "meta"


def test_adafactor_of_transformers(tmp_path, monkeypatch):
    monkeypatch.setattr(paged_state, "SMALLEST_BYTES", 256)

    def trained(callbacks):
        owner = trainer(tmp_path, callbacks, max_steps=3, save_strategy="no", optim="adafactor")
        owner.train()
        return owner

    plain, ours = trained([]), trained([integration.RematCallback(page_optimizer=tmp_path)])
    assert_same(figures(ours), figures(plain))
    states = ours.optimizer.state.values()
    assert any(torch.is_tensor(each) and each.is_meta for state in states for each in state.values())


class Gradients(transformers.TrainerCallback):
    def __init__(self, seen):
        self.seen = seen

    def on_pre_optimizer_step(self, args, state, control, model, **kwargs):
        self.seen += [parameter.grad for parameter in model.parameters()]


def test_gradients_need_a_directory(tmp_path):
    with pytest.raises(remat.Error, match="page_gradients=True names no directory"):
        integration.RematCallback(page_gradients=True)
    optimizer = torch.optim.AdamW(torch.nn.Linear(2, 2).parameters())
    remat.paged(optimizer, dir=tmp_path)
    callback = integration.RematCallback(page_optimizer=tmp_path, page_gradients=True)
    with pytest.raises(remat.Error, match="in a file already, without its gradients"):
        callback.on_train_begin(None, None, None, None, optimizer=optimizer)
