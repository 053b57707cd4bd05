"""One variant of a step on a CUDA device, in interleaved pairs with plain: a row of bench/gpu.py's results."""

import os
import sys
import threading
import time
from pathlib import Path

import peer_variants
from torch.utils._triton import has_triton
from worker import Protocol, StepError, Worker, compare, interleave

WARM_UP = 7  # as in peers.py
ROW_SECONDS = 240  # a variant that takes longer is given up
SIMULATED = "REMAT_SIMULATED_CUDA" in os.environ


class OutOfTime(Exception):
    """What this call may take is over; the row is to be measured by another."""


def why_not(variant):
    """Why a variant cannot run here; None where it can."""
    if not variant.startswith(peer_variants.COMPILED):
        return None
    if SIMULATED:
        return "not run: a simulated device has no Triton"
    return None if has_triton() else "not run: there is no Triton that works here"


def name_of(variant, within):
    return variant if within is None else f"{variant} within {within}"


def worker(model, variant, within=None, smoke=False):
    program = [sys.executable, Path(__file__).with_name("gpu_step.py"), model, variant]
    return Worker(*program, *(["--within", str(within)] if within else []), *(["--smoke"] if smoke else []))


class Killed:
    """Ends a worker after some seconds, in the block of a `with`."""

    def __init__(self, process, seconds):
        self.process, self.happened = process, False
        self.timer = threading.Timer(seconds, self.kill)

    def kill(self):
        self.happened = True
        self.process.kill()

    def __enter__(self):
        self.timer.start()
        return self

    def __exit__(self, *_):
        self.timer.cancel()


def measure(plain, model, variant, within, protocol, smoke, end):
    """The row of a variant, in pairs with the process `plain`; OutOfTime at `end`, a time of the monotonic clock."""
    row = {"model": model, "variant": name_of(variant, within)} | ({"within": within} if within else {})
    if reason := why_not(variant):
        return row | {"error": reason}
    seconds = min(ROW_SECONDS, end - time.monotonic())
    with worker(model, variant, within, smoke) as other, Killed(other.process, seconds) as killed:
        try:
            for _ in range(WARM_UP if variant.startswith("remat") else 1):
                other.run("step")
            pairs = interleave(protocol, lambda: plain.run("step"), lambda: other.run("step"))
        except StepError as error:
            if killed.happened and seconds < ROW_SECONDS:
                raise OutOfTime from error
            return row | {"error": f"stopped after {ROW_SECONDS} s" if killed.happened else str(error)}
    row |= compare(pairs) | bytes_of(pairs, within)
    return without_times(row) if SIMULATED else row


def bytes_of(pairs, within):
    plain, own = zip(*pairs)
    result = {"buffers_equal": len({step["buffers"] for step in plain + own}) == 1}
    result["plain_repeats"] = len({(step["gradients"], step["buffers"]) for step in plain}) == 1
    for key in ("activation_peak_bytes", "allocated_peak_bytes", "reserved_peak_bytes"):
        result["plain_" + key] = max(step[key] for step in plain)
        result[key] = max(step[key] for step in own)
    if "report" in own[-1]:
        result["report"] = own[-1]["report"]
    if within:  # a share limits what tensors take, before the allocator rounds it; bytes limit what is reserved, too
        peak = result["reserved_peak_bytes"] if isinstance(within, int) else result["report"]["peak_bytes"]
        result["over_budget_bytes"] = max(0, peak - result["report"]["budget_bytes"])
    return result


def without_times(row):
    """Nothing that a clock said."""
    kept = {k: v for k, v in row.items() if not k.startswith(("wall", "cpu", "foreign", "page_faults"))}
    if "report" in kept:
        kept["report"] = {k: v for k, v in kept["report"].items() if not k.endswith("seconds")}
    return kept


def is_wrong(row):
    """Is it a failure of remat's, or is there nothing to compare with?"""
    if "error" in row or not row["variant"].startswith("remat"):
        return row["variant"] == "plain"
    same = row["gradients_equal"] and row["buffers_equal"]
    return row["plain_repeats"] and not same or bool(row.get("over_budget_bytes"))
