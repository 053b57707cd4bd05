#!/usr/bin/env python3
"""Asks `remat fit` the same question several times while other processes keep the machine busy: it has to give the same
verdict each time, or say that it cannot tell.

  bench/fit_busy.py [--times 10] [--busy 2] [--build build/release] [-- MODEL OPTIONS ...]

Without a model: two whose steps take milliseconds. Exits with 1 where two verdicts contradict each other, or a split's
time contradicts a row of the table.
"""

import argparse
import contextlib
import json
import subprocess
import sys
import tempfile
from pathlib import Path

from machine import ROOT

QUESTIONS = [
    ["gpt", "--length", "16", "--depth", "2", "--width", "32", "--batch", "8", "--budget", "60%"],
    ["mlp", "--width", "64", "--depth", "12", "--batch", "128", "--budget", "60%"],
]
TOLERANCE = 1.1  # a step may take so many times as long as a larger one


@contextlib.contextmanager
def busy(count):
    others = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(count)]
    try:
        yield
    finally:
        for other in others:
            other.kill()
            other.wait()


def ask(args, question):
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "fit.json"
        words = [args.build / "app" / "remat", "fit", *question, "--json", out]
        done = subprocess.run(words, capture_output=True, text=True)
        if done.returncode != 0:
            sys.exit(f"bench: {' '.join(map(str, words))}: {done.stderr}")
        return json.loads(out.read_text())


def split_contradicts(fit):
    """A step of the split takes longer than a larger one of the table, and it is not said that times vary too much."""
    split = fit["split"]
    if not split or not split["clear"]:
        return False
    rows = [fit["plain"]] if split["plain"] else [fit["largest"], fit["worthwhile"]]
    larger = [row for row in rows if row and row["size"] >= split["step"]["size"]]
    return any(split["step"]["seconds"] > TOLERANCE * row["seconds"] for row in larger)


def summary(fit):
    def row(name):
        point = fit[name]
        text = f"{name} {point['size']}: {1e3 * point['seconds']:.2f} to {1e3 * point['usual_seconds']:.2f} ms"
        if name == "plain" or point["most_loss_percent"] == 0:
            return text
        return text + f", {-point['most_loss_percent']:+.0f} to {-point['least_loss_percent']:+.0f} %"

    split = fit["split"]
    found = "; ".join(row(name) for name in ("plain", "largest", "worthwhile") if fit[name])
    if split:
        found += f"; {split['steps']} x {split['step']['size']}: {1e3 * split['seconds']:.1f} ms"
        found += "" if split["clear"] else " (varies)"
    return f"{fit['verdict']} ({found}; {fit['seconds']:.1f} s)"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("question", nargs="*", help="a model and options of `remat fit`, after --")
    parser.add_argument("--times", type=int, default=10)
    parser.add_argument("--busy", type=int, default=2, help="processes beside (default: %(default)s)")
    parser.add_argument("--build", type=Path, default=ROOT / "build" / "release")
    args = parser.parse_args()
    wrong = []
    with busy(args.busy):
        for question in [args.question] if args.question else QUESTIONS:
            effective = [] if "--effective-batch" in question else ["--effective-batch", "192"]
            verdicts = set()
            print(" ".join(question), flush=True)
            for _ in range(args.times):
                fit = ask(args, [*question, *effective])
                print("  " + summary(fit), flush=True)
                verdicts.add(fit["verdict"])
                if split_contradicts(fit):
                    wrong.append(f"{question[0]}: the split contradicts the table: {summary(fit)}")
            if len(verdicts - {"cannot tell"}) > 1:
                wrong.append(f"{question[0]}: {', '.join(sorted(map(str, verdicts)))}")
    if wrong:
        sys.exit("bench: " + "\nbench: ".join(wrong))
    print("each question has one answer, or none")


if __name__ == "__main__":
    main()
