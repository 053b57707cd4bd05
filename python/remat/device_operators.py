"""The operators that PyTorch chooses on CUDA, on the meta device: where its choice depends on the device, the meta
device's is the CPU's."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import torch
from torch import Tensor
from torch.nn import functional

from remat.device import AUTOGRAD_OF_META

_MOST_FLASH_WIDTH = 256  # of a head
_MASK_ALIGNMENT = 16  # elements, of an efficient kernel's mask


@contextlib.contextmanager
def operators_of_cuda() -> Iterator[None]:
    """While it is open, tensors on the meta device, of all threads, go through CUDA's dropout and attention. Which
    kernels of attention may be chosen, torch.backends.cuda says."""
    library = torch.library.Library("aten", "IMPL")
    library.impl("dropout", _dropout, AUTOGRAD_OF_META)
    library.impl("scaled_dot_product_attention", _attention, AUTOGRAD_OF_META)
    try:
        yield
    finally:
        library._destroy()


def _dropout(input: Tensor, p: float, train: bool) -> Tensor:
    if p == 0 or not train or input.numel() == 0:
        return input
    return input * torch.zeros((), dtype=input.dtype) if p == 1 else torch.native_dropout(input, p, True)[0]


def _attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    *,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Tensor:
    fused = query.dim() == 4 and query.shape[-1] == key.shape[-1] == value.shape[-1]
    half = query.dtype in (torch.float16, torch.bfloat16)
    if fused and half and attn_mask is None and query.shape[-1] <= _MOST_FLASH_WIDTH and _may_flash():
        return _flash(query, key, value, dropout_p, is_causal, scale)
    if fused and not enable_gqa and query.dtype != torch.float64 and torch.backends.cuda.mem_efficient_sdp_enabled():
        mask = None if attn_mask is None else _efficient_mask(attn_mask, query, key)
        results = torch.ops.aten._scaled_dot_product_efficient_attention(
            query, key, value, mask, True, dropout_p, is_causal, scale=scale
        )
        return results[0]
    results = torch.ops.aten._scaled_dot_product_attention_math(
        query, key, value, attn_mask, dropout_p, is_causal, scale=scale, enable_gqa=enable_gqa
    )
    return results[0]


def _may_flash() -> bool:
    return torch.backends.cuda.flash_sdp_enabled()


def _flash(
    query: Tensor, key: Tensor, value: Tensor, dropout_p: float, is_causal: bool, scale: float | None
) -> Tensor:
    width = query.shape[-1]
    scale = width**-0.5 if scale is None else scale
    if width % 8:
        query, key, value = (functional.pad(each, (0, -width % 8)) for each in (query, key, value))
    result = torch.ops.aten._scaled_dot_product_flash_attention(
        query, key, value, dropout_p, is_causal, False, scale=scale
    )[0]
    return result[..., :width] if width % 8 else result


def _efficient_mask(mask: Tensor, query: Tensor, key: Tensor) -> Tensor:
    if mask.dtype == torch.bool:
        mask = torch.zeros_like(mask, dtype=query.dtype).masked_fill_(mask.logical_not(), -torch.inf)
    keys = key.shape[-2]
    if mask.shape[-1] == keys and keys % _MASK_ALIGNMENT:
        mask = functional.pad(mask, (0, -keys % _MASK_ALIGNMENT))[..., :keys]
    return mask.expand(query.shape[0], query.shape[1], query.shape[-2], keys)
