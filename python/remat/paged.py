"""Optimizers whose state is in a file, and comes back for one parameter at a time."""

from __future__ import annotations

import contextlib
import functools
import os
import types
import warnings
import weakref
from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch

from remat import _C
from remat.budget import parse_bytes
from remat.device import is_host
from remat.errors import Error
from remat.paged_state import Pages, entry_with_stand_ins, pages_in, parts_of, put, take, whole
from remat.parameter_update import check_updates_alone, flat_of, is_of_torch, part_of, unwrapped, update_alone
from remat.stored_gradient import GradientFile, StoredGradient

if TYPE_CHECKING:
    from collections.abc import Iterator

_WHERE = "[paged]"


def paged(
    optimizer: torch.optim.Optimizer,
    *,
    dir: str | os.PathLike[str],
    limit_bytes: int | str | None = None,
    per_parameter: bool = False,
    gradients: bool = False,
) -> PagedOptimizer:
    """From now on the optimizer's state is in a file, and is read for one parameter at a time, while it is updated::

        optimizer = torch.optim.AdamW(model.parameters())
        remat.paged(optimizer, dir="/scratch")

    The training loop stays as it is, and so do the bits of losses, parameters and state. While a parameter is updated,
    the state of the next one is read, and that of the last one written. The optimizers of torch.optim that look at each
    element alone (AdamW, Adam, SGD and others; not Adafactor and Muon) update parameters of more than 2,097,152
    elements in parts, so that no more than 51 MB of AdamW's state are in memory at once. It works with
    :func:`remat.optimizer_in_backward` too, whichever is called first.

    ``optimizer.state`` holds tensors without contents in place of those in the file (on PyTorch's meta device, with
    their shapes and types). Tensors below 64 KiB stay in memory, and so does what is no tensor or nested.
    ``state_dict()`` reads everything: it holds a copy of the whole state, which takes the memory that a plain optimizer
    takes, until it is let go of. ``load_state_dict()`` does so for a moment.

    With ``gradients=True`` each gradient is written to a second file as soon as a backward pass has completed it, and
    read where it is used: where a later pass adds to it, by ``step()``, by anything else that asks. The loop may
    accumulate gradients, clip them by ``torch.nn.utils.clip_grad_norm_()``, and unscale them by a ``GradScaler``: bits
    are those of gradients in memory. ``parameter.grad`` is a :class:`remat.StoredGradient`; a view of it, as
    ``parameter.grad[0]``, brings it back to memory, where it stays until the parameter has another one. What has its own
    hooks on parameters must keep copies of gradients, not the tensors. Parameters that are trained later are left alone.

    The file has no name, so that nothing is left of a process that ends, and nothing to resume from but checkpoints:
    save ``state_dict()``. See docs/paged-optimizer.md for what it costs, and for the wear of disks.

    Args:
        optimizer: one of torch.optim's, whose parameters are on the CPU, but LBFGS and SparseAdam. Of accelerate's, the
            one inside.
        dir: the directory of the file: best on a disk of the machine itself.
        limit_bytes: of the file, an int or "8GiB". State beyond it stays in memory, with a warning. With `gradients`, of
            each of the two.
        per_parameter: True says of an optimizer that is not torch.optim's that its update of a parameter depends on
            that parameter's gradient and state alone, is none where there is no gradient, and writes nothing to its
            parameter groups.
        gradients: gradients wait in a file, too. Not with :func:`remat.optimizer_in_backward`, which frees them, nor
            where torch.distributed is in use.

    Raises Error for another optimizer, for one whose ``step`` was replaced, for ``differentiable=True``, for parameters that are not plain tensors on the
    CPU, and where no file can be made in `dir`. A write that fails, as on a full disk, is a warning: that state stays
    in memory, and the step goes on. A read that fails, or bytes that are not those written, is an Error before the
    parameter (or its part) is updated. ``step()`` raises Error for a sparse gradient. Copies and pickles of the
    optimizer itself raise too.
    """
    return PagedOptimizer(optimizer, os.fspath(dir), limit_bytes, per_parameter, gradients)


@dataclass(frozen=True)
class PagingReport:
    """What :meth:`PagedOptimizer.report` returns: since :func:`paged` was called. ``str()`` is a line.

    Attributes:
        contents: "state" or "gradients".
        written_bytes: of them, to the file.
        read_bytes: from it.
        write_seconds: while at least one write was in progress.
        read_seconds: the same of reads.
        waited_seconds: that the training loop waited for the file.
        file_bytes: the length of the file.
        paged_bytes: of them in it now.
        unwritten_bytes: of them that are in memory, since it could not be written.
    """

    contents: str
    written_bytes: int
    read_bytes: int
    write_seconds: float
    read_seconds: float
    waited_seconds: float
    file_bytes: int
    paged_bytes: int
    unwritten_bytes: int

    def __str__(self) -> str:
        size = _C.format_bytes
        rest = f"; {size(self.unwritten_bytes)} in memory, not written" if self.unwritten_bytes else ""
        return (
            f"{size(self.paged_bytes)} of {self.contents} in a file of {size(self.file_bytes)}: "
            f"{size(self.written_bytes)} written in {self.write_seconds:.2f} s, "
            f"{size(self.read_bytes)} read in {self.read_seconds:.2f} s, {self.waited_seconds:.2f} s waited{rest}"
        )


class PagedOptimizer:
    """What :func:`paged` returns; need not be kept."""

    def __init__(
        self, optimizer: Any, directory: str, limit_bytes: int | str | None, per_parameter: bool, gradients: bool
    ) -> None:
        optimizer = unwrapped(optimizer)
        check_updates_alone(optimizer, per_parameter, _WHERE)
        name = type(optimizer).__name__
        if isinstance(optimizer, torch.optim.SparseAdam):
            raise Error(f"{_WHERE} SparseAdam is for sparse gradients; they touch little state; leave it as it is")
        if pager_of(optimizer) is not None:
            raise Error(f"{_WHERE} the state of this {name} is in a file already; remove() what paged() returned")
        for group in optimizer.param_groups:
            for parameter in group["params"]:
                _check_parameter(parameter)
        if gradients:
            _check_gradients(optimizer)
        limit = () if limit_bytes is None else (parse_bytes(limit_bytes, "paged", "limit_bytes"),)
        self._pager = _C.StatePager(directory, *limit)
        self._gradients = GradientFile(directory, limit) if gradients else None
        self._optimizer = weakref.ref(optimizer)
        self._step_before = vars(optimizer).get("step")
        self._step = types.MethodType(_step, optimizer)  # schedulers look for its __func__
        optimizer._remat_paged = self
        optimizer.step = self._step
        self._handles = [
            optimizer.register_state_dict_post_hook(_read_into, prepend=True),
            optimizer.register_load_state_dict_post_hook(_page_out, prepend=True),
        ]
        if self._gradients is not None:
            self._handles += _store_completed(optimizer, self._gradients)
        try:
            self.page_out()
        except BaseException:
            self.remove()
            raise

    def remove(self) -> None:
        """Reads the whole state back to memory; the optimizer is what it was. Between steps; a second call does
        nothing."""
        optimizer = self._optimizer()
        if optimizer is None or pager_of(optimizer) is not self:
            return
        for parameter, entry in list(optimizer.state.items()):
            optimizer.state[parameter] = whole(entry)
        for group in optimizer.param_groups:
            for parameter in group["params"]:
                if isinstance(parameter.grad, StoredGradient):
                    parameter.grad = parameter.grad.plain()
        for handle in self._handles:
            handle.remove()
        del optimizer._remat_paged
        if vars(optimizer).get("step") is self._step:
            del optimizer.step
            if self._step_before is not None:
                optimizer.step = self._step_before

    @property
    def stores_gradients(self) -> bool:
        """Do gradients wait in a file?"""
        return self._gradients is not None

    def report(self) -> PagingReport:
        """Bytes and seconds so far."""
        return _report_of(self._pager, "state")

    def gradient_report(self) -> PagingReport:
        """The same of gradients. Raises Error where they wait in no file."""
        if self._gradients is None:
            raise Error(f"{_WHERE} gradients wait in no file; call paged() with gradients=True")
        return _report_of(self._gradients.pager, "gradients")

    def state_of(self, parameter: torch.Tensor) -> dict[str, Any]:
        """The parameter's entry of ``optimizer.state``, with copies of the tensors that are in the file."""
        optimizer = self._optimizer()
        return {} if optimizer is None else whole(optimizer.state.get(parameter, {}))

    def page_out(self) -> None:
        """Writes state that is in memory to the file: that of a plain optimizer, or what was put into
        ``optimizer.state`` by hand. :func:`paged` and ``load_state_dict()`` do so."""
        optimizer = self._optimizer()
        if optimizer is None:
            return
        for group in optimizer.param_groups:
            for parameter in group["params"]:
                if isinstance(optimizer.state.get(parameter), dict):
                    self._in_parts(optimizer, parameter, lambda target, state: None)
        self.end_step()

    def update(self, optimizer: torch.optim.Optimizer, group: dict[str, Any], parameter: torch.Tensor) -> None:
        """As ``optimizer.step()`` does, if this parameter was all that had a gradient; :meth:`end_step` comes after the
        last. What ``step()`` and :func:`remat.optimizer_in_backward` do."""
        _check_parameter(parameter)
        gradient = parameter.grad
        if gradient is None:
            return
        if gradient.layout != torch.strided:
            raise Error(
                f"{_WHERE} a parameter of shape {tuple(parameter.shape)} has a gradient that is {gradient.layout}; use "
                "dense gradients (sparse=False), or the optimizer as it is"
            )
        # Those of torch.optim leave gradients as they are, or change them by operators.
        with _gradient_in_memory(parameter, writes=not is_of_torch(optimizer)):
            self._in_parts(optimizer, parameter, functools.partial(update_alone, optimizer, group))

    def end_step(self) -> None:
        """Returns when all state is written. ``step()`` and backward do so at their end."""
        self._pager.end_round()
        if self._gradients is not None:
            self._gradients.pager.end_round()
        self._warn()

    def _in_parts(self, optimizer: torch.optim.Optimizer, parameter: torch.Tensor, update: Any) -> None:
        """Calls update(target, state) for the parameter, or each part of it, with its state in memory."""
        has_state = parameter in optimizer.state
        entry = optimizer.state[parameter] if has_state else {}
        parts = parts_of(optimizer, parameter, entry)
        pages = pages_in(entry)
        if pages is not None and pages.parts != parts:  # the parameter was laid out anew
            entry, pages = whole(entry), None
        if pages is None:
            pages = Pages(self._pager, parts)
        flat = None if parts == [None] else flat_of(parameter)
        names: list[str] = []
        values: dict[str, Any] | None = None
        for index, part in enumerate(parts):
            target = parameter if flat is None else part_of(flat, part)
            taken, fetched = take(pages, index, entry, parameter.numel())
            state: defaultdict[torch.Tensor, Any] = defaultdict(dict)
            if has_state:
                state[target] = taken
            try:
                update(target, state=state)
            except BaseException:
                pages.states[index].store(fetched)
                raise
            values = state.get(target)
            if values is not None:
                names = put(pages, index, values, target)
        if values is not None:
            optimizer.state[parameter] = entry_with_stand_ins(pages, names, values, entry, parameter)
        self._warn()  # which raises where warnings are errors

    def _warn(self) -> None:
        _warn_of_failure(self._pager, "state")
        if self._gradients is not None:
            _warn_of_failure(self._gradients.pager, "gradient")


def _report_of(pager: _C.StatePager, contents: str) -> PagingReport:
    report = pager.report()
    names = (name for name in PagingReport.__dataclass_fields__ if name != "contents")
    return PagingReport(contents=contents, **{name: getattr(report, name) for name in names})


def _warn_of_failure(pager: _C.StatePager, what: str) -> None:
    reason = pager.take_failure()
    if reason is not None:
        warnings.warn(
            f"{_WHERE} {reason}; the {what} stays in memory, and later writes are tried again: make room there, or raise "
            "limit_bytes",
            stacklevel=2,
        )


def _store_completed(optimizer: torch.optim.Optimizer, file: GradientFile) -> list[Any]:
    """Hooks that put each gradient into the file when a backward pass has completed it, while there is the optimizer."""
    owner = weakref.ref(optimizer)

    def store(parameter: torch.Tensor) -> None:
        if owner() is not None and parameter.grad is not None and (stored := file.put(parameter.grad)) is not None:
            parameter.grad = stored

    return [
        parameter.register_post_accumulate_grad_hook(store)
        for group in optimizer.param_groups
        for parameter in group["params"]
        if parameter.requires_grad
    ]


@contextlib.contextmanager
def _gradient_in_memory(parameter: torch.Tensor, *, writes: bool) -> Iterator[None]:
    """For the parameter's update."""
    stored = parameter.grad
    if not isinstance(stored, StoredGradient):
        yield
        return
    with stored.loaded(writes=writes) as gradient:
        parameter.grad = gradient
        try:
            yield
        finally:
            parameter.grad = stored


def pager_of(optimizer: torch.optim.Optimizer) -> PagedOptimizer | None:
    """What :func:`paged` made of this optimizer."""
    return vars(optimizer).get("_remat_paged")


def _check_parameter(parameter: torch.Tensor) -> None:
    if type(parameter) not in (torch.nn.Parameter, torch.Tensor) or not is_host(parameter.device):
        raise Error(
            f"{_WHERE} a parameter of shape {tuple(parameter.shape)} is a {type(parameter).__name__} on "
            f"{parameter.device}; state in a file is for plain parameters on the CPU"
        )


def _check_gradients(optimizer: torch.optim.Optimizer) -> None:
    from remat.optimizer_in_backward import updates_of  # which imports this module

    if any(updates_of(parameter) for group in optimizer.param_groups for parameter in group["params"]):
        raise Error(
            f"{_WHERE} gradients=True: backward updates the parameters of this {type(optimizer).__name__} and frees their "
            "gradients; remove() what optimizer_in_backward() returned, or leave out gradients"
        )
    distributed = torch.distributed
    if distributed.is_available() and distributed.is_initialized():
        raise Error(
            f"{_WHERE} gradients=True, and torch.distributed is in use: DDP and FSDP average gradients in memory of their "
            "own; leave out gradients"
        )


def _update_all(optimizer: torch.optim.Optimizer, closure: Any = None) -> Any:
    pager = pager_of(optimizer)
    if pager is None:  # removed, when somebody had put a wrapper around it
        return type(optimizer).step(optimizer, closure)
    loss = None
    if closure is not None:
        with torch.enable_grad():
            loss = closure()
    try:
        for group in optimizer.param_groups:
            for parameter in group["params"]:
                pager.update(optimizer, group, parameter)
    finally:
        pager.end_step()
    return loss


_update_with_hooks = torch.optim.Optimizer.profile_hook_step(_update_all)


def _step(optimizer: torch.optim.Optimizer, closure: Any = None) -> Any:
    """Stands in the optimizer for its own."""
    optimizer._opt_called = True  # type: ignore[attr-defined]  # as schedulers want to be told
    return _update_with_hooks(optimizer, closure) if closure is not None else _update_with_hooks(optimizer)


_step._wrapped_by_lr_sched = True  # type: ignore[attr-defined]


def _read_into(optimizer: torch.optim.Optimizer, state_dict: dict[str, Any]) -> dict[str, Any]:
    """All of it is a copy, as what comes from the file is: else a later step would change a part of it."""

    def copy(entry: Any) -> Any:
        if not isinstance(entry, dict):
            return entry
        read = whole(entry)
        return {
            name: value.clone() if isinstance(value, torch.Tensor) and value is entry.get(name) else value
            for name, value in read.items()
        }

    return {**state_dict, "state": {key: copy(entry) for key, entry in state_dict["state"].items()}}


def _page_out(optimizer: torch.optim.Optimizer) -> None:
    pager = pager_of(optimizer)
    if pager is not None:
        pager.page_out()
