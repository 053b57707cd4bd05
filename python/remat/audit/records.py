"""What a run leaves, tensor by tensor: the plain run writes it down, the others are compared with that as they go."""

from __future__ import annotations

import json
import mmap
from pathlib import Path
from typing import Any, Protocol

from .values import Value, absent, describe

BEFORE_CALL = " before the model's call"  #: the end of a generator's name: its state when a model is first called in a step
Key = tuple[int, str, str]  #: which update, "gradient", "blocks.0.weight"


class Sink(Protocol):
    def add(self, update: int, kind: str, name: str, value: Value) -> None: ...
    def end(self, update: int, optimizer: tuple[int, str, int]) -> None: ...
    def finish(self) -> dict[str, Any]: ...


class Recorder:
    """Writes into a folder. Contents that came before (a frozen parameter) are not written again."""

    def __init__(self, folder: str) -> None:
        self._folder = Path(folder)
        self._file = open(self._folder / "values", "wb")
        self._places: dict[str, int] = {}
        self._entries: list[tuple[int, str, str, str, list[int], str, int, int]] = []
        self._updates: list[tuple[int, str, int]] = []

    def add(self, update: int, kind: str, name: str, value: Value) -> None:
        digest = value.digest()
        if digest not in self._places:
            self._places[digest] = self._file.tell()
            self._file.write(value.data)
        size = memoryview(value.data).nbytes
        self._entries.append((update, kind, name, value.kind, value.shape, digest, self._places[digest], size))

    def end(self, update: int, optimizer: tuple[int, str, int]) -> None:
        self._updates.append(optimizer)

    def finish(self) -> dict[str, Any]:
        self._file.close()
        (self._folder / "index.json").write_text(json.dumps({"entries": self._entries, "updates": self._updates}))
        return {"updates": self._updates, "differences": [], "compared": len(self._entries)}


class Comparer:
    """Compares with what a Recorder wrote into a folder. `noise`: what not even the plain run repeats."""

    def __init__(self, folder: str, noise: list[Key]) -> None:
        index = json.loads((Path(folder) / "index.json").read_text())
        self._plain = {(update, kind, name): rest for update, kind, name, *rest in index["entries"]}
        self._names: dict[int, list[Key]] = {}
        for key in self._plain:
            self._names.setdefault(key[0], []).append(key)
        self._values = Path(folder) / "values"
        self._noise = {tuple(key) for key in noise}
        self._seen: set[Key] = set()
        self._updates: list[tuple[int, str, int]] = []
        self._expected = index["updates"]
        self._differences: list[dict[str, Any]] = []
        self._compared = 0

    def add(self, update: int, kind: str, name: str, value: Value) -> None:
        key = (update, kind, name)
        self._seen.add(key)
        if key in self._noise:
            return
        known = self._plain.get(key)
        if known is None and update > len(self._expected):
            return  # the plain run ended before
        self._compared += 1
        if known is None or known[2] != value.digest():
            self._note(key, value)

    def end(self, update: int, optimizer: tuple[int, str, int]) -> None:
        self._updates.append(optimizer)
        for key in self._names.get(update, []):
            if key not in self._seen and key not in self._noise:
                self._note(key, absent())

    def finish(self) -> dict[str, Any]:
        return {"updates": self._updates, "differences": self._differences, "compared": self._compared}

    def _note(self, key: Key, value: Value) -> None:
        difference: dict[str, Any] = {"update": key[0], "kind": key[1], "name": key[2]}
        if not self._differences or self._differences[0]["update"] >= key[0]:  # of later ones that they differ is enough
            difference.update(describe(self._read(key), value))
        self._differences.append(difference)

    def _read(self, key: Key) -> Value:
        if key not in self._plain:
            return absent()
        kind, shape, _, place, size = self._plain[key]
        if size == 0:
            return Value(kind, shape, b"")
        with open(self._values, "rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as mapped:
            return Value(kind, shape, mapped[place : place + size])
