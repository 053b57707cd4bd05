"""Runs a script in processes of their own, forked from one that has imported torch."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any

import remat
from remat.audit.flow import Outcome, Way
from remat.errors import Error


class Server:
    """The process that has imported torch, and `modules`. It can serve several audits, one after the other."""

    def __init__(self, seed: int = 0, modules: Sequence[str] = ()) -> None:
        child = Path(__file__).with_name("child.py")
        self._process = subprocess.Popen(
            [sys.executable, str(child), *modules],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONHASHSEED": str(seed % 2**32)},
        )
        if self._read() != "ready":
            raise Error(
                f"[audit] a process that imports {', '.join(['torch', *modules])} ended at once; try the same Python: import them"
            )

    def run(self, request: dict[str, Any]) -> int:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(request) + "\n")
        self._process.stdin.flush()
        reply = self._read()
        if not reply:
            raise Error("[audit] the process that makes the runs is gone; is the machine out of memory?")
        return int(reply)

    def _read(self) -> str:
        assert self._process.stdout is not None
        return self._process.stdout.readline().strip()

    def close(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait()

    def __enter__(self) -> Server:
        return self

    def __exit__(self, kind: type | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()


class ScriptRunner:
    """A :class:`~remat.audit.flow.Runner`. The run that is recorded has nothing of remat in it."""

    def __init__(
        self, server: Server, folder: str, script: str, arguments: Sequence[str], steps: int, seed: int, timeout: float | None
    ) -> None:
        self.folder = Path(folder)
        self._server, self._timeout = server, timeout
        self._fixed = {"script": script, "arguments": list(arguments), "steps": steps, "seed": seed, "timeout": timeout}

    def run(
        self, way: Way, *, record: bool = False, noise: Sequence[Any] = (), trace: dict[str, Any] | None = None
    ) -> Outcome:
        return self._request({"way": way, "record": record, "counting": not record, "noise": list(noise), "trace": trace})

    def check(self, ways: list[Way]) -> str | None:
        """What is wrong with those of the user's, before anything runs; None if nothing is."""
        functions = [way["function"] for way in ways if "function" in way]
        outcome = self._request({"load": functions}) if functions else {}
        return outcome.get("bad_way") or outcome.get("error")

    def _request(self, request: dict[str, Any]) -> Outcome:
        out, log = self.folder / "outcome.json", self.folder / "log"
        out.unlink(missing_ok=True)
        places = {"folder": str(self.folder), "out": str(out), "log": str(log), "remat": str(Path(remat.__file__).parents[1])}
        status = self._server.run({**self._fixed, **places, **request})
        outcome: Outcome
        if status == 0 and out.exists():
            outcome = json.loads(out.read_text())
        elif status == -9 and self._timeout is not None:
            outcome = {"error": f"it was ended after {self._timeout:g} s; give a longer --timeout"}
        else:
            outcome = {"error": f"its process ended with status {status}"}
        if outcome.get("error") is not None:
            outcome["log"] = log.read_text(errors="replace") if log.exists() else ""
        return outcome


_kept: Server | None = None


@contextmanager
def shared_server(seed: int) -> Iterator[Server]:
    """The one of :func:`keep_server`, or one for this audit alone."""
    if _kept is not None:
        yield _kept
        return
    with Server(seed) as server:
        yield server


@contextmanager
def keep_server(modules: Sequence[str] = ()) -> Iterator[None]:
    """While it lasts, audits of scripts share a process that has imported torch and `modules`: for many in a row. What is
    imported draws no random numbers of a run's, whose seeds are set afterwards. Its seed for hashes of text is 0."""
    global _kept
    with Server(modules=modules) as _kept:
        try:
            yield
        finally:
            _kept = None


def new_folder() -> tempfile.TemporaryDirectory[str]:
    return tempfile.TemporaryDirectory(prefix="remat-audit-")
