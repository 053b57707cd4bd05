"""Modules and losses of less usual kinds in exported C, and what a program does with it."""

from __future__ import annotations

import copy
import subprocess
from pathlib import Path
from typing import Any

import export_boards as boards
import numpy
import pytest
import torch
import torch.nn.functional as F
from export_test import AMPLE, example, expect_as_trained, far, numbers_of, trained
from torch import nn

import remat
from remat.export.command import write_export


def test_a_module_that_is_used_twice(tmp_path: Path) -> None:
    torch.manual_seed(0)
    shared = nn.Linear(4, 4)
    module, x, y = nn.Sequential(shared, nn.Tanh(), shared, nn.Tanh(), nn.Linear(4, 3)), torch.randn(2, 4), torch.tensor([0, 2])
    before = copy.deepcopy(module.state_dict())
    expect_as_trained(tmp_path, module, F.cross_entropy, x, y)
    assert all(torch.equal(before[name], tensor) for name, tensor in module.state_dict().items())


def test_a_loss_that_is_one_element_of_a_tensor(tmp_path: Path) -> None:
    torch.manual_seed(0)
    module, x, y = nn.Linear(3, 4), torch.randn(2, 3), torch.randn(2, 4)

    def loss(out: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        return ((out - target) ** 2)[1, 2]

    expect_as_trained(tmp_path, module, loss, x, y)


@pytest.mark.parametrize("kind", [nn.LSTM, nn.GRU, nn.LSTMCell, nn.GRUCell])
def test_recurrent_modules(kind: Any, tmp_path: Path) -> None:
    class Recurrent(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer, self.head = kind(3, 5), nn.Linear(5, 4)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            result = self.layer(x if kind in (nn.LSTM, nn.GRU) else x[0])
            result = result[0] if isinstance(result, tuple) else result
            return self.head(result[-1] if result.dim() == 3 else result)

    torch.manual_seed(0)
    module, x, y = Recurrent(), torch.randn(4, 2, 3), torch.tensor([1, 3])
    expect_as_trained(tmp_path, module, F.cross_entropy, x, y, torch.float64)


class _Head(nn.Module):
    """A function of a layer's results; the mean over all but the last dimension goes to a head."""

    def __init__(self, layer: nn.Module, run: Any = None, width: int = 6) -> None:
        super().__init__()
        self.first, self.layer, self.head, self.run = nn.Linear(6, 6), layer, nn.Linear(width, 4), run

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.first(x)
        x = self.layer(x) if self.run is None else self.run(self.layer, x)
        return self.head(x.flatten(1, -2).mean(1))


_CAUSAL = nn.Transformer.generate_square_subsequent_mask(5)
_LAYERS: dict[str, tuple[Any, Any, int]] = {
    "causal attention": (lambda: nn.MultiheadAttention(6, 2, batch_first=True),
                         lambda m, x: m(x, x, x, need_weights=False, attn_mask=_CAUSAL, is_causal=True)[0], 6),
    "attention with a mask": (lambda: nn.MultiheadAttention(6, 2, batch_first=True),
                              lambda m, x: m(x, x, x, attn_mask=torch.ones(5, 5, dtype=torch.bool).triu(2))[0], 6),
    "encoder": (lambda: nn.TransformerEncoderLayer(6, 2, 8, dropout=0.0, batch_first=True), lambda m, x: m(x, src_mask=_CAUSAL), 6),
    "both ways": (lambda: nn.LSTM(6, 3, bidirectional=True, batch_first=True), lambda m, x: m(x)[0], 6),
    "two layers both ways": (lambda: nn.GRU(6, 3, 2, bidirectional=True, batch_first=True), lambda m, x: m(x)[0], 6),
    "RNN both ways": (lambda: nn.RNN(6, 4, bidirectional=True, batch_first=True), lambda m, x: m(x)[0], 8),
    "instances": (lambda: nn.InstanceNorm1d(5, affine=True), None, 6),
    "untracked batches": (lambda: nn.BatchNorm1d(5, track_running_stats=False), None, 6),
    "clamped": (nn.Identity, lambda m, x: x.clamp(-0.5, 0.5) + x.clamp_min(0.1), 6),
}  # fmt: skip


@pytest.mark.parametrize("name", _LAYERS)
def test_layers(name: str, tmp_path: Path) -> None:
    make, run, width = _LAYERS[name]
    torch.manual_seed(0)
    module, x, y = _Head(make(), run, width), torch.randn(2, 5, 6), torch.tensor([1, 3])
    write_export(module, F.cross_entropy, [x], [y], tmp_path, ram_bytes=AMPLE)
    exported = boards.HostModel(tmp_path)
    with torch.no_grad():
        expected = copy.deepcopy(module).eval()(x)
    assert far(exported.predict(x), expected.flatten()) < 2e-6
    losses = [exported.step(0.1, x, y) for _ in range(3)]
    single, end = trained(module, F.cross_entropy, x, y, torch.float32, 0.1, steps=3)
    assert far(losses, single) < 2e-6
    assert far(exported.parameters, numbers_of(end)) < 2e-6


_CLASS_WEIGHTS = torch.tensor([1.0, 0.5, 2.0, 3.0])
_LOSSES: dict[str, Any] = {
    "smooth": lambda out, y: F.cross_entropy(out, y, label_smoothing=0.1),
    "weighted": nn.CrossEntropyLoss(weight=_CLASS_WEIGHTS), "weights from outside": lambda out, y: F.cross_entropy(out, y, _CLASS_WEIGHTS),
    "both": nn.CrossEntropyLoss(weight=_CLASS_WEIGHTS, label_smoothing=0.1), "huber": lambda out, y: F.huber_loss(out[:, 0], y.float()),
    "smooth l1": lambda out, y: F.smooth_l1_loss(out[:, 0], y.float(), beta=0.5),
}  # fmt: skip


@pytest.mark.parametrize("name", _LOSSES)
def test_losses(name: str, tmp_path: Path) -> None:
    torch.manual_seed(0)
    expect_as_trained(tmp_path, nn.Linear(3, 4), _LOSSES[name], torch.randn(3, 3), torch.tensor([0, 2, 3]))


def test_a_loss_that_is_a_module_with_buffers(tmp_path: Path) -> None:
    class Weighted(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("weight", torch.tensor([1.0, 2.0, 0.5, 3.0]))

        def forward(self, out: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
            return (self.weight * (out - target) ** 2).sum()

    torch.manual_seed(0)
    module, loss, x, y = nn.Linear(3, 4), Weighted(), torch.randn(2, 3), torch.randn(2, 4)
    write_export(module, loss, [x], [y], tmp_path, ram_bytes=AMPLE)
    assert boards.HostModel(tmp_path).step(0.1, x, y) == pytest.approx(loss(module(x), y).item(), rel=1e-6)


def test_names_that_are_one_in_c(tmp_path: Path) -> None:
    class Names(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a, self.a_weight, self.a_weight_2 = nn.Linear(3, 4), nn.Parameter(torch.rand(4)), nn.Parameter(torch.rand(4))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.a(x) * self.a_weight * self.a_weight_2

    write_export(Names(), F.mse_loss, [torch.randn(2, 3)], [torch.randn(2, 4)], tmp_path, ram_bytes=AMPLE)
    lines = [line.split()[1:3] for line in (tmp_path / "model.h").read_text().splitlines() if "#define MODEL_AT_" in line]
    assert len({name for name, _ in lines}) == len({offset for _, offset in lines}) == 4
    assert boards.HostModel(tmp_path).at["a.weight"] == int(dict(lines)["MODEL_AT_a_weight_3"])


@pytest.mark.parametrize("optimizer", ["momentum", "adam"])
def test_a_training_that_is_stored_goes_on_with_the_same_bits(optimizer: str, tmp_path: Path) -> None:
    """In a program in C++: parameters, state, what the optimizer remembers, the counter are copied away and back."""
    module, loss, x, y = example("everything")
    write_export(module, loss, [x], [y], tmp_path, ram_bytes=AMPLE, optimizer=optimizer)
    (tmp_path / "user.cpp").write_text(
        '''#include <cstring>
#include "model.h"
static float parameters[MODEL_PARAMETERS], state[MODEL_STATE], optimizer[MODEL_OPTIMIZER];
static uint32_t counter[2];
template <class To> static void copy(To& to, const To& from) { std::memcpy(&to, &from, sizeof to); }
static float steps(int count) {
  for (; count > 1; --count) model_step(0.01f);
  return model_step(0.01f);
}
int main() {
  steps(3);
  copy(parameters, model_parameters), copy(state, model_state), copy(optimizer, model_optimizer);
  copy(counter, model_counter);
  const float expected = steps(3);
  copy(model_parameters, parameters), copy(model_state, state), copy(model_optimizer, optimizer);
  copy(model_counter, counter);
  return steps(3) == expected && expected == expected ? 0 : 1;
}
'''
    )
    subprocess.run(["gcc", "-c", *boards.FLAGS, "-I.", "-Ikernels", "model.c", *map(str, (tmp_path / "kernels").glob("*.c"))],
                   check=True, cwd=tmp_path)  # fmt: skip
    objects = [path.name for path in tmp_path.glob("*.o")]
    subprocess.run(["g++", "-Wall", "-Wextra", "-Wpedantic", "-Werror", "user.cpp", *objects, "-o", "user"], check=True, cwd=tmp_path)
    subprocess.run([tmp_path / "user"], check=True)


def test_two_models_in_one_program(tmp_path: Path) -> None:
    """Their names do not clash, kernels are there once, and each has the bits that it has alone."""
    torch.manual_seed(0)
    whole, expected = tmp_path / "whole", []
    for name, size in (("motor", 3), ("Voice2", 5)):
        module, x, y = nn.Sequential(nn.Linear(size, 4), nn.ReLU(), nn.Linear(4, 2)), torch.randn(2, size), torch.tensor([1, 0])
        write_export(module, F.cross_entropy, [x], [y], tmp_path / name, ram_bytes=AMPLE)
        alone = boards.HostModel(tmp_path / name)
        expected += [alone.step(0.1, torch.full_like(x, 0.5), torch.ones_like(y)) for _ in range(3)]
        write_export(module, F.cross_entropy, [x], [y], whole / name, ram_bytes=AMPLE, name=name)
        files = {path.name for path in (whole / name).iterdir()}
        assert {f"{name}.c", f"{name}.h", "kernels", "CMakeLists.txt"} <= files and "model.h" not in files
        assert not any("model_" in path.read_text() or "MODEL_" in path.read_text() for path in (whole / name).glob("*.[ch]"))
    (whole / "main.c").write_text(
        '''#include <stdio.h>
#include "motor.h"
#include "Voice2.h"
int main(void) {
  for (int i = 0; i < 6; ++i) motor_input[i] = 0.5f;
  for (int i = 0; i < 10; ++i) Voice2_input[i] = 0.5f;
  for (int i = 0; i < 2; ++i) motor_target[i] = Voice2_target[i] = 1;
  float losses[6];
  for (int i = 0; i < 3; ++i) losses[i] = motor_step(0.1f), losses[3 + i] = Voice2_step(0.1f);
  for (int i = 0; i < 6; ++i) printf("%.9g\\n", (double)losses[i]);
  return MOTOR_PARAMETERS == 3 * 4 + 4 + 10 && VOICE2_AT_0_bias == 20 && motor_predict() != Voice2_predict() ? 0 : 1;
}
'''
    )
    (whole / "CMakeLists.txt").write_text(
        "cmake_minimum_required(VERSION 3.10)\nproject(whole C)\nadd_subdirectory(motor)\nadd_subdirectory(Voice2)\n"
        "add_executable(whole main.c)\ntarget_link_libraries(whole motor Voice2)\n"
    )
    subprocess.run(["cmake", "-S", whole, "-B", whole / "build"], check=True, capture_output=True)
    subprocess.run(["cmake", "--build", whole / "build"], check=True, capture_output=True)
    printed = subprocess.run([whole / "build/whole"], check=True, capture_output=True, text=True).stdout.split()
    assert [float(numpy.float32(loss)) for loss in printed] == expected
    # Without CMake: the kernels of one folder.
    sources = [whole / "main.c", whole / "motor/motor.c", whole / "Voice2/Voice2.c", *(whole / "motor/kernels").glob("*.c")]
    folders = [f"-I{whole / part}" for part in ("motor", "Voice2", "motor/kernels")]
    subprocess.run(["gcc", *boards.FLAGS, *folders, *map(str, sources), "-o", whole / "again"], check=True)
    assert subprocess.run([whole / "again"], check=True, capture_output=True, text=True).stdout.split() == printed


@pytest.mark.parametrize("name", ["", "2nd", "a-b", "a/b", "example", "remat", "_a", "stdint"])
def test_names_that_c_does_not_take(name: str, tmp_path: Path) -> None:
    with pytest.raises(remat.Error, match=r"\[export\] the name .* is none for files and functions in C"):
        write_export(nn.Linear(2, 2), F.mse_loss, [torch.ones(1, 2)], [torch.ones(1, 2)], tmp_path, ram_bytes=AMPLE, name=name)
