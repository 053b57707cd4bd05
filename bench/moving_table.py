"""The table of docs/disk.md, from what `bench/run.py moving` measured."""

from moving import SHARES
from table import MODELS, table


def ratio(row):
    low, high = row["wall_range"]
    return f"{row['wall_ratio']:.2f} ({low:.2f} to {high:.2f})"


def cells(row):
    name = [MODELS[row["model"]], f"{row['share']} %"]
    if "error" in row:
        return [*name, "refused", "refused", ""]
    if "nothing_moved" in row:
        return [*name, "moves nothing", "", ""]
    alone = row["recomputing"]
    if "refused" in alone:
        return [*name, ratio(row), "refused", ""]
    return [*name, ratio(row), ratio(alone), ratio(row["against_recomputing"])]


def page(result):
    head = ["model", "budget, of plain's activation peak", "with moves", "recomputing alone", "with moves x alone"]
    versions = result["versions"]
    rows = sorted(result["rows"], key=lambda row: (list(SHARES).index(row["model"]), -row["share"]))
    commits = {row.get("commit", versions["commit"]) for row in rows}
    over = max(row.get("over_budget_bytes", 0) for row in rows)
    equal = all(row.get("gradients_equal", True) for row in rows)
    return (
        f"{table(head, map(cells, rows))}\n"
        f"Bytes over a budget: {over}. Gradients: {'the same' if equal else '**they differ**'}. `bench/run.py moving`, "
        f"{result['date']}, torch {versions['torch']}, {versions['cpu']}, {versions['threads']} threads, "
        f"commit{'s' if len(commits) > 1 else ''} {', '.join(sorted(commits))}.\n"
    )
