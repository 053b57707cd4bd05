"""remat in the training loops of transformers and accelerate, and the examples that show it."""

from __future__ import annotations

import copy
import pathlib
import pickle
import runpy
import sys
import threading
import types

import pytest
import torch
from compare import blocks, outcome, same_bits

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


def trained(tmp_path, callbacks, model=None, kind=None, **options):
    transformers = pytest.importorskip("transformers", reason="transformers is not installed")
    pytest.importorskip("accelerate", reason="accelerate is not installed")
    options = dict(max_steps=5, logging_steps=2, gradient_accumulation_steps=2, per_device_train_batch_size=4) | options
    arguments = transformers.TrainingArguments(
        output_dir=str(tmp_path), report_to=[], save_strategy="no", disable_tqdm=True, use_cpu=True, **options
    )
    trainer = (kind or transformers.Trainer)(
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
    assert all(0 < entry["remat/peak_bytes"] <= entry["remat/budget_bytes"] for entry in logged)
    last = logged[-1]
    assert last["remat/peak_bytes"] <= last["remat/budget_bytes"] < last["remat/plain_peak_bytes"]
    assert last["remat/recompute_seconds"] > 0
    assert not any("remat/peak_bytes" in entry for entry in ours.state.log_history if "eval_loss" in entry)
    assert not ours.model._forward_hooks
    assert "training_step" not in vars(ours)


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
    # And trains again.
    trained(tmp_path, [integration.RematCallback(budget="50%")], model=model)
    assert not model._forward_hooks


def test_trainer_refuses_nonsense_before_it_trains():
    integration = pytest.importorskip("remat.integrations.transformers", reason="transformers is not installed")
    with pytest.raises(remat.Error):
        integration.RematCallback(budget="much")
    with pytest.raises(remat.Error, match="no planner"):
        integration.RematCallback(planner="best")


def test_the_budget_may_change_while_a_trainer_runs(tmp_path):
    integration = pytest.importorskip("remat.integrations.transformers", reason="transformers is not installed")
    plain = trained(tmp_path, [])
    budgets = iter(["50%", None, "40%"])

    class Changes(transformers_callback()):
        def on_step_end(self, args, state, control, **kwargs):
            if callback.session.report().completed:
                callback.session.set_budget(next(budgets, "40%"))

    callback = integration.RematCallback(budget="pressure")
    ours = trained(tmp_path, [callback, Changes()])
    assert_same([outcome(trainer.model, []) for trainer in (plain, ours)])
    report = callback.session.report()
    assert report.values_dropped > 0
    assert report.peak_bytes <= report.budget_bytes < report.plain_peak_bytes


def transformers_callback():
    return pytest.importorskip("transformers", reason="transformers is not installed").TrainerCallback


def test_callbacks_can_be_copied_and_pickled(tmp_path):
    integration = pytest.importorskip("remat.integrations.transformers", reason="transformers is not installed")
    callback = integration.RematCallback(budget="50%", planner="online")
    trained(tmp_path, [callback])
    for other in (copy.deepcopy(callback), pickle.loads(pickle.dumps(callback))):
        with pytest.raises(remat.Error, match="before the first step"):
            _ = other.session
        trained(tmp_path, [other])
        assert other.session.report().completed


def test_a_callback_that_no_trainer_calls_is_an_error():
    integration = pytest.importorskip("remat.integrations.transformers", reason="transformers is not installed")
    with pytest.raises(remat.Error, match="no such object has called it"):
        integration.RematCallback(budget="50%").on_train_begin(None, None, None, model=blocks(1))


def test_a_trainer_that_failed_on_another_thread_leaves_no_budget(tmp_path):
    integration = pytest.importorskip("remat.integrations.transformers", reason="transformers is not installed")
    transformers = pytest.importorskip("transformers")

    class Fails(transformers.TrainerCallback):
        def on_step_end(self, args, state, control, **kwargs):
            raise ValueError("mine")

    model, failures = gpt2(), []
    budget = remat.memory.current("cpu") + (16 << 20)

    def train():
        try:
            trained(tmp_path, [integration.RematCallback(budget=budget), Fails()], model=model)
        except ValueError as error:
            failures.append(str(error))

    thread = threading.Thread(target=train)
    thread.start()
    thread.join()
    assert failures == ["mine"]
    ids = torch.stack([sample["input_ids"] for sample in samples()] * 4)
    model(input_ids=ids, labels=ids).loss.backward()  # takes more
    assert not model._forward_hooks


def test_copies_made_while_a_trainer_trains_are_not_under_its_budget(tmp_path):
    integration = pytest.importorskip("remat.integrations.transformers", reason="transformers is not installed")
    transformers = pytest.importorskip("transformers")
    copies = []

    class Copies(transformers.TrainerCallback):
        def on_step_end(self, args, state, control, model, **kwargs):
            if not copies:
                copies.extend([copy.deepcopy(model), pickle.loads(pickle.dumps(model))])

    budget = remat.memory.current("cpu") + (16 << 20)
    trained(tmp_path, [integration.RematCallback(budget=budget), Copies()])
    ids = torch.stack([sample["input_ids"] for sample in samples()] * 4)
    for model in [*copies, copy.deepcopy(copies[0])]:
        model(input_ids=ids, labels=ids).loss.backward()
        assert not model._forward_hooks


def test_a_loss_from_parts_of_the_model_is_under_the_budget(tmp_path):
    integration = pytest.importorskip("remat.integrations.transformers", reason="transformers is not installed")
    transformers = pytest.importorskip("transformers")

    class Chunked(transformers.Trainer):
        def compute_loss(self, model, inputs, return_outputs=False, **kwargs):
            return model.lm_head(model.transformer(inputs["input_ids"]).last_hidden_state).square().mean()

    callback = integration.RematCallback(budget="50%")
    trained(tmp_path, [callback], kind=Chunked)
    report = callback.session.report()
    assert (report.step, report.completed) == (10, True)
    assert report.values_dropped > 0
    assert report.peak_bytes <= report.budget_bytes < report.plain_peak_bytes


def test_a_trainer_with_a_loop_of_its_own_is_told_that_the_budget_does_not_hold(tmp_path):
    integration = pytest.importorskip("remat.integrations.transformers", reason="transformers is not installed")
    transformers = pytest.importorskip("transformers")

    class Own(transformers.Trainer):
        def train(self):
            state, control = self.state, self.control
            self.callback_handler.on_train_begin(self.args, state, control)
            for _ in range(3):
                self.model(**{name: value[None] for name, value in samples(1)[0].items()}).loss.backward()
                self.callback_handler.on_step_end(self.args, state, control)
            self.callback_handler.on_train_end(self.args, state, control)

    with pytest.warns(RuntimeWarning, match="does not call its training_step") as caught:
        trained(tmp_path, [integration.RematCallback(budget="50%")], kind=Own)
    assert len(caught) == 1


def test_a_callback_that_was_taken_out_after_a_failure_keeps_no_budget(tmp_path):
    integration = pytest.importorskip("remat.integrations.transformers", reason="transformers is not installed")
    transformers = pytest.importorskip("transformers")

    class Fails(transformers.TrainerCallback):
        def on_step_end(self, args, state, control, **kwargs):
            raise ValueError("mine")

    callback = integration.RematCallback(budget="50%")

    class Keeps(transformers.Trainer):
        made = None

        def train(self):
            Keeps.made = self
            super().train()

    with pytest.raises(ValueError, match="mine"):
        trained(tmp_path, [callback, Fails()], kind=Keeps)
    trainer, steps = Keeps.made, callback.session.report().step
    trainer.remove_callback(callback)
    trainer.remove_callback(Fails)
    transformers.Trainer.train(trainer)
    assert callback.session.report().step == steps
    trainer.add_callback(callback)
    transformers.Trainer.train(trainer)
    assert callback.session.report().step == 10
    assert "training_step" not in vars(trainer)


def test_a_training_step_put_on_the_trainer_is_called_in_the_steps_and_stays(tmp_path):
    integration = pytest.importorskip("remat.integrations.transformers", reason="transformers is not installed")
    transformers = pytest.importorskip("transformers")
    callback = integration.RematCallback(budget="50%")
    peaks = []

    class Own(transformers.Trainer):
        def train(self):
            def training_step(*args, **kwargs):
                remat.memory.reset_peak("cpu")
                result = transformers.Trainer.training_step(self, *args, **kwargs)
                peaks.append(remat.memory.peak("cpu"))
                return result

            self.training_step = training_step
            super().train()
            assert self.training_step is training_step

    trained(tmp_path, [callback], kind=Own)
    assert len(peaks) == callback.session.report().step == 10
    assert peaks[-1] <= callback.session.report().budget_bytes


def test_a_wrapped_model_stays_wrapped_and_the_callbacks_budget_holds(tmp_path):
    integration = pytest.importorskip("remat.integrations.transformers", reason="transformers is not installed")
    model = remat.wrap(gpt2(), budget="90%")
    callback = integration.RematCallback(budget="50%")
    trained(tmp_path, [callback], model=model)
    assert callback.session.report().step == 10
    assert callback.session.report().values_dropped > 0
    ids = torch.stack([sample["input_ids"] for sample in samples()])
    model(input_ids=ids, labels=ids).loss.backward()
    assert remat.session_of(model).report().step == 1


@pytest.mark.parametrize("finder", ["trainer", "accelerate"])
def test_a_smaller_batch_is_tried_where_the_budget_refuses_one(tmp_path, finder):
    integration = pytest.importorskip("remat.integrations.transformers", reason="transformers is not installed")
    utilities = pytest.importorskip("accelerate.utils", reason="accelerate is not installed")
    model = gpt2()
    budget = remat.memory.current("cpu") + (3 << 20)
    if finder == "trainer":
        callback = integration.RematCallback(budget=budget)
        options = dict(auto_find_batch_size=True, per_device_train_batch_size=48, gradient_accumulation_steps=1)
        found = trained(tmp_path, [callback], model=model, **options)._train_batch_size
    else:
        remat.wrap(model, budget=budget)

        @utilities.find_executable_batch_size(starting_batch_size=48)
        def train(batch_size):
            ids = torch.stack([sample["input_ids"] for sample in samples(batch_size)])
            model(input_ids=ids, labels=ids).loss.backward()
            return batch_size

        found = train()
    assert 0 < found < 48


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


def test_logged_figures_are_those_of_one_step():
    """The limit is not the same in every step: the first of a percentage may take more, and what is alive changes."""
    from remat.integrations.figures import Figures

    figures = Figures()
    for step, (peak, plain, budget) in enumerate([(90, 100, 95), (100, 130, 100), (60, 140, 70)]):
        report = types.SimpleNamespace(step=step + 1, peak_bytes=peak, plain_peak_bytes=plain, budget_bytes=budget)
        report.recompute_seconds = 0.5
        figures.add(report)
        figures.add(report)
    assert figures.take() == {
        "remat/peak_bytes": 100,
        "remat/plain_peak_bytes": 130,
        "remat/budget_bytes": 100,
        "remat/recompute_seconds": 1.5,
    }
    assert figures.take() == {}
