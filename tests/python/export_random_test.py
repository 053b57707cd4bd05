"""Random modules as C, kept whole, halfway and in the least RAM: the same bits, and PyTorch's numbers. REMAT_FUZZ_PROGRAMS
asks for more than the usual number, REMAT_FUZZ_SEED for others."""

from __future__ import annotations

import copy
import os
import re
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import export_boards as boards
import numpy
import pytest
import torch
from random_exports import Builder, Dropout, Graph

import remat
from remat.export.assemble import training_step

FIRST = int(os.environ.get("REMAT_FUZZ_SEED", "1"))
PROGRAMS = int(os.environ.get("REMAT_FUZZ_PROGRAMS", "3"))
STEPS, SEED = 4, 77
AMPLE = 4 << 20


class Program:
    def __init__(self, seed: int) -> None:
        self.module, self.loss, self.inputs, self.targets = Builder(seed).build()
        self.optimizer = ("sgd", "sgd", "momentum", "adam")[seed % 4]
        self.rate = float(numpy.float32(0.002 if self.optimizer == "adam" else 0.01))
        self.decay = float(numpy.float32(0.05 if seed % 5 == 0 else 0.0))

    def text(self) -> str:
        sizes = [tuple(x.shape) for x in self.inputs]
        return f"{self.optimizer} {sizes} " + ", ".join(f"{n.text}{n.of}" for n in self.module.nodes)

    def trained(self, dtype: torch.dtype, moved: int = 0) -> tuple[numpy.ndarray, numpy.ndarray, numpy.ndarray]:
        """PyTorch's losses, prediction and parameters. `moved`: with parameters a last bit to the side, by this seed."""
        model = copy.deepcopy(self.module)
        counted = [SEED, 0, 0]
        with torch.no_grad():
            for p in model.parameters():
                if moved:
                    side = torch.randint(-1, 2, p.shape, generator=torch.Generator().manual_seed(moved))
                    p *= 1 + side * 2.0**-23
        model = model.to(dtype)
        for part in model.modules():
            if isinstance(part, Dropout):
                part.counted = counted
        inputs, targets = ([t.to(dtype) if t.is_floating_point() else t for t in ts] for ts in (self.inputs, self.targets))
        trains = [p for p in model.parameters() if p.requires_grad]
        if self.optimizer == "adam":
            updates: Any = torch.optim.Adam(trains, self.rate, weight_decay=self.decay)
        else:
            momentum = float(numpy.float32(0.9)) if self.optimizer == "momentum" else 0.0
            updates = torch.optim.SGD(trains, self.rate, momentum=momentum, weight_decay=self.decay)
        losses = []
        for step in range(STEPS):
            counted[1:] = [step + 1, 0]
            updates.zero_grad()
            value = self.loss(model(*inputs), *targets)
            value.backward()
            updates.step()
            losses.append(value.item())
        with torch.no_grad():
            prediction = model.eval()(*inputs)
        parameters = torch.cat([p.detach().flatten() for p in trains if p.grad is not None])  # the others are constants in C
        return (numpy.array(losses), prediction.double().flatten().numpy(), parameters.double().numpy())


def write(folder: Path, exported: dict[str, Any]) -> Path:
    for file, text in exported["files"].items():
        (folder / file).parent.mkdir(parents=True, exist_ok=True)
        (folder / file).write_text(text)
    return folder


def static_bytes(folder: Path) -> int:
    """Of everything that model.c writes to: what the linker will want of RAM."""
    compiler = ["gcc", "-O0", "-fno-pic", *boards.FLAGS, f"-I{folder}", f"-I{folder / 'kernels'}"]
    subprocess.run([*compiler, "-c", str(folder / "model.c"), "-o", str(folder / "model.o")], check=True)
    table = subprocess.run(["nm", "-S", str(folder / "model.o")], check=True, capture_output=True, text=True).stdout
    return sum(int(size, 16) for size in re.findall(r"^\w+ (\w+) [bBdDC] ", table, re.M))


def problem_of(seed: int, folder: Path, found: dict[str, int]) -> str | None:
    program = Program(seed)
    options: dict[str, Any] = {"optimizer": program.optimizer, "weight_decay": program.decay}
    step = training_step(program.module, program.loss, program.inputs, program.targets).to_json()
    kept = remat._C.export_step(step, ram_bytes=AMPLE, **options)
    try:
        remat._C.export_step(step, ram_bytes=2048, **options)
        least = 2048
    except remat.BudgetError as error:
        least = error.needed_bytes
    rams = sorted({AMPLE, (kept["ram_bytes"] + 1024 + least) // 2, least}, reverse=True)
    bits = set()
    for ram in rams:
        exported = kept if ram == AMPLE else remat._C.export_step(step, ram_bytes=ram, **options)
        at = write(folder / f"{seed} {ram}", exported)
        # Where addresses leave gaps the arena is larger than what the plan predicts, which is what is alive.
        found["gaps"] = found.get("gaps", 0) + (exported["ram_bytes"] > exported["predicted_bytes"])
        if not exported["predicted_bytes"] <= exported["ram_bytes"] == static_bytes(at):
            return f"{exported['ram_bytes']} bytes, {exported['predicted_bytes']} predicted, {static_bytes(at)} static"
        if exported["ram_bytes"] + 1024 > ram:
            return f"{exported['ram_bytes']} bytes and 1024 of stack in {ram}"
        found["replays"] = found.get("replays", 0) + exported["replays"]
        model = boards.HostModel(at, "-O1")
        model.counter[0] = SEED
        before = model.predict(*program.inputs).tobytes()
        losses = numpy.array([model.step(program.rate, *program.inputs, *program.targets) for _ in range(STEPS)], numpy.float32)
        ours = (losses, model.predict(*program.inputs), model.parameters)
        state = b"" if model.state is None else model.state.tobytes()
        bits.add((before, *(a.tobytes() for a in ours), state))
    if len(bits) != 1:
        return f"other bits under {rams}"
    double = program.trained(torch.float64)
    singles = [program.trained(torch.float32, moved) for moved in (0, 1, 2, 3)]
    for index, what in enumerate(("losses", "prediction", "parameters")):
        if what != "losses" and program.optimizer == "adam":
            continue  # divides by gradients that may be all but 0
        largest = max(float(numpy.abs(double[index]).max()), 1e-30)
        own = float(numpy.abs(ours[index] - double[index]).max()) / largest
        theirs = max(float(numpy.abs(single[index] - double[index]).max()) for single in singles) / largest
        if not own <= 2 * theirs + 5e-7:
            return f"{what} {own:.3g} from float64, PyTorch's float32 {theirs:.3g}: {ours[index][:6]} and {double[index][:6]}"
    found["programs"] = found.get("programs", 0) + 1
    return None


def check(seed: int, folder: Path, found: dict[str, int]) -> str | None:
    try:
        problem = problem_of(seed, folder, found)
    except Exception as error:
        problem = f"{type(error).__name__}: {str(error)[:400]}"
    return problem and f"seed {seed}: {problem}; {Program(seed).text()}"


def test_random_modules(tmp_path: Path) -> None:
    found: dict[str, int] = {}
    problems = [problem for seed in range(FIRST, FIRST + PROGRAMS) if (problem := check(seed, tmp_path, found))]
    assert not problems, f"{len(problems)} of {PROGRAMS}, the first: {problems[0]}"
    assert found["replays"] > 0
