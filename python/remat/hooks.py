"""What modules' hooks need, wherever they are used."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable
from typing import Any, TypeVar

import torch
from torch import nn

from remat.errors import Error

F = TypeVar("F", bound=Callable[..., Any])
_CALL = nn.Module._call_impl.__code__


def never_compiled(function: F) -> F:
    """Keeps torch.compile from looking into `function` and what that calls, as torch.compiler.disable() does, without
    the seconds that it takes to import the compiler."""
    function._torchdynamo_disable = True  # type: ignore[attr-defined]
    function._torchdynamo_disable_msg = (  # type: ignore[attr-defined]
        "it is remat's, which is no part of any graph; leave fullgraph=True, or strict=True of torch.export, out, or call "
        "remat.unwrap(model) or remat.disable(model) before"
    )
    compiler = torch._C._dynamo.eval_frame
    skip = compiler._FrameAction.SKIP
    compiler.set_code_exec_strategy(function.__code__, compiler._FrameExecStrategy(skip, skip))
    return function


def modules_in_call() -> list[nn.Module]:
    """The modules that are being called on this thread, the innermost first, one as often as it is inside itself. Hooks
    that count for themselves lose count where a call ends by a KeyboardInterrupt: no hook is called then."""
    modules = []
    frame = sys._getframe(1)
    while frame is not None:
        if frame.f_code is _CALL:
            modules.append(frame.f_locals["self"])
        frame = frame.f_back
    return modules


def is_in_call(module: nn.Module) -> bool:
    """Whether this thread is inside of a call of `module`."""
    return any(each is module for each in modules_in_call())


def calls_around(module: nn.Module) -> int:
    """In a forward pre-hook of `module`: how many of its calls this one is inside of, on this thread."""
    return max(sum(each is module for each in modules_in_call()) - 1, 0)


def check_module(where: str, model: Any) -> None:
    """Raises Error unless hooks can be put on `model`."""
    if not isinstance(model, nn.Module):
        raise Error(f"[{where}] a {type(model).__name__} is no torch.nn.Module; give the model itself")
    if isinstance(model, torch.jit.ScriptModule):
        raise Error(
            f"[{where}] {type(model).__name__} is a model of TorchScript, which takes no hooks; put a session's step "
            "around it: with remat.Session(budget=...).step()"
        )


def has_forward(module: nn.Module) -> bool:
    """Not so ModuleList and ModuleDict, which are never called: nor are hooks on them."""
    defined = inspect.getattr_static(type(module), "forward")  # TorchScript's is there for instances alone
    return defined is not nn.Module.forward or "forward" in vars(module)


def add_hooks(module: nn.Module, before: Callable[..., Any], after: Callable[..., Any]) -> None:
    """Has `before` called before each call of `module`, and `after` after it, whether it fails or not. After the last,
    call compile_anew()."""
    module.register_forward_pre_hook(before, prepend=True)
    module.register_forward_hook(after, always_call=True)


def compile_anew() -> None:
    """Throws out what torch.compile has made: it does not look whether modules have got hooks since."""
    compiler = sys.modules.get("torch._dynamo")
    if compiler is not None:
        compiler.reset_code_caches()


def remove_hooks(module: nn.Module, kind: type) -> None:
    """Removes the forward hooks of `module` that are methods of a `kind`."""
    remove_hooks_of(module, lambda owner: isinstance(owner, kind))


def remove_hooks_of(module: nn.Module, is_one: Callable[[Any], bool]) -> None:
    """Removes the forward hooks of `module` that are methods of an object which `is_one` says yes to. Their handles are
    lost where the module was copied or came from a file."""
    for hooks, options in (
        (module._forward_pre_hooks, (module._forward_pre_hooks_with_kwargs,)),
        (module._forward_hooks, (module._forward_hooks_with_kwargs, module._forward_hooks_always_called)),
    ):
        for key in [key for key, hook in hooks.items() if is_one(getattr(hook, "__self__", None))]:
            del hooks[key]
            for option in options:
                option.pop(key, None)
