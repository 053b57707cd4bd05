"""Optimizers whose state is in a file: the same bits as with state in memory."""

from __future__ import annotations

import copy
import pickle
import warnings

import pytest
import torch
from paged_training import adamw, assert_same, batch, in_order, make_model, outcome, train  # noqa: F401
from torch import nn

import remat
from remat import paged_state

OPTIMIZERS = {
    "sgd": lambda p: torch.optim.SGD(p, lr=0.05),
    "momentum": lambda p: torch.optim.SGD(p, lr=0.05, momentum=0.9, nesterov=True),
    "foreach sgd": lambda p: torch.optim.SGD(p, lr=0.05, momentum=0.9, foreach=True),
    "fused sgd": lambda p: torch.optim.SGD(p, lr=0.05, momentum=0.9, fused=True),
    "adam": lambda p: torch.optim.Adam(p, amsgrad=True, weight_decay=0.1),
    "adamw": lambda p: torch.optim.AdamW(p),
    "foreach adamw": lambda p: torch.optim.AdamW(p, foreach=True, maximize=True),
    "fused adamw": lambda p: torch.optim.AdamW(p, fused=True),
    "rmsprop": lambda p: torch.optim.RMSprop(p, momentum=0.9, centered=True),
    "adagrad": lambda p: torch.optim.Adagrad(p),
    "adadelta": lambda p: torch.optim.Adadelta(p),
    "adamax": lambda p: torch.optim.Adamax(p),
    "nadam": lambda p: torch.optim.NAdam(p),
    "radam": lambda p: torch.optim.RAdam(p),
    "asgd": lambda p: torch.optim.ASGD(p),
    "rprop": lambda p: torch.optim.Rprop(p),
    "adafactor": lambda p: torch.optim.Adafactor(p),
    "muon": lambda p: torch.optim.Muon([each for each in p if each.dim() == 2]),
}


class TestBits:
    @pytest.mark.parametrize("in_backward", [False, True], ids=["step", "in backward"])
    @pytest.mark.parametrize("part", [paged_state.PART_ELEMENTS, 10_000], ids=["whole", "parts"])
    @pytest.mark.parametrize("name", OPTIMIZERS)
    def test_are_those_of_the_plain_optimizer(self, name, part, in_backward, tmp_path, monkeypatch):
        expected = outcome(OPTIMIZERS[name])
        monkeypatch.setattr(paged_state, "PART_ELEMENTS", part)
        assert_same(outcome(OPTIMIZERS[name], dir=tmp_path, in_backward=in_backward), expected)

    def test_are_the_same_after_a_thousand_steps(self, tmp_path):
        def run(dir):
            torch.manual_seed(1)
            weight = nn.Parameter(torch.randn(128, 200))
            optimizer = torch.optim.AdamW([weight, nn.Parameter(torch.zeros(200))], lr=1e-2)
            if dir is not None:
                remat.paged(optimizer, dir=dir)
            losses = []
            for step in range(1000):
                loss = (batch(step) @ weight + optimizer.param_groups[0]["params"][1]).tanh().square().mean()
                loss.backward()
                optimizer.step()
                optimizer.zero_grad()
                losses.append(loss.detach())
            return losses, weight, optimizer.state_dict()

        assert_same(run(tmp_path), run(None))

    def test_of_parameters_in_other_layouts_are_the_same(self, tmp_path, monkeypatch):
        monkeypatch.setattr(paged_state, "PART_ELEMENTS", 10_000)

        def run(dir):
            torch.manual_seed(1)
            model = nn.Conv2d(64, 64, 3).to(memory_format=torch.channels_last)
            optimizer = torch.optim.Adam(model.parameters())
            if dir is not None:
                remat.paged(optimizer, dir=dir)
            for _ in range(3):
                model(torch.randn(1, 64, 5, 5)).square().sum().backward()
                optimizer.step()
            state = optimizer.state_dict()
            return dict(model.named_parameters()), state, state["state"][0]["exp_avg"].stride()

        assert_same(run(tmp_path), run(None))

    @pytest.mark.parametrize("part", [paged_state.PART_ELEMENTS, 10_000], ids=["whole", "parts"])
    def test_are_the_same_within_a_budget(self, part, tmp_path, monkeypatch):
        monkeypatch.setattr(paged_state, "PART_ELEMENTS", part)

        def run(dir, in_backward):
            model = nn.Sequential(*(nn.Sequential(nn.Linear(256, 256), nn.GELU(), nn.Dropout(0.1)) for _ in range(6)))
            torch.manual_seed(3)
            for parameter in model.parameters():
                nn.init.normal_(parameter, std=0.05)
            optimizer = torch.optim.AdamW(model.parameters())
            session = None
            if dir is not None:
                remat.paged(optimizer, dir=dir)
                session = remat.Session(budget="60%")
            if in_backward:
                remat.optimizer_in_backward(optimizer)
            losses = []
            for step in range(5):
                x = torch.randn(512, 256, generator=torch.Generator().manual_seed(step))
                if session is None:
                    loss = model(x).square().mean()
                    loss.backward()
                else:
                    with session.step():
                        loss = model(x).square().mean()
                        loss.backward()
                    report = session.report()
                    assert report.peak_bytes <= report.budget_bytes
                optimizer.step()
                optimizer.zero_grad() if not in_backward else None
                losses.append(loss.detach())
            return losses, list(model.parameters()), in_order(optimizer.state_dict())

        expected = run(None, False)
        assert_same(run(tmp_path, False), expected)
        assert_same(run(tmp_path, True), expected)


class TestMemory:
    def test_holds_no_state_between_steps(self, tmp_path):
        remat.memory.start_accounting()
        weights = [nn.Parameter(torch.randn(512, 512)) for _ in range(6)]
        optimizer = torch.optim.AdamW(weights)
        pages = remat.paged(optimizer, dir=tmp_path)
        for _ in range(3):
            sum(weight.square().sum() for weight in weights).backward()
            before = remat.memory.current()
            remat.memory.reset_peak()
            optimizer.step()
            assert remat.memory.current() - before < 4096
            # Three parameters' state, and what AdamW takes for a moment.
            assert remat.memory.peak() - before <= (3 * 2 + 2) * weights[0].nbytes + 4096
            optimizer.zero_grad()
        report = pages.report()
        assert report.paged_bytes == report.file_bytes == 6 * 2 * weights[0].nbytes
        assert report.written_bytes == 3 * report.paged_bytes
        assert report.read_bytes == 2 * report.paged_bytes
        assert report.waited_seconds > 0
        assert "12.0 MiB of state in a file of 12.0 MiB: 36.0 MiB written" in str(report)

    def test_holds_a_part_of_a_large_parameter(self, tmp_path, monkeypatch):
        remat.memory.start_accounting()
        monkeypatch.setattr(paged_state, "PART_ELEMENTS", 1 << 16)
        weight = nn.Parameter(torch.randn(1 << 10, 1 << 10))
        optimizer = torch.optim.AdamW([weight])
        remat.paged(optimizer, dir=tmp_path)
        for _ in range(3):
            weight.square().sum().backward()
            before = remat.memory.current()
            remat.memory.reset_peak()
            optimizer.step()
            assert remat.memory.peak() - before <= 8 * weight.nbytes // 16 + 8192
            optimizer.zero_grad()


class TestLoops:
    @pytest.mark.parametrize("scheduler_first", [True, False])
    def test_schedulers_see_each_step(self, scheduler_first, tmp_path):
        def run(dir):
            model = make_model()
            optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
            if dir is not None and not scheduler_first:
                remat.paged(optimizer, dir=dir)
            scheduler = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.5)
            if dir is not None and scheduler_first:
                remat.paged(optimizer, dir=dir)
            for step in range(3):
                train(model, optimizer, [step])
                scheduler.step()
            return list(model.parameters()), scheduler.get_last_lr()

        with warnings.catch_warnings():
            warnings.simplefilter("error")
            assert_same(run(tmp_path), run(None))

    def test_hooks_and_closures_run_once_a_step(self, adamw):
        model, optimizer, _ = adamw
        calls = []
        optimizer.register_step_pre_hook(lambda *_: calls.append("before"))
        optimizer.register_step_post_hook(lambda *_: calls.append("after"))

        def closure():
            calls.append("closure")
            assert torch.is_grad_enabled()
            loss = model(batch(0)).sum()
            loss.backward()
            return loss

        assert optimizer.step(closure).requires_grad
        assert calls == ["before", "closure", "after"]

    def test_parameters_come_later_and_have_no_gradients_at_times(self, tmp_path):
        def run(dir):
            torch.manual_seed(1)
            first, second, third = (nn.Parameter(torch.randn(128, 128)) for _ in range(3))
            optimizer = torch.optim.AdamW([first, second])
            if dir is not None:
                remat.paged(optimizer, dir=dir)
            for step in range(8):
                if step == 3:
                    optimizer.add_param_group({"params": [third], "lr": 0.1})
                used = [each for i, each in enumerate((first, second, third)) if (step + i) % 3]
                sum((each * step).sin().sum() for each in used).backward()
                optimizer.step()
                optimizer.zero_grad()
            return first, second, third, optimizer.state_dict()

        assert_same(run(tmp_path), run(None))

    def test_state_that_is_cleared_begins_anew(self, tmp_path):
        def run(dir):
            model = make_model()
            optimizer = torch.optim.AdamW(model.parameters())
            pages = None if dir is None else remat.paged(optimizer, dir=dir)
            train(model, optimizer, range(2))
            optimizer.state.clear()
            assert pages is None or pages.report().paged_bytes == 0
            train(model, optimizer, range(2, 4))
            return list(model.parameters()), optimizer.state_dict()

        assert_same(run(tmp_path), run(None))

    def test_an_update_that_fails_leaves_the_state(self, adamw, monkeypatch):
        model, optimizer, pages = adamw
        before = copy.deepcopy(optimizer.state_dict())
        model(batch(0)).sum().backward()
        monkeypatch.setitem(optimizer.param_groups[0], "lr", "fast")
        with pytest.raises(TypeError):
            optimizer.step()
        monkeypatch.undo()
        after = optimizer.state_dict()
        after["state"][0]["step"] -= 1  # which AdamW counts before
        assert_same(after["state"], before["state"])


class TestCheckpoints:
    def test_resume_exactly(self, tmp_path):
        expected = outcome(OPTIMIZERS["adamw"], steps=6)
        model = make_model()
        optimizer = torch.optim.AdamW(model.parameters())
        remat.paged(optimizer, dir=tmp_path)
        train(model, optimizer, range(3))
        torch.save((model.state_dict(), optimizer.state_dict()), tmp_path / "checkpoint")

        for is_paged in (True, False):
            weights, state = torch.load(tmp_path / "checkpoint")
            model = nn.Sequential(*make_model())
            model.load_state_dict(weights)
            optimizer = torch.optim.AdamW(model.parameters())
            if is_paged:
                pages = remat.paged(optimizer, dir=tmp_path)
            optimizer.load_state_dict(state)
            assert not is_paged or pages.report().paged_bytes > 0
            train(model, optimizer, range(3, 6))
            assert_same([list(model.parameters()), optimizer.state_dict()], [list(expected[1].values()), expected[2]])

    def test_state_that_is_there_already_is_written(self, tmp_path):
        model = make_model()
        optimizer = torch.optim.AdamW(model.parameters())
        train(model, optimizer, range(2))
        before = copy.deepcopy(optimizer.state_dict())
        pages = remat.paged(optimizer, dir=tmp_path)
        weight = model[0].weight
        assert pages.report().paged_bytes > 0
        stand_in = optimizer.state[weight]["exp_avg"]
        assert stand_in.is_meta and stand_in.shape == weight.shape and stand_in.dtype == weight.dtype
        assert_same(optimizer.state_dict(), before)
        assert_same(pages.state_of(weight), before["state"][0])
        pages.remove()
        assert "step" not in vars(optimizer)
        assert not any(t.is_meta for entry in optimizer.state.values() for t in entry.values())
        assert_same(optimizer.state_dict(), before)
        train(model, optimizer, range(2, 4))
        assert_same(list(model.parameters()), list(outcome(OPTIMIZERS["adamw"], steps=4)[1].values()))

    def test_copies_and_pickles_of_the_optimizer_are_refused(self, adamw):
        _, optimizer, _ = adamw
        for copied in (copy.deepcopy, pickle.dumps):
            with pytest.raises(remat.Error, match=r"\[paged\] state in a file cannot be copied .*state_dict"):
                copied(optimizer)
