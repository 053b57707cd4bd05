"""What goes wrong with the file of an optimizer's state, and what has no state in a file."""

from __future__ import annotations

import copy
import functools
import os
import resource
import signal
import subprocess
import sys

import pytest
import torch
from paged_training import adamw, assert_same, batch, make_model, outcome, train  # noqa: F401
from torch import nn

import remat


def descriptor_in(directory):
    """Of the file that this process has open there."""
    for name in os.listdir("/proc/self/fd"):
        try:
            if os.readlink(f"/proc/self/fd/{name}").startswith(f"{os.path.realpath(directory)}/"):
                return int(name)
        except FileNotFoundError:
            pass  # that of the listing
    raise AssertionError("no file is open")


class TestFailures:
    def test_what_is_beyond_the_limit_stays_in_memory(self, tmp_path):
        expected = outcome(torch.optim.AdamW)
        match = r"\[paged\] \d+ bytes could not be written .*: the limit is 300000 bytes"
        with pytest.warns(UserWarning, match=match) as said:
            assert_same(outcome(torch.optim.AdamW, dir=tmp_path, limit_bytes=300_000), expected)
        assert len(said) == 1

    def test_a_write_that_fails_is_a_warning(self, adamw):
        model, optimizer, pages = adamw
        limits = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (24 * 4096, limits[1]))
        try:
            with pytest.warns(UserWarning, match=r"\[paged\] \d+ bytes could not be written .*: File too large"):
                train(model, optimizer, range(2, 4))
            assert pages.report().unwritten_bytes > 0
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        train(model, optimizer, range(4, 6))
        assert pages.report().unwritten_bytes == 0
        expected = outcome(torch.optim.AdamW)
        assert_same([list(model.parameters()), optimizer.state_dict()], [list(expected[1].values()), expected[2]])

    def test_a_file_that_was_cut_short_is_an_error_before_the_update(self, adamw, tmp_path):
        model, optimizer, _ = adamw
        os.ftruncate(descriptor_in(tmp_path), 0)
        model(batch(0)).sum().backward()
        before = copy.deepcopy(list(model.parameters()))
        with pytest.raises(remat.Error, match=r"\[paged\] 131072 bytes could not be read .* ends after 0 bytes; .* not begun"):
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
        expected = outcome(torch.optim.AdamW)
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
        differentiable = functools.partial(torch.optim.AdamW, differentiable=True)
        self.refused(r"\[paged\] AdamW has differentiable=True", differentiable, tmp_path)
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
        with pytest.raises(remat.Error, match=r"\[paged\] a parameter of shape \(4, 4\) .* gradient that is torch.sparse"):
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
