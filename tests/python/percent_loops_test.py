"""Budgets in percent where each batch may be larger than those before: in the loops of transformers and Lightning, with
micro-batches, with evaluations in between, and on several processes."""

from __future__ import annotations

import contextlib
import functools

import pytest
import torch
import torch.distributed as dist
from compare import blocks, outcome, same_bits
from integrations_test import gpt2
from processes import run_on_processes
from scopes import loss_of
from sharding import WIDTH, blocks_to_shard
from torch.nn.parallel import DistributedDataParallel

import remat

ROWS = [32, 48, 40, 96, 64, 384, 16, 400, 200]


def batch_of(rows):
    return torch.randn(rows, 64, generator=torch.Generator().manual_seed(rows))


def trained(budget, planner="auto", micro=1, evaluates=False):
    """What it leaves, and the report of each step."""
    model = blocks(norm=True)
    for parameter in model.parameters():  # gradients are no activations of these steps
        parameter.grad = torch.zeros_like(parameter)
    session = remat.Session(budget=budget, planner=planner) if budget else None
    torch.manual_seed(7)
    losses, reports = [], []
    for index, rows in enumerate(ROWS):
        if index % micro == 0:
            for parameter in model.parameters():
                parameter.grad.zero_()
        with session.step() if session else contextlib.nullcontext():
            loss = model(batch_of(rows)).square().mean()
            loss.backward()
        losses.append(loss.detach())
        if session:
            reports.append(session.report())
        if evaluates and index % 2:  # without gradients, in eval mode: a step of another kind
            with session.step() if session else contextlib.nullcontext(), torch.no_grad():
                losses.append(model.eval()(batch_of(2 * rows)).square().mean())
            model.train()
    return outcome(model, losses), reports


@pytest.mark.parametrize("planner", ["auto", "online"])
@pytest.mark.parametrize("options", [{}, dict(micro=3), dict(evaluates=True)], ids=["alone", "micro", "evaluated"])
def test_larger_batches_have_the_share_of_their_own_peak(planner, options):
    torch.manual_seed(3)
    plain, _ = trained(None, **options)
    torch.manual_seed(3)
    ours, reports = trained("60%", planner=planner, **options)
    assert all(same_bits(a, b) for a, b in zip(plain, ours, strict=True))
    largest = 0
    for rows, report in zip(ROWS, reports):
        assert report.peak_bytes <= report.budget_bytes, rows
        largest = max(largest, report.plain_activation_peak_bytes)
        if not options.get("evaluates"):  # that step's may be the largest
            assert report.budget_bytes - report.baseline_bytes == int(largest * 60 / 100), rows
    assert any(report.values_dropped > 0 for report in reports)


def test_a_share_that_is_too_small_is_refused_with_one_that_works():
    model = blocks()
    x = torch.randn(64, 64)

    def steps(budget, count):
        session = remat.Session(budget=budget)
        for _ in range(count):
            model.zero_grad()
            with session.step():
                model(x).square().mean().backward()

    with pytest.raises(remat.BudgetError, match=", too small a share, 1%, of the .* that the largest step so far") as caught:
        steps("1%", 2)
    assert "try it again" not in str(caught.value)
    steps(f"{caught.value.needed_percent:.0f}%", 4)


@pytest.mark.parametrize("budget", ["30%", "50%", "70%"])
def test_a_model_without_memory_is_not_refused_for_its_scalars(budget):
    """Its tensors are on the meta device: what it takes on the CPU is a few scalars, and none of them could be dropped."""
    with torch.device("meta"):
        model, x = blocks(), torch.ones(4, 64)
    remat.wrap(model, budget)
    for _ in range(5):
        ((model(x) * 1.5).sin().mean() * 2).backward()
        assert remat.session_of(model).report().completed


def texts(count):
    """Of other lengths: the first are the shortest."""
    generator = torch.Generator().manual_seed(1)
    lengths = [4 if i < 8 else 16 + i % 17 for i in range(count)]
    return [dict(input_ids=torch.randint(0, 50, (length,), generator=generator)) for length in lengths]


def padded(rows):
    """To the longest."""
    ids = torch.nn.utils.rnn.pad_sequence([row["input_ids"] for row in rows], batch_first=True)
    return dict(input_ids=ids, labels=ids)


def test_batches_that_grow_in_transformers_trainer(tmp_path):
    integration = pytest.importorskip("remat.integrations.transformers", reason="transformers is not installed")
    pytest.importorskip("accelerate", reason="accelerate is not installed")
    transformers = pytest.importorskip("transformers")

    class InOrder(transformers.Trainer):
        def _get_train_sampler(self, *_):
            return torch.utils.data.SequentialSampler(self.train_dataset)

    def losses(callbacks):
        arguments = transformers.TrainingArguments(
            output_dir=str(tmp_path), report_to=[], save_strategy="no", disable_tqdm=True, use_cpu=True, max_steps=8,
            logging_steps=1, per_device_train_batch_size=4, gradient_accumulation_steps=2, eval_strategy="steps", eval_steps=2,
        )  # fmt: skip
        trainer = InOrder(
            model=gpt2(), args=arguments, train_dataset=texts(64), eval_dataset=texts(8), data_collator=padded,
            callbacks=callbacks,
        )  # fmt: skip
        trainer.train()
        logged = [entry["loss"] for entry in trainer.state.log_history if "loss" in entry]
        return logged, outcome(trainer.model, [])

    plain, ours = losses([]), losses([integration.RematCallback(budget="60%")])
    assert plain[0] == ours[0]
    assert all(same_bits(a, b) for a, b in zip(plain[1], ours[1], strict=True))


def test_batches_that_grow_in_lightnings_trainer(tmp_path):
    lightning = pytest.importorskip("lightning", reason="Lightning is not installed: pip install lightning")
    from lightning_trainer import make_trainer

    from remat.integrations.lightning import RematCallback

    class Model(lightning.LightningModule):
        def __init__(self):
            super().__init__()
            self.inner = blocks(norm=True)

        def training_step(self, batch, index):
            return self.inner(batch).square().mean()

        def configure_optimizers(self):
            return torch.optim.AdamW(self.parameters(), lr=1e-3)

    results = []
    for callback in (None, RematCallback(budget="60%")):
        torch.manual_seed(5)
        model = Model()
        trainer = make_trainer(tmp_path, callback, accumulate_grad_batches=2)
        trainer.fit(model, torch.utils.data.DataLoader([batch_of(rows) for rows in ROWS], batch_size=None))
        results.append(outcome(model, []))
    assert all(same_bits(a, b) for a, b in zip(*results, strict=True))
    assert callback.session.report().step == len(ROWS)


def batches_of_each_rank(kind, agrees, rank):
    remat.memory.start_accounting("cpu")

    def steps(session):
        model = blocks_to_shard()
        if kind == "ddp":
            model = DistributedDataParallel(model)
        else:
            from torch.distributed import fsdp

            for block in model[1:]:
                fsdp.fully_shard(block)
            model = fsdp.fully_shard(model)
        torch.manual_seed(rank)
        losses = []
        for index in range(8):
            rows = (64 << index // 2) + (512 if (index + rank) % 3 == 2 else 0)  # another rank's is the larger in turn
            model.zero_grad()
            with session.step() if session else contextlib.nullcontext():
                loss = loss_of(model(torch.randn(rows, WIDTH)))
                loss.backward()
            losses.append(loss.detach())
            if session:
                report = session.report()
                assert report.completed and report.peak_bytes <= report.budget_bytes
        return losses

    plain = steps(None)
    ours = steps(remat.Session(budget="60%", process_group=dist.group.WORLD if agrees else None))
    assert all(same_bits(a, b) for a, b in zip(plain, ours, strict=True))


@pytest.mark.skipif(not dist.is_available(), reason="torch was built without it")
@pytest.mark.parametrize("agrees", [True, False], ids=["agreed", "alone"])
@pytest.mark.parametrize("kind", ["ddp", "fsdp2"])
def test_ranks_whose_batches_grow_by_turns(tmp_path, kind, agrees):
    run_on_processes(functools.partial(batches_of_each_rank, kind, agrees), tmp_path)


def frozen_by_hooks(model, x):
    with torch.autograd.graph.save_on_cpu():
        return model(x).square().mean()


def under_functional_gradients(model, x):
    for block in model:
        x = torch.func.grad(lambda v, block=block: block(v).tanh().square().sum())(x) + x
    return x.square().mean()


def under_a_dispatch_mode(model, x):
    from torch.utils.flop_counter import FlopCounterMode

    with FlopCounterMode(display=False):
        return model(x).square().mean()


@pytest.mark.parametrize("loss", [frozen_by_hooks, under_functional_gradients, under_a_dispatch_mode])
def test_a_share_is_refused_where_nothing_can_be_dropped(loss):
    """The second step is known to take as much as the first."""
    torch.manual_seed(0)
    model, x = blocks(), torch.randn(256, 64)
    session = remat.Session("40%", device="cpu")

    def step(loss):
        model.zero_grad()
        with session.step():
            loss(model, x).backward()
        return session.report()

    step(loss)
    with pytest.raises(remat.BudgetError, match="too small a share") as caught:
        step(loss)
    assert ("under a dispatch mode" in str(caught.value)) == (loss is under_a_dispatch_mode)
    assert caught.value.needed_percent > 80
    report = step(lambda model, x: model(x).square().mean())
    assert report.peak_bytes <= report.budget_bytes < report.plain_peak_bytes


def test_an_evaluation_under_a_dispatch_mode_is_no_measure():
    from torch.utils.flop_counter import FlopCounterMode

    torch.manual_seed(0)
    model, x = blocks(), torch.randn(256, 64)
    session = remat.Session("60%", device="cpu")
    for _ in range(3):
        with session.step(), FlopCounterMode(display=False), torch.no_grad():
            model(x)
    for _ in range(2):
        model.zero_grad()
        with session.step():
            model(x).square().mean().backward()
    assert session.report().peak_bytes <= session.report().budget_bytes < session.report().plain_peak_bytes


@torch.library.custom_op("remat_percent_test::add_mean_", mutates_args=("mean",))
def add_mean_(x: torch.Tensor, mean: torch.Tensor) -> torch.Tensor:
    mean.add_(x.mean(0))
    return x * 2


def test_all_of_plains_memory_is_enough_where_records_hold_more():
    """A function of Python's is not repeated: what it returned is held to recompute what was made of it."""
    torch.manual_seed(0)
    layers, x = [torch.nn.Linear(64, 64) for _ in range(8)], torch.randn(512, 64)

    def loss():
        y = x
        for layer in layers:
            h, mean = layer(y), torch.zeros(64)
            with torch.no_grad():
                other = add_mean_(h.detach(), mean)
            y = h * mean.tanh() + other * 0.01
        return y.square().mean()

    session = remat.Session("100%", device="cpu")
    for _ in range(4):
        for layer in layers:
            layer.zero_grad()
        with session.step():
            loss().backward()
        report = session.report()
        assert report.peak_bytes <= report.budget_bytes
        assert report.values_dropped == 0
