"""Heads of language models, of which the loss is made in tiles: which modules they are, and their hooks."""

from __future__ import annotations

import contextlib
import sys
import threading
import weakref
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from remat.errors import Error
from remat.head_trial import HeadTrial
from remat.hooks import add_hooks, calls_around, is_in_call, never_compiled, remove_hooks_of
from remat.promise import LateError, Product
from remat.promised_loss import PromisingMode
from remat.tiles import TileChoice

if TYPE_CHECKING:
    from remat.session import Session

HOW = ("auto", "tiles", "whole")
_LARGE = 16 << 20  # bytes of logits, from which on "auto" has tiles: a product more costs less than they


def check_how(where: str, how: Any) -> None:
    """Raises Error unless `how` is one of HOW."""
    if how not in HOW:
        raise Error(f'[{where}] head={how!r} is unknown; use "auto" (tiles where logits are large), "tiles" or "whole"')


def _in_compiled_code() -> bool:
    if torch.compiler.is_compiling() or torch.jit.is_tracing():
        return True
    compiler = sys.modules.get("torch._dynamo.eval_frame")
    frame = sys._getframe(1) if compiler is not None else None
    while frame is not None:
        code = frame.f_code
        if code.co_filename == compiler.__file__ and code.co_name != "_fn":  # of torch.compiler.disable()
            return True
        frame = frame.f_back
    return False


def _call_of(module: nn.Module) -> Callable[[], bool]:
    """Says whether this thread is inside of a call of `module`, which it does not keep."""
    reference = weakref.ref(module)

    def goes_on() -> bool:
        called = reference()
        return called is not None and is_in_call(called)

    return goes_on


class _Modes(threading.local):
    """Of this thread."""

    def __init__(self) -> None:
        self.entered: list[PromisingMode] = []


_of_thread = _Modes()


def _take_off(ended: PromisingMode | None = None) -> None:
    """Takes those off that have ended, `ended` or by an interrupt. Where others are above them, the next call does."""
    for mode in reversed(list(_of_thread.entered)):
        if (mode is ended or not mode.goes_on()) and mode.leave():
            _of_thread.entered.remove(mode)


class HeadHooks:
    """The hooks of a head: its product is promised, see remat.promise.

    Args:
        how: "auto" or "tiles".
        owner: what has put them there: wrap(), enable() and the Trainers' callbacks each take away their own.
        when: whether a call is to be promised; None: each. Copies and pickles of hooks that ask promise nothing.
        trial: says with "auto" whether large logits are to be whole after all; None, as in copies: they are not.
    """

    def __init__(
        self, how: str, owner: str, when: Callable[[], bool] | None = None, trial: HeadTrial | None = None
    ) -> None:
        self.__setstate__((how, owner))
        self._when = when
        self._trial = trial if how == "auto" else None

    def __getstate__(self) -> tuple[str, str]:
        return self.how if self._when is None else "whole", self.owner

    def __setstate__(self, state: tuple[str, str]) -> None:
        self.how, self.owner = state
        self.choice: TileChoice | None = None
        self._when: Callable[[], bool] | None = None
        self._trial: HeadTrial | None = None
        self._here = threading.local()
        self._products: weakref.WeakSet[Product] = weakref.WeakSet()

    def _entered(self) -> list[PromisingMode | None]:
        """The modes of this thread's calls that go on, the outermost first."""
        return self._here.__dict__.setdefault("modes", [])

    def _promises(self) -> bool:
        return self.how != "whole" and torch.is_grad_enabled() and (self._when is None or self._when())

    @never_compiled
    def before(self, module: nn.Module, args: Any) -> None:
        self.leave(calls_around(module))  # an interrupt ended those above
        entered = self._entered()
        if not self._promises():
            entered.append(None)
        elif _in_compiled_code():
            self._choose(TileChoice(0, 0, "the head is in code of torch.compile"))
            entered.append(None)
        elif self._trial is not None and not self._trial.wants_tiles(_logits_bytes(module, args)):
            self._choose(TileChoice(0, 0, self._trial.why_whole()))
            entered.append(None)
        else:
            smallest = _LARGE if self.how == "auto" else 0
            mode = PromisingMode(smallest, _call_of(module), self._choose, self._products.add)
            _of_thread.entered.append(mode)
            entered.append(mode)
            mode.__enter__()

    @never_compiled
    def after(self, module: nn.Module, args: Any, result: Any) -> None:
        entered = self._entered()
        if entered:
            _take_off(entered.pop())

    def leave(self, calls: int = 0) -> None:
        """Ends what this thread's calls have entered, but those of the outermost `calls`."""
        entered = self._entered()
        while len(entered) > calls:
            _take_off(entered.pop())
        _take_off()

    def make_promised(self) -> None:
        """Makes what was promised of the head, and somebody still holds; what is late stays promised, and is refused
        to who reads it."""
        for product in list(self._products):
            with contextlib.suppress(LateError):
                product.make_promised()

    def _choose(self, choice: TileChoice) -> None:
        self.choice = choice


def _logits_bytes(head: nn.Module, args: Any) -> int:
    """In float32, as a loss holds them; 0 where they are not large, or it is not known."""
    hidden, weight = args[0] if args else None, getattr(head, "weight", None)
    if not isinstance(hidden, torch.Tensor) or not isinstance(weight, torch.Tensor) or hidden.dim() == 0:
        return 0
    found = hidden.numel() // max(1, hidden.shape[-1]) * weight.shape[0] * 4
    return found if found >= _LARGE else 0


def find_heads(model: nn.Module) -> list[nn.Module]:
    """The modules that Hugging Face's models in `model` say to give their logits."""
    found: list[nn.Module] = []
    inside = set(model.modules())
    for module in model.modules():
        head = None
        with contextlib.suppress(Exception):  # of models without one
            head = module.get_output_embeddings()
        if isinstance(head, nn.Module) and head in inside and head not in found:
            found.append(head)
    return found


def _hooks_of(module: nn.Module) -> list[HeadHooks]:
    owners = (getattr(hook, "__self__", None) for hook in module._forward_pre_hooks.values())
    return [owner for owner in owners if isinstance(owner, HeadHooks)]


def promise_heads(
    model: nn.Module,
    how: str,
    owner: str,
    when: Callable[[], bool] | None = None,
    session: Callable[[], Session | None] | None = None,
) -> list[HeadHooks]:
    """Puts hooks on the heads of `model`, in place of those that `owner` has put there. Returns them. `session`: of
    whose steps with "auto" is compared what tiles and whole logits take."""
    release_heads(model, owner)
    added: list[HeadHooks] = []
    for head in find_heads(model) if how != "whole" else ():
        hooks = HeadHooks(how, owner, when, None if session is None else HeadTrial(session))
        add_hooks(head, hooks.before, hooks.after)
        added.append(hooks)
    return added


def release_heads(model: nn.Module, owner: str) -> None:
    """Takes away what `owner` has put on the heads of `model`, and copies that promise nothing."""
    for module in model.modules():
        for hooks in _hooks_of(module):
            if hooks.owner == owner or hooks.how == "whole":
                hooks.leave()
                remove_hooks_of(module, lambda owner, mine=hooks: owner is mine)


def describe_heads(model: nn.Module) -> str:
    """How the losses of the model's heads were made last, and why; empty where no head is looked at."""
    heads = [hooks for module in model.modules() for hooks in _hooks_of(module)]
    choice = next((hooks.choice for hooks in heads if hooks.choice is not None), None)
    if choice is None:
        return "whole: no cross-entropy of large logits was seen" if heads else ""
    return f"{'whole' if choice.is_whole else f'tiles of {choice.rows} tokens'}: {choice.reason}"
