"""The contents of a tensor as bytes, and how two of them differ."""

from __future__ import annotations

import ctypes
import hashlib
from dataclasses import dataclass
from typing import Any

import torch

_INTEGERS = {1: torch.int8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
_PART = 1 << 20  # elements that are looked at together


@dataclass
class Value:
    """`kind`: a dtype as "float32", "text" for words, "absent" for nothing. `owner` keeps the memory of `data` alive."""

    kind: str
    shape: list[int]
    data: Any
    owner: Any = None

    def digest(self) -> str:
        head = f"{self.kind}{self.shape}".encode()
        return hashlib.sha256(head + hashlib.sha256(self.data).digest()).hexdigest()


def absent(why: str = "absent") -> Value:
    return Value(why, [], b"")


def text(words: str) -> Value:
    return Value("text", [], words.encode())


def value_of(tensor: torch.Tensor | None) -> Value:
    """Of tensors without contents (none, on the meta device, not initialized) only that, as other tensors show them."""
    if tensor is None:
        return absent()
    with torch.no_grad(), torch._C.DisableTorchFunctionSubclass():
        try:
            plain = _dense(tensor.detach())
            if plain.is_meta or plain.is_quantized:
                return absent("without contents")
            shape = list(plain.shape)
            plain = plain.cpu().resolve_conj().resolve_neg().contiguous()
            size = plain.numel() * plain.element_size()
            data = (ctypes.c_char * size).from_address(plain.data_ptr()) if size else b""
        except (RuntimeError, ValueError, NotImplementedError):  # an uninitialized parameter, a wrapper of something else
            return absent("without contents")
    return Value(str(plain.dtype).removeprefix("torch."), shape, data, plain)


def _dense(tensor: torch.Tensor) -> torch.Tensor:
    """Its values, where it is a DTensor's shard or sparse."""
    if hasattr(tensor, "to_local"):
        tensor = tensor.to_local()
    if tensor.layout != torch.strided:
        tensor = tensor.to_dense()
    return tensor


def describe(plain: Value, other: Value) -> dict[str, Any]:
    """How `other` differs: elements of how many, the largest distance, in ULPs too where the numbers are floating point."""
    if plain.kind == "text" and other.kind == "text":
        return {"plain": bytes(plain.data).decode(), "other": bytes(other.data).decode()}
    if plain.kind != other.kind or plain.shape != other.shape:
        return {"plain": _what(plain), "other": _what(other)}
    dtype = getattr(torch, plain.kind)
    result: dict[str, Any] = {"elements": 0}
    with torch.no_grad():
        pairs = _integers(plain, dtype), _integers(other, dtype)
        result["total"] = pairs[0].numel()
        for a, b in zip(*(each.split(_PART) for each in pairs)):
            differ = a != b
            result["elements"] += int(differ.sum())
            _note_farthest(result, a[differ], b[differ], dtype)
    return result


def _note_farthest(result: dict[str, Any], a: torch.Tensor, b: torch.Tensor, dtype: torch.dtype) -> None:
    """Of elements that differ, given as integers of the same bits."""
    if dtype == torch.bool or a.numel() == 0:
        return
    if not (dtype.is_floating_point or dtype.is_complex):
        result["largest"] = max(result.get("largest", 0), int((a - b).abs().max()))
        return
    real = dtype.to_real() if dtype.is_complex else dtype
    x, y = a.view(real).double(), b.view(real).double()
    finite = x.isfinite() & y.isfinite()
    if bool(finite.any()):
        result["largest"] = max(result.get("largest", 0.0), float((x - y).abs()[finite].max()))
        result["ulps"] = max(result.get("ulps", 0), int(_ulps(a, b)[finite].max()))


def _what(value: Value) -> str:
    return value.kind if value.kind.startswith(("absent", "without")) else f"{value.kind} {value.shape}"


def _integers(value: Value, dtype: torch.dtype) -> torch.Tensor:
    """The bits as integers; of complex numbers, those of their parts."""
    if memoryview(value.data).nbytes == 0:
        return torch.empty(0, dtype=torch.int8)
    real = dtype.to_real() if dtype.is_complex else dtype
    width = torch.empty((), dtype=real).element_size()
    return torch.frombuffer(bytearray(value.data), dtype=_INTEGERS[width])


def _ulps(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """How many numbers lie between: integers that count floating-point numbers in their order, subtracted."""
    least = torch.iinfo(a.dtype).min
    a, b = (torch.where(x < 0, least - x.long(), x.long()) for x in (a, b))
    return torch.where((a < 0) == (b < 0), (a - b).abs().double(), a.double().abs() + b.double().abs())
