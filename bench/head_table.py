"""The tables of docs/tiles.md, from what bench/head.py measured."""

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


def page(results):
    """The last results of each processor, as parts of the page."""
    return "\n".join(part(result) for result in {result["versions"]["cpu"]: result for result in results}.values())


def part(result):
    of_heads = ["head alone", "bytes", "time x plain", "CPU time x plain", "bits"]
    of_models = ["model", "budget, of plain's activation peak", "taken", "time x plain", "tiles", "bits"]
    shape, versions = result["shape"], result["versions"]
    return (
        f"{table(of_heads, heads(result['rows']))}\n{table(of_models, models(result['models']))}\n"
        f"The head alone: {shape['tokens']:,} tokens of {shape['width']:,} numbers, {shape['classes']:,} words, medians of "
        f"{result['protocol']['pairs']} pairs. `bench/head.py`, {result['date']}, torch {versions['torch']}, {versions['cpu']}, "
        f"{shape['threads']} threads, commit {versions['commit']}.\n"
    )
