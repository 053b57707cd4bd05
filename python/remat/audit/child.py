"""A process that imports torch once, and the modules that are its arguments, and runs a script in a fork of itself for each
line of JSON that it is sent.

Run by its path: it takes no part of remat with it, so that the plain run is PyTorch alone.
"""

from __future__ import annotations

import importlib
import json
import multiprocessing
import os
import random
import runpy
import sys
import time
import traceback
import types
from pathlib import Path
from typing import Any

if __name__ == "__main__":  # the files beside this one, without remat's package around them
    folder = os.path.dirname(os.path.abspath(__file__))
    sys.path = [path for path in sys.path if os.path.abspath(path) != folder]
    package = types.ModuleType("remat_audit")
    package.__path__ = [folder]
    sys.modules["remat_audit"] = package
    __package__ = "remat_audit"

import torch  # noqa: E402

from .meter import Meter  # noqa: E402
from .observer import Enough, Observer, in_a_line  # noqa: E402
from .records import Comparer, Recorder  # noqa: E402
from .trace import Trace  # noqa: E402
from .ways import BadWay, built_in, load, takes_model  # noqa: E402


def seed_all(seed: int) -> None:
    random.seed(seed)
    torch.manual_seed(seed)
    try:
        import numpy
    except ImportError:
        return
    numpy.random.seed(seed % 2**32)


def find_way(way: dict[str, Any], seed: int) -> Any:
    """Sets the seeds when the way's file is loaded, whose imports may draw random numbers. A way that is called with nothing,
    before the script, is called here."""
    function = way.get("function")
    if isinstance(function, str):
        function = load(function)
    seed_all(seed)
    if function is None:
        return built_in(way["name"])
    if takes_model(function):
        return function
    function()
    return lambda model: None


def _run(request: dict[str, Any]) -> dict[str, Any]:
    sys.argv = [request["script"], *request["arguments"]]
    sys.path.insert(0, os.path.dirname(os.path.abspath(request["script"])))
    if "load" in request:
        return _check(request["load"])
    if request["counting"]:
        sys.path.append(request["remat"])
        import remat
        from remat.device import HOST

        remat.memory.start_accounting(HOST)
    error = None
    observer = None
    meter = Meter(request["counting"])
    try:
        way = find_way(request["way"], request["seed"])
        sink = Recorder(request["folder"]) if request["record"] else Comparer(request["folder"], request["noise"])
        trace = Trace(**request["trace"]) if request["trace"] else None
        observer = Observer(sink, meter, way, request["steps"], trace)
        observer.install()
        runpy.run_path(request["script"], run_name="__main__")
    except Enough:
        pass
    except SystemExit as left:
        if left.code not in (None, 0):
            error = f"it ended with exit code {left.code}"
    except BaseException as raised:
        traceback.print_exc()
        error = in_a_line(raised)
    if observer is None:
        return {"error": error}
    observer.remove()
    return observer.outcome(error)


def _check(functions: list[str]) -> dict[str, Any]:
    try:
        for place in functions:
            load(place)
    except BadWay as reason:
        return {"bad_way": str(reason)}
    except Exception as raised:
        return {"bad_way": f"{place} cannot be imported ({type(raised).__name__}: {raised}); mend it"}
    return {}


def _fork(request: dict[str, Any]) -> int:
    """The exit code of a run; its words go to request["log"], what it found to request["out"]."""
    process = os.fork()
    if process == 0:
        status = 1
        try:
            log = os.open(request["log"], os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
            os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
            os.dup2(log, 1)
            os.dup2(log, 2)
            result = _run(request)
            Path(request["out"]).write_text(json.dumps(result))
            status = 0
        except BaseException:
            traceback.print_exc()
        finally:
            sys.stdout.flush()
            sys.stderr.flush()
            for worker in multiprocessing.active_children():  # a DataLoader's
                worker.terminate()
            os._exit(status)
    limit = request["timeout"]
    end = None if limit is None else time.monotonic() + limit
    while True:
        done, status = os.waitpid(process, 0 if end is None else os.WNOHANG)
        if done:
            return os.waitstatus_to_exitcode(status)
        if end is not None and time.monotonic() > end:
            os.kill(process, 9)
            end = None
        time.sleep(0.02)


def serve() -> None:
    replies = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    for module in sys.argv[1:]:
        importlib.import_module(module)
    replies.write("ready\n")
    replies.flush()
    for line in sys.stdin:
        replies.write(f"{_fork(json.loads(line))}\n")
        replies.flush()


if __name__ == "__main__":
    serve()
