"""Gradients that are in a file while nobody uses them."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any, NoReturn

import torch
from torch.utils._pytree import tree_flatten, tree_map, tree_unflatten

from remat import _C, paged_state
from remat.errors import Error

if TYPE_CHECKING:
    from collections.abc import Iterator

_aten = torch.ops.aten
_ALIASES = {_aten.detach.default, _aten.alias.default}
_SCALINGS = {_aten.mul_.Tensor, _aten.mul_.Scalar, _aten.div_.Tensor, _aten.div_.Scalar}
_NORM = _aten.linalg_vector_norm.default


class GradientFile:
    """The file that gradients of one optimizer's parameters wait in."""

    def __init__(self, directory: str, limit_bytes: tuple[int, ...]) -> None:
        self.pager = _C.StatePager(directory, *limit_bytes)
        self.takes_norms = False
        """Somebody has asked for a norm: those of later gradients are taken before they are written."""

    def put(self, gradient: torch.Tensor) -> StoredGradient | None:
        """Begins to write `gradient`, which is to be forgotten. None where it is better left in memory: it is small,
        not dense, part of a graph, or shares its memory."""
        if (
            isinstance(gradient, StoredGradient)
            or not _C.PagedState.can_store(gradient)
            or gradient.nbytes < paged_state.SMALLEST_BYTES
            or gradient.untyped_storage().nbytes() != gradient.nbytes
        ):
            return None
        contents = _Contents(self)
        contents.write(gradient)
        return StoredGradient(contents, gradient)


class _Contents:
    """Of one gradient: in the file or, once somebody has a view of it, in memory."""

    def __init__(self, file: GradientFile) -> None:
        self.file = file
        self.state = file.pager.add()
        self.in_memory: torch.Tensor | None = None
        self.norm: torch.Tensor | None = None
        """Of what is in the file, if it was taken. Nobody can say when what is in memory is written to."""
        self.scalings: list[tuple[Any, Any]] = []
        """To be done to what is in the file, as (operator, factor)."""

    def write(self, gradient: torch.Tensor) -> None:
        self.norm = torch.linalg.vector_norm(gradient) if self.file.takes_norms else None
        self.state.store([gradient])

    def keep(self, gradient: torch.Tensor) -> None:
        """It is in memory from now on, and nothing of the file counts."""
        self.in_memory = gradient
        self.norm = None
        self.scalings.clear()
        self.state.store([])

    @contextlib.contextmanager
    def loaded(self, *, writes: bool = False, stays: bool = False) -> Iterator[torch.Tensor]:
        """The gradient in memory. `writes`: it is written again afterwards; so it is where its version has changed.
        `stays`: it is in memory from now on."""
        if self.in_memory is not None:
            yield self.in_memory
            return
        with torch.inference_mode(False):  # a tensor as all others, whoever asks
            (gradient,) = self.state.fetch()
            for operator, factor in self.scalings:
                operator(gradient, factor)
            version = gradient._version
        writes = writes or bool(self.scalings)  # which change no version below autograd
        self.scalings.clear()
        if stays:
            self.keep(gradient)
        try:
            yield gradient
        finally:
            if self.in_memory is None and (writes or gradient._version != version):
                self.write(gradient)
            elif self.in_memory is None:
                self.state.give_back()


class StoredGradient(torch.Tensor):
    """A parameter's ``grad`` whose contents are in a file. Operators read them, and write them where they change them::

        gradient.mul_(0.5)          # also by torch.nn.utils.clip_grad_norm_()
        parameter.grad += another   # as autograd does

    A view of it brings it back to memory, where it stays until the parameter has another gradient. ``plain()`` returns a
    copy that is in memory. It has no address: what needs one, as NumPy and DLPack do, raises Error.
    """

    @staticmethod
    def __new__(cls, contents: Any, like: torch.Tensor) -> StoredGradient:
        made = torch.Tensor._make_wrapper_subclass(
            cls, like.size(), strides=like.stride(), dtype=like.dtype, device=like.device
        )
        made._contents = contents  # type: ignore[attr-defined]
        return made  # type: ignore[return-value]

    __torch_function__ = torch._C._disabled_torch_function_impl

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        first = args[0] if args else None
        if func in _ALIASES:
            return StoredGradient(first._contents, first)
        if func is _aten.detach_.default:
            return first
        if torch.Tag.inplace_view in func.tags:
            raise Error(f"[paged] {func._schema.name.partition('::')[2]} changes its shape; take plain(), a copy")
        if func in _SCALINGS and _is_factor(args[1], first) and first._contents.in_memory is None:
            factor = args[1].clone() if isinstance(args[1], torch.Tensor) else args[1]
            first._contents.scalings.append((func, factor))
            first._contents.norm = None
            return first
        if func is _NORM and _is_two_norm(args, kwargs):
            return _two_norm(first._contents)
        if isinstance(first, (list, tuple)) and _is_by_element(func, args):
            return _each(func, args, kwargs)
        return _on_contents(func, args, kwargs)

    def loaded(self, *, writes: bool = True) -> contextlib.AbstractContextManager[torch.Tensor]:
        """Has the contents in memory for a ``with``, in a tensor that is not to be kept. They are written again
        afterwards; without `writes` only where an operator has changed them."""
        return self._contents.loaded(writes=writes)

    @property
    def data(self) -> torch.Tensor:  # type: ignore[override]
        """A gradient of the same contents."""
        return self.detach()

    @data.setter
    def data(self, value: torch.Tensor) -> None:
        """The gradient is `value` from now on, in memory. Error where that has another shape, strides or type."""
        if (value.shape, value.stride(), value.dtype, value.device) != (
            self.shape,
            self.stride(),
            self.dtype,
            self.device,
        ):
            raise Error(
                f"[paged] a gradient of shape {tuple(self.shape)} and {self.dtype} cannot be given data of shape "
                f"{tuple(value.shape)} and {value.dtype}; set the parameter's grad"
            )
        self._contents.keep(value.plain() if isinstance(value, StoredGradient) else value.detach())

    def plain(self) -> torch.Tensor:
        """A copy that is in memory."""
        with self._contents.loaded() as gradient:
            return gradient.clone()

    def __deepcopy__(self, memo: dict[int, Any]) -> torch.Tensor:
        copy = self.plain()
        memo[id(self)] = copy
        return copy

    def __reduce_ex__(self, protocol: Any) -> Any:
        return self.plain().__reduce_ex__(protocol)

    def _refuse(self, *_: Any, **__: Any) -> NoReturn:
        raise Error("[paged] this gradient is in a file, and has no address; take plain(), a copy")

    numpy = tolist = share_memory_ = __array__ = __dlpack__ = _refuse  # type: ignore[assignment]

    def __repr__(self, *, tensor_contents: Any = None) -> str:
        return repr(self.plain())


def _is_factor(value: Any, of: torch.Tensor) -> bool:
    """A number that a gradient like `of` can be multiplied by in place, later too."""
    if not isinstance(value, torch.Tensor):
        return isinstance(value, (int, float)) and of.is_floating_point()
    is_plain = value.device == of.device and not isinstance(value, StoredGradient) and not value.requires_grad
    return is_plain and value.dim() == 0 and value.is_floating_point() and of.is_floating_point()


def _is_two_norm(args: Any, kwargs: Any) -> bool:
    return len(args) <= 2 and not kwargs and (len(args) == 1 or args[1] == 2)


def _two_norm(contents: _Contents) -> torch.Tensor:
    contents.file.takes_norms = True
    if contents.norm is None:
        with contents.loaded() as gradient:
            norm = torch.linalg.vector_norm(gradient)
        if contents.in_memory is not None:
            return norm
        contents.norm = norm
    return contents.norm.clone()


def _is_by_element(func: Any, args: Any) -> bool:
    """Does it do the same to each tensor of its lists? All of them together might not fit in memory."""
    name = func._schema.name
    if not name.startswith(("aten::_foreach_", "aten::_amp_foreach_")):
        return False
    if any(isinstance(arg, torch.Tensor) and arg.dim() > 0 for arg in args):  # a number for each
        return False
    count = len(args[0])
    return all(len(arg) == count for arg in args if isinstance(arg, (list, tuple)))


def _each(func: Any, args: Any, kwargs: Any) -> Any:
    results = []
    for i in range(len(args[0])):
        one = [[arg[i]] if isinstance(arg, (list, tuple)) else arg for arg in args]
        result = _on_contents(func, one, kwargs)
        if isinstance(result, (list, tuple)):
            results.extend(result)
    return results or None


def _on_contents(func: Any, args: Any, kwargs: Any) -> Any:
    """Runs the operator on the contents, one gradient once however often it is among the arguments."""
    arguments = func._schema.arguments
    written = [arg for i, arg in enumerate(args) if i < len(arguments) and _is_written(arguments[i])]
    written += [kwargs[each.name] for each in arguments if each.name in kwargs and _is_written(each)]
    changed = {id(leaf._contents) for leaf in tree_flatten(written)[0] if isinstance(leaf, StoredGradient)}
    is_view = any(r.alias_info is not None and not r.alias_info.is_write for r in func._schema.returns)
    leaves, spec = tree_flatten((tuple(args), kwargs))
    with contextlib.ExitStack() as stack:
        loaded: dict[int, torch.Tensor] = {}
        wrappers: dict[int, StoredGradient] = {}
        for leaf in leaves:
            if not isinstance(leaf, StoredGradient) or id(leaf._contents) in loaded:
                continue
            key = id(leaf._contents)
            loaded[key] = stack.enter_context(leaf._contents.loaded(writes=key in changed, stays=is_view))
            wrappers[id(loaded[key])] = leaf
        plain = [loaded[id(x._contents)] if isinstance(x, StoredGradient) else x for x in leaves]
        plain_args, plain_kwargs = tree_unflatten(plain, spec)
        result = func(*plain_args, **plain_kwargs)
        # What an operator in place returns is its argument.
        return tree_map(lambda x: wrappers.get(id(x), x) if isinstance(x, torch.Tensor) else x, result)


def _is_written(argument: Any) -> bool:
    return argument.alias_info is not None and argument.alias_info.is_write
