"""Watches a training run from outside: losses, gradients, parameters, buffers, optimizers, modes and generators."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from torch.optim import optimizer as optimizers

from .calls import Calls, in_backward
from .meter import Meter
from .records import BEFORE_CALL, Sink
from .states import generator_states, optimizer_settings, optimizer_states
from .trace import Trace
from .values import Value, text, value_of


class Enough(BaseException):
    """Ends a script after the steps that are asked for; no ``except Exception`` of the script's catches it."""


def in_a_line(raised: BaseException) -> str:
    return f"{type(raised).__name__}: {str(raised).strip().partition(chr(10))[0]}"


class Observer:
    """`steps`: after how many updates by one optimizer the script is ended; None: never. Not for several threads."""

    def __init__(
        self,
        sink: Sink,
        meter: Meter,
        way: Callable[[nn.Module], Any] | None = None,
        steps: int | None = None,
        trace: Trace | None = None,
    ) -> None:
        self.calls = Calls(way, self._before_call)
        self.updates = 0
        self._sink, self._meter, self._steps, self._trace = sink, meter, steps, trace
        self._optimizers: dict[int, tuple[Any, int]] = {}
        self._updating: Any = None
        self._named: dict[tuple[str, str], int] = {}  # of this update
        self._losses = 0
        self._called = False  # the model, since the last update
        self._inside = False  # of torch.autograd.backward(), which may call itself for subclasses

    def install(self) -> None:
        self.calls.install()
        self._hooks = [
            optimizers.register_optimizer_step_pre_hook(self._before_update),
            optimizers.register_optimizer_step_post_hook(self._after_update),
        ]
        self._backward = torch.autograd.backward
        torch.autograd.backward = self._watched_backward
        self._meter.resume()

    def remove(self) -> None:
        if self._trace is not None:
            self._trace.end()
        torch.autograd.backward = self._backward
        for hook in self._hooks:
            hook.remove()
        self.calls.remove()

    def outcome(self, error: str | None) -> dict[str, Any]:
        """Of the run that has ended: what was found, what it took, whether the way was applied."""
        figures = {**self._sink.finish(), **self._meter.figures(), "error": error}
        return {**figures, "applied": self.calls.applied, "refused": self.calls.refused}

    def _add(self, kind: str, name: str, value: Value) -> None:
        count = self._named[kind, name] = self._named.get((kind, name), 0) + 1  # models may share their parts' names
        self._sink.add(self.updates + 1, kind, name if count == 1 else f"{name} ({count})", value)

    def _watched_backward(self, tensors: Any, *args: Any, **kwargs: Any) -> None:
        if self._inside or in_backward():  # torch.utils.checkpoint's reentrant kind
            return self._backward(tensors, *args, **kwargs)
        self._meter.pause()
        for tensor in [tensors] if isinstance(tensors, torch.Tensor) else list(tensors):
            if isinstance(tensor, torch.Tensor):
                self._losses += 1
                self._add("loss", f"loss {self._losses}", value_of(tensor))
        self._meter.resume()
        self._inside = True
        try:
            return self._backward(tensors, *args, **kwargs)
        finally:
            self._inside = False

    def _before_call(self) -> None:
        if self._called:
            return
        self._called = True
        self._meter.pause()
        self._add_generators(BEFORE_CALL)
        self._meter.resume()
        if self._trace is not None and self._trace.update == self.updates + 1:
            self._trace.begin(self.calls.modules)

    def _before_update(self, optimizer: Any, args: Any, kwargs: Any) -> None:
        if self._updating is not None and self._updating is not optimizer:
            return  # an optimizer inside of another
        self._updating = optimizer
        if not _has_closure(args, kwargs):  # which computes the gradients inside
            self._meter.pause()
            self._add_gradients(self._parameters(optimizer))
            self._meter.resume()

    def _after_update(self, optimizer: Any, args: Any, kwargs: Any) -> None:
        if self._updating is not optimizer:
            return
        self._updating = None
        self._meter.pause()
        if self._trace is not None:
            self._trace.end()
        number, count = self._optimizers.get(id(optimizer), (len(self._optimizers) + 1, 0))
        self._optimizers[id(optimizer)] = number, count + 1
        parameters = self._parameters(optimizer)
        if _has_closure(args, kwargs):
            self._add_gradients(parameters)
        for name, parameter in parameters:
            self._add("parameter", name, value_of(parameter))
        for name, value in optimizer_states(optimizer, parameters):
            self._add("state", name, value)
        for name, value in optimizer_settings(optimizer):
            self._add("option", name, value)
        self._end((number, type(optimizer).__name__, count + 1))
        self._meter.end_step()
        self._meter.resume()
        traced = self._trace is not None and self._trace.done
        if self._steps is not None and (count + 1 >= self._steps or traced):
            raise Enough

    def end_without_update(self, step: int) -> None:
        """For a step function that calls no optimizer: what it leaves is looked at all the same."""
        self._meter.pause()
        if self._trace is not None:
            self._trace.end()
        parameters = list(self.calls.parameters.values())
        self._add_gradients(parameters)
        for name, parameter in parameters:
            self._add("parameter", name, value_of(parameter))
        self._end((1, "", step))
        self._meter.end_step()
        self._meter.resume()

    def _end(self, optimizer: tuple[int, str, int]) -> None:
        for name, module, attribute in self.calls.buffers:
            self._add("buffer", name, value_of(module._buffers.get(attribute)))
        for name, module in self.calls.modules.values():
            self._add("mode", name, text("train" if module.training else "eval"))
        self._add_generators("")
        self.updates += 1
        self._sink.end(self.updates, optimizer)
        self._losses, self._called = 0, False
        self._named.clear()

    def _parameters(self, optimizer: Any) -> list[tuple[str, torch.Tensor]]:
        found = []
        for number, group in enumerate(optimizer.param_groups):
            for index, parameter in enumerate(group["params"]):
                name, _ = self.calls.parameters.get(id(parameter), (f"parameter {index} of group {number}", None))
                found.append((name, parameter))
        return found

    def _add_gradients(self, parameters: list[tuple[str, torch.Tensor]]) -> None:
        for name, parameter in parameters:
            self._add("gradient", name, value_of(parameter.grad))

    def _add_generators(self, when: str) -> None:
        for name, value in generator_states():
            self._add("generator", f"{name}{when}", value)


def _has_closure(args: Any, kwargs: Any) -> bool:
    return callable(kwargs.get("closure")) or any(callable(argument) for argument in args[1:])
