#!/usr/bin/env python3
"""What exported training steps take: bytes of RAM and instructions of a Cortex-M4F, counted by qemu, and whether the bits
are the same on RISC-V, aarch64 and this machine. Puts the table into docs/export.md with --write, else prints it.

    PYTHONPATH=build/release/python .venv/bin/python bench/export.py [--write] [--executorch [PYTHON]]

Needs Debian's gcc-arm-none-eabi, qemu-system-arm, gcc-riscv64-unknown-elf, qemu-system-misc, gcc-aarch64-linux-gnu and
qemu-user. --executorch: the other table, ExecuTorch's memory beside ours, from the last measurement in bench/results;
export_executorch.py measures anew by PYTHON, an interpreter that has executorch.
"""

from __future__ import annotations

import argparse
import json
import subprocess
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
BEGIN, BEGIN_EXECUTORCH = "<!-- bench/export.py -->\n", "<!-- bench/export.py --executorch -->\n"
END = "<!-- end -->\n"


def measured(name: str, ram: int, folder: Path) -> tuple[dict[str, Any], boards.Run]:
    from remat.export.command import write_export

    torch.manual_seed(0)
    module, loss, x, y = models.ALL[name]()
    figures = write_export(module, loss, [x], [y], folder, ram_bytes=ram)
    boards.write_batches(folder, [(x, y)], ["input", "target"], 3, 0.01)
    machine = boards.MACHINES["mps2-an386"]
    run = boards.run(boards.build(folder, machine), machine, count=True)
    riscv = boards.MACHINES["virt"]
    elsewhere = [
        boards.run(boards.build(folder, riscv), riscv),
        boards.run_on_host(folder),
        boards.run_on_host(folder, "-O3", "aarch64-linux-gnu-gcc", ["qemu-aarch64"]),
    ]
    assert all(other.bits == run.bits for other in elsewhere), (name, ram)
    return figures, run


def table() -> str:
    head = "| model | parameters | RAM | of kept | made again | instructions | more, counted | more, predicted |"
    lines = [head, "|---" * 8 + "|"]
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
                lines.append("| " + " | ".join(cells) + " |")
                print(lines[-1], file=sys.stderr)
    return "\n".join(lines) + "\n"


def against_executorch() -> str:
    """Of each model what ExecuTorch plans, as it comes and rewritten by remat's plans, and what an export takes."""
    from remat.export.command import write_export

    latest = max((ROOT / "bench/results").glob("*-executorch.json"))
    rows = {row["model"]: row for row in json.loads(latest.read_text())["rows"]}
    lines = [
        "| model | ExecuTorch | its step rewritten | its work again | remat, kept | remat, planned | of ExecuTorch |",
        "|---" * 7 + "|",
    ]
    for name, text, budgets in ROWS:
        row = rows[name]
        ours = []
        for ram in (3 << 20, *budgets[-1:]):
            torch.manual_seed(0)
            module, loss, x, y = models.ALL[name]()
            with tempfile.TemporaryDirectory() as folder:
                ours.append(write_export(module, loss, [x], [y], Path(folder), ram_bytes=ram)["ram_bytes"])
        # The least for at most a third more work.
        least = min((other for other in row["rewritten"] if other["work"] < 1 / 3), key=lambda other: other["bytes"])
        right = row["far_from_torch"] < 1e-4  # ExecuTorch's own max pooling is not, see export_executorch.py
        assert all(other["same_bits_in_torch"] and other["same_bits"] >= right for other in row["rewritten"]), name
        helps = least["bytes"] < row["bytes"]
        cells = [
            text,
            f"{row['bytes']:,}",
            f"{least['bytes']:,}" if helps else "",
            f"{100 * least['work']:.0f} %" if helps else "",
            f"{ours[0]:,}",
            f"**{ours[1]:,}**" if budgets else "",
            " and ".join(f"{100 * bytes_ / row['bytes']:.0f} %" for bytes_ in ours),
        ]
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write", action="store_true")
    parser.add_argument("--executorch", nargs="?", const="", metavar="PYTHON")
    options = parser.parse_args()
    if options.executorch:
        subprocess.run([options.executorch, ROOT / "bench/export_executorch.py"], check=True)
    if options.executorch is None:
        boards.need_tools()
        boards.need_tools(
            *boards.MACHINES["virt"].tools[:2], "aarch64-linux-gnu-gcc", "qemu-aarch64", packages="see the head of this file"
        )
    begin, text = (BEGIN, table()) if options.executorch is None else (BEGIN_EXECUTORCH, against_executorch())
    if not options.write:
        print(text)
        return
    page = ROOT / "docs/export.md"
    before, _, rest = page.read_text().partition(begin)
    page.write_text(before + begin + text + END + rest.partition(END)[2])


if __name__ == "__main__":
    main()
