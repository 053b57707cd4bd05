"""What came out of the operators of PyTorch's test database (opinfo.py), and the table that is published of it."""

from __future__ import annotations

import collections
import dataclasses
import json
from collections.abc import Iterable, Sequence

import torch

DROPPED = "dropped"  # exact, and operators of its own were replayed
KEPT = "kept"  # exact, and none was
UNSUPPORTED = "unsupported"  # refused by a remat.Error
IRREPRODUCIBLE = "irreproducible"  # two plain runs differ
UNTRIED = "untried"  # the plain run raises, or nothing in it has a gradient
WRONG = "wrong"  # other bits, or an exception that plain does not raise
NOTHING_TO_DROP = ("views", "returns its input", "no elements")


@dataclasses.dataclass
class Operator:
    """What came out of an operator's cases."""

    name: str
    counts: dict[str, int]  # cases by status
    reasons: dict[str, int]  # "status: reason" of those that were not dropped
    seconds: float

    @property
    def kept_in_spite(self) -> dict[str, int]:
        """Reasons of cases that had something to drop and kept it."""
        kept = {reason.split(": ", 1)[1]: n for reason, n in self.reasons.items() if reason.startswith(KEPT)}
        return {reason: n for reason, n in kept.items() if reason not in NOTHING_TO_DROP}

    @property
    def had_something(self) -> bool:
        """Was there anything to drop in any case?"""
        return any(status in self.counts for status in (DROPPED, UNSUPPORTED, WRONG)) or bool(self.kept_in_spite)

    @property
    def status(self) -> str:
        """The worst of its cases, and of those that are exact the best."""
        order = (WRONG, UNSUPPORTED, DROPPED, KEPT, IRREPRODUCIBLE)
        return next((status for status in order if status in self.counts), UNTRIED)


def write(found: Sequence[Operator], path: str) -> None:
    with open(path, "w", encoding="utf-8") as file:
        json.dump([dataclasses.asdict(operator) for operator in found], file, indent=1)


def read(paths: Iterable[str]) -> list[Operator]:
    """Of an operator that is in several files the last counts."""
    found: dict[str, Operator] = {}
    for path in paths:
        with open(path, encoding="utf-8") as file:
            found.update((operator["name"], Operator(**operator)) for operator in json.load(file))
    return list(found.values())


def _share(part: int, whole: int) -> str:
    return f"{part} of {whole} ({100 * part / max(whole, 1):.1f} %)"


def _row(operator: Operator) -> str:
    counts = ", ".join(f"{n} {status}" for status, n in operator.counts.items())
    reasons = [f"{reason} ({n})" for reason, n in operator.kept_in_spite.items()]
    reasons += [f"{r} ({n})" for r, n in operator.reasons.items() if r.startswith((UNSUPPORTED, WRONG))]
    return f"| {operator.name} | {counts} | {'; '.join(reasons).replace('|', '/')} |"


def markdown(found: Sequence[Operator], most: int | None = None) -> str:
    """docs/opinfo.md; `most`: samples of each type that were run, None: all."""
    found = sorted(found, key=lambda operator: operator.name)
    cases: collections.Counter[str] = collections.Counter()
    for operator in found:
        cases.update(operator.counts)
    tried = [operator for operator in found if operator.status != UNTRIED]
    some = [operator for operator in tried if operator.had_something]
    dropped = [operator for operator in some if operator.status == DROPPED]
    whole = [operator for operator in dropped if not operator.kept_in_spite]
    samples = "all its samples" if most is None else f"{most} of its samples at most"
    option = "" if most is None else f" --most {most}"
    lines = [
        "# PyTorch's own operators under remat",
        "",
        f"Every operator of PyTorch's test database that has gradients on the CPU, with {samples} in float32 and",
        "bfloat16, and its in-place variant, between two elementwise operators, is run plain and with everything dropped",
        "that can be, also with `verify=True`. Results, loss, gradients, second gradients (float32), what the operator",
        f"writes to, and the generator's state must have the same bits. `python tests/python/opinfo.py --markdown docs/opinfo.md{option}`",
        "makes this page.",
        "",
        f"LibTorch {torch.__version__.split('+')[0]}. *Dropped*: in some case operators of its own were evicted and",
        "replayed. *Something to drop*: it is not just a view, and its result is not empty.",
        "",
        "| | |",
        "| --- | --- |",
        f"| operators tried | {len(tried)} of {len(found)} |",
        f"| dropped, of those with something to drop | {_share(len(dropped), len(some))} |",
        f"| dropped in every case that had something | {_share(len(whole), len(some))} |",
        f"| dropped, of all tried | {_share(len(dropped), len(tried))} |",
        f"| cases: exact and dropped | {cases[DROPPED]} |",
        f"| cases: exact and kept | {cases[KEPT]} |",
        f"| cases: refused with an error of remat | {cases[UNSUPPORTED]} |",
        f"| cases: wrong | {cases[WRONG]} |",
        f"| cases: two plain runs differ | {cases[IRREPRODUCIBLE]} |",
        f"| cases: not tried, plain raises or nothing has a gradient | {cases[UNTRIED]} |",
        "",
        "## Kept or refused, though there was something to drop",
        "",
        "| operator | cases | why |",
        "| --- | --- | --- |",
        *(_row(operator) for operator in some if operator not in whole),
        "",
        "## Nothing to drop, or not tried",
        "",
    ]
    rest: dict[str, list[str]] = collections.defaultdict(list)
    for operator in found:
        if operator.status == IRREPRODUCIBLE:
            rest["two plain runs differ"].append(operator.name)
        elif operator.status == UNTRIED or not operator.had_something:
            reasons = {reason.split(": ", 1)[-1] for reason in operator.reasons}
            rest[", ".join(sorted(reasons)) or "no samples"].append(operator.name)
    lines += [f"- {reason}: {', '.join(names)}" for reason, names in sorted(rest.items())]
    return "\n".join(lines) + "\n"
