"""Heads and feed-forward blocks of which the largest tensor is never whole, with the bits of plain PyTorch."""

from __future__ import annotations

import dataclasses

import torch
from torch.overrides import handle_torch_function, has_torch_function

from remat import _C
from remat.errors import Error

_REDUCTIONS = {"none": 0, "mean": 1, "sum": 2}  # PyTorch's numbers
_ACTIVATIONS = ("gelu", "gelu_tanh", "silu", "relu")  # as C++ counts them


@dataclasses.dataclass(frozen=True)
class TileChoice:
    """How the largest tensor of a call (rows: tokens; columns: classes, or hidden units) was taken.

    Attributes:
        rows: tokens in a tile, in the forward pass and for the gradient of the input. 0: the tensor was whole.
        columns: classes or hidden units in a tile for the gradients of weights and biases, which are summed over all
            tokens; it costs that the tensor is computed once more. 0: these gradients are summed over the tiles of rows.
        reason: why, in a sentence.
    """

    rows: int
    columns: int
    reason: str

    @property
    def is_whole(self) -> bool:
        """Was the tensor whole, as in plain PyTorch?"""
        return self.rows == 0


def last_tile_choice() -> TileChoice:
    """That of this thread's last call of linear_cross_entropy() or tiled_mlp(). Before the first: whole."""
    return TileChoice(*_C.last_tile_choice())


def linear_cross_entropy(
    input: torch.Tensor,
    linear_weight: torch.Tensor,
    target: torch.Tensor,
    *,
    linear_bias: torch.Tensor | None = None,
    weight: torch.Tensor | None = None,
    reduction: str = "mean",
    ignore_index: int = -100,
    label_smoothing: float = 0.0,
    whole_trial: bool = False,
) -> torch.Tensor:
    """``F.cross_entropy(F.linear(input, linear_weight, linear_bias), target, ...)`` with the same bits, the gradients'
    too, and without the logits as a whole: in tiles where `input` is (tokens, width), `target` is class indices (tokens),
    tensors are on the CPU, and a trial with new shapes has shown that tiles give the same bits. Otherwise it is these two
    functions, with their errors; last_tile_choice() says which, and why.

    In tiles, forward and backward together compute four products in place of three (five where the choice has columns),
    and hold two to three tiles of logits at most. Within autocast logits are as autocast makes them.

    `weight` is a factor for each class, as in F.cross_entropy. With `whole_trial` the trial of new shapes compares the
    tensors as a whole; otherwise large products are compared one by one, in little memory: gradients whole, and some rows
    of the logits (docs/tiles.md).

    Raises IndexError for a target that is no class, and in backward Error with ``create_graph=True``, since nothing
    differentiates the gradients of tiles.
    """
    tensors = (input, linear_weight, target, linear_bias, weight)
    if has_torch_function(tensors):  # a subclass or a mode of the user's is asked first, as with PyTorch's functions
        return handle_torch_function(
            linear_cross_entropy,
            tensors,
            input,
            linear_weight,
            target,
            linear_bias=linear_bias,
            weight=weight,
            reduction=reduction,
            ignore_index=ignore_index,
            label_smoothing=label_smoothing,
            whole_trial=whole_trial,
        )
    if reduction not in _REDUCTIONS:
        raise ValueError(f"{reduction} is not a valid value for reduction")
    return _C.linear_cross_entropy(
        input,
        linear_weight,
        target,
        linear_bias,
        weight,
        _REDUCTIONS[reduction],
        ignore_index,
        label_smoothing,
        whole_trial,
    )


def tiled_mlp(
    input: torch.Tensor,
    up: torch.Tensor,
    down: torch.Tensor,
    *,
    activation: str = "gelu",
    gate: torch.Tensor | None = None,
    up_bias: torch.Tensor | None = None,
    gate_bias: torch.Tensor | None = None,
    down_bias: torch.Tensor | None = None,
    dropout: float = 0.0,
    whole_trial: bool = False,
) -> torch.Tensor:
    """The feed-forward block of a transformer, with the bits of plain PyTorch and without its hidden layer as a whole:
    ``F.linear(hidden, down, down_bias)`` of ``hidden = activation(F.linear(input, up, up_bias))``, or with a gate (SwiGLU)
    ``activation(F.linear(input, gate, gate_bias)) * F.linear(input, up, up_bias)``.

    `input`: (..., width), `up` and `gate`: (hidden, width), `down`: (results, hidden). `activation`: "gelu", "gelu_tanh",
    "silu" or "relu". In tiles where tensors are contiguous and on the CPU, and a trial with new shapes has shown that
    tiles give the same bits; otherwise by these functions, with their errors. last_tile_choice() says which, and why. In
    tiles, the backward pass computes the products of `up` and `gate` again.

    `dropout` is the share of hidden units that F.dropout() sets to 0; 0 in evaluation. With dropout the hidden layer is
    whole, since PyTorch draws the numbers of a tensor in one go. `whole_trial`: see linear_cross_entropy().

    Raises Error for an unknown activation, and in backward with ``create_graph=True``.
    """
    tensors = (input, up, down, gate, up_bias, gate_bias, down_bias)
    if has_torch_function(tensors):
        return handle_torch_function(
            tiled_mlp,
            tensors,
            input,
            up,
            down,
            activation=activation,
            gate=gate,
            up_bias=up_bias,
            gate_bias=gate_bias,
            down_bias=down_bias,
            dropout=dropout,
            whole_trial=whole_trial,
        )
    if activation not in _ACTIVATIONS:
        raise Error(f"[tiled_mlp] there is no activation {activation!r}; use one of {', '.join(_ACTIVATIONS)}")
    return _C.tiled_mlp(
        input,
        up,
        down,
        _ACTIVATIONS.index(activation),
        up_bias,
        gate,
        gate_bias,
        down_bias,
        dropout,
        whole_trial,
    )
