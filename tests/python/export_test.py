"""Exported C against PyTorch: losses, parameters and predictions, on this machine. Boards are in export_boards_test.py."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import export_boards as boards
import export_models as models
import numpy
import pytest
import torch
import torch.nn.functional as F
from torch import nn

import remat
from remat.export.assemble import training_step
from remat.export.command import write_export

AMPLE = 4 << 20
STEPS = 20


def example(name: str) -> tuple[nn.Module, Any, torch.Tensor, torch.Tensor]:
    torch.manual_seed(0)
    module, loss, x, y = models.ALL[name]()
    for part in module.modules():
        if isinstance(part, nn.Dropout):
            part.p = 0.0  # PyTorch has other random numbers: test_dropout()
    return module, loss, x, y


def trained(module: nn.Module, loss: Any, x: torch.Tensor, y: torch.Tensor, dtype: torch.dtype, rate: float,
            optimizer: str = "sgd", steps: int = STEPS) -> tuple[numpy.ndarray, nn.Module]:  # fmt: skip
    """PyTorch's losses and model after some steps, in a type."""
    model = copy.deepcopy(module).to(dtype)
    x, y = (t.to(dtype) if t.is_floating_point() else t for t in (x, y))
    parameters = [p for p in model.parameters() if p.requires_grad]
    rate = float(numpy.float32(rate))
    make = {
        "sgd": lambda: torch.optim.SGD(parameters, rate),
        "momentum": lambda: torch.optim.SGD(parameters, rate, momentum=float(numpy.float32(0.9))),
        "adam": lambda: torch.optim.Adam(parameters, rate),
    }
    updates = make[optimizer]()
    losses = []
    for _ in range(steps):
        updates.zero_grad()
        value = loss(model(x), y)
        value.backward()
        updates.step()
        losses.append(value.item())
    return numpy.array(losses), model


def expect_as_trained(folder: Path, module: nn.Module, loss: Any, x: torch.Tensor, y: torch.Tensor,
                      dtype: torch.dtype = torch.float32) -> None:  # fmt: skip
    """Three steps of the exported C are PyTorch's, in a type."""
    write_export(module, loss, [x], [y], folder, ram_bytes=AMPLE)
    exported = boards.HostModel(folder)
    losses = [exported.step(0.1, x, y) for _ in range(3)]
    expected, end = trained(module, loss, x, y, dtype, 0.1, steps=3)
    assert far(losses, expected) < 1e-6
    assert far(exported.parameters, numbers_of(end)) < 1e-6


def far(a: Any, b: Any) -> float:
    """The largest difference, relative to the largest number."""
    a, b = numpy.asarray(a, numpy.float64), numpy.asarray(b, numpy.float64)
    return float(numpy.abs(a - b).max() / max(numpy.abs(b).max(), 1e-30))


def numbers_of(module: nn.Module) -> numpy.ndarray:
    return numpy.concatenate([p.detach().double().flatten().numpy() for p in module.parameters() if p.requires_grad])


@pytest.mark.parametrize("name", ["mlp", "cnn", "ds_cnn", "resnet8", "autoencoder", "transformer", "everything"])
def test_trains_as_pytorch_does(name: str, tmp_path: Path) -> None:
    module, loss, x, y = example(name)
    write_export(module, loss, [x], [y], tmp_path, ram_bytes=AMPLE)
    exported = boards.HostModel(tmp_path)
    numpy.testing.assert_array_equal(exported.parameters, numbers_of(module).astype(numpy.float32))
    with torch.no_grad():
        expected = copy.deepcopy(module).double().eval()(x.double() if x.is_floating_point() else x)
    assert far(exported.predict(x), expected.flatten()) < 2e-6
    losses = [exported.step(0.02, x, y) for _ in range(STEPS)]
    single, _ = trained(module, loss, x, y, torch.float32, 0.02)
    double, end = trained(module, loss, x, y, torch.float64, 0.02)
    # No farther from the exact step than PyTorch's own float32, but for the last bits of what is compared.
    assert far(losses, double) <= far(single, double) + 2e-7
    assert far(exported.parameters, numbers_of(end)) < 2e-6
    assert losses[-1] < losses[0]


@pytest.mark.parametrize("optimizer", ["momentum", "adam"])
@pytest.mark.parametrize("name", ["cnn", "everything"])
def test_optimizers(name: str, optimizer: str, tmp_path: Path) -> None:
    module, loss, x, y = example(name)
    figures = write_export(module, loss, [x], [y], tmp_path, ram_bytes=AMPLE, optimizer=optimizer)
    assert figures["optimizer_bytes"] == figures["parameter_bytes"] * {"momentum": 1, "adam": 2}[optimizer]
    exported = boards.HostModel(tmp_path)
    losses = [exported.step(0.002, x, y) for _ in range(STEPS)]
    single, _ = trained(module, loss, x, y, torch.float32, 0.002, optimizer)
    double, _ = trained(module, loss, x, y, torch.float64, 0.002, optimizer)
    assert far(losses, double) <= far(single, double) + 5e-7


def test_weight_decay(tmp_path: Path) -> None:
    module, loss, x, y = example("cnn")
    write_export(module, loss, [x], [y], tmp_path, ram_bytes=AMPLE, weight_decay=0.125)
    exported = boards.HostModel(tmp_path)
    exported.step(0.5, x, y)
    model = copy.deepcopy(module)
    loss(model(x), y).backward()
    torch.optim.SGD(model.parameters(), 0.5, weight_decay=0.125).step()
    assert far(exported.parameters, numbers_of(model)) < 1e-6


# Budgets from what keeps everything down to the least.
@pytest.mark.parametrize(
    ("name", "rams"),
    [("ds_cnn", (1 << 20, 262144, 230000, 196608)), ("transformer", (1 << 20, 300000, 262144)), ("everything", (1 << 20, 16500))],
)
def test_all_plans_give_the_same_bits(name: str, rams: tuple[int, ...], tmp_path: Path) -> None:
    module, loss, x, y = example(name)
    step = training_step(module, loss, [x], [y]).to_json()
    seen = []
    for ram in rams:
        folder = tmp_path / str(ram)
        exported = remat._C.export_step(step, ram_bytes=ram)
        for file, text in exported["files"].items():
            (folder / file).parent.mkdir(parents=True, exist_ok=True)
            (folder / file).write_text(text)
        assert exported["ram_bytes"] + 1024 <= ram
        assert exported["predicted_bytes"] == exported["ram_bytes"]
        assert (exported["replays"] > 0) == (ram != rams[0])
        model = boards.HostModel(folder)
        losses = [model.step(0.02, x, y) for _ in range(5)]
        seen.append((numpy.array(losses).tobytes(), model.parameters.tobytes()))
    assert len(set(seen)) == 1


def test_running_statistics_are_updated_once(tmp_path: Path) -> None:
    module, loss, x, y = example("everything")
    write_export(module, loss, [x], [y], tmp_path, ram_bytes=16500)
    exported = boards.HostModel(tmp_path)
    model = copy.deepcopy(module)
    for _ in range(3):
        exported.step(0.0, x, y)
        model(x)
    assert exported.state is not None
    expected = torch.cat([model.batch.running_mean, model.batch.running_var])
    assert far(exported.state[:24], expected.numpy()) < 1e-6


def test_dropout(tmp_path: Path) -> None:
    """The numbers of remat_dropout(), made again here: of the step, of the place, and the same for backward."""

    def mix(v: numpy.ndarray) -> numpy.ndarray:
        v = ((v ^ (v >> numpy.uint32(16))) * numpy.uint32(0x7FEB352D)).astype(numpy.uint32)
        v = ((v ^ (v >> numpy.uint32(15))) * numpy.uint32(0x846CA68B)).astype(numpy.uint32)
        return v ^ (v >> numpy.uint32(16))

    def mask(seed: int, step: int, count: int) -> torch.Tensor:
        with numpy.errstate(over="ignore"):
            golden = numpy.uint32(0x9E3779B9)
            key = mix(numpy.uint32(seed) ^ mix(numpy.uint32(step) + mix(numpy.uint32(0) + golden)))
            drawn = mix(key + numpy.arange(count, dtype=numpy.uint32) * golden)
        return torch.from_numpy((drawn < round(0.75 * 2**32)).astype(numpy.float32)) / 0.75

    torch.manual_seed(0)
    first, second = nn.Linear(6, 40), nn.Linear(40, 3)
    module = nn.Sequential(first, nn.Dropout(0.25), second)
    x, y = torch.randn(2, 6), torch.tensor([0, 2])
    write_export(module, F.cross_entropy, [x], [y], tmp_path, ram_bytes=AMPLE)
    exported = boards.HostModel(tmp_path)
    exported.counter[0] = 77
    kept = []
    for step in range(1, 4):
        loss = exported.step(0.1, x, y)
        drawn = mask(77, step, 80)
        kept.append(drawn.bool().float().mean().item())
        value = F.cross_entropy(second(first(x) * drawn.view(2, 40)), y)
        assert loss == pytest.approx(value.item(), rel=1e-6)
        gradients = torch.autograd.grad(value, list(module.parameters()))
        with torch.no_grad():
            for p, g in zip(module.parameters(), gradients, strict=True):
                p -= 0.1 * g
        assert far(exported.parameters, numbers_of(module)) < 1e-6
    assert 0.6 < sum(kept) / len(kept) < 0.9
    assert len(set(kept)) > 1
    # A prediction drops nothing.
    assert far(exported.predict(x), module.eval()(x).detach().flatten()) < 2e-6


def test_frozen_parameters_are_constants(tmp_path: Path) -> None:
    module, loss, x, y = example("ds_cnn")
    trains = ("13", "14", "15", "16", "17", "20")
    for name, parameter in module.named_parameters():
        parameter.requires_grad_(name.split(".")[0] in trains)
    figures = write_export(module, loss, [x], [y], tmp_path, ram_bytes=AMPLE)
    frozen = sum(4 * p.numel() for p in module.parameters() if not p.requires_grad)
    assert figures["constant_bytes"] == frozen
    assert "static const float constants" in (tmp_path / "model.c").read_text()
    exported = boards.HostModel(tmp_path)
    losses = [exported.step(0.02, x, y) for _ in range(5)]
    single, _ = trained(module, loss, x, y, torch.float32, 0.02, steps=5)
    assert far(losses, single) < 5e-7


class _Tied(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Embedding(11, 6)
        self.middle = nn.Linear(6, 6)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        return torch.tanh(self.middle(self.table(tokens))) @ self.table.weight.t()


def test_tied_weights_have_one_gradient(tmp_path: Path) -> None:
    torch.manual_seed(0)
    module, tokens = _Tied(), torch.tensor([[1, 2, 3, 3]])

    def loss(scores: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        return F.cross_entropy(scores.flatten(0, 1), target.flatten())

    target = torch.tensor([[4, 5, 6, 4]])
    write_export(module, loss, [tokens], [target], tmp_path, ram_bytes=AMPLE)
    exported = boards.HostModel(tmp_path)
    losses = [exported.step(0.1, tokens, target) for _ in range(8)]
    single, end = trained(module, loss, tokens, target, torch.float32, 0.1, steps=8)
    assert far(losses, single) < 1e-6
    assert far(exported.parameters, numbers_of(end)) < 1e-6


class _TiedByName(nn.Module):
    """One parameter with two names, one buffer with two, and a parameter that nothing uses."""

    def __init__(self) -> None:
        super().__init__()
        self.table, self.head = nn.Embedding(11, 6), nn.Linear(6, 11, bias=False)
        self.head.weight = self.table.weight
        self.unused = nn.Parameter(torch.ones(3))
        scale = torch.rand(6)
        self.register_buffer("scale", scale)
        self.register_buffer("again", scale)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        return self.head(self.table(tokens) * self.scale + self.again)


def test_a_tensor_with_two_names_is_one(tmp_path: Path) -> None:
    torch.manual_seed(0)
    module, tokens = _TiedByName(), torch.tensor([1, 2, 3, 3])
    target = torch.tensor([4, 5, 6, 4])
    write_export(module, F.cross_entropy, [tokens], [target], tmp_path, ram_bytes=AMPLE, weight_decay=0.125)
    exported = boards.HostModel(tmp_path)
    assert list(exported.at) == ["table.weight"]
    losses = [exported.step(0.1, tokens, target) for _ in range(4)]
    model = copy.deepcopy(module)
    updates = torch.optim.SGD(model.parameters(), 0.1, weight_decay=0.125)
    expected = []
    for _ in range(4):
        updates.zero_grad()
        value = F.cross_entropy(model(tokens), target)
        value.backward()
        updates.step()
        expected.append(value.item())
    assert far(losses, expected) < 1e-6
    assert far(exported.parameters, model.table.weight.detach().flatten()) < 1e-6


def test_parameters_with_the_same_gradient(tmp_path: Path) -> None:
    class Sum(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a, self.b = nn.Parameter(torch.rand(2, 3)), nn.Parameter(torch.rand(2, 3))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x + self.a + self.b

    module, x, y = Sum(), torch.randn(2, 3), torch.tensor([0, 2])
    expect_as_trained(tmp_path, module, F.cross_entropy, x, y)


def test_several_inputs_and_targets(tmp_path: Path) -> None:
    class Two(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a, self.b = nn.Linear(3, 4), nn.Linear(5, 4)

        def forward(self, x: torch.Tensor, z: torch.Tensor) -> torch.Tensor:
            return self.a(x) * torch.sigmoid(self.b(z))

    torch.manual_seed(0)
    module = Two()
    x, z, y, w = torch.randn(2, 3), torch.randn(2, 5), torch.randn(2, 4), torch.rand(2, 4)

    def loss(out: torch.Tensor, target: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        return (weight * (out - target) ** 2).sum()

    write_export(module, loss, [x, z], [y, w], tmp_path, ram_bytes=AMPLE)
    exported = boards.HostModel(tmp_path)
    assert list(exported.batch) == ["input0", "input1", "target0", "target1"]
    assert exported.step(0.1, x, z, y, w) == pytest.approx(loss(module(x, z), y, w).item(), rel=1e-6)
