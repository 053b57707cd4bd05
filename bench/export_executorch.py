#!/usr/bin/env python3
"""What ExecuTorch plans for the training steps of export.py, and for the same steps rewritten by remat's plans.

    PYTHON bench/export_executorch.py [MODEL ...] [--remat build/release/app/remat] [--out FILE]

PYTHON is an interpreter that has executorch, which brings a torch of its own. Writes bench/results/<date>-executorch.json.
A step is torch.export's joint graph of forward and backward, planned by to_executorch() as it comes: bytes are those of
all planned buffers (parameters, batch, activations, gradients), without ExecuTorch's runtime and an optimizer. Rewritten:
forward nodes of the graph that `remat plan` drops are copied to where the backward pass needs them, before ExecuTorch
plans. Its runtime runs both, if it has the kernels, and the bits of loss and gradients are compared. (That of 1.5.1 has a
max_pool2d_with_indices_backward that adds to memory which it does not clear: far_from_torch tells of the CNN.)
"""

import argparse
import datetime
import json
import math
import re
import subprocess
import sys
import tempfile
from importlib.metadata import version
from pathlib import Path

import torch
from executorch.exir import to_edge
from executorch.exir.pass_base import PassResult
from torch.export import export
from torch.export.experimental import _export_forward_backward

from machine import ROOT, describe
from step_model import GONE, KEEP, PACKED, Graph, Step

sys.path.insert(0, str(ROOT / "tests/python"))
import export_models as models  # noqa: E402

MODELS = ("mlp", "cnn", "ds_cnn", "transformer", "resnet8", "autoencoder")
PERCENT = (75, 50, 40)  # of the bytes that a step's activations and gradients take at their peak; and the least
ALIGNMENT = 16  # of ExecuTorch's buffers


class TrainingStep(torch.nn.Module):
    def __init__(self, module, loss):
        super().__init__()
        self.module, self.loss = module, loss

    def forward(self, x, y):
        return self.loss(self.module(x), y)


def example(name):
    torch.manual_seed(0)
    module, loss, x, y = models.ALL[name]()
    return TrainingStep(module, loss), (x, y)


def edge_of(name):
    step, batch = example(name)
    return to_edge(_export_forward_backward(export(step, batch, strict=True)))


def joint_of(edge):
    program = edge.exported_program()
    return Joint(program.graph_module, program.graph_signature.user_outputs[0])


def planned(edge):
    """The program, and the bytes of its buffers."""
    program = edge.to_executorch()
    return program, sum(program.executorch_program.execution_plan[0].non_const_buffer_sizes)


def outputs_of(program, batch):
    """What ExecuTorch's runtime makes of a program. None: it has no kernel for an operator."""
    from executorch.extension.pybindings.portable_lib import _load_for_executorch_from_buffer

    try:
        return [t.clone() for t in _load_for_executorch_from_buffer(program.buffer).forward(batch)]
    except RuntimeError as error:
        print(error, file=sys.stderr)
        return None


def in_torch(edge, batch):
    """What PyTorch makes of the graph that is to be planned."""
    program, batch = edge.exported_program(), list(batch)
    state = {**program.state_dict, **program.constants}
    inputs = [state[k.target] if k.target is not None else batch.pop(0) for k in program.graph_signature.input_specs]
    with torch.no_grad():
        return [t.clone() for t in torch.fx.Interpreter(program.graph_module).run(*inputs)]


def is_view(node):
    """Whether to_executorch() makes it a view, which takes no memory."""
    view = node.op == "call_function" and "view_copy" in str(node.target)
    return view and all(user.op != "output" for user in node.users)


def is_result(node):
    return node.op == "call_function" and "getitem" in str(node.target)


class Joint:
    """A joint graph as remat's planner wants it (docs/formats.md). Values are what memory is planned for: each result of
    a forward node, and the placeholders. `document` is the graph, `backward` has the backward node at which an event is."""

    def __init__(self, module, loss):
        self.nodes = [n for n in module.graph.nodes if n.op in ("placeholder", "call_function")]
        self.output = next(n for n in module.graph.nodes if n.op == "output")
        self.loss = next(n for n in self.nodes if n.name == loss)
        self.value_of = {}  # (node, which result): a value
        self.results = []  # by operator: nodes, by which result
        self.operator_nodes = []
        self.backward = []
        self.values, self.operators, self.events = [], [], []
        kept = {self.base(n) for n in self.output.all_input_nodes}
        end = self.nodes.index(self.loss)
        self.last = {}  # by value: the last node that reads it
        self.last_forward = {}
        for place, node in enumerate(self.nodes):
            for source in node.all_input_nodes:
                self.last[self.base(source)] = place
                if place <= end:
                    self.last_forward[self.base(source)] = place
        self.kept = kept
        self.end = end
        self.held = {}  # bytes of what backward made
        baseline = 0
        for place, node in enumerate(self.nodes):
            if node.op == "placeholder":
                self._add((node, 0), -1, node.meta["val"])
                baseline += self.values[-1]["bytes"]
            elif not is_view(node) and not is_result(node):
                (self._forward if place <= end else self._backward)(place, node)
            else:
                self._pass(place, node)
        self.document = {
            "format": "remat-graph", "version": 3, "baseline_bytes": baseline, "parameter_bytes": 0, "gradient_bytes": 0,
            "step_seconds": self.seconds, "values": self.values, "operators": self.operators, "events": self.events,
        }  # fmt: skip

    seconds = 0.0

    def base(self, node):
        """The node and which of its results is behind views."""
        while is_view(node):
            node = node.args[0]
        return (node.args[0], node.args[1]) if is_result(node) else (node, 0)

    def _add(self, key, producer, tensor):
        self.value_of[key] = len(self.values)
        saved = producer >= 0 and key not in self.kept and self.last.get(key, -1) > self.end
        self.values.append(
            {"bytes": size_of(tensor), "producer": producer, "packed_bytes": 0, "droppable": saved, "dropped": False}
        )

    def _event(self, kind, index, rise=0, delta=0, node=None):
        self.events.append([kind, index, max(rise, delta, 0), delta])
        self.backward.append(node)

    def _bytes(self, key):
        return self.values[self.value_of[key]]["bytes"]

    def _inputs(self, node):
        return list(dict.fromkeys(self.base(n) for n in node.all_input_nodes))

    def _saved(self, key):
        return key in self.value_of and self.values[self.value_of[key]]["droppable"]

    def _forward(self, place, node):
        index = len(self.operators)
        made = results_of(node)
        for which, tensor in enumerate(made):
            self._add((node, which), index, tensor)
        keys = [(node, which) for which in range(len(made))]
        seconds = work_of(node) * 1e-9
        self.seconds += seconds
        inputs = self._inputs(node)
        self.operators.append({
            "name": str(node.target), "seconds": seconds, "replay_seconds": seconds, "scratch_bytes": 0,
            "inputs": sorted(self.value_of[k] for k in inputs), "overwritten": [],
            "results": [self.value_of[k] for k in keys],
        })  # fmt: skip
        self.operator_nodes.append(node)
        total = sum(map(self._bytes, keys))
        self._event("other", -1, total, total)
        self._event("operator", index)
        for key in keys:
            if self._saved(key) and key not in self.last_forward:
                self._event("idle", self.value_of[key])
        self._pass(place, node, [k for k in keys if k not in self.last and k not in self.kept])

    def _pass(self, place, node, unread=()):
        """What a node was the last to read goes, or is from now on held for the backward pass alone."""
        if place > self.end:
            for key in self._inputs(node):
                if self._saved(key):  # a view of it
                    self._event("use", self.value_of[key], node=node)
            self._event("other", -1, node=node)
            self._release(place, node)
            return
        dead = sum(map(self._bytes, unread))
        for key in self._inputs(node):
            made = self.values[self.value_of[key]]["producer"] >= 0
            if made and self.last[key] == place and key not in self.kept:
                dead += self._bytes(key)
        if dead:
            self._event("other", -1, 0, -dead)
        for key in self._inputs(node):
            if self._saved(key) and self.last_forward[key] == place:
                self._event("idle", self.value_of[key])

    def _backward(self, place, node):
        made = results_of(node)
        keys = [(node, which) for which in range(len(made))]
        self.seconds += work_of(node) * 1e-9
        for key in self._inputs(node):
            if self._saved(key):
                self._event("use", self.value_of[key], node=node)
        for key, tensor in zip(keys, made):
            self.held[key] = size_of(tensor)
        total = sum(self.held[k] for k in keys)
        self._event("other", -1, total, total, node=node)
        self._release(place, node, [k for k in keys if k not in self.last and k not in self.kept])

    def _release(self, place, node, unread=()):
        dead = sum(self.held[k] for k in unread)
        for key in self._inputs(node):
            if self.last[key] != place or key in self.kept:
                continue
            if self._saved(key):
                self._event("free", self.value_of[key])
            elif key in self.held:
                dead += self.held[key]
            elif self.values[self.value_of[key]]["producer"] >= 0:
                dead += self._bytes(key)
        if dead:
            self._event("other", -1, 0, -dead)


class Rewriting(Step):
    """A step under a plan whose replays become copies of nodes in front of the backward node that needs them."""

    def __init__(self, module, joint, actions):
        super().__init__(Graph(joint.document), actions)
        self.module, self.joint = module, joint
        self.key_of = {value: key for key, value in joint.value_of.items()}
        self.copies = {}  # by value: the node that stands for it, where that is a copy
        self.at = None
        for e, node in enumerate(joint.backward):
            if node is not None:
                self.at = node
            self.event(e)
            if node is not None and self.graph.events[e][0] == "other":
                node.args = torch.fx.map_arg(node.args, self._instead)
                node.kwargs = torch.fx.map_arg(node.kwargs, self._instead)
        module.graph.lint()
        module.recompile()

    def _instead(self, node):
        """A node, or what stands for it: a copy, perhaps behind copies of views."""
        if is_view(node):
            base = self._instead(node.args[0])
            return node if base is node.args[0] else self._copy(node, (base, *node.args[1:]), node.kwargs)
        return self.copies.get(self.joint.value_of.get(self.joint.base(node)), node)

    def _copy(self, node, args, kwargs):
        with self.module.graph.inserting_before(self.at):
            copy = self.module.graph.create_node("call_function", node.target, args, kwargs)
        copy.meta = dict(node.meta)
        return copy

    def _run(self, operator, target, reads):
        node = self.joint.operator_nodes[self.graph.producer[operator["results"][0]]]
        copy = self._copy(node, torch.fx.map_arg(node.args, self._instead), torch.fx.map_arg(node.kwargs, self._instead))
        parts = {user.args[1]: user for user in node.users if is_result(user)}
        for value in operator["results"]:
            if self.states[value] not in (GONE, PACKED):
                continue
            which = self.key_of[value][1]
            self.copies[value] = copy
            if isinstance(node.meta["val"], (tuple, list)) and which in parts:
                self.copies[value] = self._copy(parts[which], (copy, which), {})
        super()._run(operator, target, reads)


def results_of(node):
    value = node.meta["val"]
    return list(value) if isinstance(value, (tuple, list)) else [value]


def size_of(tensor):
    if not isinstance(tensor, torch.Tensor):
        return 0
    return math.ceil(tensor.numel() * tensor.element_size() / ALIGNMENT) * ALIGNMENT


def work_of(node):
    """Elements, times what a sum adds up: enough to choose by."""
    elements = sum(t.numel() for t in results_of(node) if isinstance(t, torch.Tensor))
    name, sources = str(node.target), [n.meta["val"] for n in node.all_input_nodes]
    if "convolution_backward" in name:  # two products
        elements = 2 * sources[0].numel() * math.prod(sources[2].shape[1:])
    elif "convolution" in name:
        elements *= math.prod(sources[1].shape[1:])
    elif "addmm" in name:
        elements *= sources[-1].shape[0]
    elif "mm" in name:
        elements *= sources[0].shape[-1]
    return elements


def plan_of(graph, budget, remat):
    """The plan file's contents, for a budget or, where nothing fits it, for the least that was found."""
    with tempfile.TemporaryDirectory() as folder:
        source, plan = Path(folder) / "graph.json", Path(folder) / "plan.json"
        source.write_text(json.dumps(graph))
        done = subprocess.run(
            [remat, "plan", source, "--budget", budget, "--no-pack", "--out", plan], capture_output=True, text=True
        )
        if done.returncode == 3:
            return plan_of(graph, re.search(r"its smallest needs [^(]*\((\d+) bytes", done.stderr)[1], remat)
        assert done.returncode == 0, (done.stdout, done.stderr)
        return json.loads(plan.read_text())


def rewritten(name, budget, remat):
    """A row for a step under remat's plan for a budget, the program, and what PyTorch makes of it."""
    edge = edge_of(name)
    plan = plan_of(joint_of(edge).document, budget, remat)
    row = {"budget_bytes": plan["budget_bytes"], "predicted_bytes": plan["predicted_peak_bytes"]}

    def rewrite(module):
        joint = Joint(module, edge.exported_program().graph_signature.user_outputs[0])
        step = Rewriting(module, joint, Graph(joint.document).actions_from(plan["actions"]))
        assert step.result().peak_bytes == plan["predicted_peak_bytes"]
        row.update(again=step.replays, work=step.seconds / joint.seconds)
        return PassResult(module, True)

    changed = edge.transform([rewrite])
    outputs = in_torch(changed, example(name)[1])
    program, row["bytes"] = planned(changed)
    return row, program, outputs


def far_from_torch(outputs, edge, step, batch):
    """The largest difference of a gradient from PyTorch's, relative to its largest number."""
    step(*batch).backward()
    gradients = {name: parameter.grad for name, parameter in step.named_parameters()}
    kinds = edge.exported_program().graph_signature.output_specs
    pairs = [(out, gradients[k.target]) for out, k in zip(outputs, kinds) if k.kind.name == "GRADIENT_TO_PARAMETER"]
    assert len(pairs) == len(gradients)
    return max(((out - own).abs().max() / own.abs().max().clamp(min=1e-30)).item() for out, own in pairs)


def same_bits(a, b):
    return len(a) == len(b) and all(torch.equal(x, y) for x, y in zip(a, b))  # no NaN here


def measured(name, remat):
    step, batch = example(name)
    edge = edge_of(name)
    joint, plain = joint_of(edge), in_torch(edge, batch)
    program, bytes_ = planned(edge)
    kept = outputs_of(program, batch)
    result = {"model": name, "bytes": bytes_, "predicted_bytes": Graph(joint.document).plain_peak(), "runs": kept is not None}
    if kept is not None:
        result["far_from_torch"] = far_from_torch(kept, edge, step, batch)
    result["rewritten"] = []
    for budget in (*(f"{percent}%" for percent in PERCENT), "1000"):
        row, program, outputs = rewritten(name, budget, remat)
        if any(other["budget_bytes"] == row["budget_bytes"] for other in result["rewritten"]):
            break
        row["same_bits_in_torch"] = same_bits(outputs, plain)
        if kept is not None:
            outputs = outputs_of(program, batch)
            row["same_bits"] = outputs is not None and same_bits(outputs, kept)
        result["rewritten"].append(row)
        print(name, bytes_, row, file=sys.stderr, flush=True)
    return result


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="*", default=MODELS, metavar="MODEL")
    parser.add_argument("--remat", default=ROOT / "build/release/app/remat", type=Path)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    today = datetime.date.today().isoformat()
    versions = {"torch": torch.__version__, "executorch": version("executorch")} | describe()
    result = {"figure": "executorch", "date": today, "trial": False, "versions": versions}
    result["rows"] = [measured(name, options.remat) for name in options.models]
    out = options.out or ROOT / f"bench/results/{today}-executorch.json"
    out.write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
