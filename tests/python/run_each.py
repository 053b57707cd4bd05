"""Runs files of tests, each in a process of its own, forked from this one, which has imported what takes seconds to:

    python tests/python/run_each.py [--import=MODULE,MODULE] FILE...

Ends with 1 if tests of any file failed. A file that takes longer than ten minutes is ended, and has failed."""

from __future__ import annotations

import argparse
import contextlib
import gc
import importlib
import os
import re
import signal
import sys
from pathlib import Path

SECONDS = 600
# Not remat: it is new in each process. torch._dynamo is what optimizers import when they are made.
MODULES = ["pytest", "torch", "torch._dynamo"]
NO_TESTS = 5  # pytest's exit code


def run(file: Path) -> int:
    import pytest

    signal.alarm(SECONDS)
    return pytest.main(["-q", "-p", "no:cacheprovider", "--rootdir", str(file.parents[2]), str(file)])


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--import", dest="modules", default="", help="modules to import, those of them that are installed")
    parser.add_argument("files", nargs="+", type=Path)
    given = parser.parse_args()
    for module in [*MODULES, *filter(None, given.modules.split(","))]:
        with contextlib.suppress(ImportError):
            importlib.import_module(module)
    gc.freeze()
    # A shell that starts this in the background has Ctrl-C ignored, and so would the programs that tests interrupt.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    failed = []
    for file in given.files:
        print(f"{file.name}:", flush=True)
        child = os.fork()
        if child == 0:
            return run(file.resolve())
        code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        # A file may leave out all its tests with a reason, as where a package is missing.
        if code != 0 and not (code == NO_TESTS and re.search("importorskip|allow_module_level", file.read_text())):
            failed.append(f"FAILED {file.name}: " + (f"killed by signal {-code}" if code < 0 else f"exit code {code}"))
    print("\n".join(failed))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
