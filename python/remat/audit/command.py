"""``python -m remat audit``: a training script in several ways to save memory, compared bit by bit with itself."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

from remat.audit.run import DEFAULT_WAYS, UsageError, audit
from remat.errors import Error


def split(arguments: list[str]) -> tuple[list[str], list[str]]:
    """Those of audit, and those of the script, which come after "--"."""
    if arguments[:1] != ["audit"] or "--" not in arguments:
        return arguments, []
    place = arguments.index("--")
    return arguments[:place], arguments[place + 1 :]


def add_options(commands: Any, whole_number: Any) -> None:
    parser = commands.add_parser(
        "audit",
        help="whether options that save memory leave a training's bits as they are",
        usage="python -m remat audit SCRIPT [options] [-- the script's own arguments]",
        description="Runs a training script plain, twice, then in each way, each in a process of its own and with the same "
        "seeds, and compares losses, gradients, parameters, buffers, states of optimizers and generators after every step "
        "(docs/audit.md). The script stays as it is. Exit code 0: all ways have plain's bits. 1: one differs or fails. "
        "2: there is nothing to audit.",
    )
    parser.add_argument("script", help="a Python file that trains a model")
    parser.add_argument("--steps", type=whole_number, default=5, help="updates by one optimizer (default: %(default)s)")
    parser.add_argument(
        "--ways",
        default=",".join(DEFAULT_WAYS),
        metavar="WAY,WAY",
        help="of checkpoint, sac (selective checkpointing), compile, compile:FRACTION (of activation memory), offload, "
        "enable (remat.enable), remat:BUDGET (remat.wrap) (default: %(default)s)",
    )
    parser.add_argument(
        "--way",
        action="append",
        default=[],
        metavar="NAME=FILE.py:FUNCTION",
        help="one of yours, or NAME=MODULE:FUNCTION: called with each model before its first call; may return another",
    )
    parser.add_argument("--seed", type=int, default=0, help="of torch, NumPy and random (default: %(default)s)")
    parser.add_argument("--timeout", type=float, metavar="SECONDS", help="for each run (default: none)")
    parser.add_argument("--json", metavar="FILE", help="write the result here, too")


def run(options: argparse.Namespace, arguments: list[str]) -> int:
    try:
        result = audit(
            options.script,
            _ways(options),
            steps=options.steps,
            seed=options.seed,
            arguments=arguments,
            timeout=options.timeout,
            progress=_say if sys.stderr.isatty() else None,
        )
        if options.json is not None:
            _write(options.json, result.to_json())
    except UsageError as error:
        print(f"remat: {error}", file=sys.stderr)
        return error.exit_code
    print(result, end="")
    return 0 if result.same else 1


def _ways(options: argparse.Namespace) -> dict[str, str]:
    ways = {way.strip(): way.strip() for way in options.ways.split(",") if way.strip()}
    for given in options.way:
        name, equals, place = given.partition("=")
        if not equals or ":" not in place:
            raise UsageError(f"[audit] --way {given} names no function; give NAME=FILE.py:FUNCTION or NAME=MODULE:FUNCTION")
        if name in ways:
            raise UsageError(f"[audit] there are two ways of the name {name}; give each its own")
        ways[name] = place
    return ways


def _say(words: str) -> None:
    print(f"[audit] {words}", file=sys.stderr)


def _write(path: str, text: str) -> None:
    try:
        Path(path).write_text(text + "\n", encoding="utf-8")
    except OSError as error:
        raise Error(f"[audit] {path} cannot be written ({error.strerror}); give another place") from None
