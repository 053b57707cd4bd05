"""What bench/peers.py measured, as tables: remat from Python beside other ways to save memory."""

from table import MODELS, peak, ratio, table

NAMES = MODELS | {
    "bert": "BERT-base of transformers, batch 8 x 128",
    "bert-gradients": "BERT-base of transformers, batch 8 x 128, gradients counted",
    "gpt2": "GPT-2 small of transformers, batch 4 x 256",
}
BEST_KNOWN = ("checkpoint every block", "transformers' own checkpointing")
HEAD = [
    "variant",
    "activation peak",
    "time x plain (range)",
    "remat's, within that peak",
    "extra time, of the other's",
    "gradients, buffers",
]
BEGINNING = """# remat beside other ways to save memory

Measured by `bench/peers.py`, from Python, forward and backward. A ratio is the median of interleaved pairs, each variant
in a process of its own, all with the same allocator; activation peaks are exact, in percent of plain's. Each other way is
set against remat within the same peak (or one up to 5 % lower). "Extra time, of the other's": remat's extra time over plain,
divided by the other's; 1 is a draw. "same": every bit is plain's. "plain again" is a second process of plain's: processes differ
in speed by some percent. torch.compile's memory budget is in [compiled.md](compiled.md#measured), remat at other budgets in
[measured.md](measured.md). Rockmate 2.0 is not among them: as published it runs on CUDA alone.
"""


FIRST = (("gpt", 0), ("gpt2", 1), ("bert", 1), ("resnet", 0), ("unet", 0))  # models, and which of the best known


def first(result):
    """What a newcomer sees: the time of some models in the memory that the usual way takes."""
    of = {(row["model"], row["variant"]): row for row in result["rows"]}
    rows = []
    for model, known in FIRST:
        other = of[model, BEST_KNOWN[known]]
        ours = of[model, f"remat within {other['remat_within_bytes']} bytes"]
        rows.append([NAMES[model], peak(other), f"{ours['wall_ratio']:.2f}", f"{other['wall_ratio']:.2f}"])
    return table(["", "activation memory", "time: remat", "time: checkpoints around every block"], rows)


def page(*results):
    """All, a table for each model. After the first result: those of peers that were measured by themselves."""
    rows = in_order(*results)
    parts = [BEGINNING]
    for model in dict.fromkeys(row["model"] for row, _ in rows):
        parts.append(f"## {NAMES[model]}\n\n" + table(HEAD, [cells for row, cells in rows if row["model"] == model]))
    parts += map(measured_on, results)
    return "\n".join(parts)


def measured_on(result):
    versions, figure = result["versions"], result["figure"].partition("-")[2]
    return (
        f"{figure + ': ' if figure else ''}{result['date']}, torch {versions['torch']}, {versions['cpu']}, "
        f"{versions['cores']} cores, commit {versions['commit']}, {result['protocol']['pairs']} pairs.\n"
    )


def in_order(*results):
    """peer_rows() by model, whatever order they were measured in. A peer is compared with remat in the same result."""
    order = list(NAMES)
    rows = [pair for result in results for pair in peer_rows(result["rows"])]
    return sorted(rows, key=lambda pair: order.index(pair[0]["model"]))


def peer_rows(rows):
    """Pairs of a row and its cells: each eager peer, and remat with no more memory."""
    of = {(row["model"], row["variant"]): row for row in rows}
    for (model, variant), row in of.items():
        if variant.startswith(("remat", "compiled")):
            continue
        if "error" in row:
            yield row, [variant, "", f"failed: {row['error']}", "", "", ""]
        else:
            within = f"remat within {row.get('remat_within_bytes')} bytes"
            yield row, [variant, peak(row), ratio(row), *against(row, of.get((model, within))), same(row)]


def against(peer, ours):
    """remat's time within the peer's peak, and its extra time in parts of the peer's."""
    if ours is None:  # as much as plain takes: nothing to compare
        return ["", ""]
    if "error" in ours:
        return ["refused", ""]
    extra = peer["wall_ratio"] - 1
    return [ratio(ours), f"{(ours['wall_ratio'] - 1) / extra:.2f}" if extra > 0.01 else ""]


def same(row):
    """Which of the bits that a step leaves are plain's."""
    differ = [name for name in ("gradients", "buffers") if not row[f"{name}_equal"]]
    return " and ".join(differ) + " **differ**" if differ else "same"
