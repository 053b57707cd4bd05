"""remat.fit: what fits is measured, and what is measured fits."""

from __future__ import annotations

import json
import sys

import pytest
import torch
from compare import blocks
from torch import nn

import remat

BUDGET = 5 << 20
FIT = sys.modules["remat.fit"]  # remat.fit is the function


@pytest.fixture
def model():
    torch.manual_seed(0)
    return blocks(norm=True)


def steps_of(model):
    def make_step(batch):
        x = torch.randn(batch, 64)

        def step():
            model.zero_grad()
            model(x).square().mean().backward()

        return step

    return make_step


def plain_peak(make_step, size):
    step = make_step(size)
    remat.memory.reset_peak("cpu")
    step()
    return remat.memory.peak("cpu")


def fits_in_remat(make_step, size):
    step, session = make_step(size), remat.Session(BUDGET, device="cpu")
    try:
        for _ in range(2):
            with session.step():
                step()
    except remat.BudgetError:
        return False
    return True


SIZES = remat.fit_sizes(1, 1 << 16)


def test_finds_what_real_steps_find(model):
    make_step = steps_of(model)
    found = remat.fit(make_step, SIZES, BUDGET)
    place = SIZES.index(found.plain.size)
    assert plain_peak(make_step, SIZES[place]) <= BUDGET < plain_peak(make_step, SIZES[place + 1])
    place = SIZES.index(found.largest.size)
    assert fits_in_remat(make_step, SIZES[place])
    assert not fits_in_remat(make_step, SIZES[place + 3])
    assert found.predicted_plain == found.plain.size
    assert abs(SIZES.index(found.predicted_largest) - place) <= 2  # which depends on times
    assert found.times_plain(found.largest) > 1.5


def test_announces_only_what_was_measured(model):
    found = remat.fit(steps_of(model), SIZES, BUDGET, effective=1024)
    points = [found.plain, found.largest, found.worthwhile, found.split.step]
    assert all(point.measured and point.peak_bytes <= BUDGET and point.seconds > 0 for point in points)
    ran = {size for size, _, fits in found.runs if fits}
    assert all(point.size in ran for point in points)
    assert found.split.steps * found.split.step.size == 1024
    assert (found.split.plan is None) == found.split.plain
    assert found.verdict == json.loads(found.to_json())["verdict"] is not None
    assert all(point.seconds <= point.usual_seconds for point in points)
    assert "plain, largest" in str(found) and json.loads(found.to_json())["largest"]["size"] == found.largest.size


class TestVerdicts:
    """With times that are made up."""

    @staticmethod
    def fit(monkeypatch, model, seconds):
        own, runs = FIT._Runner.run, {}

        def run(runner, size, mode):
            fits, peak, times, graph = own(runner, size, mode)
            runs[size, mode] = runs.get((size, mode), 0) + 1
            return fits, peak, [seconds(size, mode, runs[size, mode])] * 4 if times else [], graph

        monkeypatch.setattr(FIT, "_time_round", lambda run_step: [run_step(), run_step()])
        monkeypatch.setattr(FIT._Runner, "run", run)
        return remat.fit(steps_of(model), SIZES, BUDGET)

    def test_clearly_better(self, monkeypatch, model):
        found = self.fit(monkeypatch, model, lambda size, mode, run: 1e-5 * size * (1.05 if mode == "remat" else 1))
        assert found.verdict == "worth it" and found.worthwhile == found.largest
        assert found.largest.most_loss_percent == pytest.approx(100 * (1 - 1 / 1.05))
        assert "It is worth it: at most 15 % less" in str(found)

    def test_clearly_worse(self, monkeypatch, model):
        found = self.fit(monkeypatch, model, lambda size, mode, run: 1e-5 * size * (2 if mode == "remat" else 1))
        assert found.verdict == "not worth it" and found.worthwhile == found.plain
        assert "It is not worth its time" in str(found)

    @pytest.mark.parametrize(("mode", "which"), [("plain", 1), ("remat", 1), ("remat", 3)])
    def test_one_outlier_changes_nothing(self, monkeypatch, model, mode, which):
        def seconds(size, each, run):
            return 1e-5 * size * (1.05 if each == "remat" else 1) * (90 if (each, run) == (mode, which) else 1)

        assert self.fit(monkeypatch, model, seconds).verdict == "worth it"

    @pytest.mark.parametrize("times", [0.5, 3])
    def test_too_noisy(self, monkeypatch, model, times):
        def seconds(size, mode, run):
            disturbed = [1, 20, 4, 1.3, 9][(size + run + (mode == "remat")) % 5]
            return 1e-5 * size * disturbed * (times if mode == "remat" else 1)

        found = self.fit(monkeypatch, model, seconds)
        assert found.verdict == "cannot tell"
        assert "imes vary too much to tell" in str(found)
        assert found.largest.usual_seconds > found.largest.seconds


@pytest.mark.parametrize(("seconds", "steps"), [(3, 1), (0.2, 3), (0.02, 5), (0.006, 9), (1e-5, 64)])
def test_more_of_short_steps_are_timed(seconds, steps):
    ran = []
    times = FIT._time_round(lambda: ran.append(seconds) or seconds)
    assert len(ran) == steps and len(times) == (steps - 1 if steps > 2 else steps)


def test_a_prediction_runs_small_steps_alone(model):
    found = remat.fit(steps_of(model), SIZES, BUDGET, predict=True)
    assert not found.largest.measured and "predicted" in str(found)
    assert all(4 * size <= found.plain.size for size, _, _ in found.runs)


def test_values_may_move_to_a_disk(model, tmp_path):
    alone = remat.fit(steps_of(model), remat.fit_sizes(1, 256), budget=BUDGET)
    moving = remat.fit(steps_of(model), remat.fit_sizes(1, 256), budget=BUDGET, disk=f"64MiB:{tmp_path}")
    assert moving.largest.size >= alone.largest.size
    assert moving.largest.peak_bytes <= BUDGET
    assert moving.plain.size == alone.plain.size
    with pytest.raises(remat.Error, match="has no colon"):
        remat.fit(steps_of(model), [1], budget=BUDGET, disk=str(tmp_path))


def test_the_optimizer_may_be_in_the_step(model):
    """Its state comes with the first step, and is in every graph from which sizes are predicted."""
    optimizer = torch.optim.AdamW(model.parameters())
    own = steps_of(model)

    def make_step(batch):
        step = own(batch)

        def whole():
            step()
            optimizer.step()

        return whole

    found = remat.fit(make_step, SIZES, BUDGET)
    assert found.predicted_plain == found.plain.size
    assert plain_peak(make_step, SIZES[SIZES.index(found.plain.size) + 1]) > BUDGET


def test_what_every_size_makes_anew_counts():
    def make_step(width):
        wide = nn.Sequential(nn.Linear(width, width), nn.Tanh(), nn.Linear(width, width))
        optimizer = torch.optim.AdamW(wide.parameters())
        x = torch.randn(1024, width)

        def step():
            optimizer.zero_grad()
            wide(x).square().mean().backward()
            optimizer.step()

        return step

    budget = 12 << 20
    found = remat.fit(make_step, remat.fit_sizes(64, 512, 32), budget, what="width")
    step = make_step(found.plain.size)
    step()  # the optimizer's state is there from here on
    remat.memory.reset_peak("cpu")
    step()
    assert remat.memory.peak("cpu") <= budget


def test_along_the_depth():
    x = torch.randn(64, 64)

    def make_step(depth):
        model = nn.Sequential(*(nn.Sequential(nn.Linear(64, 64), nn.GELU()) for _ in range(depth)))
        return lambda: model(x).square().mean().backward()

    found = remat.fit(make_step, remat.fit_sizes(1, 200), 1 << 20, what="depth")
    assert not found.same_operators
    assert found.largest.size > found.plain.size and found.largest.peak_bytes <= 1 << 20
    assert "the depth can be" in str(found)


def test_nothing_fits(model):
    with pytest.raises(remat.BudgetError, match=r"\[fit\] no batch fits: a step of 1 needs about") as raised:
        remat.fit(steps_of(model), [1, 2, 4], 1000)
    assert raised.value.needed_bytes > 1000


def test_errors_of_the_step_are_handed_on(model):
    def make_step(batch):
        raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        remat.fit(make_step, SIZES, BUDGET)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"budget": "40%"}, "would be of each size's own peak"),
        ({"sizes": []}, "there are no sizes"),
        ({"sizes": [2, 1]}, "size 1 follows 2"),
        ({"sizes": [1.5]}, "a size of 1.5"),
        ({"effective": "8"}, "a size of '8'"),
        ({"steps": 1}, "steps is 1"),
        ({"effective": 0}, "an effective batch of 0"),
        ({"most_loss_percent": 101}, "a loss of 101"),
        ({"make_step": 3}, "make_step is 3"),
        ({"make_step": lambda size: None}, "returned None"),
        ({"device": "meta"}, "steps on meta take no time"),
        ({"what": 3}, "what is 3"),
    ],
)
def test_refuses_what_makes_no_sense(model, arguments, message):
    arguments = {"make_step": steps_of(model), "sizes": [1, 2], "budget": BUDGET, **arguments}
    with pytest.raises(remat.Error, match=message):
        remat.fit(**arguments)


def test_sizes():
    assert remat.fit_sizes(1, 20) == [*range(1, 17), 18, 20]
    assert remat.fit_sizes(10, 100, 32) == [32, 64, 96]
    with pytest.raises(remat.Error, match="there are no sizes from 5 to 4"):
        remat.fit_sizes(5, 4)


class TestFitBudget:
    """The smallest budget, tried."""

    @staticmethod
    def train(budget, steps=4):
        torch.manual_seed(0)
        model = blocks(norm=True)
        optimizer = torch.optim.AdamW(model.parameters())
        session, peak = remat.Session(budget, device="cpu"), 0
        for _ in range(steps):
            x = torch.randn(256, 64)
            with session.step():
                model(x).square().mean().backward()
            optimizer.step()
            optimizer.zero_grad()
            peak = max(peak, session.report().peak_bytes)
        return peak

    def test_is_the_smallest_that_works(self):
        smallest = remat.fit_budget(self.train)
        assert self.train(smallest, 12) <= smallest
        with pytest.raises(remat.BudgetError):
            self.train(smallest - smallest // 6)

    def test_what_train_raises_is_handed_on(self):
        with pytest.raises(KeyError):
            remat.fit_budget(lambda budget: {}[budget])

    @pytest.mark.parametrize("returned", [None, True, 0, "12", 1.5])
    def test_a_peak_that_is_none_is_refused(self, returned):
        with pytest.raises(remat.Error, match="train"):
            remat.fit_budget(lambda budget: returned)

    def test_arguments_are_checked(self):
        with pytest.raises(remat.Error, match="give a function"):
            remat.fit_budget("40%")

    def test_a_device_with_less_ends_the_search(self):
        smallest, calls = remat.fit_budget(self.train), []
        before = remat.memory.limit("cpu")
        remat.memory.set_limit(smallest - smallest // 5, "cpu")
        try:
            with pytest.raises(remat.BudgetError):
                remat.fit_budget(lambda budget: (calls.append(budget), self.train(budget))[1])
        finally:
            remat.memory.set_limit(before, "cpu")
        assert len(calls) < 6
