"""From a graph of ATen's operators to calls of kernels. Families of operators are in files of their own, which register
functions here by the operator's name."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch.fx import Node

from remat.device import META
from remat.errors import Error
from remat.export.capture import Captured
from remat.export.known_values import KnownValues, hides
from remat.export.step import Buffer, Operator, Step, View, whole

LARGEST = torch.finfo(torch.float32).max
Lowered = Any  # a View, a list of them, None for what no kernel reads, or what two functions of a family share
_FUNCTIONS: dict[str, Callable[["Lowering", Node], Lowered]] = {}

VIEWS = {
    f"aten.{name}"
    for name in (
        "view.default", "_unsafe_view.default", "reshape.default", "t.default", "transpose.int", "permute.default",
        "unsqueeze.default", "squeeze.default", "squeeze.dim", "squeeze.dims", "expand.default", "select.int",
        "slice.Tensor", "split.Tensor", "split_with_sizes.default", "unbind.int", "alias.default", "detach.default",
        "lift_fresh_copy.default", "unsafe_split.Tensor", "unsafe_split_with_sizes.default",
    )
}  # fmt: skip
_SAME = {"aten.alias.default", "aten.detach.default", "aten.lift_fresh_copy.default"}
_OF_INTEGERS = {
    f"aten.{name}"
    for name in (
        "embedding.default", "embedding_dense_backward.default", "nll_loss_forward.default", "nll_loss_backward.default",
        "clone.default", "_to_copy.default", "_assert_tensor_metadata.default", "masked_fill.Scalar", "gather.default",
        "eq.Scalar", "ne.Scalar", "ge.Scalar", "gt.Scalar", "le.Scalar", "lt.Scalar",
    )
}  # fmt: skip
# Those that copy in PyTorch: a value is never written to, so that views do.
_AS_VIEWS = {
    "aten._unsafe_view.default": torch.ops.aten.view.default,
    "aten.reshape.default": torch.ops.aten.view.default,
    "aten.unsafe_split.Tensor": torch.ops.aten.split.Tensor,
    "aten.unsafe_split_with_sizes.default": torch.ops.aten.split_with_sizes.default,
}


def lowers(*names: str) -> Callable[[Callable[["Lowering", Node], Lowered]], Any]:
    """The decorated function lowers the operators ``aten.<name>``."""

    def register(function: Callable[["Lowering", Node], Lowered]) -> Any:
        for name in names:
            _FUNCTIONS["aten." + name] = function
        return function

    return register


def lowered_operators() -> list[str]:
    """Names of all operators that have kernels or are views."""
    return sorted(set(_FUNCTIONS) | VIEWS)


class Lowering:
    """Lowers one graph into a step. ``values``: what each node of the graph has become."""

    def __init__(self, step: Step, captured: Captured, phase: str, buffers: dict[str, Buffer]) -> None:
        self.step = step
        self.phase = phase
        self.values: dict[Node, Lowered] = {}
        self.known = KnownValues()
        self.nodes = {node.name: node for node in captured.graph.graph.nodes}
        self._graph = captured.graph
        self._names = captured.names
        self._of_buffers = captured.buffers
        self._buffers = buffers
        self._loss = self.nodes.get(captured.loss or "")
        self.loss: Buffer | None = None
        self._name = ""  # of the operator that is being lowered
        self.gradient_bases = {
            base
            for output in captured.gradients
            if (base := self._base_of_gradient(self.nodes[output])) is not None
        }

    # ---- Going through the graph.

    def run(self) -> None:
        for node in self._graph.graph.nodes:
            if node.op == "placeholder":
                name = self._names.get(node.name, "")
                buffer = self._buffers.get(name)
                self.values[node] = None if buffer is None else whole(buffer)
                if buffer is not None and buffer.kind == "constant" and name in self._of_buffers:
                    self.known.put(node, torch.tensor(buffer.values, dtype=node.meta["val"].dtype).view(buffer.shape))
            elif node.op == "get_attr":
                tensor = getattr(self._graph, node.target)
                self.known.put(node, tensor)
                self.values[node] = self._constant(node)
            elif node.op == "call_function":
                self.values[node] = self._call(node)

    def _call(self, node: Node) -> Lowered:
        if node.target is operator.getitem:
            return self.values[node.args[0]][node.args[1]]
        name = self._name = str(node.target)
        inputs = node.all_input_nodes
        if self.known.compute(node) and name not in VIEWS:
            if inputs or name not in _FUNCTIONS or not _is_finite(self.known.get(node)):
                return self._constant(node)
        if inputs and all(self.values.get(source) is None for source in inputs):
            return None  # of counters that no kernel reads
        if self.phase == "forward" and name.startswith("aten.ones_like") and node.args[0] is self._loss:
            self.loss = self.own(self.view(self._loss)).buffer
            self.phase = "backward"
        if name in VIEWS:
            return self._view(node, name)
        function = _FUNCTIONS.get(name)
        if function is None:
            raise Missing(name)
        integers = [n for n in inputs if isinstance(v := self.values[n], View) and v.buffer.type == "int32"]
        if name in _OF_INTEGERS or not integers:
            return function(self, node)
        if any(self.known.get(source) is None for source in integers):
            raise Missing(name, "of integers")
        # Numbers, as how many there are of something.
        kept = {source: self.values[source] for source in integers}
        for source in integers:
            tensor = self.known.get(source)
            assert tensor is not None
            self.values[source] = whole(constant_buffer(self.step, tensor.float(), source.name, "constant"))
        result = function(self, node)
        self.values.update(kept)
        return result

    def _view(self, node: Node, name: str) -> Lowered:
        view = self.values[node.args[0]]
        if name in _SAME or not isinstance(view, View):
            return view
        target = _AS_VIEWS.get(name, node.target)
        try:
            layout = target(view.layout, *node.args[1:], **node.kwargs)
        except RuntimeError:  # the strides cannot express it
            view = self.contiguous(view)
            layout = target(view.layout, *node.args[1:], **node.kwargs)
        if isinstance(layout, torch.Tensor):
            return View(view.buffer, layout)
        return [View(view.buffer, part) for part in layout]

    def _constant(self, node: Node) -> Lowered:
        """A node whose contents are known. None where C cannot have them, which matters where a kernel reads them."""
        tensor = self.known.get(node)
        if tensor is None or tensor.dtype in (torch.float64, torch.float16, torch.bfloat16):
            return None
        if not _is_finite(tensor):
            if not hides(node, tensor):
                return None
            tensor = tensor.clamp(min=-LARGEST)
        return whole(constant_buffer(self.step, tensor, node.name, "constant"))

    # ---- What functions of families use.

    def view(self, node: Any) -> View:
        """A tensor that a kernel reads."""
        value = self.values[node]
        if value is None and not _is_finite(self.known.get(node)):
            raise Missing(self._name, "with a number that is not finite, and in no mask that leaves a softmax one in each row,")
        if not isinstance(value, View):
            raise Missing(str(node.target), "whose result no kernel gives")
        if value.elements == 0:
            raise Missing(self._name, "of a tensor without elements")
        return value

    def optional(self, node: Any) -> View | None:
        return None if node is None else self.view(node)

    def whole(self, node: Any) -> View:
        """As view(), contiguous."""
        return self.contiguous(self.view(node))

    def contiguous(self, view: View) -> View:
        if view.is_contiguous():
            return view
        if view.buffer.type != "float32":
            raise Missing("aten.clone.default", "of integers, in another order than they are given in,")
        sizes, strides = merged(view.shape, [view.strides])
        if len(sizes) > 6:
            raise Missing("aten.clone.default", "of a view with more than six dimensions that do not merge")
        result = self.new(view.shape)
        self.emit("copy", [view], [result], {"d": front(sizes, 6, 1), "s": front(strides[0], 6, 0)})
        return result

    def own(self, view: View) -> View:
        """As contiguous(), all of a value."""
        view = self.contiguous(view)
        if view.is_whole() and view.buffer.kind == "value":
            return view
        result = self.new(view.shape)
        times_one = dict(n=view.elements, function=0, p=1.0, q=0.0)
        self.emit("unary", [view], [result], times_one, in_place=[(0, 0)])
        return result

    def new(self, shape: Sequence[int], type_: str = "float32") -> View:
        return whole(self.step.buffer("value", type_, shape))

    def counter(self) -> View:
        """The seed and the step's number, which random numbers are made of."""
        if self.step.counter is None:
            self.step.counter = self.step.buffer("state", "uint32", (2,), "counter", [0, 0])
        return whole(self.step.counter)

    def sole_producer(self, node: Node) -> Operator | None:
        """The operator that made all of a node's contents, if the node is all that reads it."""
        view = self.values[node]
        if not isinstance(view, View) or not view.is_whole():
            return None
        while len(node.users) == 1 and str(node.target) in VIEWS:
            node = node.args[0]
        if len(node.users) != 1 or node.op != "call_function":
            return None
        made = [o for o in self.step.operators if view.buffer in o.results]
        return made[0] if len(made) == 1 and not any(o.reads(view.buffer) for o in self.step.operators) else None

    def sole_product(self, node: Node) -> Operator | None:
        """As sole_producer(), if that is a product to which nothing is added."""
        made = self.sole_producer(node)
        plain = made is not None and made.kernel == "matmul" and made.inputs[2] is None and not made.arguments["relu"]
        return made if plain else None

    def emit_after(
        self, made: Operator, kernel: str, input_: View, result: View, arguments: dict[str, Any], workspace: int = 0
    ) -> None:
        """A call that takes the place of a product and of what is done with its result alone, which reads `input_` too
        and may lie over it."""
        self.step.operators.remove(made)
        self.emit(kernel, [None, None, input_], [result], arguments, workspace, [(2, 0)])
        self.step.operators[-1].inputs[:2] = made.inputs[:2]

    def emit(
        self,
        kernel: str,
        inputs: Sequence[View | None],
        results: Sequence[View | None],
        arguments: dict[str, Any],
        workspace: int = 0,
        in_place: Sequence[tuple[int, int]] = (),
    ) -> None:
        """A call. Of ``in_place`` only pairs count whose input is all of a value that the result fits into."""
        numbers = [n for value in arguments.values() for n in (value if isinstance(value, list) else [value])]
        if any(isinstance(n, float) and not abs(n) <= LARGEST for n in numbers):
            raise Missing(self._name, "with a number that is not finite")
        pairs = []
        for source, result in in_place:
            view, made = inputs[source], results[result]
            if view is None or made is None or not view.is_whole():
                continue
            if view.buffer.bytes >= made.buffer.bytes and view.buffer.kind == "value":
                pairs.append((source, result))
        places = [None if v is None else (v.buffer, v.offset) for v in inputs]
        made_buffers = [None if v is None else v.buffer for v in results]
        self.step.operators.append(Operator(kernel, self.phase, places, made_buffers, arguments, workspace, pairs))

    # ---- Gradients.

    def _base_of_gradient(self, node: Node) -> Node | None:
        """The node that a gradient is a view of, as x of x.t().view(...), if nothing else reads it."""
        while node.op == "call_function" and str(node.target) in VIEWS:
            node = node.args[0]
        chain = node
        while users := [u for u in chain.users if u.op != "output"]:
            if len(users) > 1 or str(users[0].target) not in VIEWS:
                return None
            chain = users[0]
        return node

    def gradient_is_transposed(self, node: Node) -> bool | None:
        """Of a node that is a parameter's gradient but for views: whether they transpose a matrix. None: it is no
        gradient, or the views do something else."""
        if node not in self.gradient_bases:
            return None
        layout = torch.empty(node.meta["val"].shape, device=META)
        while users := [u for u in node.users if u.op != "output"]:
            node = users[0]
            if str(node.target) not in _SAME:
                layout = node.target(layout, *node.args[1:], **node.kwargs)
        if layout.is_contiguous():
            return False
        return True if layout.dim() == 2 and layout.t().is_contiguous() else None


def _is_finite(tensor: torch.Tensor | None) -> bool:
    return tensor is None or not tensor.is_floating_point() or bool(tensor.isfinite().all())


class Missing(Exception):
    """An operator that has no kernel."""

    def __init__(self, name: str, why: str = "") -> None:
        super().__init__(name)
        self.name = name
        self.why = why


def constant_buffer(step: Step, tensor: torch.Tensor, name: str, kind: str) -> Buffer:
    tensor = tensor.detach()
    type_ = str(tensor.dtype).removeprefix("torch.")
    if tensor.is_floating_point():
        if tensor.dtype != torch.float32:
            raise Error(f'[export] "{name}" is {type_}; exports are float32: call .float()')
        values = tensor.flatten().tolist()
        if not all(math.isfinite(v) for v in values):
            raise Error(f'[export] "{name}" has values that are not finite; export a model that can be trained')
        return step.buffer(kind, "float32", tensor.shape, name, values)
    if tensor.dtype == torch.bool:
        return step.buffer(kind, "float32", tensor.shape, name, tensor.flatten().float().tolist())
    if tensor.dtype not in (torch.int64, torch.int32):
        raise Error(f'[export] "{name}" is {type_}; exports have float32, int64 for indices, and bool for masks')
    return step.buffer(kind, "int32", tensor.shape, name, tensor.flatten().tolist())


def merged(shape: Sequence[int], strides: Sequence[Sequence[int]]) -> tuple[list[int], list[list[int]]]:
    """The same elements with as few dimensions as the strides of all tensors allow; none of size 1."""
    sizes: list[int] = []
    own: list[list[int]] = [[] for _ in strides]
    for d, size in enumerate(shape):
        if size == 1:
            continue
        if sizes and all(mine[-1] == s[d] * size for mine, s in zip(own, strides, strict=True)):
            sizes[-1] *= size
            for mine, s in zip(own, strides, strict=True):
                mine[-1] = s[d]
            continue
        sizes.append(size)
        for mine, s in zip(own, strides, strict=True):
            mine.append(s[d])
    return sizes, own


def front(numbers: Sequence[int], count: int, filler: int) -> list[int]:
    """With so many fillers in front that there are `count`."""
    return [filler] * (count - len(numbers)) + list(numbers)
