"""Optimizers whose state is in a file: the same bits as with state in memory."""

from __future__ import annotations

import copy
import os
import pickle
import resource
import signal
import subprocess
import sys
import warnings

import pytest
import torch
from compare import same_bits
from torch import nn
from torch.utils._pytree import tree_flatten

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


def assert_same(ours, expected):
    """Whatever they are made of, to the bit."""
    (leaves, structure), (others, other_structure) = tree_flatten(ours), tree_flatten(expected)
    assert structure == other_structure
    for leaf, other in zip(leaves, others):
        is_tensor = isinstance(leaf, torch.Tensor)
        assert same_bits(leaf, other) and leaf.stride() == other.stride() if is_tensor else leaf == other


def make_model():
    torch.manual_seed(2)
    return nn.Sequential(nn.Linear(128, 256), nn.GELU(), nn.LayerNorm(256), nn.Linear(256, 130, bias=False), nn.Linear(130, 128))


def batch(step):
    return torch.randn(8, 128, generator=torch.Generator().manual_seed(step))


def train(model, optimizer, steps, in_backward=False):
    losses = []
    for step in steps:
        loss = (model(batch(step)) - batch(step)).square().mean()
        loss.backward()
        optimizer.step()
        if not in_backward:
            optimizer.zero_grad()
        losses.append(loss.detach())
    return losses


def in_order(state_dict):
    """Backward comes to the parameters in another order than step()."""
    return {**state_dict, "state": dict(sorted(state_dict["state"].items()))}


def outcome(make, steps=6, dir=None, in_backward=False, **options):
    """Losses, parameters and state."""
    model = make_model()
    optimizer = make(list(model.parameters()))
    if dir is not None:
        remat.paged(optimizer, dir=dir, **options)
    if in_backward:
        remat.optimizer_in_backward(optimizer)
    losses = train(model, optimizer, range(steps), in_backward)
    return losses, dict(model.named_parameters()), in_order(optimizer.state_dict())


def descriptor_in(directory):
    """Of the file that this process has open there."""
    for name in os.listdir("/proc/self/fd"):
        try:
            if os.readlink(f"/proc/self/fd/{name}").startswith(f"{os.path.realpath(directory)}/"):
                return int(name)
        except FileNotFoundError:
            pass  # that of the listing
    raise AssertionError("no file is open")


@pytest.fixture
def adamw(tmp_path):
    """A model and its paged optimizer after two steps."""
    model = make_model()
    optimizer = torch.optim.AdamW(model.parameters())
    pages = remat.paged(optimizer, dir=tmp_path)
    train(model, optimizer, range(2))
    return model, optimizer, pages


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

    def test_are_the_same_within_a_budget(self, tmp_path):
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
            with pytest.raises(remat.Error, match=r"\[paged\] state in a file cannot be copied or pickled .*state_dict"):
                copied(optimizer)


class TestFailures:
    def test_what_is_beyond_the_limit_stays_in_memory(self, tmp_path):
        expected = outcome(OPTIMIZERS["adamw"])
        with pytest.warns(UserWarning, match=r"\[paged\] \d+ bytes could not be written .*: the limit is 300000 bytes") as said:
            assert_same(outcome(OPTIMIZERS["adamw"], dir=tmp_path, limit_bytes=300_000), expected)
        assert len(said) == 1

    def test_a_write_that_fails_is_a_warning(self, adamw):
        model, optimizer, pages = adamw
        limits = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (24 * 4096, limits[1]))
        try:
            with pytest.warns(UserWarning, match=r"\[paged\] \d+ bytes could not be written to a file in .*: File too large"):
                train(model, optimizer, range(2, 4))
            assert pages.report().unwritten_bytes > 0
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        train(model, optimizer, range(4, 6))
        assert pages.report().unwritten_bytes == 0
        expected = outcome(OPTIMIZERS["adamw"])
        assert_same([list(model.parameters()), optimizer.state_dict()], [list(expected[1].values()), expected[2]])

    def test_a_file_that_was_cut_short_is_an_error_before_the_update(self, adamw, tmp_path):
        model, optimizer, _ = adamw
        os.ftruncate(descriptor_in(tmp_path), 0)
        model(batch(0)).sum().backward()
        before = copy.deepcopy(list(model.parameters()))
        with pytest.raises(remat.Error, match=r"\[paged\] 131072 bytes could not be read .* ends after 0 bytes; .* has not begun"):
            optimizer.step()
        assert_same([each.detach() for each in model.parameters()], [each.detach() for each in before])

    def test_other_bytes_than_were_written_are_an_error(self, adamw, tmp_path):
        model, optimizer, _ = adamw
        with open(f"/proc/self/fd/{descriptor_in(tmp_path)}", "r+b") as file:
            file.seek(1000)
            byte = file.read(1)
            file.seek(1000)
            file.write(bytes([byte[0] ^ 4]))
        with pytest.raises(remat.Error, match="the checksum differs"):
            optimizer.state_dict()
        model(batch(0)).sum().backward()
        with pytest.raises(remat.Error, match="the checksum differs"):
            optimizer.step()

    def test_a_directory_that_is_removed_is_no_matter(self, tmp_path):
        expected = outcome(OPTIMIZERS["adamw"])
        directory = tmp_path / "gone"
        directory.mkdir()
        model = make_model()
        optimizer = torch.optim.AdamW(model.parameters())
        remat.paged(optimizer, dir=directory)
        directory.rmdir()
        train(model, optimizer, range(6))
        assert_same([list(model.parameters()), optimizer.state_dict()], [list(expected[1].values()), expected[2]])

    def test_a_child_of_a_fork_is_refused(self, adamw):
        model, optimizer, _ = adamw
        model(batch(0)).sum().backward()
        child = os.fork()
        if child == 0:
            try:
                optimizer.step()
                os._exit(1)
            except remat.Error as error:
                os._exit(0 if "forked" in str(error) else 2)
            finally:
                os._exit(3)
        assert os.waitpid(child, 0)[1] == 0
        optimizer.step()

    def test_a_process_that_is_killed_leaves_nothing(self, tmp_path):
        program = f"""
import os, signal, torch, remat
weight = torch.nn.Parameter(torch.ones(512, 512))
optimizer = torch.optim.AdamW([weight])
remat.paged(optimizer, dir={str(tmp_path)!r})
weight.grad = torch.ones(512, 512)
optimizer.register_step_post_hook(lambda *_: os.kill(os.getpid(), signal.SIGKILL))
optimizer.step()
"""
        child = subprocess.run([sys.executable, "-c", program], check=False)
        assert child.returncode == -signal.SIGKILL
        assert list(tmp_path.iterdir()) == []


class TestRefusals:
    def refused(self, match, make, tmp_path, **options):
        weight = nn.Parameter(torch.ones(4, 4))
        with pytest.raises(remat.Error, match=match):
            remat.paged(make([weight]), dir=tmp_path, **options)

    def test_of_optimizers(self, tmp_path):
        class Clipped(torch.optim.AdamW):
            pass

        self.refused(r"\[paged\] LBFGS needs all gradients", torch.optim.LBFGS, tmp_path)
        self.refused(r"\[paged\] SparseAdam is for sparse gradients", torch.optim.SparseAdam, tmp_path)
        self.refused(r"\[paged\] Clipped is not torch.optim's", Clipped, tmp_path)
        self.refused(r"\[paged\] AdamW has differentiable=True", lambda p: torch.optim.AdamW(p, differentiable=True), tmp_path)
        self.refused(r"\[paged\] a dict is no torch.optim.Optimizer", lambda p: {}, tmp_path)
        self.refused(r"\[paged\] a parameter of shape \(4, 4\) is in .* twice", twice, tmp_path)

    def test_of_parameters_elsewhere(self, tmp_path):
        weight = nn.Parameter(torch.ones(4, 4, device="meta"))
        with pytest.raises(remat.Error, match=r"\[paged\] a parameter of shape \(4, 4\) is a Parameter on meta"):
            remat.paged(torch.optim.AdamW([weight]), dir=tmp_path)

    def test_of_directories_and_limits(self, tmp_path):
        (tmp_path / "file").touch()
        self.refused(r"\[spill file\] .*nowhere\": No such file", torch.optim.AdamW, tmp_path / "nowhere")
        self.refused(r"\[spill file\] .*file\": Not a directory", torch.optim.AdamW, tmp_path / "file")
        self.refused(r"\[paged\] the limit is 1000 bytes; give 4096", torch.optim.AdamW, tmp_path, limit_bytes=1000)
        self.refused(r"\[paged\]", torch.optim.AdamW, tmp_path, limit_bytes="50%")

    def test_of_a_second_file(self, adamw, tmp_path):
        with pytest.raises(remat.Error, match=r"\[paged\] the state of this AdamW is in a file already"):
            remat.paged(adamw[1], dir=tmp_path)

    def test_of_sparse_gradients(self, tmp_path):
        embedding = nn.Embedding(4, 4, sparse=True)
        optimizer = torch.optim.SGD(embedding.parameters(), momentum=0.9)
        remat.paged(optimizer, dir=tmp_path)
        embedding(torch.tensor([1])).sum().backward()
        with pytest.raises(remat.Error, match=r"\[paged\] a parameter of shape \(4, 4\) has a gradient that is torch.sparse"):
            optimizer.step()

    def test_not_of_what_is_said_to_update_one_by_one(self, tmp_path):
        class Sign(torch.optim.Optimizer):
            """Keeps what it likes."""

            def __init__(self, parameters):
                super().__init__(parameters, {"lr": 0.01})

            @torch.no_grad()
            def step(self):
                for group in self.param_groups:
                    for parameter in group["params"]:
                        if parameter.grad is None:
                            continue
                        state = self.state[parameter]
                        state["average"] = parameter.grad * 0.1 + state.get("average", torch.zeros(())) * 0.9
                        state["history"] = [*state.get("history", []), parameter.grad.mean()]
                        parameter.sub_(state["average"].sign(), alpha=group["lr"])

        assert_same(outcome(Sign, dir=tmp_path, per_parameter=True), outcome(Sign))


def twice(parameters):
    optimizer = torch.optim.SGD(parameters)
    optimizer.param_groups[0]["params"] *= 2
    return optimizer
