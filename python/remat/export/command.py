"""``python -m remat export``: from a function that gives a model to a folder of C."""

from __future__ import annotations

import argparse
import importlib.util
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from remat import _C
from remat.budget import parse_bytes
from remat.errors import Error


def ram(text: str) -> int:
    """Bytes of "256KiB", "192KB", "262144"."""
    try:
        return parse_bytes(text, "export", "the memory")
    except Error:
        raise argparse.ArgumentTypeError(f"'{text}' is no number of bytes, as in 256KiB or 262144") from None


def add_options(commands: Any) -> None:
    parser = commands.add_parser(
        "export",
        help="a training step as C for a microcontroller",
        description="Writes a folder of C that trains a model within so many bytes of RAM (docs/export.md). FUNCTION "
        "takes nothing, and returns the model, the loss as a function of its output and the target, an example input "
        "and an example target; several inputs or targets are a tuple.",
    )
    parser.add_argument("source", metavar="FILE.py:FUNCTION", help="or a step that was written with --step: FILE.json")
    parser.add_argument("--ram", type=ram, required=True, metavar="BYTES", help="of the board, as in 256KiB")
    parser.add_argument("--out", metavar="FOLDER", help="write the C here")
    parser.add_argument("--step", metavar="FILE.json", help="write the step here, for `remat export`, which needs no torch")
    parser.add_argument("--name", default="model", help="of the files, and what names in C begin with (default: %(default)s)")
    parser.add_argument("--stack", type=ram, default=1024, metavar="BYTES", help="of the RAM, for the stack (default: 1KiB)")
    parser.add_argument("--optimizer", choices=("sgd", "momentum", "adam"), default="sgd", help="default: %(default)s")
    parser.add_argument("--momentum", type=float, default=0.9, help="of --optimizer momentum (default: %(default)s)")
    parser.add_argument("--weight-decay", type=float, default=0.0, help="default: %(default)s")


def run(options: argparse.Namespace) -> None:
    if options.out is None and options.step is None:
        raise Error("[export] nothing is to be written; give --out FOLDER for C, or --step FILE.json")
    text = _text(options.source)
    if options.step is not None:
        _write(Path(options.step), text)
    result = _C.export_step(
        text,
        ram_bytes=options.ram,
        stack_bytes=options.stack,
        optimizer=options.optimizer,
        momentum=options.momentum,
        weight_decay=options.weight_decay,
        name=options.name,
    )
    if options.out is not None:
        _write_files(Path(options.out), result["files"])
    print(result["summary"], end="")


def write_export(
    module: Any, loss: Callable[..., Any], inputs: Sequence[Any], targets: Sequence[Any], folder: Path,
    name: str = "model", **options: Any,
) -> dict[str, Any]:  # fmt: skip
    """Writes the C of a model into a folder, and returns its figures, as ``remat::ExportedStep`` has them. ``name``
    and ``options``: those of ``remat::ExportOptions``."""
    from remat.export.assemble import training_step

    result = dict(_C.export_step(training_step(module, loss, inputs, targets, name).to_json(), name=name, **options))
    _write_files(Path(folder), result.pop("files"))
    return result


def _text(source: str) -> str:
    if source.endswith(".json"):
        try:
            return Path(source).read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise Error(f"[export] {source} cannot be read ({error}); give a step that --step wrote") from None
    from remat.export.assemble import training_step

    module, loss, inputs, targets = _example(source)
    return training_step(module, loss, _several(inputs), _several(targets), source.rpartition(":")[2]).to_json()


def _example(source: str) -> tuple[Any, Any, Any, Any]:
    from torch import nn

    file, _, function = source.rpartition(":")
    if not file.endswith(".py") or not function:
        raise Error(f"[export] '{source}' names no function; give FILE.py:FUNCTION, or a step as FILE.json")
    if not Path(file).is_file():
        raise Error(f"[export] there is no file {file}; give FILE.py:FUNCTION")
    specification = importlib.util.spec_from_file_location("exported", file)
    assert specification is not None and specification.loader is not None
    loaded = importlib.util.module_from_spec(specification)
    sys.modules["exported"] = loaded
    sys.path.insert(0, str(Path(file).resolve().parent))
    try:
        specification.loader.exec_module(loaded)
        if not callable(getattr(loaded, function, None)):
            raise Error(f"[export] {file} has no function {function}; give FILE.py:FUNCTION")
        result = getattr(loaded, function)()
    finally:
        sys.path.pop(0)
    if not isinstance(result, tuple) or len(result) != 4 or not isinstance(result[0], nn.Module) or not callable(result[1]):
        raise Error(
            f"[export] {function}() must return four things: the model, the loss as a function of its output and the "
            "target, an example input, an example target"
        )
    return result


def _several(tensors: Any) -> tuple[Any, ...]:
    return tuple(tensors) if isinstance(tensors, (tuple, list)) else (tensors,)


def _write(path: Path, text: str) -> None:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise Error(f"[export] {path} cannot be written ({error.strerror}); give another place") from None


def _write_files(folder: Path, files: dict[str, str]) -> None:
    for name, text in sorted(files.items()):
        _write(folder / name, text)
