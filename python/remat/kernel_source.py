"""What the C++ source of Inductor's kernels says about them: the kinds of their arguments, and whether they give the same
bits each time that they run on the same inputs.

A kernel does when no two threads can write to the same element. Inductor shares the iterations of the loops after
``#pragma omp for`` among threads. Each write to a result in there has to be at an index that is a sum of loop variables
times strides, of which no two iterations have the same value: ordered from the innermost, each stride is at least as
large as all that the variables before it span. What cannot be shown to be so, such as a scatter, is not repeatable."""

from __future__ import annotations

import itertools
import re
from dataclasses import dataclass, field
from typing import Any

# A definition in the code of a graph, and one by C++ source.
_DEFINED = re.compile(r"^(\w+) = async_compile\.(\w+)\(", re.MULTILINE)
_KERNEL = re.compile(r"^(\w+) = async_compile\.cpp_pybinding\(\[[^\]]*\], r'''(.*?)'''\)", re.MULTILINE | re.DOTALL)
_FUNCTION = re.compile(r'extern "C"\s+void\s+kernel\(([^)]*)\)')
_ARGUMENT = re.compile(r"(const )?([\w:]+)(\*?) (in_ptr|out_ptr|in_out_ptr|ks)\d+")
_PARALLEL = re.compile(r"#pragma omp for(?: collapse\((\d+)\))?")
_LOOP = re.compile(r"for\s*\(int64_t (x\d+)=.*?; \1<(.*?); \1\+=")
_RESULT = re.compile(r"\b((?:in_)?out_ptr\d+)\b")
_ELEMENT = re.compile(r"(?:\[| \+ )static_cast<int64_t>(?=\()")
_READ = re.compile(r"(?:loadu\(|= |mxn<.*>\()$")
# Operators that write to any element: of those with the same index any may win.
_SCATTERING = re.compile(r"aten\.(_unsafe_)?(_?masked_)?(index_(put|copy|fill|reduce|add)|scatter|put)(_\w+)?\b")


@dataclass(frozen=True)
class Kernel:
    arguments: str  # of each: r, a tensor that it reads, w, one that it writes to, or n, an integer
    repeatable: bool
    code: str


@dataclass
class _Loop:
    variable: str
    bound: str
    parallel: bool
    depth: int  # of the braces around it
    written: dict[str, Any] = field(default_factory=dict)  # of the outermost parallel loop: the index, by result


def kernels_of(source: str) -> dict[str, Kernel] | None:
    """The kernels that the code of a graph defines, by name; None where something else than kernels of the CPU is
    defined, or one with arguments that are neither tensors nor integers."""
    kernels = {}
    for name, code in _KERNEL.findall(source):
        function = _FUNCTION.search(code)
        kinds = _kinds(function[1]) if function is not None else None
        if kinds is None:
            return None
        kernels[name] = Kernel(kinds, is_repeatable(code[function.end() :]), code)
    return kernels if len(kernels) == len(_DEFINED.findall(source)) else None


def _kinds(arguments: str) -> str | None:
    kinds = ""
    for argument in filter(None, (one.strip() for one in arguments.split(","))):
        match = _ARGUMENT.fullmatch(argument)
        if match is None:
            return None
        _, kind, pointer, name = match.groups()
        if bool(pointer) == (name == "ks") or (name == "ks" and kind != "int64_t"):
            return None
        kinds += {"in_ptr": "r", "ks": "n"}.get(name, "w")
    return kinds


def may_scatter(source: str) -> bool:
    """May the code of a graph write to elements in any order? By the names of the operators that it was made of."""
    return "atomic_add" in source or _SCATTERING.search(source) is not None


def is_repeatable(body: str) -> bool:
    """Do no two threads write to the same element, in the body of a kernel's function?"""
    depth = parallel = 0
    loops: list[_Loop] = []
    for line in body.splitlines():
        if pragma := _PARALLEL.search(line):
            parallel = int(pragma[1] or 1)
        elif loop := _LOOP.search(line):
            loops.append(_Loop(loop[1], loop[2], parallel > 0, depth))
            parallel = max(parallel - 1, 0)
        elif any(loop.parallel for loop in loops) and not _writes_apart(line, loops):
            return False
        for brace in re.findall("[{}]", line):
            depth += 1 if brace == "{" else -1
            while brace == "}" and loops and loops[-1].depth == depth:
                loops.pop()
    return True


def _writes_apart(line: str, loops: list[_Loop]) -> bool:
    """Are all writes of the line to elements that no other iteration of the parallel loops writes to?"""
    written = next(loop for loop in loops if loop.parallel).written
    for result in _RESULT.finditer(line):
        element = _ELEMENT.match(line, result.end())
        if element is None:
            return False
        if _READ.search(line, 0, result.start()):
            continue
        index = _expression(_in_parentheses(line, element.end()))
        if index is None or written.setdefault(result[1], index) != index or not _is_apart(index, loops):
            return False
    return True


def _in_parentheses(line: str, begin: int) -> str:
    depth = 0
    for end in range(begin, len(line)):
        depth += {"(": 1, ")": -1}.get(line[end], 0)
        if depth == 0:
            return line[begin : end + 1]
    return ""


def _expression(code: str) -> Any:
    """A sympy expression of loop variables and sizes; None for anything else."""
    import sympy

    code = re.sub(r"static_cast<int64_t>|(?<=\d)L+\b", "", code)
    code = re.sub(r"\bx\d+_inner\b", "0", code)  # the lanes of a vector, over which the loop's variable steps
    code = re.sub(r"\b(x\d+)_tail\b", r"\1", code)  # the loop's variable in the last, shorter vector
    code = code.replace("c10::div_floor_integer", "floor_of")
    if re.search(r"[^\w\s()+*,-]", code) or not set(re.findall(r"[A-Za-z_]\w*", code)) <= _names(code):
        return None
    symbols = {name: sympy.Symbol(name, integer=True, positive=True) for name in _names(code)}
    symbols["floor_of"] = sympy.Function("floor_of", integer=True, nonnegative=True)
    try:
        return sympy.sympify(code, locals=symbols)
    except (sympy.SympifyError, SyntaxError, TypeError):
        return None


def _names(code: str) -> set[str]:
    return {"floor_of", *re.findall(r"\b(?:x|ks)\d+\b", code)}


def _is_apart(index: Any, loops: list[_Loop]) -> bool:
    """Is the index another one in each iteration, as numbers of a positional system are?"""
    strides = []
    rest = index.expand()
    for loop in loops:
        (variable,) = _expression(loop.variable).free_symbols
        bound = _expression(loop.bound)
        stride = rest.coeff(variable, 1)
        rest -= stride * variable
        if bound is None or (loop.parallel and stride == 0 and bound != 1):
            return False
        if stride != 0:
            strides.append((abs(stride), bound))
    if any(re.match(r"x\d", symbol.name) for part in [rest, *(s for s, _ in strides)] for symbol in part.free_symbols):
        return False
    return any(map(_positional, itertools.permutations(strides)))


def _positional(strides: tuple[tuple[Any, Any], ...]) -> bool:
    span = 1
    for stride, bound in strides:
        if (stride - span).expand().is_nonnegative is not True:
            return False
        span += stride * (bound - 1)
    return True
