"""Each kernel of an exported step against float64, forward and backward, with extreme arguments. Many operators are one
program, whose output has the results of all."""

from __future__ import annotations

import copy
import functools
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import export_boards as boards
import export_operators as operators
import numpy
import pytest
import torch
from torch import nn

from remat.export.command import write_export

# How much farther from float64 than PyTorch's float32, relative to the largest number. A parameter's gradient is a sum of
# many products, in one order here and in pieces in PyTorch.
BEYOND, OF_PARAMETERS = 2e-7, 5e-7
RATE = float(numpy.float32(0.001))


def far(ours: Any, single: Any, double: Any, beyond: float = BEYOND) -> str:
    """Empty where `ours` is no farther from float64 than PyTorch's float32, but for the last bits."""
    ours, single, double = (numpy.asarray(v, numpy.float64).ravel() for v in (ours, single, double))
    own, theirs = numpy.abs(ours - double).max(), numpy.abs(single - double).max()
    limit = theirs + beyond * numpy.abs(double).max()
    return "" if own <= limit else f"{own:.3g} from float64, not {limit:.3g}"


class Several(nn.Module):
    """Operators beside each other. Each has an input, to which a parameter is added that is 0 at first: after a step with
    rate 1 that parameter is the input's gradient, with the sign changed."""

    def __init__(self, cases: dict[str, operators.Case]) -> None:
        super().__init__()
        self.cases = list(cases.values())
        self.parts = nn.ModuleList(case.module for case in self.cases)
        for index, case in enumerate(self.cases):
            self.register_buffer(f"x{index}", case.x)
            self.register_buffer(f"w{index}", case.weights)
            if case.x.is_floating_point():
                self.register_parameter(f"zero{index}", nn.Parameter(torch.zeros_like(case.x)))

    def results(self) -> list[torch.Tensor]:
        return [
            part(getattr(self, f"x{i}") + getattr(self, f"zero{i}") if self.cases[i].x.is_floating_point() else getattr(self, f"x{i}"))
            for i, part in enumerate(self.parts)
        ]  # fmt: skip

    def forward(self, one: torch.Tensor) -> torch.Tensor:
        return torch.cat([result.reshape(-1) for result in self.results()]) * one  # no constant: there is an input

    def loss(self, out: torch.Tensor, weights: torch.Tensor) -> torch.Tensor:
        return (out * weights).sum()


class Compared:
    """A step of some operators: exported, in float32 and in float64."""

    def __init__(self, cases: dict[str, operators.Case], steps: int = 3) -> None:
        torch.manual_seed(0)
        module = Several(cases)
        self.names = list(cases)
        one, weights = torch.ones(1), torch.cat([case.weights.reshape(-1) for case in cases.values()])
        folder = Path(tempfile.mkdtemp(prefix="remat-operators-", dir=boards._temporary()))
        write_export(module, module.loss, [one], [weights], folder, ram_bytes=64 << 20)
        exported = boards.HostModel(folder)
        ends = numpy.cumsum([case.weights.numel() for case in cases.values()])
        split = functools.partial(numpy.split, indices_or_sections=ends[:-1])
        self.values = [split(exported.predict(one))]
        start = exported.parameters.copy()
        losses = [[exported.step(1.0, one, weights)]]
        places = {name: slice(exported.at[name], exported.at[name] + p.numel()) for name, p in module.named_parameters()}
        self.parameters = [{name: exported.parameters[place].copy() for name, place in places.items()}]
        exported.parameters[:] = start
        losses[0] += [exported.step(RATE, one, weights) for _ in range(steps)]
        for dtype in (torch.float32, torch.float64):
            model = copy.deepcopy(module).to(dtype)
            self.values.append(split(copy.deepcopy(model).eval()(one.to(dtype)).detach().double().numpy()))
            own, start = [], [p.detach().clone() for p in model.parameters()]
            for step, rate in enumerate((1.0, *[RATE] * steps)):
                model.zero_grad()
                value = model.loss(model(one.to(dtype)), weights.to(dtype))
                value.backward()
                own.append(value.item())
                with torch.no_grad():
                    for p in model.parameters():
                        p -= float(numpy.float32(rate)) * p.grad
                if step > 0:
                    continue
                self.parameters.append({n: p.detach().double().flatten().numpy().copy() for n, p in model.named_parameters()})
                with torch.no_grad():
                    for p, first in zip(model.parameters(), start, strict=True):
                        p.copy_(first)
            losses.append(own)
        self.losses = losses
        self.size = float(numpy.abs(numpy.concatenate(self.values[2]) * weights.numpy()).sum())

    def problems(self, name: str) -> list[str]:
        """Of one operator: its results in evaluation, and the parameters after a step, of which the first is its input's
        gradient."""
        index = self.names.index(name)
        found = [f"result: {text}"] if (text := far(*(values[index] for values in self.values))) else []
        for parameter in self.parameters[0]:
            if parameter == f"zero{index}" or parameter.startswith(f"parts.{index}."):
                beyond = BEYOND if parameter == f"zero{index}" else OF_PARAMETERS
                text = far(*(parameters[parameter] for parameters in self.parameters), beyond)
                found += [f"{parameter}: {text}"] if text else []
        return found


@functools.cache
def compared(group: str) -> Compared:
    return Compared(operators.GROUPS[group]())


@pytest.mark.parametrize(("group", "name"), [(group, name) for group, make in operators.GROUPS.items() for name in make()])
def test_operators(group: str, name: str) -> None:
    assert not compared(group).problems(name)


@pytest.mark.parametrize("group", operators.GROUPS)
def test_losses_of_some_steps(group: str) -> None:
    """Sums whose terms have both signs: relative to the sum of their sizes."""
    made = compared(group)
    ours, single, double = (numpy.array(losses) for losses in made.losses)
    limit = numpy.abs(single - double).max() + BEYOND * made.size
    assert (numpy.abs(ours - double) <= limit).all(), (ours, single, double)


# ---- Arguments at the ends of what floats can be.


def _arguments() -> torch.Tensor:
    positive = torch.cat([
        2.0 ** torch.arange(-149, 128, 5).double(), torch.logspace(-7, 2.2, 120).double(), torch.linspace(0.01, 20, 80).double(),
        torch.tensor([87.3, 87.4, 88.0, 88.72, 88.73, 90, 100, 103, 104, 110, 200, 1e4]),
    ])  # fmt: skip
    inf = float("inf")
    return torch.cat([positive, -positive, torch.tensor([0.0, -0.0, inf, -inf, float("nan")])]).float()


class _Functions(nn.Module):
    def __init__(self, functions: list[Callable[[torch.Tensor], torch.Tensor]], count: int) -> None:
        super().__init__()
        self.zero = nn.Parameter(torch.zeros(len(functions), count))
        self.functions = functions

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.stack([f(row) for f, row in zip(self.functions, (x + self.zero).unbind(0), strict=True)])


@functools.cache
def extremes() -> tuple[numpy.ndarray, list[tuple[numpy.ndarray, numpy.ndarray]]]:
    """Arguments, and by exported, float32, float64: results and gradients, a row for each function."""
    arguments, functions = _arguments(), list(operators.FUNCTIONS.values())
    x = arguments.expand(len(functions), -1).contiguous()
    module, ones = _Functions(functions, len(arguments)), torch.ones_like(x)
    folder = Path(tempfile.mkdtemp(prefix="remat-extremes-", dir=boards._temporary()))
    write_export(module, lambda out, target: (out * target).sum(), [x], [ones], folder, ram_bytes=64 << 20)
    exported = boards.HostModel(folder)
    values = exported.predict(x).reshape(x.shape).astype(numpy.float64)
    exported.step(1.0, x, ones)
    made = [(values, -exported.parameters.reshape(x.shape).astype(numpy.float64))]
    for dtype in (torch.float32, torch.float64):
        model = copy.deepcopy(module).to(dtype)
        out = model(x.to(dtype))
        out.sum().backward()
        made.append((out.detach().double().numpy(), model.zero.grad.double().numpy()))
    return arguments.double().numpy(), made


# Elements that PyTorch itself does not have to the last bits, because of what cancels.
CANCELS = {"gelu", "gelu_tanh", "gelu slope", "gelu_tanh slope", "silu slope", "tanh slope"}


@pytest.mark.parametrize("what", ["", " slope"])
@pytest.mark.parametrize("name", operators.FUNCTIONS)
def test_extreme_arguments(name: str, what: str) -> None:
    """Each element by itself, whatever the others are: infinite or no number where PyTorch's is, and as exact."""
    x, made = extremes()
    row = list(operators.FUNCTIONS).index(name)
    ours, single, double = (both[1 if what else 0][row] for both in made)
    with numpy.errstate(over="ignore"):
        rounded = double.astype(numpy.float32).astype(numpy.float64)
    # What float32 cannot do either, and float64 can, says nothing.
    told = (numpy.isfinite(single) == numpy.isfinite(rounded)) & (numpy.isnan(single) == numpy.isnan(rounded))
    kinds = (numpy.isnan(ours) != numpy.isnan(rounded)) | (numpy.isinf(ours) != numpy.isinf(rounded))
    kinds |= numpy.isinf(ours) & numpy.isinf(rounded) & (ours != rounded)
    assert not (told & kinds).any(), (x[told & kinds][:5], ours[told & kinds][:5], rounded[told & kinds][:5])
    finite = told & numpy.isfinite(rounded) & numpy.isfinite(ours)
    ours, single, double, x = ours[finite], single[finite], double[finite], x[finite]
    if name + what in CANCELS:
        usual = numpy.abs(x) < 1e4
        assert far(ours[usual], single[usual], double[usual]) == ""
        assert far(ours[~usual] / x[~usual], double[~usual] / x[~usual], double[~usual] / x[~usual]) == ""
        return
    # 2^-149 is the least that a float can be; what is less than 2^-126 has fewer digits.
    limit = numpy.abs(single - double) + 4e-7 * numpy.abs(double) + 2.0**-124 * 1e-7
    wrong = numpy.abs(ours - double) > limit
    assert not wrong.any(), (x[wrong][:5], ours[wrong][:5], double[wrong][:5])


# ---- Losses at the ends.


@pytest.mark.parametrize("name", ["cross_entropy", "binary_cross_entropy", "logits", "nothing counts"])
def test_losses_of_extreme_numbers(name: str, tmp_path: Path) -> None:
    """With what PyTorch has: logs cut at -100, sums of exponentials that overflow, NaN of no rows at all."""
    loss, x, y = operators.extreme_losses()[name]

    class Only(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.zero = nn.Parameter(torch.zeros_like(x))

        def forward(self, given: torch.Tensor) -> torch.Tensor:
            return given + self.zero

    module = Only()
    write_export(module, loss, [x], [y], tmp_path, ram_bytes=1 << 20)
    exported = boards.HostModel(tmp_path)
    value = exported.step(1.0, x, y)
    expected = loss(module(x), y)
    expected.backward()
    numpy.testing.assert_allclose(value, expected.item(), rtol=3e-7)
    numpy.testing.assert_allclose(-exported.parameters, module.zero.grad.flatten().numpy(), rtol=1e-6, atol=1e-37)


def test_no_number_is_seen(tmp_path: Path) -> None:
    """NaN in the input is in the loss, through relu within products and convolutions, and pooling."""
    torch.manual_seed(0)
    for module, x in (
        (nn.Sequential(nn.Linear(4, 5), nn.ReLU(), nn.Linear(5, 2)), torch.randn(2, 4)),
        (nn.Sequential(nn.Conv2d(2, 3, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(12, 2)), torch.randn(2, 2, 6, 6)),
        (nn.Sequential(nn.Conv2d(2, 3, 1), nn.ReLU(), nn.MaxPool2d(3), nn.Flatten(), nn.Linear(12, 2)), torch.randn(2, 2, 6, 6)),
        (nn.Sequential(nn.Conv2d(2, 2, 3, groups=2), nn.ReLU(), nn.Flatten(), nn.Linear(32, 2)), torch.randn(2, 2, 6, 6)),
    ):  # fmt: skip
        x.view(-1)[-1] = float("nan")
        y = torch.tensor([0, 1])
        folder = Path(tempfile.mkdtemp(dir=tmp_path))
        write_export(module, nn.functional.cross_entropy, [x], [y], folder, ram_bytes=1 << 20)
        exported = boards.HostModel(folder)
        model = copy.deepcopy(module)
        value = nn.functional.cross_entropy(model(x), y)
        value.backward()
        assert numpy.isnan(value.item()) and numpy.isnan(exported.predict(x)).tolist() == module(x).isnan().flatten().tolist()
        assert numpy.isnan(exported.step(1.0, x, y))
        gradients = torch.cat([p.grad.flatten() for p in model.parameters()])
        assert numpy.isnan(exported.parameters).tolist() == gradients.isnan().tolist()


# ---- Optimizers, over more steps.


@pytest.mark.parametrize(("optimizer", "momentum", "decay"), [
    ("sgd", 0.0, 0.0), ("sgd", 0.0, 0.1), ("momentum", 0.9, 0.0), ("momentum", 0.5, 0.1), ("adam", 0.0, 0.0), ("adam", 0.0, 0.1),
])  # fmt: skip
def test_optimizers(optimizer: str, momentum: float, decay: float, tmp_path: Path) -> None:
    """Parameters of products, convolutions, norms and tables, and one that is used twice, after 20 steps."""
    torch.manual_seed(0)
    module, tokens, y = operators.Small(), torch.tensor([[1, 2, 0, 4], [2, 2, 3, 1]]), torch.tensor([0, 2])
    decay = float(numpy.float32(decay))
    options: dict[str, Any] = {"momentum": momentum} if optimizer == "momentum" else {}
    write_export(module, nn.functional.cross_entropy, [tokens], [y], tmp_path, ram_bytes=1 << 20, optimizer=optimizer,
                 weight_decay=decay, **options)  # fmt: skip
    exported = boards.HostModel(tmp_path)
    rate = float(numpy.float32(0.002 if optimizer == "adam" else 0.05))
    losses, parameters = [[exported.step(rate, tokens, y) for _ in range(20)]], [exported.parameters]
    for dtype in (torch.float32, torch.float64):
        model = copy.deepcopy(module).to(dtype)
        if optimizer == "adam":
            updates: Any = torch.optim.Adam(model.parameters(), rate, weight_decay=decay)
        else:
            updates = torch.optim.SGD(model.parameters(), rate, momentum=float(numpy.float32(momentum)), weight_decay=decay)
        own = []
        for _ in range(20):
            updates.zero_grad()
            value = nn.functional.cross_entropy(model(tokens), y)
            value.backward()
            updates.step()
            own.append(value.item())
        losses.append(own)
        parameters.append(torch.cat([p.detach().double().flatten() for p in model.parameters()]).numpy())
    assert numpy.abs(numpy.array(losses[0]) - losses[2]).max() <= numpy.abs(numpy.array(losses[1]) - losses[2]).max() + 5e-7 * max(losses[2])
    # Adam divides by gradients that may be all but 0: there the last bit is another parameter.
    if optimizer != "adam":
        ours, single, double = (numpy.asarray(numbers, numpy.float64) for numbers in parameters)
        assert numpy.abs(ours - double).max() <= 4 * numpy.abs(single - double).max() + 5e-7 * numpy.abs(double).max()
