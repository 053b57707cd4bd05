"""Exported models on boards that qemu simulates: the same bits, within RAM that ends where the board's does."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path

import export_boards as boards
import export_models as models
import pytest
import torch

from remat.export.command import write_export

STEPS = 3
# Instructions of a step at -O2 by Debian's gcc 12.2, which the figures in docs/export.md are from.
NOTED = {
    "ds_cnn 1 MiB": 36.25e6,
    "ds_cnn 256 KiB": 40.73e6,
    "ds_cnn 192 KiB": 48.71e6,
    "transformer 1 MiB": 32.52e6,
    "transformer 256 KiB": 39.57e6,
}

Export = Callable[[str, int], Path]


@pytest.fixture(scope="module", autouse=True)
def _tools() -> None:
    boards.need_tools()


@pytest.fixture(scope="module")
def exported(tmp_path_factory: pytest.TempPathFactory) -> Export:
    """A folder with a model's C and batches, for so much RAM. Made once."""
    folders: dict[tuple[str, int], Path] = {}

    def export(name: str, ram: int) -> Path:
        if (name, ram) not in folders:
            folder = tmp_path_factory.mktemp(name)
            torch.manual_seed(0)
            module, loss, x, y = models.ALL[name]()
            batches = [(torch.randn_like(x), y.roll(i)) for i in range(2)]
            figures = write_export(module, loss, [x], [y], folder, ram_bytes=ram)
            boards.write_batches(folder, batches, ["input", "target"], STEPS, 0.02)
            (folder / "figures").write_text(repr(figures))
            folders[name, ram] = folder
        return folders[name, ram]

    return export


def figures_of(folder: Path) -> dict[str, float]:
    return eval((folder / "figures").read_text())  # noqa: S307 -- written above


def test_192_kb(exported: Export) -> None:
    """The whole DS-CNN trains on a board that has no more: beyond its RAM is nothing."""
    folder = exported("ds_cnn", 192 << 10)
    machine = boards.MACHINES["netduinoplus2"]
    run = boards.run(boards.build(folder, machine), machine)
    assert run.bits == boards.run_on_host(folder).bits
    assert run.bits == boards.run_on_host(exported("ds_cnn", 1 << 20), "-O3").bits
    assert 0 < run.stack <= 1024


def test_64_kb_without_floating_point_unit(exported: Export) -> None:
    folder = exported("mlp", 64 << 10)
    machine = boards.MACHINES["lm3s6965evb"]
    run = boards.run(boards.build(folder, machine), machine)
    assert run.bits == boards.run_on_host(folder).bits
    assert run.stack <= 1024


def test_cortex_m7(exported: Export) -> None:
    folder = exported("transformer", 256 << 10)
    machine = boards.MACHINES["mps2-an500"]
    assert boards.run(boards.build(folder, machine, ram=256 << 10), machine).bits == boards.run_on_host(folder).bits


def test_an_image_that_is_too_large_does_not_link(exported: Export) -> None:
    folder = exported("ds_cnn", 256 << 10)
    with pytest.raises(subprocess.CalledProcessError) as error:
        boards.build(folder, boards.MACHINES["netduinoplus2"])
    assert "region `RAM' overflowed" in error.value.stderr


def test_a_stack_that_is_too_small_faults(exported: Export) -> None:
    """So the measured stack is a measurement: what goes beyond the board's RAM is noticed."""
    folder = exported("mlp", 64 << 10)
    machine = boards.MACHINES["lm3s6965evb"]
    done = boards.qemu(boards.build(folder, machine, stack=128), machine, timeout=60)
    assert done.returncode == 99
    assert "fault" in done.stdout + done.stderr


@pytest.mark.parametrize(("name", "text", "ram"), [
    ("ds_cnn", "1 MiB", 1 << 20), ("ds_cnn", "256 KiB", 256 << 10), ("ds_cnn", "192 KiB", 192 << 10),
    ("transformer", "1 MiB", 1 << 20), ("transformer", "256 KiB", 256 << 10),
])  # fmt: skip
def test_instructions(name: str, text: str, ram: int, exported: Export) -> None:
    """Within a hundredth of those noted, and of recomputing within two of those that the plan predicted."""
    machine = boards.MACHINES["mps2-an386"]

    def count(ram: int) -> float:
        return boards.run(boards.build(exported(name, ram), machine), machine, count=True).instructions

    counted = count(ram)
    assert counted == pytest.approx(NOTED[f"{name} {text}"], rel=0.01)
    kept = counted if ram == 1 << 20 else count(1 << 20)
    figures = figures_of(exported(name, ram))
    predicted = figures["replay_instructions"] / (figures["instructions"] - figures["replay_instructions"])
    assert abs((counted / kept - 1) - predicted) < 0.02


def test_all_kernels_take_less_than_16_kb_of_flash(tmp_path: Path, exported: Export) -> None:
    total = 0
    for source in sorted((exported("mlp", 64 << 10) / "kernels").glob("*.c")):
        object_file = tmp_path / f"{source.stem}.o"
        machine = boards.MACHINES["mps2-an386"]
        command = ["arm-none-eabi-gcc", *machine.processor, "-Os", *boards.FLAGS, "-ffreestanding"]
        subprocess.run([*command, "-c", str(source), "-o", str(object_file)], check=True)
        sizes = subprocess.run(["arm-none-eabi-size", object_file], check=True, capture_output=True, text=True).stdout
        total += int(sizes.splitlines()[1].split()[0])
    assert 8_000 < total <= 16_384
