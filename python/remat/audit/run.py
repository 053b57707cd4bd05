"""Compares ways to save memory with plain PyTorch, bit by bit: ``remat.audit()`` (docs/audit.md)."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Union

from remat.audit.result import AuditResult
from remat.errors import Error

DEFAULT_WAYS = ("checkpoint", "sac", "offload", "remat:70%")
Ways = Union[Sequence[Union[str, Callable[..., Any]]], Mapping[str, Union[str, Callable[..., Any]]]]


class UsageError(Error):
    """What was asked for cannot be audited."""

    exit_code = 2  #: of the command


def audit(
    subject: str | os.PathLike[str] | Callable[[], Callable[[], Any]],
    ways: Ways = DEFAULT_WAYS,
    *,
    steps: int = 5,
    seed: int = 0,
    arguments: Sequence[str] = (),
    timeout: float | None = None,
    progress: Callable[[str], None] | None = None,
) -> AuditResult:
    """Trains plain, twice, then in each of `ways`, and compares every loss, gradient, parameter, buffer, optimizer state and
    generator state after each step, by their bits::

        def make_step():
            model = Net()
            optimizer = torch.optim.AdamW(model.parameters())
            x, y = torch.randn(8, 16), torch.randn(8, 4)

            def step():
                optimizer.zero_grad()
                loss = torch.nn.functional.mse_loss(model(x), y)
                loss.backward()
                optimizer.step()
                return loss

            return step

        result = remat.audit(make_step, ["checkpoint", "remat:40%"])
        assert result.same, result

    Args:
        subject: a function that makes everything anew and returns a function for one step (called in this process, one way
            after the other, each time with the same seeds), or the path of a script, each run of which has a process of its
            own.
        ways: names of those built in ("checkpoint", "sac", "compile", "compile:0.5", "offload", "enable", "remat:BUDGET"),
            functions, or a mapping from names of yours to either. A function is called with each model before its first
            call, and may change it or return what is to be called in its place; one without parameters is called once,
            before anything else. For a script a function is written "FILE.py:FUNCTION" or "MODULE:FUNCTION", as a mapping's
            value.
        steps: how many; a script is ended after that many updates by one of its optimizers.
        seed: of torch, NumPy and random.
        arguments: of a script.
        timeout: seconds for each run of a script; None: no limit.
        progress: called with words about each run before it begins.

    Raises Error for a way that there is not, for a script that is not there, that fails when it is plain, or that takes no
    optimizer step. What a step function raises when it is plain goes to you; in another way it is that way's failure. Not
    thread-safe: what it watches is the process's.
    """
    from remat.audit.flow import PLAIN, audit_with
    from remat.audit.processes import new_folder

    if isinstance(steps, bool) or not isinstance(steps, int) or steps < 1:
        raise UsageError(f"[audit] steps is {steps!r}; give a number of 1 or more")
    of_script = not callable(subject)
    listed = _listed(ways, of_script)
    say = progress or (lambda words: None)
    with new_folder() as folder:
        if callable(subject):
            from remat.audit.in_process import StepRunner

            runner = StepRunner(subject, folder, steps, seed)
            say("plain")
            plain = runner.run(PLAIN, record=True)
            return audit_with(runner, getattr(subject, "__name__", "steps"), listed, seed, plain, say)
        return _audit_script(os.fspath(subject), listed, steps, seed, arguments, timeout, folder, say)


def _audit_script(
    script: str,
    ways: list[dict[str, Any]],
    steps: int,
    seed: int,
    arguments: Sequence[str],
    timeout: float | None,
    folder: str,
    say: Callable[[str], None],
) -> AuditResult:
    from remat.audit.flow import PLAIN, audit_with
    from remat.audit.processes import ScriptRunner, shared_server

    if not os.path.isfile(script):
        raise UsageError(f"[audit] there is no script {script}; give the path of one that trains a model")
    with shared_server(seed) as server:
        runner = ScriptRunner(server, folder, script, arguments, steps, seed, timeout)
        wrong = runner.check(ways)
        if wrong is not None:
            raise UsageError(f"[audit] {wrong}")
        say("plain")
        plain = runner.run(PLAIN, record=True)
        if plain["error"] is not None:
            raise Error(
                f"[audit] {script} fails by itself, without any way: {plain['error']}; mend that first. What it wrote:\n"
                + "\n".join(plain["log"].splitlines()[-40:])
            )
        if not plain["updates"]:
            raise UsageError(
                f"[audit] {script} ended without a step of an optimizer of torch.optim's; give what makes it train, after --"
            )
        return audit_with(runner, os.path.basename(script), ways, seed, plain, say)


def _listed(ways: Ways, of_script: bool) -> list[dict[str, Any]]:
    from remat.audit.ways import BadWay, check

    if isinstance(ways, str):
        ways = [ways]
    pairs = ways.items() if isinstance(ways, Mapping) else [(_name_of(way), way) for way in ways]
    listed: list[dict[str, Any]] = []
    for name, way in pairs:
        if callable(way) and of_script:
            raise UsageError(f"[audit] a script's process cannot be given the function {name}; write it as FILE.py:FUNCTION")
        try:
            check(way) if isinstance(way, str) and way == name else None
        except BadWay as error:
            raise UsageError(f"[audit] {error}") from None
        if any(name == other["name"] for other in listed):
            raise UsageError(f"[audit] there are two ways of the name {name}; give each its own")
        listed.append({"name": name} if way == name else {"name": name, "function": way})
    return listed


def _name_of(way: Any) -> str:
    if isinstance(way, str):
        return way
    name = getattr(way, "__name__", None)
    if not callable(way) or name is None:
        raise UsageError(f"[audit] {way!r} is no way; give names of those built in, or functions")
    return name
