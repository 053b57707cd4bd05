"""torch.compile on a model's repeated blocks, under a budget."""

from __future__ import annotations

import warnings
from collections.abc import Iterable
from numbers import Real
from typing import Any

import torch
from torch import nn

from remat.blocks import check_members, find_blocks, listed_blocks
from remat.errors import Error
from remat.hooks import check_module
from remat.model_session import session_options
from remat.partition_choice import FASTEST, Compiler, compile_options, has_ranks
from remat.progress import call_between_steps
from remat.wrap import wrap


def _check_share(share: Any) -> None:
    if share is None or share == FASTEST:
        return
    if isinstance(share, bool) or not isinstance(share, Real) or not 0 <= share <= 1:
        raise Error(
            f"[compile] activation_memory_budget={share!r} is no share of what a block can save; give a number from 0 to "
            f'1, as torch._functorch.config.activation_memory_budget, or "{FASTEST}"'
        )


def _check_choice(model: nn.Module, blocks: list[nn.Module], mode: str | None) -> None:
    """Raises Error where "fastest" cannot be."""
    if not blocks:
        raise Error(
            f'[compile] activation_memory_budget="{FASTEST}" tries the code of repeated blocks, and this '
            f"{type(model).__name__} has none: no list with several modules of one class; give a number"
        )
    if mode in ("reduce-overhead", "max-autotune"):
        raise Error(
            f'[compile] activation_memory_budget="{FASTEST}" does not go with mode="{mode}", whose results are, on a GPU, in '
            "memory that the next call writes to; give a number"
        )
    if has_ranks():
        raise Error(
            f'[compile] activation_memory_budget="{FASTEST}" chooses by times, which differ between ranks; give a number, '
            "such as what one process has chosen (the log of remat.compile at level INFO names it)"
        )


def _blocks_of(model: nn.Module, named: Iterable[nn.Module] | None, budget: int | str | None) -> list[nn.Module]:
    """Those to compile; none: the whole model."""
    blocks = find_blocks(model) if named is None else listed_blocks("compile", named)
    check_members("compile", model, blocks)
    if named is not None and not blocks:
        raise Error("[compile] blocks names no module; leave it out for the model's repeated blocks")
    if scripted := [block for block in blocks if isinstance(block, torch.jit.ScriptModule)]:
        raise Error(
            f"[compile] {len(scripted)} of the blocks are modules of TorchScript, which torch.compile does not take; name "
            "others: remat.compile(model, blocks=[...])"
        )
    whole = type(model).__name__ == "OptimizedModule" or model._compiled_call_impl is not None
    if whole and blocks and model not in blocks:
        raise Error(
            f"[compile] this {type(model).__name__} has been compiled as a whole (torch.compile(model), model.compile()), "
            "so that its blocks would not be compiled one by one, and a budget would find nothing to save; give the "
            "model as it was before"
        )
    if not blocks and budget is not None:
        warnings.warn(
            f"[compile] {type(model).__name__} has no repeated blocks to choose from, no list with several modules of one "
            "class, and is compiled as a whole: a backward that is compiled as a whole asks for all that was saved at "
            "once, so that a budget can hardly save anything; name what to compile: remat.compile(model, blocks=[...])",
            RuntimeWarning,
            stacklevel=3,
        )
    return blocks


def _check_options(options: dict[str, Any]) -> None:
    known = [*sorted(compile_options()), *session_options()]
    if unknown := sorted(options.keys() - known - {"process_group"}):  # of which wrap() says more
        raise TypeError(f"[compile] there is no option {', '.join(unknown)}; there are {', '.join(known)}")


def compile(
    model: nn.Module,
    budget: int | str | None = None,
    *,
    blocks: Iterable[nn.Module] | None = None,
    activation_memory_budget: float | str | None = None,
    **options: Any,
) -> nn.Module:
    """Compiles the repeated blocks of `model` one by one, and keeps every forward and backward pass under `budget`::

        model = remat.compile(model, budget="6GiB")

    The bits are those of the same compiled blocks without remat. Each kernel of a block's forward pass is an operator,
    which is recomputed where the budget asks for it; what a block has saved for backward has to be there at once when
    its backward runs, so a model that is compiled as a whole leaves nothing to save.

    Args:
        budget: as of :class:`remat.Session`, in bytes or percent of the activation peak; None: no limit.
        blocks: modules of the model to compile; None: its repeated blocks, those of :func:`remat.find_blocks`.
        activation_memory_budget: where the compiler cuts a block into forward and backward: the share, from 0 to 1,
            that forward saves of what it could save; random numbers are saved, so that gradients are right. None: that
            of ``torch._functorch.config``, by which torch 2.13 draws other random numbers in backward if it is below 1.
            "fastest": each graph with gradients is compiled for 1.0, 0.8, 0.5, 0.3 and 0.1, which takes up to five times as
            long, and runs for 1.0 in its first two steps; then each is run for a while on made-up inputs. Of those whose
            results, gradients, writes and random numbers have the bits of 1.0 it goes on with the one with which steps
            within the budget are predicted to be fastest. That takes a few steps' time and the memory of a block's step,
            once, outside of any budget. Times differ between processes: with several ranks, or a plan from a file,
            give a number.
        options: those of :func:`torch.compile` (fullgraph, dynamic, backend, mode, options, disable ...) go to it, and the
            others, with ``name``, to :func:`remat.wrap`. Where torch.compile has a ``recompile_limit``, it is for each
            kind of block (class and sizes of parameters) what ``torch._dynamo.config`` has for one function, or with
            "fastest" eight times that, as each model has code of its own.

    Returns `model` itself, with hooks. Its blocks are compiled in place as by ``nn.Module.compile``: parameters and
    state_dict() keep their names, and copies and pickles are wrapped but not compiled; :func:`remat.unwrap` leaves
    the blocks compiled. A model without repeated blocks is compiled as a whole, and a warning says so where there is a
    budget. Raises Error for a model that is compiled as a whole already. Not thread-safe: call it before the first step.
    """
    check_module("compile", model)
    _check_share(activation_memory_budget)
    _check_options(options)
    found = _blocks_of(model, blocks, budget)
    if activation_memory_budget == FASTEST:
        _check_choice(model, found, options.get("mode"))
    found = found or [model]
    compiler = Compiler(
        found, {name: options.pop(name) for name in compile_options() & options.keys()}, activation_memory_budget
    )
    before = [block._compiled_call_impl for block in found]
    try:
        for block in found:
            compiler.compile(block)
        wrap(model, budget, **{"name": f"remat.compile({type(model).__name__})", **options})
    except BaseException:  # bad options: what there was before stays
        for block, call in zip(found, before):
            block._compiled_call_impl = call
        raise
    if compiler.choice is not None:
        call_between_steps(compiler.choice.between_steps)
    return model
