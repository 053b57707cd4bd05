#!/usr/bin/env python3
"""Rewrites the table between README.md's bench markers from the newest results: bench/readme_table.py [RESULTS] [README]"""
import json
import sys
from pathlib import Path

from plot import log_log

ROOT = Path(__file__).resolve().parent.parent
BEGIN, END = "<!-- bench:begin -->\n", "<!-- bench:end -->"
MODELS = {"gpt": "GPT, 12 x 512, batch 8 x 256", "bert": "BERT-base, batch 8 x 128",
          "resnet": "ResNet-50, 128 x 128, batch 16", "unet": "U-Net, 128 x 128, batch 16",
          "lstm": "LSTM, 2 x 512, batch 64 x 96", "mlp": "MLP, 40 x 1024, batch 2048",
          "deep": "100 residual blocks of 256, batch 1024"}


def newest(folder):
    """The latest result of each figure; file names begin with the date. Trials do not count."""
    results = {}
    for path in sorted(folder.glob("*.json")):
        result = json.loads(path.read_text())
        if not result["trial"]:
            results[result["figure"]] = result
    return results


def ratio(row):
    low, high = row["wall_range"]
    return f"{row['wall_ratio']:.3f} ({low:.2f}-{high:.2f})"


def peak(row):
    return f"{100 * row['activation_peak_bytes'] / row['plain_activation_peak_bytes']:.1f} %"


def exact(row):
    return "same" if row["gradients_equal"] else "**differ**"


def table(head, rows):
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(map(str, cells)) + " |" for cells in lines) + "\n"


def step_rows(results):
    """Everything that is compared with plain steps."""
    for figure, what in (("recording", "recording, nothing dropped"), ("compute", "policy `keep_compute`"),
                         ("budgets", "budget {share} %"), ("packing", "budget {share} %, nothing packed")):
        for row in results.get(figure, {"rows": []})["rows"]:
            within = row["command"].partition("keep_within ")[2]
            name = [MODELS[row["model"]], what.format(**row) + (f", budget {within} %" if within else "")]
            if "error" in row:
                yield [*name, "refused", "", "", ""]
            else:
                over = f"{row['over_budget_bytes']} bytes" if figure in ("budgets", "packing") or within else "-"
                yield [*name, ratio(row), peak(row), over, exact(row)]


def other_lines(results):
    for row in results.get("operator", {"rows": []})["rows"]:
        yield f"- recording one operator takes {1e6 * row['record_cost_seconds']:.2f} us"
    shares = [f"{row['model']} {100 * row['record_share']:.2f} %"
              for row in results.get("recording", {"rows": []})["rows"] if "record_share" in row]
    if shares:
        yield f"- records, in percent of the saved values that they stand for: {', '.join(shares)}"
    planned = [f"{row['operators']:,}: {row['planning_seconds']:.2f} s, {row['planning_bytes'] / 1e6:.1f} MB"
               for row in results.get("planning", {"rows": []})["rows"]]
    if planned:
        yield (f"- `auto` plans a transformer's step, by operators: {'; '.join(planned)} "
               "([plot](docs/planning.svg); one core)")


def gap_rows(rows):
    """Planned by `auto` against the oracle's figure: how much of a step it could be faster at most."""
    def percent(row, key):
        return "nothing fits" if row[key] is None else f"{100 * row[key] / row['step_seconds']:.2f} %"

    for row in rows:
        if row["model"] in MODELS:
            auto = [percent(row, "auto_seconds"), f"{row['gap_percent']:.2f} %"] if "gap_percent" in row else ["no plan", ""]
            yield [MODELS[row["model"]], f"{row['share']} %", auto[0], percent(row, "reference_seconds"), auto[1]]
    small = [row for row in rows if row["model"] == "small"]
    if small:
        gaps = [row["gap_percent"] for row in small if "gap_percent" in row]
        optimal = sum(gap < 1e-3 for gap in gaps)
        yield [f"{len(small)} small graphs and budgets", "70 / 50 / 35 %", f"{optimal} optimal" +
               (f", {len(small) - len(gaps)} without a plan" if len(gaps) < len(small) else ""), "exact",
               f"{max(gaps, default=0):.2f} % at most"]


PEER_MODELS = MODELS | {"bert": "BERT-base of transformers, batch 8 x 128", "gpt2": "GPT-2 small of transformers, batch 4 x 256"}


def peer_rows(rows):
    """Each peer, and remat with as much memory; then remat alone."""
    of = {(row["model"], row["variant"]): row for row in rows}
    for (model, variant), row in of.items():
        if variant == "plain" or variant.startswith("remat at the peak of "):
            continue
        share = f"{100 * row['share_of_plain']:.1f} %" if "share_of_plain" in row else ""
        took = ratio(row) if "error" not in row else "refused"
        if variant.startswith("remat"):
            yield [PEER_MODELS[model], variant, share, "", took, same(row)]
            continue
        ours = of[model, f"remat at the peak of {variant}"]
        yield [PEER_MODELS[model], variant, share, took, ratio(ours) if "error" not in ours else "refused", same(row)]


def same(row):
    """Which of the bits that a step leaves are plain's."""
    if "error" in row:
        return ""
    differ = [name for name in ("gradients", "buffers") if not row[f"{name}_equal"]]
    return " and ".join(differ) + " **differ**" if differ else "same"


def text(results):
    if not results:
        return "Not measured yet.\n"
    parts = []
    rows = list(step_rows(results))
    if rows:
        parts.append(table(["model", "variant", "time x plain (range)", "activation peak", "over budget", "gradients"], rows))
    if "allocator" in results:
        half = [row | {"allocator": "remat, in 50 % of the activation memory"} for row in results.get("half", {"rows": []})["rows"]]
        parts.append(table(["plain steps", "allocator", "time x PyTorch's allocator (range)", "page faults per step"],
                           [[MODELS[row["model"]], row["allocator"], ratio(row),
                             "{:.0f} -> {:.0f}".format(*row["page_faults"])]
                            for row in results["allocator"]["rows"] + half]))
    if "peers" in results:
        parts.append(table(["Python", "variant", "activation peak", "its time x plain (range)", "remat's, within that peak",
                            "its gradients, buffers"], peer_rows(results["peers"]["rows"])))
    if "gap" in results:
        parts.append(table(["plans of `auto`, predicted", "budget", "seconds of replays", "no plan takes less than", "gap"],
                           gap_rows(results["gap"]["rows"])))
    lines = list(other_lines(results))
    if lines:
        parts.append("\n".join(lines) + "\n")
    latest = max(results.values(), key=lambda result: result["date"])
    versions = latest["versions"]
    def pairs(protocol):
        return protocol["pairs"] if "pairs" in protocol else protocol["rounds"]

    each = ", ".join(f"{figure}: {result['versions']['commit']}, {pairs(result['protocol'])} pairs"
                     for figure, result in results.items())
    parts.append(f"{latest['date']}, LibTorch {versions['torch']}, {versions['compiler']}, {versions['cpu']}, "
                 f"{versions['cores']} cores; medians of interleaved pairs. Commits and pairs: {each}.\n")
    return "\n".join(parts)


def main():
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT / "bench" / "results"
    readme = Path(sys.argv[2]) if len(sys.argv) > 2 else ROOT / "README.md"
    page = readme.read_text()
    if page.count(BEGIN) != 1 or page.count(END) != 1:
        sys.exit(f"readme_table: {readme} needs the lines {BEGIN.strip()} and {END}, once each")
    before, rest = page.split(BEGIN)
    results = newest(folder)
    readme.write_text(before + BEGIN + text(results) + END + rest.split(END)[1])
    if "planning" in results:
        points = [(row["operators"], row["planning_seconds"]) for row in results["planning"]["rows"]]
        (readme.parent / "docs" / "planning.svg").write_text(log_log("operators", "seconds", points))


if __name__ == "__main__":
    main()
