"""remat.audit(): no false alarms, the noise of plain runs, bad use."""

from __future__ import annotations

import random

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import remat

pytestmark = pytest.mark.usefixtures("one_thread")
pytest_plugins = ["pytester"]


def mlp(dropout=0.1):
    block = lambda: nn.Sequential(nn.Linear(8, 16), nn.GELU(), nn.Dropout(dropout), nn.Linear(16, 8))  # noqa: E731
    return nn.Sequential(*(block() for _ in range(3)))


def stepping(model, loss_of, optimizer=None, around=None):
    """A function for a step, which keeps to what scripts do."""
    optimizer = optimizer or torch.optim.AdamW(model.parameters())

    def step():
        optimizer.zero_grad()
        loss = loss_of(model)
        loss.backward()
        if around is not None:
            around(model)
        optimizer.step()
        return loss

    return step


def of_mlp():
    return stepping(mlp(), lambda model: F.mse_loss(model(torch.randn(4, 8)), torch.randn(4, 8)))


def of_cnn():
    block = lambda i: nn.Sequential(nn.Conv2d(i, 4, 3, padding=1), nn.BatchNorm2d(4), nn.ReLU())  # noqa: E731
    model = nn.Sequential(block(1), block(4), block(4), nn.Flatten(), nn.Linear(4 * 64, 3))
    return stepping(model, lambda model: F.cross_entropy(model(torch.randn(2, 1, 8, 8)), torch.tensor([0, 2])))


def of_transformer():
    layer = nn.TransformerEncoderLayer(16, 2, 32, dropout=0.1, batch_first=True)
    return stepping(nn.TransformerEncoder(layer, 2), lambda model: model(torch.randn(2, 5, 16)).square().mean())


def with_accumulation():
    model = mlp()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)

    def step():
        optimizer.zero_grad()
        for _ in range(3):
            (model(torch.randn(4, 8)).square().mean() / 3).backward()
        optimizer.step()

    return step


def with_autocast():
    def loss_of(model):
        with torch.autocast("cpu", torch.bfloat16):
            return model(torch.randn(4, 8)).float().square().mean()

    return stepping(mlp(), loss_of)


def of_lstm():
    class Tagger(nn.Module):
        def __init__(self):
            super().__init__()
            self.embedding, self.lstm, self.out = nn.Embedding(11, 8), nn.LSTM(8, 8, batch_first=True), nn.Linear(8, 3)

        def forward(self, x):
            return self.out(self.lstm(self.embedding(x))[0])

    return stepping(Tagger(), lambda model: model(torch.randint(0, 11, (2, 6))).square().mean())


def with_a_closure():
    model, x = mlp(0), torch.randn(4, 8)
    optimizer = torch.optim.LBFGS(model.parameters(), max_iter=3, history_size=2)

    def closure():
        optimizer.zero_grad()
        loss = model(x).square().mean()
        loss.backward()
        return loss

    return lambda: optimizer.step(closure)


def of_two_models():
    generator, critic = mlp(), nn.Sequential(mlp(), nn.Linear(8, 1))
    optimizers = [torch.optim.Adam(model.parameters()) for model in (generator, critic)]

    def step():
        made = generator(torch.randn(4, 8))
        optimizers[1].zero_grad()
        (critic(made.detach()).mean() - critic(torch.randn(4, 8)).mean()).backward()
        optimizers[1].step()
        optimizers[0].zero_grad()
        (-critic(made).mean()).backward()
        optimizers[0].step()

    return step


def with_a_schedule_and_clipping():
    model = mlp()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    schedule = torch.optim.lr_scheduler.StepLR(optimizer, 1, 0.5)
    step = stepping(
        model,
        lambda model: model(torch.randn(4, 8)).square().sum(),
        optimizer,
        lambda model: nn.utils.clip_grad_norm_(model.parameters(), 0.1),
    )
    return lambda: (step(), schedule.step())


def with_a_scaler():
    model, scaler = mlp(), torch.amp.GradScaler("cpu")
    optimizer = torch.optim.Adam(model.parameters())

    def step():
        optimizer.zero_grad()
        scaler.scale(model(torch.randn(4, 8)).square().mean()).backward()
        scaler.step(optimizer)
        scaler.update()

    return step


def without_an_optimizer():
    model = mlp()

    def step():
        model.zero_grad()
        model(torch.randn(4, 8)).square().mean().backward()

    return step


def with_an_evaluation():
    model = mlp()
    train = stepping(model, lambda model: model(torch.randn(4, 8)).square().mean())

    def step():
        train()
        model.eval()
        with torch.no_grad():
            model(torch.randn(4, 8))
        model.train()

    return step


EXACT = ["offload", "enable", "remat:100%"]
ALL = ["checkpoint", "sac", *EXACT]


@pytest.mark.parametrize(
    "make_step, ways",
    [
        (of_mlp, ALL),
        (of_cnn, EXACT),  # torch.utils.checkpoint counts batch norms twice
        (of_transformer, ALL),
        (with_accumulation, ALL),
        (with_autocast, ALL),
        (of_lstm, ["offload", "remat:100%"]),  # no blocks
        (with_a_closure, ALL),
        (of_two_models, ALL),
        (with_a_schedule_and_clipping, ALL),
        (with_a_scaler, ALL),
        (without_an_optimizer, ALL),
        (with_an_evaluation, ALL),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_no_false_alarm(make_step, ways):
    result = remat.audit(make_step, ways, steps=3)
    assert result.same, result
    assert result.noise == 0 and result.steps == 3
    assert [row.way for row in result.rows] == ["plain", *ways]
    assert all(row.compared == result.compared > 50 for row in result.rows)
    assert all(row.peak_bytes > 1000 and row.seconds > 0 for row in result.rows)


def test_what_is_compared_after_a_step():
    compared = remat.audit(of_mlp, ["offload"], steps=1).compared
    parameters = 12
    # Gradient, parameter, three states of AdamW each; loss; modes; generators before and after; settings of AdamW.
    assert compared > 5 * parameters + 1 + 16 + 6


def test_the_generators_and_the_modules_are_left_as_they_were():
    call, states = nn.Module.__call__, (torch.get_rng_state(), random.getstate())
    remat.audit(of_mlp, ["checkpoint"], steps=1)
    assert nn.Module.__call__ is call
    assert torch.equal(states[0], torch.get_rng_state()) and states[1] == random.getstate()
    assert torch.autograd.backward.__module__ == "torch.autograd"


def test_two_models_are_told_apart():
    def doubled(model):
        return lambda x: model(x) * 2 if len(model) == 2 else model(x)

    row = remat.audit(of_two_models, {"doubled": doubled}, steps=2).row("doubled")
    assert row.first.where == "step 1 of Adam 1" and row.first.kind == "loss"


def test_noise_of_the_plain_run_is_named_and_no_way_is_blamed_for_it():
    class Noisy(nn.Module):
        def __init__(self):
            super().__init__()
            self.body, self.head = mlp(), nn.Linear(8, 8)

        def forward(self, x):
            generator = torch.Generator()
            generator.seed()
            return self.body(x.detach()), self.head(x + torch.randn(x.shape, generator=generator))

    def make_step():
        model = Noisy()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

        def step():
            optimizer.zero_grad()
            body, head = model(torch.randn(4, 8))
            body.square().mean().backward()
            head.square().mean().backward()
            optimizer.step()

        return step

    result = remat.audit(make_step, ["offload"], steps=2)
    assert result.same and 0 < result.noise < result.compared, result
    assert (result.noise_first.step, result.noise_first.kind, result.noise_first.name) == (1, "loss", "loss 2")
    assert result.noise_operator["operator"] in ("aten::normal_", "aten::randn") and "values differ" in str(result)

    def frozen(model):
        model.body[0][0].weight.requires_grad_(False)

    row = remat.audit(make_step, [frozen], steps=2).row("frozen")
    assert (row.status, row.first.name, row.first.other) == ("differs", "body.0.0.weight", "absent")


def test_a_way_that_has_nothing_to_do_or_fails_is_no_success():
    result = remat.audit(of_lstm, ["checkpoint"], steps=1)
    assert not result.same and result.row("checkpoint").status == "failed"
    assert "Tagger has no repeated blocks" in result.row("checkpoint").error

    def broken(model):
        raise ValueError("no such layer")

    row = remat.audit(of_mlp, [broken], steps=1).row("broken")
    assert row.error == "ValueError: no such layer" and "Traceback" in row.log


def test_a_way_without_parameters_is_called_first():
    called = []
    assert remat.audit(of_mlp, {"mine": lambda: called.append(torch.is_grad_enabled())}, steps=1).same
    assert called == [True]


def test_what_a_plain_step_raises_is_the_callers():
    def make_step():
        raise KeyError("data")

    with pytest.raises(KeyError):
        remat.audit(make_step, ["offload"])
    assert nn.Module.__call__.__name__ == "_wrapped_call_impl"


@pytest.mark.parametrize(
    "subject, options, message",
    [
        (of_mlp, {"ways": ["checkpont"]}, r"\[audit\] there is no way 'checkpont'; use plain, checkpoint"),
        (of_mlp, {"ways": ["chunked-loss"]}, "chunked-loss is not built in"),
        (of_mlp, {"ways": ["compile:2"]}, "'2' is no activation_memory_budget"),
        (of_mlp, {"ways": ["offload", "offload"]}, "two ways of the name offload"),
        (of_mlp, {"ways": [3]}, "3 is no way"),
        (of_mlp, {"steps": 0}, "steps is 0"),
        ("no_such.py", {}, "there is no script no_such.py"),
        ("no_such.py", {"ways": [lambda model: None]}, "cannot be given the function <lambda>"),
    ],
)
def test_bad_use(subject, options, message):
    with pytest.raises(remat.Error, match=message):
        remat.audit(subject, **options)


def test_the_fixture_fails_a_test_whose_training_changes(pytester):
    pytester.makeconftest('pytest_plugins = ["remat.audit.pytest_plugin"]')
    pytester.makepyfile(
        """
        import torch
        from torch import nn

        def make_step():
            model = nn.Linear(2, 2)
            optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

            def step():
                model(torch.randn(3, 2)).sum().backward()
                optimizer.step()

            return step

        def test_right(remat_audit):
            assert remat_audit(make_step, ["offload"], steps=1).same

        def test_wrong(remat_audit):
            remat_audit(make_step, {"twice": lambda model: lambda x: 2 * model(x)}, steps=1)
        """
    )
    result = pytester.runpytest_inprocess("-p", "no:cacheprovider")
    result.assert_outcomes(passed=1, failed=1)
    result.stdout.fnmatch_lines(["*twice: * values differ, first in step 1: loss 1*"])
