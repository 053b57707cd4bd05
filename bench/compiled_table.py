"""The table of docs/compiled.md, from the results of compiled.py."""

from table import MODELS, exact, peak, ratio, table

REMAT, FASTEST_CUTS = "remat on compiled blocks", ", the fastest cuts"


def page(results):
    """Blocks that are compiled one by one, against the same without remat: each model from the last of `results` that
    has it."""
    latest = {row["model"]: result for result in results for row in result["rows"]}
    rows = [line for model, result in latest.items() for line in _lines(model, result)]
    head = ["model", "variant", "activation peak", "time x compiled (range)", "remat's, within that peak"]
    head += ["the same, the fastest cuts", "gradients"]
    errors = ", ".join(
        f"{row['memory_budget']}: {100 * row['gradient_error']:.0f} %"
        for row in results[-1]["dropout"]
        if row["dropout"] > 0
    )
    versions = results[-1]["versions"]
    dates = "; ".join(
        f"{MODELS[model]}: {result['date']}, {result['versions']['commit']}, {result['protocol']['pairs']} pairs"
        for model, result in latest.items()
    )
    return table(head, rows) + (
        f"\nA block with dropout, gradients of torch.compile's own `activation_memory_budget` against those of 1.0: {errors} "
        f"off.\n\ntorch {versions['torch']}, {versions['cpu']}, {versions['cores']} cores; the date and commit of each "
        f"model: {dates}.\n"
    )


def _lines(model, result):
    """A line for each row of torch.compile's own budgets, with remat's within its peak, and for each other one of remat's."""
    of = {row["variant"]: row for row in result["rows"] if row["model"] == model}
    beside = {REMAT + _within(row) for row in of.values() if "remat_within_bytes" in row}
    for variant, row in of.items():
        if variant in beside or variant.startswith(REMAT + FASTEST_CUTS):
            continue
        name, _, _ = variant.partition(" within ")
        if "error" in row:
            yield [MODELS[model], name, "", "refused", "", "", ""]
            continue
        own = name == REMAT
        ours = (of.get(REMAT + cuts + (variant.removeprefix(REMAT) if own else _within(row))) for cuts in ("", FASTEST_CUTS))
        yield [MODELS[model], name, peak(row), "" if own else ratio(row), *map(_time, ours), exact(row)]


def _time(row):
    """Of a row of remat's, beside another's or its own; "" where there is none."""
    if row is None:
        return ""
    return "refused" if "error" in row else ratio(row) if row["gradients_equal"] else f"{ratio(row)} **differ**"


def _within(row):
    return f" within {row.get('remat_within_bytes')} bytes"
