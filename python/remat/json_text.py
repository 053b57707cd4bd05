"""Graphs and plans in files: reading them, with errors that say what the file should be."""

from __future__ import annotations

import os

from remat.errors import Error


def read(path: str | os.PathLike[str], kind: str, writer: str) -> str:
    """The text of a file that `writer` wrote. Raises Error if it is no text, OSError if it cannot be read."""
    with open(os.fspath(path), "rb") as file:
        data = file.read()
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise Error(f"[{kind}] '{path}' is no text ({error}); give a file that {writer} wrote") from None


def check(text: object, kind: str, source: str) -> None:
    """Raises Error if `text` is not what `source` returns."""
    if not isinstance(text, str):
        raise Error(f"[{kind}] a {type(text).__name__} is no JSON text; give what {source} returned")
