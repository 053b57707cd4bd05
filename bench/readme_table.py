#!/usr/bin/env python3
"""Rewrites the tables between the bench markers of docs/measured.md and README.md, the report between its markers in
README.md, docs/peers.md, docs/planning.svg and the tables of docs/audits.md, docs/compiled.md, docs/fit.md and
docs/out-of-memory.md from the newest results: bench/readme_table.py [RESULTS] [FOLDER OF README]"""

import json
import sys
from pathlib import Path

import audits_table
import compiled_table
import gpu_table
import head_table
import moving_table
import out_of_memory
import peers_table
import report_example
from plot import log_log
from table import MODELS, confident_ratio, exact, peak, put, ratio, table

ROOT = Path(__file__).resolve().parent.parent
ELSEWHERE = ("audit", "executorch")  # figures that these pages do not show
CLASSIC = ("segments", "articulation-memory", "rotor")  # planners of the literature (docs/algorithms.md)


def measured(folder):
    """All results by figure, the latest last; file names begin with the date. Trials do not count."""
    results = {}
    for path in sorted(folder.glob("*.json")):
        result = json.loads(path.read_text())
        if not result["trial"]:
            results.setdefault(result["figure"], []).append(result)
    return results


def step_rows(results):
    """Everything that is compared with plain steps."""
    for figure, what in (
        ("compute", "policy `keep_compute`"),
        ("budgets", "budget {share} %"),
        ("online", "budget {share} %, no plan"),
        ("packing", "budget {share} %, nothing packed"),
        ("changing", "budget {share} % of the largest step's peak"),
    ):
        for row in results.get(figure, {"rows": []})["rows"]:
            within = row["command"].partition("keep_within ")[2]
            name = [MODELS[row["model"]], what.format(**row) + (f", budget {within} %" if within else "")]
            if "error" in row:
                yield [*name, "refused", "", "", ""]
            else:
                has_budget = figure in ("budgets", "online", "packing", "changing") or within
                over = f"{row['over_budget_bytes']} bytes" if has_budget else "-"
                yield [*name, ratio(row), peak(row), over, exact(row)]


def recording_rows(rows):
    """Steps of which everything is recorded and nothing dropped, and plain ones beside them, whose ratio should be 1."""
    for row in rows:
        share = f"{100 * row['record_share']:.2f} %" if "record_share" in row else "-"
        yield [
            MODELS[row["model"]],
            confident_ratio(row),
            f"{row['cpu_ratio']:.3f}",
            confident_ratio(row["plain"]),
            peak(row),
            share,
            exact(row),
        ]


def other_lines(results):
    for row in results.get("operator", {"rows": []})["rows"]:
        yield f"- recording one operator takes {1e6 * row['record_cost_seconds']:.2f} us"
    missed = [
        abs(row["report"]["peak_bytes"] - row["report"]["planned_peak_bytes"]) / row["plain_activation_peak_bytes"]
        for row in results.get("budgets", {"rows": []})["rows"]
        if row.get("report", {}).get("planned_peak_bytes")
    ]
    if missed:
        yield (
            f"- {len(missed)} planned steps peaked where their plans said, to {100 * max(missed):.3f} % of plain's "
            "activation peak"
        )
    for row in results.get("large", {"rows": []})["rows"]:
        name, _, batch = row["model"].partition(":")
        shape = MODELS[name].partition(",")[0]
        yield f"- {shape}, batch {batch} x 128: " + step_text(row)
    yield from depth_lines(results.get("depth", {"rows": []})["rows"])
    if "planners" in results:
        yield planners_line(results["planners"]["rows"])
    if "finetune" in results:
        yield finetune_line(results["finetune"])
    for row in results.get("does-not-fit", {"rows": []})["rows"]:
        yield does_not_fit_line(row)
    planned = [
        f"{row['operators']:,}: {row['planning_seconds']:.2f} s and {row['planning_bytes'] / 1e6:.1f} MB of memory"
        for row in results.get("planning", {"rows": []})["rows"]
    ]
    if planned:
        yield (
            f"- `auto` plans a transformer's step, by operators: {'; '.join(planned)} "
            "([plot](planning.svg); one core)"
        )


def small_operators_row(row):
    plain, own = row["cpu_seconds"]
    planning = f"{row['planning_seconds']:.1f} s" if row["planning_seconds"] > 0.1 else ""
    more = f"{1e6 * (own - plain) / row['operators']:.1f} us"
    return [f"{row['operators']:,}", f"{row['budget']}, `{row['planner']}`", ratio(row), more, planning, exact(row)]


def step_text(row):
    if "error" in row:
        return f"refused ({row['error']})"
    return f"time x {ratio(row)} in {peak(row)} of plain's activation peak, gradients {exact(row)}"


def depth_lines(rows):
    for row in rows:
        name = MODELS[row["model"].partition("/")[0] + "/"]
        if "deeper" not in row:
            layers = row["model"].partition("/")[2].partition(":")[0]
            yield f"- {name} of {layers} layers: " + step_text(row)
            continue
        yield (
            f"- {name} of {row['layers']} layers in the activation bytes of {row['layers'] / row['deeper']:.0f} "
            f"({100 * row['activation_peak_bytes'] / row['deep_plain_activation_peak_bytes']:.1f} % of its own): time for "
            f"each layer x {row['time_per_layer_ratio']:.3f}, gradients {exact(row)}"
        )


# By the way of bench/does_not_fit.py: what is trained, and how. Older results have the first way alone.
FITTING = {
    "in-backward": ("AdamW", "--optimizer-in-backward"),
    "paged": ("AdamW", "--optimizer-in-backward --page-optimizer DIR"),
    "lora": ("AdamW on LoRA's factors of rank 8", "--lora 8 --page-weights DIR"),
}


def does_not_fit_line(row):
    how, options = FITTING[row.get("way", "in-backward")]
    sizes = (row[key] / 2**30 for key in ("budget_bytes", "plain_peak_bytes", "machine_bytes"))
    budget, needed, machine = (f"{size:.1f} GiB" for size in sizes)
    over = max(0, row["peak_bytes"] - row["budget_bytes"])
    in_files = {"paged": (8, "AdamW's state"), "lora": (4, "weights")}.get(row.get("way"))  # which remat does not count
    without = f"whose plain step would take {needed} and fails on a machine of {machine}"
    if in_files:
        without = f"whose plain step would take {needed} and {in_files[0] * row['parameters'] / 2**30:.1f} GiB of {in_files[1]}"
    return (
        f"- a Llama of {row['parameters'] / 1e9:.1f} billion parameters in float32 ({row['batch']} x {row['seq']} tokens a "
        f"step, {how}), {without}: trains within "
        f"{budget}, {over} bytes over, by `remat train --hf {options}`, {row['seconds'][-1]:.0f} s a step"
    )


def finetune_line(result):
    shape = result["shape"]
    rows = {row["variant"]: row for row in result["rows"]}
    text = (
        f"- GPT-2 small fine-tuned by `remat train --hf` ({shape['batch']} x {shape['seq']} tokens a step): "
        f"{rows['plain']['speed_ratio']:.3f} of the speed of transformers' Trainer"
    )
    for variant, how in (("budget", ""), ("in backward", " with updates in backward")):
        if row := rows.get(variant):
            share = row["activation_peak_bytes"] / row["plain_activation_peak_bytes"]
            text += f", {row['speed_ratio']:.3f} within {100 * share:.1f} % of its activation peak{how}"
    return text + ", with the same losses"


def planners_line(rows):
    compared = [row for row in rows if len(row["extra_percent"]) > 1]
    budgets = sum(len(row["extra_percent"]["auto"]) for row in compared)
    worse, none = (sum(row[key] for row in compared) for key in ("worse", "none"))
    at_40 = {row["graph"]: row["extra_percent"]["auto"]["40"] for row in rows if len(row["extra_percent"]) == 1}
    sizes = "; ".join(f"{graph.rpartition(':')[0]} {extra:.1f}" for graph, extra in at_40.items())
    return (
        f"- on {len(compared)} generated steps that nothing was tuned on (seven kinds, 60 to 550 operators), `auto` is slower "
        f"than another planner at {worse} of {budgets} budgets from 90 to 3 %, and finds nothing where another has a plan at "
        f"{none}; by size, recompute at 40 % in percent of the step: {sizes}"
    )


def gap_rows(rows):
    """Planned by `auto` against the oracle's figure: how much of a step it could be faster at most."""

    def percent(row, key):
        return "-" if row.get(key) is None else f"{100 * row[key] / row['step_seconds']:.1f}"

    of_model = {}
    for row in rows:
        of_model.setdefault(row["model"], []).append(row)
    for model, own in of_model.items():
        if model in MODELS:
            gaps = (
                f"{row['gap_percent']:.1f}"
                if row.get("reference_seconds") is not None and "gap_percent" in row
                else "-"
                for row in own
            )
            yield [
                MODELS[model],
                *(
                    " / ".join(cells) + " %"
                    for cells in (
                        (str(row["share"]) for row in own),
                        (percent(row, "auto_seconds") for row in own),
                        (percent(row, "reference_seconds") for row in own),
                        gaps,
                    )
                ),
            ]
    small = [row for row in rows if row["model"] == "small"]
    if small:
        gaps = [row["gap_percent"] for row in small if "gap_percent" in row]
        optimal = sum(gap < 1e-3 for gap in gaps)
        yield [
            f"{len(small)} small graphs and budgets",
            "70 / 50 / 35 %",
            f"{optimal} optimal" + (f", {len(small) - len(gaps)} without a plan" if len(gaps) < len(small) else ""),
            "exact",
            f"{max(gaps, default=0):.2f} % at most",
        ]


def smallest_rows(rows):
    """The smallest activation peaks, in percent of plain's."""
    for row in rows:
        peaks = [row["smallest_bytes"]["auto"], row["floor_bytes"], *(row["smallest_bytes"][name] for name in CLASSIC)]
        yield [MODELS[row["model"]], *(f"{100 * peak / row['plain_activation_peak_bytes']:.1f} %" for peak in peaks)]


def sharded_rows(rows):
    """A GPT under FSDP2 on two processes, against plain FSDP2."""
    names = {
        "checkpoint": "checkpoint_wrapper around every block",
        "remat": "remat, nothing dropped",
        "agreed": "remat, nothing dropped, sessions that agree",
    }
    for row in rows:
        name = names.get(row["variant"], "remat, within checkpoint_wrapper's peak")
        if "error" in row:
            yield [name, "refused", "", "", ""]
            continue
        end = f"{100 * row['forward_bytes'] / row['plain_forward_bytes']:.1f} %"
        yield [name, ratio(row), peak(row), end, exact(row)]


def fit_page(results):
    """The largest batches of small models, against those that halving finds, and those of whole models."""
    small, full = (results.pop(figure, None) for figure in ("fit", "fit-full"))

    def sizes(row):
        times = f"{row['times_plain']:.1f}" if row["times_plain"] else "-"
        return [f"{row['share']} %", row["plain"]["size"] if row["plain"] else 0, row["largest"]["size"], times]

    def off(row):
        return ", ".join(f"{row['steps_off'][name]:+d}" for name in ("plain", "remat"))

    head = ["model", "budget", "plain's largest batch", "remat's", "times plain's at no more than 15 %", "fit takes"]
    parts = []
    if small:
        rows = [
            [row["model"], *sizes(row), f"{row['fit_seconds']:.1f} s", f"{row['halving_seconds']:.1f} s", off(row)]
            for row in small["rows"]
        ]
        parts.append(table([*head, "halving takes", "sizes off (plain, remat)"], rows))
    if full:
        rows = [[MODELS[row["model"]].partition(", batch")[0], *sizes(row), f"{row['fit_seconds']:.0f} s"] for row in full["rows"]]
        parts.append(table(head, rows))
    for result in filter(None, (small, full)):
        versions = result["versions"]
        parts.append(
            f"{result['date']}, {result['figure']}: {versions['cpu']}, {versions['cores']} cores, commit "
            f"{versions['commit']}.\n"
        )
    return "\n".join(parts)


def ranks_lines(rows):
    for row in rows[1:]:
        yield (
            f"- `remat train` on two processes, {row['variant']}: {row['sum_peak_ratio']:.3f} of the bytes of two plain copies"
        )


def pairs_of(result):
    """Of each row at least; some figures take fewer or more than the protocol says."""
    return min((row["pairs"] for row in result["rows"] if "pairs" in row), default=result["protocol"]["pairs"])


def text(results):
    """The tables of all figures that have no page."""
    sharded, ranks = (results.pop(figure, None) for figure in ("sharded", "ranks"))
    results = {name: one for name, one in results.items() if not name.startswith("peers") and name not in ELSEWHERE}
    if not results:
        return "Not measured yet.\n"
    parts = []
    rows = list(step_rows(results))
    if rows:
        parts.append(
            table(["model", "variant", "time x plain (range)", "activation peak", "over budget", "gradients"], rows)
        )
    if "recording" in results:
        parts.append(
            table(
                [
                    "recording, nothing dropped",
                    "time x plain (95 % sure)",
                    "CPU time",
                    "plain x plain (95 % sure)",
                    "activation peak",
                    "records, of what is saved",
                    "gradients",
                ],
                recording_rows(results["recording"]["rows"]),
            )
        )
    if "allocator" in results:
        half = [
            row | {"allocator": "remat, in 50 % of the activation memory"}
            for row in results.get("half", {"rows": []})["rows"]
        ]
        parts.append(
            table(
                ["plain steps", "allocator", "time x PyTorch's allocator (range)", "page faults per step"],
                [
                    [MODELS[row["model"]], row["allocator"], ratio(row), "{:.0f} -> {:.0f}".format(*row["page_faults"])]
                    for row in results["allocator"]["rows"] + half
                ],
            )
        )
    if "small-operators" in results:
        parts.append(
            table(
                ["operators on 16 x 16 matrices, from Python", "budget", "time x plain (range)", "more for each", "planning", "gradients"],
                map(small_operators_row, results["small-operators"]["rows"]),
            )
        )
    if sharded:
        parts.append(
            table(
                ["FSDP2, two processes", "time x plain (range)", "activation peak", "end of forward", "gradients"],
                sharded_rows(sharded["rows"]),
            )
        )
    if "gap" in results:
        parts.append(
            table(
                ["plans of `auto`, predicted", "budget", "replays, of the step", "no plan takes less than", "gap"],
                gap_rows(results["gap"]["rows"]),
            )
        )
    if "smallest" in results:
        parts.append(
            table(
                ["smallest activation peak", "`auto`", "no plan takes less than", *(f"`{name}`" for name in CLASSIC)],
                smallest_rows(results["smallest"]["rows"]),
            )
        )
    lines = list(other_lines(results))
    if ranks:
        lines += ranks_lines(ranks["rows"])
    if lines:
        parts.append("\n".join(lines) + "\n")
    latest = max((r for r in results.values() if "compiler" in r["versions"]), key=lambda result: result["date"])
    versions = latest["versions"]
    each = "; ".join(
        f"`{name}` {one['date']}, {one['versions']['commit']}, {pairs_of(one)}" for name, one in results.items()
    )
    parts.append(
        f"LibTorch {versions['torch']}, {versions['compiler']}, {versions['cpu']}, {versions['cores']} cores; medians of "
        f"interleaved pairs. By the figure's name in bench/, the date, the commit (+: and changes after it) and the number "
        f"of pairs: {each}.\n"
    )
    return "\n".join(parts)


def main():
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT / "bench" / "results"
    root = Path(sys.argv[2]) if len(sys.argv) > 2 else ROOT
    all_results = measured(folder)
    results = {figure: each[-1] for figure, each in all_results.items()}
    if "peers" in results:
        alone = [result for figure, result in results.items() if figure.startswith("peers-")]
        (root / "docs" / "peers.md").write_text(peers_table.page(results["peers"], *alone))
        put(root / "README.md", peers_table.first(results["peers"]))
    if "report" in results:
        put(root / "README.md", report_example.block(results.pop("report")["rows"][0]["report"]), "report")
    if "planning" in results:
        points = [(row["operators"], row["planning_seconds"]) for row in results["planning"]["rows"]]
        (root / "docs" / "planning.svg").write_text(log_log("operators", "seconds", points))
    if "audits" in results:
        put(root / "docs" / "audits.md", audits_table.page(results.pop("audits")))
    if "head" in results:
        results.pop("head")
        put(root / "docs" / "tiles.md", head_table.page(all_results["head"]))
    if "moving" in results:
        put(root / "docs" / "disk.md", moving_table.page(results.pop("moving")))
    if "compiled" in results:
        results.pop("compiled")
        put(root / "docs" / "compiled.md", compiled_table.page(all_results["compiled"]))
    if "cuda" in results:
        results.pop("cuda")
        (root / "docs" / "gpu.md").write_text(gpu_table.document(all_results["cuda"]))
    if "out-of-memory" in results:
        put(root / "docs" / "out-of-memory.md", out_of_memory.page(results.pop("out-of-memory")))
    if fits := fit_page(results):
        put(root / "docs" / "fit.md", fits)
    put(root / "docs" / "measured.md", text(results))


if __name__ == "__main__":
    main()
