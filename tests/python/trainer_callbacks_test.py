"""One RematCallback in several trainings: one inside of another, on threads, copies, others who replace training_step()."""

from __future__ import annotations

import contextlib
import copy
import gc
import threading
import weakref

import pytest
import torch
from integrations_test import gpt2, samples

import remat

integration = pytest.importorskip("remat.integrations.transformers", reason="transformers is not installed")
pytest.importorskip("accelerate", reason="accelerate is not installed")
transformers = pytest.importorskip("transformers")


def make(tmp_path, callbacks, model=None, **options):
    options = dict(max_steps=4, logging_steps=1, per_device_train_batch_size=4) | options
    arguments = transformers.TrainingArguments(
        output_dir=str(tmp_path), report_to=[], save_strategy="no", disable_tqdm=True, use_cpu=True, **options
    )
    return transformers.Trainer(
        model=model or gpt2(), args=arguments, train_dataset=samples(), callbacks=callbacks
    )


class Peaks(transformers.TrainerCallback):
    """The peak of every step, and what to do after one of them."""

    def __init__(self, after=0, act=None):
        self.peaks, self.after, self.act = [], after, act

    def on_step_begin(self, args, state, control, **kwargs):
        remat.memory.reset_peak("cpu")

    def on_step_end(self, args, state, control, **kwargs):
        self.peaks.append(remat.memory.peak("cpu"))
        if state.global_step == self.after:
            self.act()


def test_a_training_inside_of_another_leaves_that_its_budget(tmp_path):
    budget = remat.memory.current("cpu") + (5 << 20)
    callback = integration.RematCallback(budget=budget)
    sessions = []

    def train_another():
        sessions.append(callback.session)
        make(tmp_path / "inner", [callback], max_steps=2).train()
        sessions.append(callback.session)

    plain = Peaks()
    make(tmp_path, [plain]).train()
    assert max(plain.peaks) > budget
    peaks = Peaks(2, train_another)
    trainer = make(tmp_path, [callback, peaks])
    trainer.train()
    assert len(peaks.peaks) == 4 and max(peaks.peaks) <= budget
    assert sessions[0] is sessions[1] is callback.session
    assert callback.session.report().step == 4
    assert all("remat/peak_bytes" in entry for entry in trainer.state.log_history if "loss" in entry)


def test_trainings_on_threads_have_sessions_of_their_own(tmp_path):
    callback = integration.RematCallback()
    trainers = [make(tmp_path / str(i), [callback], gpt2()) for i in range(2)]
    errors = []

    def train(trainer):
        try:
            trainer.train()
        except Exception as error:
            errors.append(error)

    threads = [threading.Thread(target=train, args=(trainer,)) for trainer in trainers]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not errors
    for trainer in trainers:
        assert "training_step" not in vars(trainer)
        assert all("remat/peak_bytes" in entry for entry in trainer.state.log_history if "loss" in entry)


@pytest.mark.parametrize("keep", [True, False], ids=["beside it", "alone"])
def test_a_copy_of_a_trainer_that_failed_trains(tmp_path, keep):
    class Fails(transformers.TrainerCallback):
        fails = True

        def on_step_end(self, args, state, control, **kwargs):
            if Fails.fails:
                Fails.fails = False
                raise ValueError("mine")

    trainer = make(tmp_path, [integration.RematCallback(budget="50%"), Fails()])
    with contextlib.suppress(ValueError):
        trainer.train()
    assert not Fails.fails
    copied = copy.deepcopy(trainer)
    batch = {name: value[None] for name, value in samples(1)[0].items()}
    before = [p.detach().clone() for p in trainer.model.parameters()]
    copied.training_step(copied.model, batch)  # before it trains: no step, and not the original's model
    assert all(torch.equal(a, b) for a, b in zip(before, trainer.model.parameters()))
    gone = weakref.ref(trainer)
    if not keep:
        del trainer
        gc.collect()
        assert gone() is None
    copied.optimizer = copied.lr_scheduler = None  # copies of these call the originals, without remat too
    copied.train()
    (ours,) = (c for c in copied.callback_handler.callbacks if isinstance(c, integration.RematCallback))
    assert ours.session.report().step == 4


def test_others_may_replace_the_training_step_too(tmp_path):
    class Profiler(transformers.TrainerCallback):
        calls = 0

        def on_train_begin(self, *args, **kwargs):
            self.own = own = self.trainer.training_step

            def counted(*args, **kwargs):
                self.calls += 1
                return own(*args, **kwargs)

            self.trainer.training_step = counted

        def on_train_end(self, *args, **kwargs):
            self.trainer.training_step = self.own

    for order in (0, 1):
        callback, profiler = integration.RematCallback(budget="50%"), Profiler()
        trainer = profiler.trainer = make(tmp_path, [callback, profiler] if order == 0 else [profiler, callback])
        for times in (1, 2):
            trainer.train()
            assert profiler.calls == 4 * times
            assert callback.session.report().step == 4
        step = callback.session.report()
        trainer.training_step(trainer.model, {name: value[None] for name, value in samples(1)[0].items()})
        assert callback.session.report() == step, "nothing trains: no step"


def test_a_callback_that_is_added_meanwhile_keeps_the_budget_from_the_next_step_on(tmp_path, recwarn):
    callback = integration.RematCallback(budget="50%")
    peaks = Peaks(1, lambda: trainer.add_callback(callback))
    trainer = make(tmp_path, [peaks], max_steps=6)
    trainer.train()
    assert callback.session.report().step >= 4
    assert peaks.peaks[-1] < 0.8 * peaks.peaks[0]
    assert not [w for w in recwarn if "training_step" in str(w.message)]


def test_two_callbacks_in_one_trainer_are_an_error(tmp_path):
    with pytest.raises(remat.Error, match="two RematCallbacks"):
        make(tmp_path, [integration.RematCallback(), integration.RematCallback()]).train()
