"""Calls of a step against the buffers that they are given: each whole number of each kernel is made larger. What is not
refused then runs in memory of exactly the buffers' sizes, which the compiler's sanitizers watch."""

from __future__ import annotations

import functools
import json
import re
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import export_boards as boards
import export_operators as operators
import pytest
import torch
from export_kernels_test import Several
from export_test import example

import remat
from remat.export.assemble import training_step

RUNTIME = Path(__file__).resolve().parents[2] / "runtime/c"
HEADER = (RUNTIME / "remat_kernels.h").read_text()
# Name and structure of each kernel; the exporter alone writes updates.
KERNELS = dict(re.findall(r"^void remat_(\w+)\(const remat_(\w+)_t\* a", HEADER, re.M))
del KERNELS["update"]
EACH = 4  # calls of a kernel
CASES = {  # of export_operators.py, by group: every how many
    "functions": 9, "products": 3, "broadcasting": 6, "convolutions": 3, "pooling": 3, "norms": 2, "order": 3, "masks": 3, "losses": 2,
}  # fmt: skip
Json = dict[str, Any]


@functools.cache
def steps() -> list[Json]:
    """Those of some operators each; together they call each kernel."""
    found: list[Json] = []
    for group, every in CASES.items():
        for name, case in list(operators.GROUPS[group]().items())[::every]:
            module = Several({name: case})
            found.append(json.loads(training_step(module, module.loss, [torch.ones(1)], [case.weights.reshape(-1)]).to_json()))
    both = torch.nn.CrossEntropyLoss(weight=torch.ones(4), label_smoothing=0.1)  # of integers that the step reads
    found.append(json.loads(training_step(torch.nn.Linear(3, 4), both, [torch.randn(2, 3)], [torch.tensor([0, 2])]).to_json()))
    module, loss, x, y = example("everything")  # with dropout
    for part in module.modules():
        if isinstance(part, torch.nn.Dropout):
            part.p = 0.25
    found.append(json.loads(training_step(module, loss, [x], [y]).to_json()))
    return found


def calls() -> Iterator[tuple[Json, int, Json]]:
    """Some of each kernel, of other arguments: the step, the call's place, the call."""
    seen: dict[str, set[str]] = {}
    for step in steps():
        for place, call in enumerate(step["operators"]):
            known = seen.setdefault(call["kernel"], set())
            text = json.dumps([call["arguments"], call["in_place"]])
            if len(known) < EACH and text not in known:
                known.add(text)
                yield step, place, call


def damaged(call: Json) -> Iterator[tuple[str, int]]:
    """Names of arguments and their number; while one is given, the call has it."""
    for name, value in list(call["arguments"].items()):
        numbers = value if isinstance(value, list) else [value]
        for i, number in enumerate(numbers):
            if isinstance(number, float):
                continue
            for larger in (number + 1, 2 * number + 3, 2**20, 2**27, 2**31 - 1):
                changed = [*numbers[:i], larger, *numbers[i + 1 :]]
                call["arguments"][name] = changed if isinstance(value, list) else larger
                yield name, larger
        call["arguments"][name] = value


def refused(step: Json) -> str:
    try:
        remat._C.export_step(json.dumps(step), ram_bytes=1 << 26)
    except remat.Error as error:
        return str(error)
    return ""


def test_each_kernel_is_called() -> None:
    assert {call["kernel"] for _, _, call in calls()} == set(KERNELS)


# ---- A call in memory of its own.


_KINDS = {"float32": "float", "int32": "int32_t", "uint32": "uint32_t", "uint8": "uint8_t", "bits": "uint32_t"}


def _size(buffer: Json) -> int:
    elements = 1
    for d in buffer["shape"]:
        elements *= d
    return elements


def _numbers(value: Any) -> str:
    return "{" + ", ".join(map(str, value)) + "}" if isinstance(value, list) else str(value)


def in_c(step: Json, call: Json, rule: str) -> str:
    """A block of C that calls the kernel as the step does. `rule`: of gradients, "0" where they are stored."""
    kernel, arguments = call["kernel"], call["arguments"]
    lines, inputs, results, over = [], [], [], {result: source for source, result in call["in_place"]}
    for i, (number, offset) in enumerate(call["inputs"]):
        if number < 0:
            inputs.append("0")
            continue
        buffer = step["buffers"][number]
        kind = _KINDS[buffer["type"]]
        count = (_size(buffer) + 31) // 32 if kind == "uint32_t" and buffer["type"] == "bits" else _size(buffer)
        lines.append(f"{kind} *i{i} = get({count - offset}, sizeof({kind}));")
        if kind == "uint8_t":  # an element that is in the plane, whatever the padding
            middle = arguments["kh"] // 2 * arguments["kw"] + arguments["kw"] // 2
            lines.append(f"for (int j = 0; j < {count}; ++j) i{i}[j] = {middle};")
        inputs.append(f"i{i}")
    for r, number in enumerate(call["results"]):
        if number < 0:
            results.append("0")
            continue
        buffer = step["buffers"][number]
        kind = _KINDS[buffer["type"]]
        count = (_size(buffer) + 31) // 32 if kind == "uint32_t" else _size(buffer)
        lines.append(f"{kind} *r{r} = {inputs[over[r]] if r in over and rule == '0' else f'get({count}, sizeof({kind}))'};")
        results.append(f"r{r}")
    if re.search(rf"remat_{kernel}\([^;]*remat_sink\* gradient", HEADER):
        lines.append(f"const remat_sink sink = {{r0, 0, 0, {rule}}};")
        results = ["&sink"]
    if re.search(rf"remat_{kernel}\([^;]*float\* ws\)", HEADER):
        lines.append(f"float *ws = get({call['workspace']}, 1);")
        results.append("ws")
    for i in range(len(inputs) if kernel == "cat" else 1):
        part = {k: v[i] if kernel == "cat" and k in ("inner", "at") else v for k, v in arguments.items()}
        fields = ", ".join(f".{name} = {_numbers(value)}" for name, value in part.items())
        given = inputs[i : i + 1] if kernel == "cat" else inputs
        lines.append(f"{{ const remat_{KERNELS[kernel]}_t a = {{{fields}}}; remat_{kernel}({', '.join(['&a', *given, *results])}); }}")
    return "{ " + " ".join(lines) + " release(); }"


def run_watched(blocks: list[str], folder: Path) -> None:
    functions = "\n".join(f"static void call{i}(void) {block}" for i, block in enumerate(blocks))
    (folder / "calls.c").write_text(
        '#include <stdio.h>\n#include <stdlib.h>\n#include "remat_kernels.h"\nstatic void *all[20];\nstatic int count;\n'
        "static void *get(size_t n, size_t size) { return all[count++] = calloc(n, size); }\n"
        "static void release(void) { while (count > 0) free(all[--count]); }\n"
        f"static const remat_rule sgd = {{.kind = REMAT_SGD}};\n{functions}\n"
        "static void (*const calls[])(void) = {" + ", ".join(f"call{i}" for i in range(len(blocks))) + "};\n"
        'int main(void) { for (int i = 0; i < (int)(sizeof calls / sizeof *calls); ++i) { fprintf(stderr, "call%d\\n", i); '
        "calls[i](); } }\n"
    )
    watched = ["-fsanitize=address,undefined", "-fno-sanitize=float-cast-overflow,float-divide-by-zero", "-fno-sanitize-recover=all"]
    sources = [str(folder / "calls.c"), *map(str, RUNTIME.glob("*.c"))]
    subprocess.run(["gcc", "-g1", "-O0", *boards.FLAGS, *watched, f"-I{RUNTIME}", *sources, "-o", folder / "calls"], check=True)
    done = subprocess.run([folder / "calls"], capture_output=True, text=True, env={"ASAN_OPTIONS": "detect_leaks=0"})
    if done.returncode != 0:
        last = [blocks[int(i)] for i in re.findall(r"^call(\d+)$", done.stderr, re.M)][-1:]
        raise AssertionError(f"{done.returncode} {last}\n{done.stderr[-3000:]}")


def test_larger_numbers_are_refused_or_do_no_harm(tmp_path: Path) -> None:
    blocks, accepted, count = [], set(), 0
    for step, place, call in calls():
        assert not refused(step), call
        blocks += [in_c(step, call, "0"), in_c(step, call, "&sgd")]
        for name, number in damaged(call):
            count += 1
            if text := refused(step):
                assert text.startswith(f"[step] operators[{place}]"), text
                continue
            accepted.add(name)
            if name != "b" or number < 1000:  # the same product so many times
                blocks += [in_c(step, call, "0"), in_c(step, call, "&sgd")]
    assert count > 2000
    # Strides of one element, or of what is within a longer view; the same product again; padding behind the last window;
    # and what is no size.
    harmless = {"b", "ab", "am", "ak", "bb", "bk", "bn", "s", "sc", "s0", "s1", "sh", "sw", "dh", "dw", "relu", "function", "padding", "site", "keep",
                "ignore", "reduction", "train", "count_pad", "kh", "kw", "pw", "low", "groups"}  # fmt: skip
    assert accepted <= harmless, accepted - harmless
    run_watched(blocks, tmp_path)


def test_what_a_refusal_says() -> None:
    """The call, its argument, the numbers."""
    step, place, call = next((s, p, c) for s, p, c in calls() if c["kernel"] == "matmul" and c["inputs"][2][0] >= 0)
    call = json.loads(json.dumps(step))
    call["operators"][place]["arguments"]["m"] *= 4
    text = refused(call)
    a = call["operators"][place]["arguments"]
    assert f"[step] operators[{place}], matmul, reads b:ab,m:am,k:ak = {a['b']}:{a['ab']},{a['m']}:{a['am']}," in text
    assert "elements, as input 0 from element 0 on, and buffers[" in text


@pytest.mark.parametrize(("kernel", "change", "text"), [
    ("conv2d", lambda o: o.update(workspace=0), "needs a workspace of"),
    ("matmul_grad", lambda o: o.update(in_place=[[0, 0]]), "cannot have its result in place of input 0"),
    ("embedding", lambda o: o["arguments"].update(rows=1), "has an index"),
    ("max_pool2d_grad", lambda o: o["arguments"].update(count_pad=0), "other sizes than the max_pool2d that made its indices"),
    ("pad", lambda o: o["arguments"].update(low=o["arguments"]["d"]), "in dimension"),
    ("cat", lambda o: o["arguments"]["at"].__setitem__(0, 1), "in at for input 0"),
    ("unary_grad", lambda o: o["arguments"].update(function=12), "which has no gradient"),
    ("running", lambda o: o["inputs"].__setitem__(2, o["inputs"][0]), "which is no state"),
])  # fmt: skip
def test_what_is_refused_besides(kernel: str, change: Callable[[Json], None], text: str) -> None:
    said = []
    for step, place, call in calls():
        if call["kernel"] == kernel:
            copy = json.loads(json.dumps(step))
            change(copy["operators"][place])
            said.append(refused(copy))
    assert any(text in message for message in said), said
