"""Sessions: steps within a budget, their reports and plans."""

from __future__ import annotations

import contextlib
import copy
import pickle
import threading

import pytest
import torch
from compare import assert_exact, blocks
from torch import nn

import remat


def train(model):
    loss = model(torch.randn(256, 64)).square().mean()
    loss.backward()
    return loss.detach()


@pytest.mark.parametrize("budget", ["90%", "70%", "50%", "40%"])
@pytest.mark.parametrize("planner", ["auto", "online"])
def test_a_budget_holds_and_the_bits_are_the_same(budget, planner):
    session = remat.Session(budget=budget, planner=planner)
    assert_exact(blocks(norm=True), train, session.step, steps=4)
    report = session.report()
    assert report.completed
    assert report.values_dropped > 0
    assert report.peak_bytes <= report.budget_bytes


def test_the_report_has_the_figures_of_the_last_step():
    session = remat.Session(budget="50%")
    model = blocks()
    for _ in range(3):
        with session.step():
            train(model)
    report = session.report()
    assert report.step == 3
    assert report.baseline_bytes < report.peak_bytes <= report.budget_bytes < report.plain_peak_bytes
    assert report.peak_bytes == pytest.approx(report.planned_peak_bytes, rel=0.01)
    assert report.ops_recorded > 20
    assert report.ops_replayed > 0
    assert report.recompute_seconds > 0
    assert report.replayed[0].count > 0
    assert report.baseline_bytes < report.min_budget_bytes <= report.budget_bytes
    assert report.plan.predicted_peak_bytes == report.plan.budget_bytes or report.plan.predicted_seconds > 0
    assert "measured peak" in str(report)


def test_before_the_first_step_there_is_no_report():
    with pytest.raises(remat.Error, match="no step has ended"):
        remat.Session().report()


def test_a_little_above_the_smallest_budget_a_new_session_works():
    model = blocks()
    session = remat.Session(budget="60%")
    for _ in range(2):
        with session.step():
            train(model)
    smallest = session.min_budget_bytes()
    smallest += (smallest - session.report().baseline_bytes) // 8  # what a busy machine's times may change
    tight = remat.Session(budget=smallest)
    for _ in range(3):
        with tight.step():
            train(model)
    assert tight.report().peak_bytes <= smallest


def test_too_small_a_budget_is_refused_and_the_step_can_be_tried_again():
    model = blocks()
    baseline = remat.memory.current("cpu")
    session = remat.Session(budget=baseline + (300 << 10), planner="online")
    with pytest.raises(remat.BudgetError, match="smallest|no budget below") as caught:
        with session.step():
            train(model)
    error = caught.value
    assert isinstance(error, remat.Error)
    assert error.budget_bytes == baseline + (300 << 10)
    assert error.lower_bound_bytes > 0
    assert error.smallest_known_bytes is None and error.needed_percent is None
    assert not session.report().completed
    model.zero_grad()
    with remat.Session(budget="50%").step():
        train(model)


@pytest.mark.parametrize("budget", [0, -5, 2**63, 1.5, True, "much", "0%", "101%", b"1GiB", [1]])
def test_a_nonsensical_budget_is_an_error(budget):
    with pytest.raises(remat.Error):
        remat.Session(budget=budget)


def test_nonsensical_options_are_errors():
    with pytest.raises(remat.Error, match='no planner "best"'):
        remat.Session(planner="best")
    with pytest.raises(remat.Error, match="no device"):
        remat.Session(device="moon")
    for device in ("mps", "xpu", "xpu:0"):  # which PyTorch knows, though this one may have been built without them
        with pytest.raises(remat.Error, match=rf"\[device\] {device} is not supported: .*; use cpu, cuda"):
            remat.Session(budget="1GiB", device=device)
    with pytest.raises(remat.Error, match="has no memory"):
        remat.Session(device="meta", budget="1GiB")
    with pytest.raises(FileNotFoundError):
        remat.Session(plan="/nonexistent/plan.json")
    with pytest.raises(remat.Error, match="plan is 0; give a remat.Plan, or the path of one"):
        remat.Session(plan=0)  # not the descriptor of that number


def test_steps_do_not_nest():
    with remat.Session().step():
        with pytest.raises(remat.Error, match="in progress"):
            remat.Session().step()


def test_a_step_that_fails_under_a_plan_has_a_report():
    model = blocks()
    session = remat.Session(budget="50%")
    with session.step():
        train(model)
    with pytest.raises(KeyError), session.step():
        train(model)
        raise KeyError
    report = session.report()
    assert not report.completed and report.plan is None
    assert report.planned_peak_bytes is not None


def test_a_plan_goes_to_a_file_and_comes_back(tmp_path):
    model = blocks()
    session = remat.Session(budget="50%")
    for _ in range(3):
        with session.step():
            train(model)
    path = tmp_path / "plan.json"
    session.save_plan(path)
    plan = remat.Plan.load(path)
    assert plan.to_json() == session.plan().to_json()
    later = remat.Session(budget=session.report().budget_bytes, plan=path)
    for _ in range(2):
        with later.step():
            train(model)
    assert later.plan().planner == "auto"
    for content in (b"{}", b"\xff\xd8"):
        path.write_bytes(content)
        with pytest.raises(remat.Error):
            remat.Plan.load(path)


def test_an_exception_ends_the_step_as_failed():
    session = remat.Session(budget="50%")
    model = blocks()
    with session.step():
        train(model)
    with pytest.raises(KeyboardInterrupt):
        with session.step():
            model(torch.randn(8, 64))
            raise KeyboardInterrupt
    assert not session.report().completed
    with session.step():
        train(model)
    assert session.report().completed


@pytest.mark.parametrize("copied", [copy.copy, copy.deepcopy, pickle.dumps])
def test_a_session_cannot_be_copied(copied):
    with pytest.raises(TypeError, match="make another with the same options"):
        copied({"trainer": remat.Session()}["trainer"])


def test_after_a_step_nothing_is_held():
    session = remat.Session(budget="50%")
    model = blocks()
    for _ in range(2):
        with session.step():
            train(model)
    before = remat.memory.current("cpu")
    for _ in range(3):
        with session.step():
            train(model)
        assert remat.memory.current("cpu") == before


def test_a_write_between_forward_and_backward_is_an_error_of_ours():
    with remat.Session(budget="50%").step():
        x = torch.randn(64, requires_grad=True)
        y = x.exp()
        loss = y.sum()
        y.detach().add_(1)
        with pytest.raises(remat.Error, match="modified by an in-place operation"):
            loss.backward()


def test_threads_run_their_own_sessions():
    def make():
        return blocks(count=3, dropout=0.0), remat.Session(budget=remat.memory.current("cpu") + 4 * 2**20)

    def train(model, session):
        for _ in range(4):
            with session.step():
                loss = model(torch.ones(64, 64)).square().mean()
                loss.backward()
        return session.report()

    model, session = make()
    alone = train(model, session)
    errors, reports = [], []

    def work():
        try:
            reports.append(train(*mine.pop()))
        except Exception as error:
            errors.append(error)

    mine = [make(), make()]
    threads = [threading.Thread(target=work) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not errors
    # A budget is for all bytes of the device, whoever's they are.
    assert all(report.completed and report.peak_bytes <= report.budget_bytes for report in reports)
    assert all(report.ops_recorded == alone.ops_recorded for report in reports)


@pytest.mark.parametrize("scope", ["session", "wrap"])
def test_parameters_can_be_swapped_after_a_step(scope):
    model = nn.Linear(64, 64)
    session = remat.Session(budget="100MiB")
    if scope == "wrap":
        remat.wrap(model, budget="100MiB")
    with session.step() if scope == "session" else contextlib.nullcontext():
        model(torch.randn(4, 64)).mean().backward()
    model.zero_grad()
    weight = model.weight
    torch.utils.swap_tensors(weight, nn.Parameter(torch.zeros(64, 64)))
    assert weight.abs().sum() == 0


def test_fake_tensors_of_symbolic_sizes_are_nothing_to_a_step(capfd):
    from torch._subclasses.fake_tensor import FakeTensorMode
    from torch.fx.experimental.symbolic_shapes import ShapeEnv

    fake = FakeTensorMode(shape_env=ShapeEnv())
    model, x = torch.nn.Linear(64, 64), torch.randn(64, 64)
    symbolic = fake.from_tensor(torch.randn(4, 8))
    session = remat.Session(device="cpu")
    with session.step():
        with fake:
            torch.empty_strided(symbolic.shape, (symbolic.shape[1], 1))
            symbolic.sin() + torch.empty(symbolic.shape)
        model(x).tanh().sum().backward()
    assert capfd.readouterr().err == ""
    assert session.report().values_saved > 0
