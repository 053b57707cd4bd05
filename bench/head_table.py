#!/usr/bin/env python3
"""Prints the tables of docs/tiles.md, from the newest bench/results/*-head.json or the file that is named.

  bench/head_table.py [FILE]
"""

import json
import sys

from machine import ROOT
from table import table

NAMES = {
    "remat": "`remat.linear_cross_entropy`",
    "torch tiles": "`F.linear_cross_entropy`, in its tiles",
    "inductor chunks": "Inductor's `auto_chunker`",
    "gpt2": "GPT-2 small, 4 x 256 tokens",
    "llama": "Llama of 32,000 words, 1 x 8,192 tokens",
}


def bits(row):
    return "same" if row["same_bits"] else "**differ**"


def heads(rows):
    """The head alone, beside plain's."""
    for row in rows:
        if "error" in row:
            yield [NAMES[row["variant"]], row["error"], "", "", ""]
            continue
        share = f"{100 * row['bytes'] / row['logits_bytes']:.1f} % of the logits"
        yield [NAMES[row["variant"]], share, f"{row['ratio']:.2f}", f"{row['cpu_ratio']:.2f}", bits(row)]


def models(rows):
    """Whole steps, beside plain's."""
    for row in rows:
        if "error" in row:
            yield [NAMES[row["model"]], row["variant"], "refused", "", "", ""]
            continue
        share = f"{100 * row['activation_peak_bytes'] / row['plain_activation_peak_bytes']:.1f} %"
        tiles = f"{row['head']['rows']} tokens" if row["head"] and row["head"]["rows"] else "whole"
        yield [NAMES[row["model"]], row["variant"], share, f"{row['ratio']:.2f}", tiles, bits(row)]


def main():
    path = sys.argv[1] if len(sys.argv) > 1 else max((ROOT / "bench/results").glob("*-head.json"), default=None)
    if path is None:
        raise SystemExit("[head_table] there are no results; run bench/head.py first")
    with open(path, encoding="utf-8") as file:
        result = json.load(file)
    print(table(["head alone", "bytes", "time x plain", "CPU time x plain", "bits"], heads(result["rows"])))
    head = ["model", "budget, of plain's activation peak", "taken", "time x plain", "tiles", "bits"]
    print(table(head, models(result["models"])))
    shape, machine = result["shape"], result["machine"]
    print(
        f"{shape['tokens']:,} x {shape['width']:,} x {shape['classes']:,}; torch {result['torch']}, {machine['cpu']}, "
        f"{shape['threads']} threads, {machine['commit']}."
    )


if __name__ == "__main__":
    main()
