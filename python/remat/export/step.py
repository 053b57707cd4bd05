"""A training step as calls of kernels on buffers: the format remat-step (docs/formats.md)."""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Sequence
from typing import Any

import torch

from remat.device import META

VERSION = 1
_BYTES = {"float32": 4, "int32": 4, "uint32": 4, "uint8": 1}


@dataclasses.dataclass(eq=False)
class Buffer:
    """Memory for a tensor. Kinds: "parameter" (trained), "constant" (never written), "state" (written, and kept from
    step to step), "input" (of the batch), "value" (made in the step)."""

    number: int
    kind: str
    type: str  # "float32", "int32", "uint32", "uint8", or "bits", of which an element is one
    shape: tuple[int, ...]
    name: str = ""
    values: list[float] = dataclasses.field(default_factory=list)

    @property
    def elements(self) -> int:
        return math.prod(self.shape)

    @property
    def bytes(self) -> int:
        """In whole words."""
        if self.type == "bits":
            return (self.elements + 31) // 32 * 4
        return (self.elements * _BYTES[self.type] + 3) // 4 * 4


@dataclasses.dataclass(eq=False)
class View:
    """A tensor within a buffer. Its sizes, strides and offset are those of a tensor on the meta device, to which
    PyTorch applies its own views."""

    buffer: Buffer
    layout: torch.Tensor

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(self.layout.shape)

    @property
    def strides(self) -> tuple[int, ...]:
        return tuple(self.layout.stride())

    @property
    def offset(self) -> int:
        return int(self.layout.storage_offset())

    @property
    def elements(self) -> int:
        return self.layout.numel()

    def is_contiguous(self) -> bool:
        return self.layout.is_contiguous()

    def is_whole(self) -> bool:
        """All of its buffer, in order."""
        return self.is_contiguous() and self.elements == self.buffer.elements


def whole(buffer: Buffer) -> View:
    return View(buffer, torch.empty(buffer.shape, device=META))


@dataclasses.dataclass(eq=False)
class Operator:
    """A call of a kernel. Inputs are buffers, None where absent, each with an offset in elements; results whole
    buffers. ``in_place``: pairs of an input and a result that may lie over it where the input is needed no more."""

    kernel: str
    phase: str
    inputs: list[tuple[Buffer, int] | None]
    results: list[Buffer | None]
    arguments: dict[str, Any]
    workspace: int = 0
    in_place: list[tuple[int, int]] = dataclasses.field(default_factory=list)
    source: str = ""

    def reads(self, buffer: Buffer) -> bool:
        return any(place is not None and place[0] is buffer for place in self.inputs)


class Step:
    """Buffers and operators, in their order."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.buffers: list[Buffer] = []
        self.operators: list[Operator] = []
        self.gradients: list[tuple[Buffer, Buffer, bool]] = []  # a parameter, its gradient, stored transposed?
        self.loss: Buffer | None = None
        self.output: Buffer | None = None
        self.counter: Buffer | None = None

    def buffer(self, kind: str, type_: str, shape: Sequence[int], name: str = "", values: Any = None) -> Buffer:
        made = Buffer(len(self.buffers), kind, type_, tuple(int(d) for d in shape), name, values or [])
        self.buffers.append(made)
        return made

    def to_json(self) -> str:
        def number(buffer: Buffer | None) -> int:
            return -1 if buffer is None else buffer.number

        buffers = []
        for b in self.buffers:
            record = {"name": b.name, "kind": b.kind, "type": b.type, "shape": list(b.shape), "values": b.values}
            buffers.append("  " + json.dumps(record))
        calls = []
        for o in self.operators:
            record = {
                "kernel": o.kernel,
                "phase": o.phase,
                "inputs": [[-1, 0] if place is None else [place[0].number, place[1]] for place in o.inputs],
                "results": [number(b) for b in o.results],
                "arguments": o.arguments,
                "workspace": o.workspace,
                "in_place": [list(pair) for pair in o.in_place],
                "source": o.source,
            }
            calls.append("  " + json.dumps(record))
        gradients = [[p.number, g.number, int(transposed)] for p, g, transposed in self.gradients]
        return (
            f'{{\n "format": "remat-step",\n "version": {VERSION},\n "name": {json.dumps(self.name)},\n'
            f' "loss": {number(self.loss)},\n "output": {number(self.output)},\n "counter": {number(self.counter)},\n'
            f' "gradients": {json.dumps(gradients)},\n "buffers": [\n' + ",\n".join(buffers) + "\n ],\n"
            ' "operators": [\n' + ",\n".join(calls) + "\n ]\n}\n"
        )
