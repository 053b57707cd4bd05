#!/usr/bin/env python3
"""Measures `remat fit`: whether its prediction of the largest batch is right, what it takes against finding the batch by
halving with real steps, and how much larger the batch becomes; writes bench/results/<date>-fit.json.

  bench/fit.py [MODEL ...] [--budgets 100 60 40] [--full] [--build build/release] [--out bench/results]

Six small models and three budgets (shares of plain's activation peak at the usual batch), about fifteen minutes.
Models that were measured before on the same day stay in the file.
`steps_off`: by how many of the sizes to choose from an answer is too small (negative) or too large. --full: GPT, BERT and
ResNet-50 in their own sizes, without halving, for the batch at no more than 15 % less a second than plain's.
"""

import argparse
import datetime
import json
import subprocess
import sys
import tempfile
from pathlib import Path

from machine import ROOT, describe

SMALL = {
    "gpt": ["--batch", "16", "--length", "64", "--depth", "8", "--width", "128"],
    "bert": ["--batch", "16", "--length", "64", "--depth", "6", "--width", "192"],
    "resnet": ["--batch", "16", "--length", "64", "--width", "16"],
    "unet": ["--batch", "16", "--length", "64", "--width", "16"],
    "mlp": ["--batch", "256", "--depth", "24", "--width", "256"],
    "vit": ["--batch", "16", "--length", "96", "--depth", "6", "--width", "192"],
}
FULL = {"gpt": [], "bert": [], "resnet": []}
SHARES = [100, 60, 40]
MOST_TIMES = 16  # the usual batch: where halving begins


def run(args, model, options, *more):
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "fit.json"
        words = [args.build / "app" / "remat", "fit", model, *options, *more, "--json", out]
        done = subprocess.run(words, capture_output=True, text=True)
        if done.returncode != 0:
            raise SystemExit(f"bench: {' '.join(map(str, words))}: {done.stderr}")
        return json.loads(out.read_text())


def halve(args, model, options, *more):
    words = [args.build / "bench" / "bench_fit_halving", model, *options, *more]
    return json.loads(subprocess.run(words, check=True, stdout=subprocess.PIPE, text=True).stdout)


def size_of(point):
    return point["size"] if point else 0


def measure(args, model, options, share):
    budget = ["--budget", f"{share}%"]
    if "--batch" in options:
        budget += ["--most", str(MOST_TIMES * int(options[options.index("--batch") + 1]))]
    fit = run(args, model, options, *budget)
    plain, worth = fit["plain"], fit["worthwhile"]
    row = {"model": model, "options": options, "share": share}
    row |= {name: fit[name] for name in ("budget_bytes", "plain", "largest", "worthwhile", "runs")}
    row |= {"fit_seconds": fit["seconds"], "times_plain": worth["size"] / plain["size"] if plain else None}
    if args.full:
        return row
    predicted = run(args, model, options, *budget, "--predict")
    halved = halve(args, model, options, *budget)
    sizes = [0, *halved["sizes"]]

    def steps_off(name, size):
        return sizes.index(size) - sizes.index(halved[name])

    return row | {
        "predict_seconds": predicted["seconds"],
        "halving_seconds": halved["seconds"],
        "time_ratio": fit["seconds"] / halved["seconds"],
        "predict_time_ratio": predicted["seconds"] / halved["seconds"],
        "halved_plain": halved["plain"],
        "halved_largest": halved["largest"],
        "halving_runs": halved["runs"],
        "steps_off": {
            "plain predicted": steps_off("plain", fit["predicted_plain"]),
            "remat predicted": steps_off("largest", fit["predicted_largest"]),
            "plain": steps_off("plain", size_of(plain)),
            "remat": steps_off("largest", size_of(fit["largest"])),
        },
    }


def summary(row):
    text = f"{row['model']} {row['share']} %: plain {size_of(row['plain'])}, remat {size_of(row['largest'])}"
    if row["times_plain"]:
        text += f", {row['times_plain']:.1f} times as large at no more than 15 %"
    text += f"; {row['fit_seconds']:.1f} s"
    if "time_ratio" not in row:
        return text
    off = ", ".join(f"{name} {by:+d}" for name, by in row["steps_off"].items())
    ratios = f"x{row['time_ratio']:.2f}, predicted alone x{row['predict_time_ratio']:.2f}"
    return text + f", halving {row['halving_seconds']:.1f} s ({ratios}); steps off: {off}"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="*", metavar="MODEL", help=", ".join(SMALL))
    parser.add_argument("--budgets", type=int, nargs="*", default=SHARES, help="percent (default: %(default)s)")
    parser.add_argument("--full", action="store_true")
    parser.add_argument("--build", type=Path, default=ROOT / "build" / "release")
    parser.add_argument("--out", type=Path, default=ROOT / "bench" / "results")
    args = parser.parse_args()
    shapes = FULL if args.full else SMALL
    if unknown := [model for model in args.models if model not in shapes]:
        parser.error(f"no model {', '.join(unknown)}; there are {', '.join(shapes)}")
    date = datetime.date.today().isoformat()
    figure = "fit-full" if args.full else "fit"
    args.out.mkdir(parents=True, exist_ok=True)
    file = args.out / f"{date}-{figure}.json"
    rows = json.loads(file.read_text())["rows"] if file.exists() else []
    for model in args.models or shapes:
        rows = [row for row in rows if row["model"] != model]
        for share in args.budgets:
            rows.append(measure(args, model, shapes[model], share))
            print(summary(rows[-1]), flush=True)
        whole = {(row["model"], row["share"]) for row in rows} >= {(each, share) for each in shapes for share in SHARES}
        result = {"figure": figure, "date": date, "trial": not whole, "versions": describe(), "rows": rows}
        file.write_text(json.dumps(result, indent=1) + "\n")
    # Under remat, times that vary may decide: a step without a plan drops by what it measures.
    if any(by > 0 for row in rows for name, by in row.get("steps_off", {}).items() if name.startswith("plain")):
        sys.exit("bench: plain's largest batch was predicted too large")


if __name__ == "__main__":
    main()
