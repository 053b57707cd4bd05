"""Runs steps that a function makes in this process, one way after the other."""

from __future__ import annotations

import traceback
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from remat import memory
from remat.audit.child import find_way
from remat.audit.flow import PLAIN, Outcome, Way
from remat.audit.meter import Meter
from remat.audit.observer import Observer, in_a_line
from remat.audit.records import Comparer, Recorder
from remat.audit.trace import Trace
from remat.device import HOST, fork_host_generators


class StepRunner:
    """A :class:`~remat.audit.flow.Runner`. What a plain run raises goes to the caller."""

    def __init__(self, make_step: Callable[[], Callable[[], Any]], folder: str, steps: int, seed: int) -> None:
        self.folder = Path(folder)
        self._make_step, self._steps, self._seed = make_step, steps, seed
        memory.start_accounting(HOST)

    def run(
        self, way: Way, *, record: bool = False, noise: Sequence[Any] = (), trace: dict[str, Any] | None = None
    ) -> Outcome:
        with fork_host_generators():
            function = find_way(way, self._seed)
            sink = Recorder(str(self.folder)) if record else Comparer(str(self.folder), list(noise))
            meter, error, log = Meter(counting=True), None, ""
            observer = Observer(sink, meter, function, trace=Trace(**trace) if trace else None)
            observer.install()
            try:
                self._take_steps(observer)
            except Exception as raised:
                if way == PLAIN:
                    raise
                error = in_a_line(raised)
                log = traceback.format_exc()
            finally:
                observer.remove()
        return {**observer.outcome(error), "log": log}

    def _take_steps(self, observer: Observer) -> None:
        step = self._make_step()
        for number in range(1, self._steps + 1):
            updates = observer.updates
            step()
            if observer.updates == updates:
                observer.end_without_update(number)
