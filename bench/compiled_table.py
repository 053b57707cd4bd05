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
    of = {row["variant"]: row for row in result["rows"] if row["model"] == model}
    for variant, row in of.items():
        name, _, _ = variant.partition(" within ")
        if "error" in row:
            yield [MODELS[model], name, "", "refused", "", "", ""]
            continue
        within = f" within {row.get('remat_within_bytes')} bytes"
        ours = (of.get(REMAT + cuts + within) for cuts in ("", FASTEST_CUTS))
        yield [MODELS[model], name, peak(row), *(ratio(each) if each else "" for each in (row, *ours)), exact(row)]
