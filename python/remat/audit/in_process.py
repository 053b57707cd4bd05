"""Runs steps that a function makes in this process, one way after the other."""

from __future__ import annotations

import random
import sys
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch

from remat import memory
from remat.audit.child import find_way, seed_all
from remat.audit.flow import PLAIN, Outcome, Way
from remat.audit.meter import Meter
from remat.audit.observer import Observer
from remat.audit.records import Comparer, Recorder
from remat.audit.trace import Trace
from remat.device import HOST


class StepRunner:
    """A :class:`~remat.audit.flow.Runner`. What a plain run raises goes to the caller."""

    def __init__(self, make_step: Callable[[], Callable[[], Any]], folder: str, steps: int, seed: int) -> None:
        self.folder = Path(folder)
        self._make_step, self._steps, self._seed = make_step, steps, seed
        memory.start_accounting(HOST)

    def run(
        self, way: Way, *, record: bool = False, noise: Sequence[Any] = (), trace: dict[str, Any] | None = None
    ) -> Outcome:
        with _same_generators():
            seed_all(self._seed)
            sink = Recorder(str(self.folder)) if record else Comparer(str(self.folder), list(noise))
            meter, error, log = Meter(counting=True), None, ""
            observer = Observer(
                sink, meter, find_way(way), trace=None if trace is None else Trace(trace["update"], trace["path"])
            )
            observer.install()
            try:
                self._take_steps(observer)
            except Exception as raised:
                if way == PLAIN:
                    raise
                error = f"{type(raised).__name__}: {str(raised).strip().partition(chr(10))[0]}"
                log = traceback.format_exc()
            finally:
                observer.remove()
        calls = observer.calls
        return {
            **sink.finish(),
            **meter.figures(),
            "error": error,
            "log": log,
            "applied": calls.applied,
            "refused": calls.refused,
        }

    def _take_steps(self, observer: Observer) -> None:
        step = self._make_step()
        for number in range(1, self._steps + 1):
            updates = observer.updates
            step()
            if observer.updates == updates:
                observer.end_without_update(number)


@contextmanager
def _same_generators() -> Iterator[None]:
    """Leaves the generators as they were before."""
    states = torch.get_rng_state(), random.getstate()
    numpy = sys.modules.get("numpy")
    of_numpy = None if numpy is None else numpy.random.get_state()
    try:
        yield
    finally:
        torch.set_rng_state(states[0])
        random.setstate(states[1])
        if numpy is not None:
            numpy.random.set_state(of_numpy)
