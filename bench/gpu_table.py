#!/usr/bin/env python3
"""What bench/gpu.py measured, as tables: bench/gpu_table.py RESULT.json"""

import json
import sys
from pathlib import Path

from table import ratio, table

NAMES = {
    "gpt2": "GPT-2 small, autocast to bfloat16, batch 16 x 1024",
    "llama": "Llama of 1.2 B parameters, bfloat16, batch 8 x 1024",
    "bert": "BERT-base, float32, batch 32 x 512",
    "resnet": "ResNet-50, float32, 224 x 224, batch 128",
}
HEAD = ["variant", "activation peak", "allocated, MiB", "reserved, MiB", "time x plain (range)", "bits"]
MIB = 1 << 20
BEGINNING = """# remat on GPUs, beside other ways to save memory

Measured by `bench/gpu.py`, forward and backward. A ratio is the median of interleaved pairs, each variant in a process of
its own; activation peaks are in percent of plain's, and "allocated" and "reserved" are what PyTorch's allocator gave and
took from the device at most. remat within so many percent is at the activation peak of another variant, within so
many MiB at what was reserved for it. "same": the loss, every gradient and every buffer have plain's bits.

"""


def bits(row):
    if row["gradients_equal"] and row["buffers_equal"]:
        return "same"
    return "**differ**" if row["plain_repeats"] else "plain's differ from step to step"


def share(row):
    return f"{100 * row['activation_peak_bytes'] / row['plain_activation_peak_bytes']:.1f} %"


def time_of(row):
    return ratio(row) if "wall_ratio" in row else "not measured"


def cells(row):
    within = row.get("within")
    name = row["variant"] if not isinstance(within, int) else f"remat within {within / MIB:.0f} MiB reserved"
    if "error" in row:
        return [name, row["error"].splitlines()[0].replace("|", "/"), "", "", "", ""]
    sizes = [f"{row[key] / MIB:.0f}" for key in ("allocated_peak_bytes", "reserved_peak_bytes")]
    return [name, share(row), *sizes, time_of(row), bits(row)]


def plain(rows):
    row = next((row for row in rows if "error" not in row), None)
    if row is None:
        return []
    sizes = [f"{row['plain_' + key] / MIB:.0f}" for key in ("allocated_peak_bytes", "reserved_peak_bytes")]
    return [["plain", "100 %", *sizes, "1", "same" if row["plain_repeats"] else "plain's differ from step to step"]]


def summary(row):
    return ", ".join(filter(None, cells(row)))


def page(result):
    versions = result["versions"]
    parts = [
        f"{versions['device']}, torch {versions['torch']}, CUDA {versions['cuda']}, driver {versions['driver']}, "
        f"{result['protocol']['pairs']} pairs; {result['date']}, commit {versions['commit']}"
        + (" (a trial)" if result["trial"] else "")
    ]
    for model in dict.fromkeys(row["model"] for row in result["rows"]):
        rows = [row for row in result["rows"] if row["model"] == model]
        name = model if result["trial"] else NAMES.get(model, model)
        parts.append(f"## {name}\n\n" + table(HEAD, [*plain(rows), *map(cells, rows)]))
    return "\n\n".join(parts) + "\n"


def document(results):
    """The latest of each device's."""
    latest = {result["versions"]["device"]: result for result in results}
    return BEGINNING + "\n".join(map(page, latest.values()))


if __name__ == "__main__":
    print(page(json.loads(Path(sys.argv[1]).read_text())))
