"""Exported models on boards: images built by Debian's arm-none-eabi-gcc and run in qemu, or on this machine."""

from __future__ import annotations

import atexit
import ctypes
import dataclasses
import functools
import re
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy
import torch

BOARDS = Path(__file__).resolve().parent.parent / "export/boards"
FLAGS = ["-std=c99", "-Wall", "-Wextra", "-Werror", "-ffp-contract=off", "-fno-math-errno"]
_M4 = ["-mthumb", "-mcpu=cortex-m4", "-mfloat-abi=hard", "-mfpu=fpv4-sp-d16"]
_M3 = ["-mthumb", "-mcpu=cortex-m3", "-mfloat-abi=soft"]
_M7 = ["-mthumb", "-mcpu=cortex-m7", "-mfloat-abi=hard", "-mfpu=fpv5-sp-d16"]
_ARM = ("arm-none-eabi-gcc", "qemu-system-arm")


@dataclasses.dataclass(frozen=True)
class Machine:
    """A machine of qemu: its processor, RAM and flash in bytes, and how many instructions a tick of its clock is."""

    name: str
    processor: tuple[str, ...]
    ram: int
    flash: int = 1 << 20
    flash_at: int = 0
    nanoseconds: float = 1.0
    ram_at: int = 0x20000000
    tools: tuple[str, ...] = _ARM  # the compiler, qemu, and its options
    port: str = "cortex_m.c"


MACHINES = {
    "netduinoplus2": Machine("netduinoplus2", tuple(_M4), 192 << 10, 1 << 20, 0x08000000, 1e9 / 168e6),
    "lm3s6965evb": Machine("lm3s6965evb", tuple(_M3), 64 << 10, 256 << 10, 0, 1e9 / 12e6),
    "mps2-an386": Machine("mps2-an386", tuple(_M4), 4 << 20, 4 << 20, 0, 1e9 / 25e6),
    "mps2-an500": Machine("mps2-an500", tuple(_M7), 4 << 20, 4 << 20, 0, 1e9 / 25e6),
    # RISC-V: all of it is RAM. Debian's qemu-system-misc and gcc-riscv64-unknown-elf; bench/export.py alone needs them.
    "virt": Machine(
        "virt", ("-march=rv32imafc", "-mabi=ilp32f", "-mcmodel=medany"), 4 << 20, 4 << 20, 0x80000000, 1.0, 0x80400000,
        ("riscv64-unknown-elf-gcc", "qemu-system-riscv32", "-bios", "none"), "riscv.c",
    ),
}  # fmt: skip


def need_tools(*tools: str, packages: str = "") -> None:
    """Without them tests of boards fail: what they say would go untested."""
    missing = [tool for tool in tools or _ARM if shutil.which(tool) is None]
    packages = packages or "`make setup` installs gcc-arm-none-eabi and qemu-system-arm"
    assert not missing, f"{' and '.join(missing)} cannot be found; {packages}"


@functools.cache
def _temporary() -> Path:
    folder = Path(tempfile.mkdtemp(prefix="remat-kernels-"))
    atexit.register(shutil.rmtree, folder)
    return folder


_OBJECTS: dict[tuple[str, ...], list[str]] = {}


def _kernels(folder: Path, compiler: Sequence[str]) -> list[str]:
    """The kernels, which are the same for all models, as objects of a compiler with its options. Made once."""
    key = (*compiler, *((folder / "kernels" / name).read_text() for name in sorted(p.name for p in (folder / "kernels").iterdir())))
    if key not in _OBJECTS:
        to = _temporary() / str(len(_OBJECTS))
        to.mkdir()
        sources = sorted(str(path) for path in (folder / "kernels").glob("*.c"))
        subprocess.run([*compiler, "-c", *sources], check=True, cwd=to)
        _OBJECTS[key] = sorted(str(path) for path in to.glob("*.o"))
    return _OBJECTS[key]


@dataclasses.dataclass(frozen=True)
class Run:
    """What a program wrote. Losses as they are; ``instructions`` of a step, where they were counted."""

    losses: tuple[float, ...]
    parameters: str
    instructions: float
    stack: int

    @property
    def bits(self) -> tuple[Any, ...]:
        return (numpy.array(self.losses, numpy.float32).tobytes(), self.parameters)


def write_batches(folder: Path, batches: Sequence[Sequence[torch.Tensor]], names: Sequence[str], steps: int, rate: float) -> None:
    """batches.c: constants, which are in flash. ``names``: of the model's inputs and targets."""
    lines, copies = ['#include "batches.h"', '#include "model.h"', ""], []
    for place, name in enumerate(names):
        tensors = [batch[place].flatten() for batch in batches]
        kind = "float" if tensors[0].is_floating_point() else "int32_t"
        count = tensors[0].numel()
        numbers = ", ".join(_literal(v) for tensor in tensors for v in tensor.tolist())
        lines.append(f"static const {kind} {name}_of[{len(batches) * count}] = {{{numbers}}};")
        copies.append(f"  for (int i = 0; i < {count}; ++i) model_{name}[i] = {name}_of[batch * {count} + i];")
    lines += ["void load_batch(int batch) {", *copies, "}", ""]
    (folder / "batches.c").write_text("\n".join(lines))
    (folder / "batches.h").write_text(
        f"#define BATCH_COUNT {len(batches)}\n#define BATCH_STEPS {steps}\n#define BATCH_RATE {rate!r}f\nvoid load_batch(int batch);\n"
    )


def _literal(value: float | int) -> str:
    if isinstance(value, int):
        return str(value)
    text = str(numpy.float32(value))
    return f"{text}f" if "." in text or "e" in text else f"{text}.0f"


def build(folder: Path, machine: Machine, ram: int | None = None, stack: int = 1024, optimize: str = "-O2") -> Path:
    """An image of the model in ``folder``, with its batches. Raises CalledProcessError where it does not link."""
    script = (BOARDS / "board.ld.in").read_text()
    for name, value in (("FLASH", hex(machine.flash_at)), ("FLASH_BYTES", machine.flash), ("RAM_BYTES", ram or machine.ram),
                        ("RAM", hex(machine.ram_at)), ("STACK_BYTES", stack)):  # fmt: skip
        script = script.replace(f"@{name}@", str(value))
    linker = folder / f"{machine.name}.ld"
    linker.write_text(script)
    image = folder / f"{machine.name}.elf"
    compiler = [machine.tools[0], *machine.processor, optimize, *FLAGS, "-ffreestanding"]
    compiler += ["-ffunction-sections", "-fdata-sections", "-fno-tree-loop-distribute-patterns"]
    sources = [folder / "model.c", folder / "batches.c", BOARDS / "main.c", BOARDS / "memory.c", BOARDS / machine.port]
    command = [*compiler, "-nostdlib", "-Wl,--gc-sections", f"-I{BOARDS}", f"-I{folder}", f"-I{folder / 'kernels'}"]
    command += [*map(str, sources), *_kernels(folder, compiler), "-T", str(linker), "-o", str(image), "-lgcc"]
    subprocess.run(command, check=True, capture_output=True, text=True)
    return image


def qemu(image: Path, machine: Machine, count: bool = False, timeout: float = 300) -> subprocess.CompletedProcess[str]:
    command = [*machine.tools[1:], "-M", machine.name, "-nographic", "-monitor", "none", "-serial", "none"]
    command += ["-semihosting-config", "enable=on,target=native", "-kernel", str(image)]
    command += ["-icount", "shift=0"] if count else []
    return subprocess.run(command, capture_output=True, text=True, timeout=timeout)


def run(image: Path, machine: Machine, count: bool = False) -> Run:
    done = qemu(image, machine, count)
    assert done.returncode == 0, (done.returncode, done.stdout[-500:], done.stderr[-500:])
    return read(done.stdout + done.stderr, machine.nanoseconds if count else 0.0)


def read(text: str, per_tick: float = 0.0) -> Run:
    losses = [numpy.array([int(word, 16)], numpy.uint32).view(numpy.float32)[0] for word in re.findall(r"^loss (\w+)$", text, re.M)]
    (parameters,) = re.findall(r"^parameters (\w+)$", text, re.M)
    (ticks,) = re.findall(r"^ticks (\d+)$", text, re.M)
    (stack,) = re.findall(r"^stack (\d+)$", text, re.M)
    return Run(tuple(float(loss) for loss in losses), parameters, int(ticks) * per_tick, int(stack))


def run_on_host(folder: Path, optimize: str = "-O2", compiler: str = "gcc", emulator: Sequence[str] = ()) -> Run:
    """On this machine, or on another one with Linux that an emulator runs programs of."""
    program = folder / "host"
    sources = [folder / "model.c", folder / "batches.c", BOARDS / "main.c", BOARDS / "host.c"]
    command_of_compiler = [compiler, optimize, *FLAGS, *(["-static"] if emulator else [])]
    command = [*command_of_compiler, f"-I{BOARDS}", f"-I{folder}", f"-I{folder / 'kernels'}", *map(str, sources)]
    subprocess.run([*command, *_kernels(folder, command_of_compiler), "-o", str(program)], check=True)
    return read(subprocess.run([*emulator, program], check=True, capture_output=True, text=True).stdout)


class HostModel:
    """An exported model as a library of this process: its arrays can be written and read."""

    def __init__(self, folder: Path, optimize: str = "-O2") -> None:
        library = folder / "model.so"
        compiler = ["gcc", optimize, *FLAGS, "-fPIC"]
        command = [*compiler, "-shared", f"-I{folder}", f"-I{folder / 'kernels'}", str(folder / "model.c")]
        subprocess.run([*command, *_kernels(folder, compiler), "-o", str(library)], check=True)
        self._library = ctypes.CDLL(str(library))
        header = (folder / "model.h").read_text()
        self._library.model_step.restype = ctypes.c_float
        self._library.model_step.argtypes = [ctypes.c_float]
        sizes = {name: int(value) for name, value in re.findall(r"#define MODEL_(\w+) (\d+)", header)}
        self._outputs = sizes.get("OUTPUT", 0)
        self.at = {name: int(value) for value, name in re.findall(r"#define MODEL_AT_\w+ (\d+)  /\* (\S+), ", header)}
        self.parameters = self._array("model_parameters", ctypes.c_float, sizes["PARAMETERS"])
        self.state = self._array("model_state", ctypes.c_float, sizes["STATE"]) if "STATE" in sizes else None
        self.counter = self._array("model_counter", ctypes.c_uint32, 2)
        self.batch = {
            name: self._array("model_" + name, ctypes.c_float if kind == "float" else ctypes.c_int32, int(count))
            for kind, name, count in re.findall(r"extern (float|int32_t) model_((?:input|target)\d*)\[(\d+)\]", header)
        }

    def _array(self, name: str, kind: Any, count: int) -> numpy.ndarray:
        return numpy.ctypeslib.as_array((kind * count).in_dll(self._library, name))

    def step(self, rate: float, *tensors: torch.Tensor) -> float:
        self._fill(tensors)
        return float(self._library.model_step(rate))

    def predict(self, *tensors: torch.Tensor) -> numpy.ndarray:
        self._fill(tensors)
        self._library.model_predict.restype = ctypes.POINTER(ctypes.c_float)
        return numpy.ctypeslib.as_array(self._library.model_predict(), (self._outputs,)).copy()

    def _fill(self, tensors: Sequence[torch.Tensor]) -> None:
        for array, tensor in zip(self.batch.values(), tensors, strict=False):
            array[:] = tensor.detach().flatten().numpy()
