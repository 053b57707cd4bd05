"""Modules and losses of less usual kinds in exported C, and what a program does with it."""

from __future__ import annotations

import copy
import subprocess
from pathlib import Path
from typing import Any

import export_boards as boards
import pytest
import torch
import torch.nn.functional as F
from export_test import AMPLE, example, expect_as_trained
from torch import nn

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
