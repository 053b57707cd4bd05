"""What bench/audits.py found, as tables for docs/audits.md: a row for each way, and where remat's ways are behind."""

import re

from table import table

MODELS = {
    "gpt2": "GPT-2 of transformers, 4 x 192, dropout 0.1, 4 x 128 tokens",
    "resnet": "ResNet of transformers, 16 bottleneck blocks, BatchNorm, 8 pictures of 64 x 64",
    "lora": "Llama of transformers, 4 x 192, LoRA of peft with dropout 0.1, 4 x 128 tokens",
}
NAMES = {"torch": "PyTorch", "torch-remat": "torch_remat"}
HEAD = ["way", "bits", "peak, of plain's"]
MIB = 2**20
LONGEST = 160  # characters of an error


def page(result):
    versions = result["versions"]
    parts = []
    for model, title in MODELS.items():
        rows = [row for row in result["rows"] if row["model"] == model]
        if not rows:
            continue
        plain = rows[0]
        parts.append(
            f"## {title}\n\nPlain: {plain['plain_peak_bytes'] / MIB:.1f} MiB; "
            f"{repeated(plain)}.\n\n{table(HEAD, map(cells, rows))}\n{behind(rows)}\n"
        )
    parts.append(
        f"{result['date']}, {versions['cpu']}, {versions['cores']} cores, {versions['threads']} threads, torch "
        f"{versions['torch']}, commit {versions['commit']}, {result['protocol']['steps']} steps each.\n"
    )
    return "\n".join(parts)


def repeated(row):
    return "twice the same bits" if not row["noise"] else f"{row['noise']} values differ when it is repeated, and count for nothing"


def name(row):
    return f"{NAMES.get(row['package'], row['package'])} {row['version'].partition('+')[0]}".strip() + f": {row['way']}"


def cells(row):
    if row["status"] == "failed":
        return [name(row), failure(row["error"].replace("|", "/")), ""]
    peak = f"{100 * row['peak_bytes'] / row['plain_peak_bytes']:.0f} %"
    return [name(row), bits(row), peak]


def failure(error):
    """A budget that is too small, or what the way says."""
    if named := re.search(r"^BudgetError: .*?; give ([\d.]+ \w+) \(\d+ bytes\) or (\d+%)", error):
        return f"refused: {named[2].replace('%', ' %')}, {named[1]}, is named as the budget to try"
    if error.startswith("BudgetError"):
        return "refused"
    return f"does not run: {error[:LONGEST] + ('...' if len(error) > LONGEST else '')}"


def bits(row):
    if row["status"] == "same":
        return "same"
    first = row["first"]
    return (
        f"**differ**, {row['differing']} of {row['compared']} values, first {first['kind']} of step {first['step']}: "
        f"{row['hint'].partition(':')[0]}"
    )


def behind(rows):
    """Ways of others' with plain's bits that take fewer bytes than all of remat's."""
    same = [row for row in rows if row["status"] == "same"]
    ours = [row for row in same if row["package"] == "remat"]
    others = [row for row in same if row["package"] != "remat"]
    if not ours:
        return "No way of remat's has plain's bits here."
    least = min(row["peak_bytes"] for row in ours)
    fewer = [name(row) for row in others if row["peak_bytes"] < 0.99 * least]
    return f"With plain's bits and fewer bytes than any row of remat's: {'; '.join(fewer) or 'none'}."
