"""remat in the training loops of transformers, accelerate and Lightning, and the examples that show it."""

from __future__ import annotations

import copy
import pathlib
import pickle
import runpy
import sys

import pytest
import torch
from compare import blocks, outcome, same_bits
from torch import nn

import remat
from remat import _C

ROOT = pathlib.Path(__file__).parent.parent.parent


def gpt2():
    transformers = pytest.importorskip("transformers", reason="transformers is not installed")
    torch.manual_seed(5)
    config = transformers.GPT2Config(vocab_size=50, n_embd=32, n_layer=6, n_head=4, n_positions=32)
    return transformers.GPT2LMHeadModel(config)


def samples(count=48):
    ids = torch.randint(0, 50, (count, 32), generator=torch.Generator().manual_seed(1))
    return [dict(input_ids=row, labels=row.clone()) for row in ids]


def assert_same(results):
    assert len(results[0]) == len(results[1])
    different = [i for i, (a, b) in enumerate(zip(*results)) if not same_bits(a, b)]
    assert not different, f"{len(different)} of {len(results[0])} tensors differ"
    assert not _C.is_recording()


def trained(tmp_path, callbacks, model=None, **options):
    transformers = pytest.importorskip("transformers", reason="transformers is not installed")
    pytest.importorskip("accelerate", reason="accelerate is not installed")
    options = dict(max_steps=5, logging_steps=2, gradient_accumulation_steps=2, per_device_train_batch_size=4) | options
    arguments = transformers.TrainingArguments(
        output_dir=str(tmp_path), report_to=[], save_strategy="no", disable_tqdm=True, use_cpu=True, **options
    )
    trainer = transformers.Trainer(
        model=model or gpt2(), args=arguments, train_dataset=samples(), eval_dataset=samples(8), callbacks=callbacks
    )
    trainer.train()
    return trainer


@pytest.mark.parametrize(
    "options", [{}, dict(eval_strategy="steps", eval_steps=2), dict(bf16=True)], ids=["plain", "evaluation", "bf16"]
)
def test_trainer_has_the_same_bits_within_a_budget_and_logs_it(tmp_path, options):
    integration = pytest.importorskip("remat.integrations.transformers", reason="transformers is not installed")
    plain = trained(tmp_path, [], **options)
    ours = trained(tmp_path, [integration.RematCallback(budget="50%")], **options)
    assert_same([outcome(trainer.model, []) for trainer in (plain, ours)])
    losses = [[entry["loss"] for entry in t.state.log_history if "loss" in entry] for t in (plain, ours)]
    assert losses[0] == losses[1]
    logged = [entry for entry in ours.state.log_history if "loss" in entry]
    assert all(entry["remat/peak_bytes"] > 0 for entry in logged)
    last = logged[-1]
    assert last["remat/peak_bytes"] <= last["remat/budget_bytes"] < last["remat/plain_peak_bytes"]
    assert last["remat/recompute_seconds"] > 0
    assert not any("remat/peak_bytes" in entry for entry in ours.state.log_history if "eval_loss" in entry)
    with pytest.raises(remat.Error, match="not wrapped"):
        remat.session_of(ours.model)


@pytest.mark.parametrize("where", ["loss", "step"])
def test_a_trainer_that_fails_leaves_neither_limit_nor_hooks(tmp_path, where):
    integration = pytest.importorskip("remat.integrations.transformers", reason="transformers is not installed")
    transformers = pytest.importorskip("transformers")

    class Fails(transformers.TrainerCallback):
        def on_step_end(self, args, state, control, **kwargs):
            if state.global_step == 2:
                raise ValueError("mine")

    model = gpt2()
    budget = remat.memory.current("cpu") + (64 << 20)
    failing = [Fails()] if where == "step" else []
    if where == "loss":
        seen = []

        def fail(*_):
            seen.append(None)
            if len(seen) == 3:
                raise ValueError("mine")

        model.transformer.ln_f.register_full_backward_hook(fail)
    with pytest.raises(ValueError, match="mine"):
        trained(tmp_path, [integration.RematCallback(budget=budget), *failing], model=model)
    assert not _C.is_recording()
    torch.zeros(32 << 20)
    model.transformer.ln_f._backward_hooks.clear()
    inputs = {name: value[None] for name, value in samples(1)[0].items()}
    model(**inputs).loss.backward()
    with pytest.raises(remat.Error, match="not wrapped"):
        remat.session_of(model)
    # And trains again.
    trained(tmp_path, [integration.RematCallback(budget="50%")], model=model)
    assert not model._forward_hooks


def test_trainer_refuses_nonsense_before_it_trains():
    integration = pytest.importorskip("remat.integrations.transformers", reason="transformers is not installed")
    with pytest.raises(remat.Error):
        integration.RematCallback(budget="much")
    with pytest.raises(remat.Error, match="no planner"):
        integration.RematCallback(planner="best")


@pytest.mark.parametrize("library", ["transformers", "lightning"])
def test_callbacks_can_be_copied_and_pickled(library):
    integration = pytest.importorskip(f"remat.integrations.{library}", reason=f"{library} is not installed")
    callback = integration.RematCallback(budget="50%", planner="online")
    for other in (copy.deepcopy(callback), pickle.loads(pickle.dumps(callback))):
        model = blocks(2)
        if library == "lightning":
            with pytest.raises(remat.Error, match="before the first batch"):
                _ = other.session
            other.on_train_batch_start(None, model, None, 0)
            assert pickle.loads(pickle.dumps(other))._step is None
            other.on_exception(None, model, ValueError())
            assert not other.session.report().completed
            assert pickle.loads(pickle.dumps(other))._figures.take().keys() == other._figures.take().keys()
        else:
            other.on_train_begin(None, None, None, model=model)
            model(torch.randn(4, 64)).sum().backward()
            other.on_step_end(None, None, None, model=model)
            assert pickle.loads(pickle.dumps(other))._figures.take().keys() == other._figures.take().keys()
            other.on_train_end(None, None, None, model=model)


def test_trainers_own_checkpointing_leads_to_enabled_blocks(tmp_path):
    plain = trained(tmp_path, [])
    ours = trained(tmp_path, [], model=remat.enable(gpt2()), activation_checkpointing=True)
    assert_same([outcome(trainer.model, []) for trainer in (plain, ours)])
    assert not any(getattr(module, "gradient_checkpointing", False) for module in ours.model.modules())
    session = remat.Session()
    with session.step():
        ours.model(**{name: value[None] for name, value in samples(1)[0].items()}).loss.backward()
    assert session.report().values_dropped > 0


def test_accelerate_with_accumulated_gradients_has_the_same_bits():
    accelerate = pytest.importorskip("accelerate", reason="accelerate is not installed")
    results = []
    for wrapped in (False, True):
        accelerator = accelerate.Accelerator(cpu=True, gradient_accumulation_steps=3)
        model = gpt2().train()
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
        loader = torch.utils.data.DataLoader(samples(), batch_size=4)
        model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
        if wrapped:
            remat.wrap(model, budget="50%")
        torch.manual_seed(11)
        losses = []
        for batch in loader:
            with accelerator.accumulate(model):
                loss = model(**batch).loss
                accelerator.backward(loss)
                accelerator.clip_grad_norm_(model.parameters(), 1.0)
                optimizer.step()
                optimizer.zero_grad()
                losses.append(loss.detach())
        results.append(outcome(model, losses))
    assert_same(results)
    report = remat.session_of(model).report()
    assert (report.step, report.completed) == (12, True)
    assert report.plan is not None
    assert report.peak_bytes <= report.budget_bytes < report.plain_peak_bytes


def test_lightning_has_the_same_bits_within_a_budget_and_logs_it(tmp_path):
    lightning = pytest.importorskip("lightning", reason="Lightning is not installed: pip install lightning")
    from remat.integrations.lightning import RematCallback

    class Model(lightning.LightningModule):
        def __init__(self, manual):
            super().__init__()
            self.inner = copy.deepcopy(body)
            self.automatic_optimization = not manual

        def training_step(self, batch, index):
            loss = self.inner(batch).square().mean()
            if not self.automatic_optimization:
                self.optimizers().zero_grad()
                self.manual_backward(loss)
                self.optimizers().step()
            return loss

        def configure_optimizers(self):
            return torch.optim.AdamW(self.parameters(), lr=1e-3)

    body: nn.Module = blocks(norm=True)
    data = torch.randn(8 * 128, 64, generator=torch.Generator().manual_seed(1))
    for manual in (False, True):
        results = []
        for callback in (None, RematCallback(budget="50%")):
            trainer = lightning.Trainer(
                max_epochs=1,
                accelerator="cpu",
                logger=False,
                enable_checkpointing=False,
                enable_progress_bar=False,
                enable_model_summary=False,
                default_root_dir=tmp_path,
                callbacks=[] if callback is None else [callback],
                **({} if manual else dict(accumulate_grad_batches=2)),
            )
            torch.manual_seed(11)
            model = Model(manual)
            trainer.fit(model, torch.utils.data.DataLoader(data, batch_size=128))
            results.append(outcome(model, []))
        assert_same(results)
        report = callback.session.report()
        assert (report.step, report.completed) == (8, True)
        assert report.plan is not None
        assert report.peak_bytes <= report.budget_bytes < report.plain_peak_bytes
        assert trainer.callback_metrics["remat/peak_bytes"] == report.peak_bytes


def text(path):
    """A Bible of a few made-up verses, in the form that scripts/kjv writes."""
    lines = []
    for book, words in (("Genesis", "light earth water night heaven"), ("Matthew", "son disciple kingdom word spirit")):
        lines += ["", f"{book} 1", ""]
        chosen = words.split()
        lines += [f"  {i + 1} And the {chosen[i % 5]} was upon the {chosen[i * i % 5]}: so it was." for i in range(60)]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


EXAMPLES = {  # what it needs, options, and what it prints
    "bert_testaments": ("transformers", [], "remat/peak_bytes"),
    "gpt2_accelerate": ("accelerate", ["--length", "64"], "measured peak"),
    "lora": ("peft", ["--length", "64"], "adapters, step 3"),
}


@pytest.mark.parametrize("name", EXAMPLES)
def test_an_example_runs(name, tmp_path, monkeypatch, capsys):
    library, options, printed = EXAMPLES[name]
    pytest.importorskip(library, reason=f"{library} is not installed")
    path = ROOT / "examples" / f"{name}.py"
    sizes = ["--width", "64", "--layers", "6", "--batch", "16", "--steps", "3"]
    monkeypatch.setattr(sys, "argv", [str(path), "--data", str(text(tmp_path / "text.txt")), *sizes, *options])
    monkeypatch.syspath_prepend(path.parent)
    runpy.run_path(str(path), run_name="__main__")
    assert printed in capsys.readouterr().out
