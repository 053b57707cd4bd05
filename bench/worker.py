"""Workers (processes that make steps on demand) and comparisons of what they do in interleaved pairs: A B A B ..."""

import contextlib
import json
import math
import os
import statistics
import subprocess
import time
from dataclasses import dataclass

from machine import busy_seconds, process_seconds


class StepError(Exception):
    """A step that did not complete: what the worker said."""


class Worker:
    """One process, bench_step or peer_step.py, that answers each line with a line of JSON; its threads sleep while another
    process computes."""

    def __init__(self, *program, environment=None):
        environment = os.environ | {"OMP_WAIT_POLICY": "passive"} | (environment or {})
        self.process = subprocess.Popen(
            program, text=True, bufsize=1, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment
        )

    def run(self, command):
        """The answer to `command`. `foreign`: CPU that all other processes used meanwhile, in cores."""
        wall, busy, own = time.monotonic(), busy_seconds(), process_seconds(self.process.pid)
        line = ""
        with contextlib.suppress(BrokenPipeError):  # it ended before
            self.process.stdin.write(command + "\n")
            line = self.process.stdout.readline()
        if not line:
            program = " ".join(map(str, self.process.args))
            raise StepError(f"{program} ended with code {self.process.wait()} at '{command}'")
        result = json.loads(line)
        if "error" in result:
            raise StepError(result["error"])
        wall = time.monotonic() - wall
        own = process_seconds(self.process.pid) - own
        result["foreign"] = max(0.0, busy_seconds() - busy - own) / wall
        return result

    def __enter__(self):
        return self

    def __exit__(self, *_):
        with contextlib.suppress(BrokenPipeError):  # it may have ended by itself
            self.process.stdin.close()
        self.process.wait()


@dataclass
class Protocol:
    pairs: int = 9  # that count
    extra: int = 2  # run at most this many more where the machine was not quiet
    warm_up: int = 5  # plans change after the first, second and fourth step
    quiet: float = 0.1  # cores taken by others at which a pair counts as undisturbed


def interleave(protocol, *runs):
    """Steps of all variants in turn; the turns with the least foreign load, at least `protocol.pairs` of them."""
    for _ in range(protocol.warm_up):
        for run in runs:
            run()
    turns = []
    while len(turns) < protocol.pairs or (
        sum(load(t) < protocol.quiet for t in turns) < protocol.pairs and len(turns) < protocol.pairs + protocol.extra
    ):
        turns.append(tuple(run() for run in runs))
    return sorted(turns, key=load)[: protocol.pairs]


def load(turn):
    return max(step["foreign"] for step in turn)


def interval(values):
    """Between which of `values`, a sample, the median lies with 95 % confidence or more, by order statistics."""
    count = len(values)
    below = [sum(math.comb(count, k) for k in range(rank)) / 2**count for rank in range(count // 2 + 1)]
    rank = max(1, sum(chance <= 0.025 for chance in below) - 1)
    return [sorted(values)[rank - 1], sorted(values)[-rank]]


def compare(pairs):
    """How much longer B takes than A: the median of the pairs' ratios, where it lies with 95 % confidence, their range, and
    the steps' own medians."""
    row = {"pairs": len(pairs), "foreign": statistics.median(map(load, pairs))}
    for clock in ("wall", "cpu"):
        ratios = [b[clock] / a[clock] for a, b in pairs]
        row[clock + "_ratio"] = statistics.median(ratios)
        row[clock + "_interval"] = interval(ratios)
        row[clock + "_range"] = [min(ratios), max(ratios)]
        row[clock + "_seconds"] = [statistics.median(step[clock] for step in side) for side in zip(*pairs)]
    row["page_faults"] = [statistics.median(step["page_faults"] for step in side) for side in zip(*pairs)]
    row["gradients_equal"] = len({step["gradients"] for pair in pairs for step in pair}) == 1
    return row


def peaks(pairs):
    """Bytes of pairs of steps, plain ones and others."""
    plain, other = pairs[-1]
    row = {
        "plain_activation_peak_bytes": plain["activation_peak_bytes"],
        "activation_peak_bytes": max(b["activation_peak_bytes"] for _, b in pairs),
    }
    if "report" not in other:
        return row
    reports = [b["report"] for _, b in pairs]
    return row | {
        "over_budget_bytes": max(0, *(r["peak_bytes"] - r["budget_bytes"] for r in reports)),
        "report": other["report"],
    }
