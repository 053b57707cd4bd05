"""Estimates on the meta device, against real steps on the CPU."""

from __future__ import annotations

import contextlib
import io
import json
import subprocess
import sys

import pytest
import torch
from compare import blocks
from named_optimizers import NAMED_OPTIMIZERS
from torch import nn

import remat
from remat.__main__ import main
from remat.estimate import estimate, optimizer_state_bytes

transformers = pytest.importorskip("transformers")


def measured(make_model, loss_of) -> remat.Report:
    model = make_model().train()
    for parameter in model.parameters():
        parameter.grad = torch.zeros_like(parameter)
    session = remat.Session(planner="keep-all", device="cpu")
    with session.step():
        loss_of(model).backward()
    return session.report()


def language_model(config, loader):
    def loss_of(model):
        ids = torch.zeros(4, 64, dtype=torch.long)
        return model(input_ids=ids, labels=ids).loss

    return lambda: loader.from_config(config), loss_of


SMALL = {"num_hidden_layers": 2, "hidden_size": 64, "num_attention_heads": 4, "intermediate_size": 128}
SMALL |= {"vocab_size": 500}

MODELS = {
    "blocks": lambda: (lambda: blocks(norm=True), lambda model: model(torch.zeros(256, 64)).square().mean()),
    "convolutions": lambda: (
        lambda: nn.Sequential(
            nn.Conv2d(3, 16, 3), nn.BatchNorm2d(16), nn.ReLU(inplace=True), nn.MaxPool2d(2), nn.Conv2d(16, 16, 3)
        ),
        lambda model: model(torch.zeros(4, 3, 32, 32)).square().mean(),
    ),
    "bert": lambda: language_model(transformers.BertConfig(**SMALL), transformers.AutoModelForMaskedLM),
    "gpt2": lambda: language_model(
        transformers.GPT2Config(n_layer=2, n_embd=64, n_head=4, vocab_size=500), transformers.AutoModelForCausalLM
    ),
    "llama": lambda: language_model(transformers.LlamaConfig(**SMALL), transformers.AutoModelForCausalLM),
}


@pytest.mark.parametrize("name", MODELS)
def test_an_estimate_has_the_bytes_of_a_real_step(name):
    make_model, loss_of = MODELS[name]()
    estimated = estimate(make_model, loss_of, "none")
    report = measured(make_model, loss_of)
    assert estimated.plain_peak_bytes - estimated.baseline_bytes == pytest.approx(
        report.plain_activation_peak_bytes, rel=0.02
    )
    model = make_model()
    assert estimated.parameter_bytes == sum(p.nbytes for p in model.parameters())
    assert estimated.baseline_bytes == pytest.approx(2 * estimated.parameter_bytes, rel=0.05)
    assert estimated.optimizer_bytes == 0


OPTIMIZERS = NAMED_OPTIMIZERS | {"none": lambda parameters: None}


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("name", OPTIMIZERS)
def test_an_optimizers_state_has_the_bytes_of_a_real_one(name, dtype):
    model = nn.Sequential(nn.Conv2d(3, 8, 3), nn.Linear(40, 30)).to(dtype)
    optimizer = OPTIMIZERS[name](model.parameters())
    real = 0
    if optimizer is not None:
        for parameter in model.parameters():
            parameter.grad = torch.ones_like(parameter)
        optimizer.step()
        states = [value for state in optimizer.state.values() for value in state.values()]
        real = sum(value.nbytes for value in states if isinstance(value, torch.Tensor))
    assert optimizer_state_bytes(name, model.parameters()) == real


def test_an_unknown_optimizer_is_an_error():
    with pytest.raises(remat.Error, match="no optimizer 'lion'; there are adamw"):
        estimate(*MODELS["blocks"](), "lion")


@pytest.mark.parametrize("name", ["adamw", "sgd"])
@pytest.mark.parametrize("model", ["bert", "gpt2"])
def test_the_smallest_budget_works_in_a_real_run(model, name):
    make_model, loss_of = MODELS[model]()
    budget = estimate(make_model, loss_of, name).min_budget_bytes
    module = make_model().train()
    optimizer = OPTIMIZERS[name](module.parameters())
    others = remat.memory.current("cpu") - sum(t.nbytes for t in [*module.parameters(), *module.buffers()])
    session = remat.Session(budget=budget + max(others, 0), device="cpu")
    for _ in range(4):
        with session.step():
            loss_of(module).backward()
        optimizer.step()
        optimizer.zero_grad()
        assert session.report().completed
        assert session.report().values_dropped > 0


def test_a_curve_falls_from_plain_to_the_smallest_budget():
    result = estimate(*MODELS["bert"]())
    budgets = [point.budget_bytes for point in result.curve]
    assert budgets == sorted(budgets, reverse=True)
    assert budgets[0] == result.plain_peak_bytes
    assert budgets[-1] == result.min_budget_bytes < result.plain_peak_bytes
    assert all(point.peak_bytes <= point.budget_bytes for point in result.curve)
    extra = [point.extra_percent for point in result.curve]
    assert extra == sorted(extra)
    assert 0 < extra[-1]
    # What plain takes, though there are plans that take less in the same time.
    assert (result.curve[0].peak_bytes, extra[0]) == (result.plain_peak_bytes, 0)


def test_an_estimate_takes_no_memory():
    remat.memory.start_accounting()
    before = remat.memory.current("cpu")
    remat.memory.reset_peak("cpu")
    config = transformers.BertConfig()  # base: 110 million parameters
    result = estimate(*language_model(config, transformers.AutoModelForMaskedLM))
    assert result.parameter_bytes > 400 << 20
    assert remat.memory.peak("cpu") - before < 150 << 20  # what the rates are measured with


LOOKS = {
    "item": lambda y: y.sum().item(),
    "bool": lambda y: 1 if y.sum() > 0 else 2,
    "tolist": lambda y: y.tolist()[0][0],
    "nonzero": lambda y: y.nonzero().shape[0],
    "numpy": lambda y: y.detach().numpy()[0, 0],
    "equal": lambda y: 1 if torch.equal(y, -y) else 2,
    "cpu": lambda y: y.cpu(),
}


@pytest.mark.parametrize("looks", LOOKS)
def test_a_model_that_looks_at_contents_is_refused(looks):
    class Looks(nn.Linear):
        def forward(self, x):
            y = super().forward(x)
            return y * LOOKS[looks](y)

    with pytest.raises(remat.Error, match="cannot run without contents"):
        estimate(lambda: Looks(4, 4), lambda model: model(torch.zeros(2, 4)).sum())


@pytest.mark.parametrize("error", [remat.InternalError("[tape] a meta value is gone"), RuntimeError("mine")])
def test_other_errors_are_handed_on(error):
    class Fails(nn.Linear):
        def forward(self, x):
            raise error

    with pytest.raises(type(error)) as caught:
        estimate(lambda: Fails(4, 4), lambda model: model(torch.zeros(2, 4)).sum())
    assert caught.value is error


def command(*arguments):
    """In this process, which has imported transformers already."""
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = main(["estimate", *arguments])
    return subprocess.CompletedProcess(arguments, code, out.getvalue(), err.getvalue())


def test_the_command_takes_a_directory(tmp_path):
    transformers.BertConfig(**SMALL, architectures=["BertForSequenceClassification"]).save_pretrained(tmp_path)
    words = [sys.executable, "-m", "remat", "estimate", str(tmp_path), "--batch", "2", "--seq", "32", "--json"]
    run = subprocess.run(words, capture_output=True, text=True)
    assert run.returncode == 0, run.stderr
    result = json.loads(run.stdout)
    assert result["min_budget_bytes"] < result["plain_peak_bytes"]
    text = command(str(tmp_path), "--batch", "2", "--seq", "32").stdout
    assert "text-classification" in text
    assert "smallest budget" in text
    assert "state of adamw" in text
    less = command(str(tmp_path), "--batch", "2", "--seq", "32", "--json", "--optimizer", "none")
    difference = result["min_budget_bytes"] - json.loads(less.stdout)["min_budget_bytes"]
    # Each of the two has measured times of its own, by which the smallest differs a little.
    assert difference >= 0.9 * result["optimizer_bytes"] > 0


def test_a_decoder_without_a_first_token_is_no_obstacle(tmp_path):
    transformers.T5Config(d_model=16, d_kv=8, d_ff=32, num_layers=1, num_heads=2).save_pretrained(tmp_path)
    run = command(str(tmp_path), "--batch", "2", "--seq", "8", "--task", "seq2seq-lm", "--json")
    assert run.returncode == 0, run.stderr


def test_convolutions_without_an_image_size_take_the_usual_one(tmp_path):
    config = transformers.ResNetConfig(embedding_size=8, hidden_sizes=[8, 16], depths=[1, 1], layer_type="basic")
    config.save_pretrained(tmp_path)
    run = command(str(tmp_path), "--batch", "2", "--json")
    assert run.returncode == 0, run.stderr
    assert json.loads(run.stdout)["plain_peak_bytes"] > 2 * 3 * 224 * 224 * 4


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["/tmp"], "no configuration in '/tmp'"),
        (["no-such-model-anywhere"], "no configuration named"),
        (["bert", "--seq", "100000"], "512 positions"),
        (["bert", "--task", "singing"], "no task 'singing'"),
        (["gpt2", "--task", "image-classification"], "no image-classification model for GPT2Config; it has causal-lm"),
        (["whisper"], "the encoder and decoder of WhisperConfig are trained in a way that is not among causal-lm"),
        (["mixtral", "--batch", "1", "--seq", "8"], "MixtralConfig's causal-lm model cannot be run without contents"),
    ],
)
def test_what_cannot_be_estimated_is_an_error(arguments, says):
    run = command(*arguments)
    assert run.returncode == 1
    assert says in run.stderr
    assert "Traceback" not in run.stderr
