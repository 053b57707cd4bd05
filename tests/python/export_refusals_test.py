"""What `python -m remat export` refuses, and what it says then."""

from __future__ import annotations

import copy
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import export_models as models
import pytest
import torch
import torch.nn.functional as F
from torch import nn

import remat
from remat.export.assemble import training_step
from remat.export.command import write_export

MODELS = Path(models.__file__)


class _Warp(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.ones(1))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        grid = torch.zeros(1, 4, 4, 2)
        return F.grid_sample(x * self.scale, grid, align_corners=False).flatten(1)


class _Cache(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 4)
        self.register_buffer("seen", torch.zeros(4))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.seen += x.detach().sum(0)
        return self.linear(x)


class _Looks(nn.Linear):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return super().forward(x) if x.sum() > 0 else -x


def refused(module: nn.Module, x: torch.Tensor, y: torch.Tensor | None = None) -> str:
    target = torch.zeros(x.shape[0], dtype=torch.int64) if y is None else y
    with pytest.raises(remat.Error) as error:
        training_step(module, F.cross_entropy, [x], [target])
    assert str(error.value).startswith("[export] ")
    return str(error.value)


def test_an_operator_without_a_kernel_is_named_with_its_place() -> None:
    class Outer(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.warp = _Warp()

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.warp(x)

    message = refused(Outer(), torch.randn(1, 1, 4, 4))
    line = next(i for i, text in enumerate(Path(__file__).read_text().splitlines(), 1) if "F.grid_sample(" in text)
    assert f"aten::grid_sampler_2d (model.warp, export_refusals_test.py:{line}) has no kernel in C" in message


def test_a_refusal_leaves_the_model_and_the_generator_as_they_are() -> None:
    class Outer(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.norm, self.dropout, self.warp = nn.BatchNorm2d(1), nn.Dropout(0.5), _Warp()

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.warp(self.dropout(self.norm(x)))

    module = Outer()
    before, state = copy.deepcopy(module.state_dict()), torch.get_rng_state()
    assert "aten::grid_sampler_2d (model.warp, export_refusals_test.py:" in refused(module, torch.randn(1, 1, 4, 4, generator=torch.Generator()))
    assert all(torch.equal(tensor, before[name]) for name, tensor in module.state_dict().items())
    assert torch.equal(state, torch.get_rng_state())
    assert all(p.grad is None for p in module.parameters()) and not module.warp._forward_hooks


def test_types() -> None:
    assert 'parameter "weight" is float16; exports are float32' in refused(nn.Linear(4, 4).half(), torch.randn(1, 4).half().float())
    assert "input 0 is float64" in refused(nn.Linear(4, 4), torch.randn(1, 4).double())
    assert "not finite" in refused(_filled(nn.Linear(4, 4), float("nan")), torch.randn(1, 4))


def _filled(module: nn.Linear, value: float) -> nn.Linear:
    with torch.no_grad():
        module.weight.fill_(value)
    return module


def test_buffers_that_the_model_writes() -> None:
    assert 'buffer "seen" is written to by the model' in refused(_Cache(), torch.randn(1, 4))


def test_buffers_with_the_names_of_running_statistics() -> None:
    """What is written to them is not what BatchNorm writes, or is read in the same step."""

    class Centred(nn.Module):
        def __init__(self, own: bool) -> None:
            super().__init__()
            self.linear, self.norm, self.own = nn.Linear(4, 4), nn.BatchNorm1d(4), own

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            if not self.own:
                return self.norm(self.linear(x) - self.norm.running_mean)
            self.norm.running_mean.mul_(0.9).add_(0.1 * x.mean(0))
            return self.linear(x)

    message = refused(Centred(own=True), torch.randn(3, 4))
    assert 'buffer "norm.running_mean" is written to by the model; of mutated buffers' in message
    message = refused(Centred(own=False), torch.randn(3, 4))
    assert 'buffer "norm.running_mean" is written to by the model, and read for its loss' in message


def test_losses_that_are_modules() -> None:
    module, x, y = nn.Linear(4, 4), torch.randn(2, 4), torch.tensor([0, 3])

    def message(loss: nn.Module) -> str:
        with pytest.raises(remat.Error) as error:
            training_step(module, loss, [x], [y])
        return str(error.value)

    assert "the loss has parameters that require gradients" in message(nn.AdaptiveLogSoftmaxWithLoss(4, 4, [2]))


def test_tensors_without_elements() -> None:
    class Cut(nn.Linear):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return super().forward(x) + x[:, :0].mean()

    assert "input 0 has no elements" in refused(nn.Linear(4, 4), torch.randn(0, 4))
    assert "aten::mean of a tensor without elements" in refused(Cut(4, 4), torch.randn(2, 4))
    module = nn.Linear(4, 4)
    module.register_buffer("nothing", torch.zeros(0))  # and nothing reads it
    training_step(module, F.cross_entropy, [torch.randn(2, 4)], [torch.tensor([0, 1])])


def test_numbers_that_c_cannot_have() -> None:
    class Divided(nn.Linear):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return super().forward(x) / 0

    assert "aten::div with a number that is not finite" in refused(Divided(4, 4), torch.randn(1, 4))


def test_running_statistics_that_no_kernel_keeps() -> None:
    norm = nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4, momentum=None))
    assert '[export] BatchNorm1d "1" has momentum=None' in refused(norm, torch.randn(3, 4))
    tracked = nn.Sequential(nn.Conv2d(1, 2, 1), nn.InstanceNorm2d(2, track_running_stats=True), nn.Flatten())
    assert "aten::instance_norm that tracks running statistics; leave track_running_stats at False" in refused(tracked, torch.randn(1, 1, 2, 2))


def test_masks_that_hide_all_of_a_row() -> None:
    """Of finite numbers, which C has, a softmax would make shares. PyTorch has NaN."""

    class Hidden(nn.Linear):
        mask = torch.zeros(2, 4, dtype=torch.bool)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return super().forward(x).masked_fill(self.mask, float("-inf")).softmax(-1)

    module = Hidden(4, 4)
    training_step(module, F.cross_entropy, [torch.randn(2, 4)], [torch.tensor([0, 1])])
    module.mask = torch.tensor([[False] * 4, [True] * 4])
    assert "aten::masked_fill of all that a softmax reads in a row" in refused(module, torch.randn(2, 4))

    class Read(nn.Linear):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return super().forward(x).masked_fill(x > 0, float("-inf")).softmax(-1)

    assert "aten::masked_fill with -inf where the step says; write a finite number, as -1e9," in refused(Read(4, 4), torch.randn(2, 4))

    class Added(nn.Linear):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return (super().forward(x) + torch.full((4, 4), float("-inf")).tril(-1)[:2]).exp()

    assert "with a number that is not finite, and in no mask" in refused(Added(4, 4), torch.randn(2, 4))


def test_integers_are_indices_alone() -> None:
    class Counts(nn.Module):
        def __init__(self, change: object) -> None:
            super().__init__()
            self.table, self.change = nn.Embedding(9, 3), change

        def forward(self, tokens: torch.Tensor) -> torch.Tensor:
            return self.table(self.change(tokens)).mean(1)

    tokens = torch.tensor([[1, 2], [3, 4]])
    assert "aten::clone of integers" in refused(Counts(lambda t: t[:, :1]), tokens)
    assert "aten::add of integers" in refused(Counts(lambda t: t + 1), tokens)


def test_a_loss_that_depends_on_nothing_trained() -> None:
    class Constant(nn.Linear):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x * 2

    assert "the loss depends on no parameter that requires a gradient" in refused(Constant(4, 4), torch.randn(1, 4))


def test_a_step_that_looks_at_values() -> None:
    assert "cannot be captured" in refused(_Looks(4, 4), torch.randn(1, 4))


def test_nothing_to_train() -> None:
    assert "nothing to train" in refused(nn.Linear(4, 4).requires_grad_(False), torch.randn(1, 4))


def test_another_torch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch, "__version__", "2.99.0")
    assert "torch 2.99.0 has graphs that export was not tried with" in refused(nn.Linear(4, 4), torch.randn(1, 4))


def test_ram_that_is_too_small(tmp_path: Path) -> None:
    """The number that the refusal gives works, and it says what takes the memory."""
    torch.manual_seed(0)
    module, loss, x, y = models.ds_cnn()
    with pytest.raises(remat.BudgetError) as error:
        write_export(module, loss, [x], [y], tmp_path, ram_bytes=150000)
    message = str(error.value)
    assert message.startswith("[export] no plan fits 150000 bytes (146 KiB) of RAM; the smallest that was found needs ")
    assert "88.3 KiB of parameters" in message
    assert "runs backward" in message
    figures = write_export(module, loss, [x], [y], tmp_path, ram_bytes=error.value.needed_bytes)
    assert figures["ram_bytes"] + 1024 <= error.value.needed_bytes


def test_parameters_that_take_more_than_the_ram(tmp_path: Path) -> None:
    torch.manual_seed(0)
    module, loss, x, y = models.mobilenet()
    with pytest.raises(remat.BudgetError, match=r"824 KiB of parameters.*what is trained takes more than all of it"):
        write_export(module, loss, [x], [y], tmp_path, ram_bytes=256 << 10)


# ---- The command.


def command(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-m", "remat", "export", *arguments], capture_output=True, text=True)


def test_the_command_writes_a_folder_that_builds(tmp_path: Path) -> None:
    done = command(f"{MODELS}:mlp", "--ram", "64KiB", "--out", str(tmp_path / "c"), "--step", str(tmp_path / "step.json"))
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("RAM: 56120 bytes (54.8 KiB)")
    subprocess.run(["cmake", "-S", tmp_path / "c", "-B", tmp_path / "build", "-DCMAKE_C_FLAGS=-Werror"], check=True, capture_output=True)
    subprocess.run(["cmake", "--build", tmp_path / "build"], check=True, capture_output=True)
    printed = subprocess.run([tmp_path / "build/example"], check=True, capture_output=True, text=True).stdout
    losses = [float(loss) for loss in re.findall(r"loss ([\d.]+)", printed)]
    assert len(losses) == 20
    assert losses[-1] < losses[0]
    # The step gives the same files without the model.
    again = command(str(tmp_path / "step.json"), "--ram", "64KiB", "--out", str(tmp_path / "again"))
    assert again.returncode == 0, again.stderr
    for file in (tmp_path / "c").rglob("*"):
        if file.is_file():
            assert file.read_bytes() == (tmp_path / "again" / file.relative_to(tmp_path / "c")).read_bytes()


@pytest.mark.skipif("REMAT_COMMAND" not in os.environ, reason="the command is not built")
def test_the_cpp_command_writes_the_same_files(tmp_path: Path) -> None:
    step = tmp_path / "step.json"
    done = command(f"{MODELS}:cnn", "--ram", "200KiB", "--optimizer", "momentum", "--out", str(tmp_path / "a"), "--step", str(step))
    assert done.returncode == 3
    done = command(f"{MODELS}:cnn", "--ram", "256KiB", "--optimizer", "momentum", "--out", str(tmp_path / "a"), "--step", str(step))
    assert done.returncode == 0, done.stderr
    own = [os.environ["REMAT_COMMAND"], "export", str(step), "--optimizer", "momentum", "--out", str(tmp_path / "b")]
    subprocess.run([*own, "--ram", "256KiB", "--json", str(tmp_path / "figures.json")], check=True)
    files = [file.relative_to(tmp_path / "a") for file in (tmp_path / "a").rglob("*") if file.is_file()]
    assert len(files) > 15
    for file in files:
        assert (tmp_path / "a" / file).read_bytes() == (tmp_path / "b" / file).read_bytes()
    figures = json.loads((tmp_path / "figures.json").read_text())
    assert figures["ram_bytes"] == figures["predicted_bytes"]
    refused = subprocess.run([*own, "--ram", "32KiB"], capture_output=True, text=True)
    assert (refused.returncode, refused.stderr[:44]) == (3, "remat: [export] no plan fits 32768 bytes (32")
    assert subprocess.run([*own, "--ram", "40%"], capture_output=True).returncode == 1


def test_the_commands_exit_codes(tmp_path: Path) -> None:
    little = command(f"{MODELS}:mlp", "--ram", "32KiB", "--out", str(tmp_path))
    assert (little.returncode, little.stdout) == (3, "")
    assert little.stderr.startswith("remat: [export] no plan fits 32768 bytes (32.0 KiB) of RAM")
    for arguments, text in (
        ((f"{MODELS}:nothing", "--ram", "1MiB", "--out", "x"), "has no function nothing"),
        (("nowhere.py:f", "--ram", "1MiB", "--out", "x"), "there is no file nowhere.py"),
        (("model", "--ram", "1MiB", "--out", "x"), "names no function"),
        ((f"{MODELS}:mlp", "--ram", "1MiB"), "nothing is to be written"),
        ((f"{MODELS}:_labels", "--ram", "1MiB", "--out", "x"), None),
    ):
        done = command(*arguments)
        assert done.returncode == 1
        assert text is None or (done.stderr.startswith("remat: [export] ") and text in done.stderr)
    assert command(f"{MODELS}:mlp", "--ram", "much", "--out", "x").returncode == 2


def test_damaged_steps() -> None:
    torch.manual_seed(0)
    module, loss, x, y = models.mlp(batch=2, width=4, layers=2)
    step = json.loads(training_step(module, loss, [x], [y]).to_json())

    def broken(change: object) -> str:
        damaged = json.loads(json.dumps(step))
        change(damaged)
        with pytest.raises(remat.Error) as error:
            remat._C.export_step(json.dumps(damaged), ram_bytes=1 << 20)
        return str(error.value)

    assert broken(lambda s: s.update(version=9)).startswith("[step] version is 9")
    assert "has the unknown field" in broken(lambda s: s.update(more=1))
    assert "which there is not" in broken(lambda s: s["operators"][0].update(kernel="magic"))
    assert "lacks an input" in broken(lambda s: s["operators"][0]["inputs"].__setitem__(0, [-1, 0]))
    assert "operators" in broken(lambda s: s["operators"][0]["inputs"].__setitem__(0, [10000, 0]))
    assert "was not made before" in broken(lambda s: s["operators"].reverse() or [o.update(phase="forward") for o in s["operators"]])
    assert "lacks the argument" in broken(lambda s: s["operators"][0]["arguments"].update(q=s["operators"][0]["arguments"].pop("m")))
    assert "reads b:ab,m:am,k:ak = " in broken(lambda s: s["operators"][0]["arguments"].update(m=9))
    assert "has a fraction" in broken(lambda s: s["operators"][0]["arguments"].update(m=1.5))
    assert "gradients" in broken(lambda s: s["gradients"][0].__setitem__(0, s["gradients"][1][0]))
    assert "is of a buffer, and there is none" in broken(lambda s: s.update(buffers=[], operators=[], gradients=[]))
    last = len(step["buffers"])
    index = {"name": "", "kind": "constant", "type": "int32", "shape": [1], "values": [2**40]}
    assert f"[step] buffers[{last}].values has a number that is no int32" in broken(lambda s: s["buffers"].append(index))
    assert "[step] buffers[0].type" in broken(lambda s: s["buffers"][0].update(type="int32"))
    for name, number in (("momentum", float("nan")), ("weight_decay", float("inf")), ("momentum", -1.0)):
        with pytest.raises(remat.Error, match="give a number from 0 on"):
            remat._C.export_step(json.dumps(step), ram_bytes=1 << 20, **{name: number})
    assert "as many numbers" in broken(lambda s: s["buffers"][0]["values"].pop())
