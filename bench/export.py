#!/usr/bin/env python3
"""What exported training steps take: bytes of RAM and instructions of a Cortex-M4F, counted by qemu. Puts the table into
docs/export.md with --write, else prints it.

    PYTHONPATH=build/release/python .venv/bin/python bench/export.py [--write]

With --executorch the memory that ExecuTorch plans for the same steps stands beside it (pip install executorch).
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path
from typing import Any

import torch

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tests/python"))

import export_boards as boards  # noqa: E402
import export_models as models  # noqa: E402

KIB = 1024
# A model, its batch, what is said of it, and budgets besides that in which everything is kept.
ROWS = [
    ("mlp", "MLP, 10 layers of 32, batch 8", ()),
    ("cnn", "CNN, 3 convolutions, 28 x 28, batch 4", ()),
    ("ds_cnn", "DS-CNN, batch 1, all layers", (256 * KIB, 192 * KIB)),
    ("transformer", "transformer, 4 layers of 32, 49 frames, batch 1", (384 * KIB, 256 * KIB)),
    ("resnet8", "ResNet-8, 32 x 32, batch 1", (768 * KIB, 640 * KIB)),
    ("autoencoder", "autoencoder, 640 values, batch 1", ()),
]
BEGIN, END = "<!-- bench/export.py -->\n", "<!-- end -->\n"


def measured(name: str, ram: int, folder: Path) -> tuple[dict[str, Any], boards.Run]:
    from remat.export.command import write_export

    torch.manual_seed(0)
    module, loss, x, y = models.ALL[name]()
    figures = write_export(module, loss, [x], [y], folder, ram_bytes=ram)
    boards.write_batches(folder, [(x, y)], ["input", "target"], 3, 0.01)
    machine = boards.MACHINES["mps2-an386"]
    return figures, boards.run(boards.build(folder, machine), machine, count=True)


def table(executorch: bool) -> str:
    head = "| model | parameters | RAM | of kept | made again | instructions | more, counted | more, predicted |"
    lines = [head + (" ExecuTorch's plan |" if executorch else ""), "|---" * (9 if executorch else 8) + "|"]
    with tempfile.TemporaryDirectory() as temporary:
        for name, text, budgets in ROWS:
            kept: tuple[dict[str, Any], boards.Run] | None = None
            for ram in (3 << 20, *budgets):
                figures, run = measured(name, ram, Path(temporary) / f"{name}{ram}")
                kept = kept or (figures, run)
                assert run.bits == kept[1].bits, (name, ram)
                assert figures["ram_bytes"] == figures["predicted_bytes"], (name, ram)
                plain = figures["instructions"] - figures["replay_instructions"]
                first = ram == 3 << 20
                cells = [
                    text if first else f"the same, `--ram {ram // KIB}KiB`",
                    f"{figures['parameter_bytes']:,}",
                    f"{figures['ram_bytes']:,}" if first else f"**{figures['ram_bytes']:,}**",
                    f"{100 * figures['ram_bytes'] / kept[0]['ram_bytes']:.0f} %",
                    f"{figures['replays']} of {figures['calls']}",
                    f"{run.instructions / 1e6:.1f} M",
                    "" if first else f"{100 * (run.instructions / kept[1].instructions - 1):.1f} %",
                    "" if first else f"{100 * figures['replay_instructions'] / plain:.1f} %",
                ]
                if executorch:
                    cells.append(f"{executorch_bytes(name):,}" if first else "")
                lines.append("| " + " | ".join(cells) + " |")
                print(lines[-1], file=sys.stderr)
    return "\n".join(lines) + "\n"


def executorch_bytes(name: str) -> int:
    """What ExecuTorch's memory planning gives the buffers of the joint graph: parameters, batch, activations, gradients;
    without its runtime and an optimizer."""
    from executorch.exir import to_edge
    from torch.export import export
    from torch.export.experimental import _export_forward_backward

    torch.manual_seed(0)
    module, loss, x, y = models.ALL[name]()

    class Step(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.module = module

        def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
            return loss(self.module(x), y)

    program = to_edge(_export_forward_backward(export(Step(), (x, y), strict=True))).to_executorch()
    return sum(program.executorch_program.execution_plan[0].non_const_buffer_sizes)


def main() -> None:
    boards.need_tools()
    text = table("--executorch" in sys.argv)
    if "--write" not in sys.argv:
        print(text)
        return
    page = ROOT / "docs/export.md"
    before, _, rest = page.read_text().partition(BEGIN)
    page.write_text(before + BEGIN + text + END + rest.partition(END)[2])


if __name__ == "__main__":
    main()
