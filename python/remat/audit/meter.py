"""Bytes and seconds of steps, without those of looking at them. Both are rough: see docs/audit.md."""

from __future__ import annotations

import statistics
import sys
import time
from typing import Any

from .states import accelerator_in_use


class Meter:
    """`counting`: remat's accounting of the host's tensors runs. Of an accelerator PyTorch's own is asked."""

    def __init__(self, counting: bool) -> None:
        self._memory = sys.modules["remat"].memory if counting else None
        self._host = sys.modules["remat.device"].HOST if counting else ""
        self._peak = 0
        self._elapsed = 0.0
        self._steps: list[float] = []
        self._began = time.perf_counter()

    def pause(self) -> None:
        self._elapsed += time.perf_counter() - self._began
        self._peak = max(self._peak, self._read())

    def resume(self) -> None:
        if (accelerator := _counting_accelerator()) is not None:
            accelerator.reset_peak_memory_stats()
        elif self._memory is not None:
            self._memory.reset_peak(self._host)
        self._began = time.perf_counter()

    def end_step(self) -> None:
        self._steps.append(self._elapsed)
        self._elapsed = 0.0

    def figures(self) -> dict[str, float | int | None]:
        """The first step makes caches, states and compiled code: its time is left out."""
        seconds = self._steps[1:] or self._steps
        return {"peak_bytes": self._peak or None, "seconds": statistics.median(seconds) if seconds else None}

    def _read(self) -> int:
        if (accelerator := _counting_accelerator()) is not None:
            return accelerator.max_memory_allocated()
        return 0 if self._memory is None else self._memory.peak(self._host)


def _counting_accelerator() -> Any:
    accelerator = accelerator_in_use()
    return accelerator if hasattr(accelerator, "max_memory_allocated") else None
