#!/usr/bin/env python3
"""Measures what the kernels of exported steps cost: instructions of a Cortex-M4F, counted by qemu (-icount), and fits
the table in src/export/cost_table.h to them.

    PYTHONPATH=build/release/python .venv/bin/python bench/export_costs.py [--write]

Prints how far the table is from each call that it was fitted to. --write puts it into the source.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy
import torch

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tests/python"))

import export_boards as boards  # noqa: E402
import export_models as models  # noqa: E402

TABLE = ROOT / "src/export/cost_table.h"
MACHINE = boards.MACHINES["mps2-an386"]
REPEATS = 4  # steps; the clock has 40 instructions in a tick

CLOCK = """
static uint64_t began, sums[{calls}];
#define BEGIN began = board_ticks();
#define END(call) sums[call] += board_ticks() - began;
static void write_sums(void) {{
  for (int call = 0; call < {calls}; ++call) {{
    char text[24];
    int at = 23;
    uint64_t value = sums[call];
    text[at] = 0;
    do text[--at] = (char)('0' + value % 10);
    while (value /= 10);
    board_write("call ");
    board_write(text + at);
    board_write("\\n");
  }}
}}
"""


def profiled(source: str, schedule: dict) -> str:
    """model.c with a clock around each call of the step."""
    head, step, rest = re.split(r"(?<=\n)(float model_step\(.*?\n\}\n)", source, maxsplit=1, flags=re.DOTALL)
    lines, call = [], -1
    lines_left = 0
    for line in step.split("\n"):
        if not line.startswith("  remat_") or "begin_step" in line:
            lines.append(line.replace("return model_loss;", "if (model_counter[1] == STEPS) write_sums();\n  return model_loss;"))
            continue
        if lines_left == 0:
            call += 1
            lines_left = schedule["calls"][call]["lines"]
        lines_left -= 1
        lines.append(f"  BEGIN{line} END({call})")
    clock = CLOCK.format(calls=call + 1)
    return head.replace('#include "model.h"', '#include "board.h"\n#include "model.h"') + clock + "\n".join(lines) + rest


def measured(name: str, folder: Path, export: object) -> list[tuple[dict, float]]:
    """The work of each call of a model's step, and its instructions."""
    torch.manual_seed(0)
    module, loss, x, y = models.ALL[name]() if name in models.ALL else EXTRA[name]()
    export(module, loss, [x], [y], folder)
    schedule = json.loads((folder / "schedule.json").read_text())
    source = (folder / "model.c").read_text()
    (folder / "model.c").write_text(profiled(source, schedule).replace("STEPS", str(REPEATS)))
    names = ["input", "target"]
    boards.write_batches(folder, [(x, y)], names, REPEATS, 0.01)
    done = boards.qemu(boards.build(folder, MACHINE, stack=2048), MACHINE, count=True)
    ticks = [int(t) for t in re.findall(r"^call (\d+)$", done.stdout + done.stderr, re.M)]
    assert len(ticks) == len(schedule["calls"]), (name, len(ticks), len(schedule["calls"]), done.stderr[-300:])
    return [(call["work"], t * MACHINE.nanoseconds / REPEATS) for call, t in zip(schedule["calls"], ticks, strict=True)]


def _small() -> models.Example:
    """Odd sizes, so that what is left over of tiles counts."""
    from torch import nn

    model = nn.Sequential(
        nn.Conv2d(3, 7, 3, 2, 1), nn.ReLU(), nn.Conv2d(7, 6, 1), nn.ReLU(), nn.Conv2d(6, 6, 5, 1, 2, groups=6), nn.ReLU(),
        nn.Conv2d(6, 9, 3, groups=3), nn.BatchNorm2d(9), nn.ReLU(), nn.AvgPool2d(2), nn.Flatten(), nn.Linear(36, 11), nn.Tanh(),
        nn.Linear(11, 5),
    )  # fmt: skip
    return model, nn.functional.cross_entropy, torch.randn(2, 3, 12, 12), torch.tensor([1, 2])


EXTRA = {"small": _small}


def fit(samples: list[tuple[dict, float]]) -> dict[str, float]:
    """Costs that are not negative, by least squares of the relative errors."""
    rows = sorted({row for work, _ in samples for row in work})
    matrix = numpy.array([[work.get(row, 0) for row in rows] for work, _ in samples], float)
    target = numpy.array([instructions for _, instructions in samples])
    # Of small calls the clock's grain is an error; of large ones a percent is what counts.
    weight = 1 / (target + 400)
    a, b = matrix * weight[:, None], target * weight
    gram, right = a.T @ a, a.T @ b
    x = numpy.maximum(0, numpy.linalg.lstsq(a, b, rcond=None)[0])
    for _ in range(3000):
        for j in range(len(rows)):
            x[j] = max(0.0, x[j] + (right[j] - gram[j] @ x) / gram[j, j])
    return dict(zip(rows, x, strict=True))


def main() -> None:
    boards.need_tools()
    from remat.export.command import write_export

    samples: list[tuple[dict, float]] = []
    with tempfile.TemporaryDirectory() as temporary:
        for name in ("mlp", "cnn", "ds_cnn", "transformer", "resnet8", "autoencoder", "everything", "small"):
            for optimizer in ("sgd", "momentum", "adam") if name == "mlp" else ("sgd",):
                folder = Path(temporary) / f"{name}-{optimizer}"

                def export(module, loss, inputs, targets, to, optimizer=optimizer):
                    write_export(module, loss, inputs, targets, to, ram_bytes=3 << 20, optimizer=optimizer)

                samples += measured(name, folder, export)
                print(f"{name}, {optimizer}: {sum(t for _, t in samples) / 1e6:.1f} M instructions so far", file=sys.stderr)
    costs = fit(samples)
    total = sum(t for _, t in samples)
    off = sum(abs(sum(n * costs[r] for r, n in work.items()) - t) for work, t in samples)
    print(f"{len(samples)} calls, {len(costs)} rows; off by {100 * off / total:.1f} % of the instructions")
    lines = "".join(f'    {{"{row}", {cost:.4g}}},\n' for row, cost in costs.items())
    text = TABLE.read_text()
    begin, end = text.index("kCostTable[] = {\n") + len("kCostTable[] = {\n"), text.index("};\n\n}  // namespace")
    if "--write" in sys.argv:
        TABLE.write_text(text[:begin] + lines + text[end:])
    else:
        print(lines)


if __name__ == "__main__":
    main()
