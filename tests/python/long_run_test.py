"""Many models, failures and budgets in one process: some seconds of it, and 10,000 steps with REMAT_LONG_RUNS=1."""

from __future__ import annotations

import os

import torch
from long_run import MODELS, run

from remat import _C

STEPS = 10_000 if os.environ.get("REMAT_LONG_RUNS") == "1" else 240


def test_models_that_take_turns_have_plains_bits_and_leave_nothing_behind():
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        summary = run(STEPS)
    finally:
        torch.set_num_threads(threads)
    print(summary)
    assert not summary.problems, f"{len(summary.problems)} problems in {dict(summary.counts)}: {summary.problems}"
    assert not _C.is_recording()
    assert len(MODELS) == 24
    assert summary.counts["completed"] > STEPS / 3
    assert summary.counts["injected failures"] > STEPS / 20
    assert summary.counts["refused for memory"] > 0
    first = summary.current_bytes[0]
    assert max(summary.current_bytes) <= first + 100_000, "memory of tensors grows"
    settled = summary.resident_bytes[len(summary.resident_bytes) // 4]
    assert summary.resident_bytes[-1] <= 1.25 * settled, "the process grows"
    assert summary.threads[-1] <= summary.threads[0], "a thread is left"
