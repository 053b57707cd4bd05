"""Every operator of PyTorch's own test database, plain and with everything dropped that can be: the same bits?

Each sample of an operator runs in a short chain: its inputs come out of an elementwise operator whose result can be
dropped, and its results go into another that saves them, and then into a sum with fixed weights. Run as a script it
writes what came out: `python tests/python/opinfo.py --json FILE --markdown docs/opinfo.md`.
"""

from __future__ import annotations

import argparse
import collections
import contextlib
import dataclasses
import math
import sys
import time
import types
import unittest
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import opinfo_table
import torch
from compare import same_bits
from opinfo_table import DROPPED, IRREPRODUCIBLE, KEPT, UNSUPPORTED, UNTRIED, WRONG, Operator
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_flatten, tree_leaves, tree_unflatten

import remat

try:
    import expecttest  # noqa: F401
except ImportError:  # the database's module derives test cases from it, which nothing here uses
    sys.modules["expecttest"] = types.SimpleNamespace(TestCase=unittest.TestCase)
from torch.testing._internal.common_methods_invocations import op_db

VIEWS = {"aten::unsafe_split", "aten::unsafe_split_with_sizes"}  # those that PyTorch does not call so
KEPT_BY_RULE = {
    "not reproducible": {"aten::linalg_lstsq"},
    "fills memory piece by piece": {"aten::copy_", "aten::rrelu_with_noise", "aten::rrelu_with_noise_"},
}


@dataclasses.dataclass
class Outcome:
    status: str
    reason: str = ""


@dataclasses.dataclass
class Case:
    """One sample of an operator: what is called, with what, and what is compared."""

    call: Callable[..., Any]
    arguments: Any  # (input, args, kwargs)
    process: Callable[[Any], Any]  # takes the part of the results that has gradients
    before: Callable[[torch.Tensor], torch.Tensor]
    after: Callable[[torch.Tensor], torch.Tensor]
    chain: set[str]  # the operators of these two
    twice: bool  # differentiate again?

    def own(self, report: remat.Report) -> set[str]:
        """Replayed operators that are not of the chain around it."""
        names = {operator.name.split(".")[0] for operator in report.replayed}
        return names - self.chain - {"aten::linspace"}  # which makes the weights of the loss


def _weighted(tensors: list[torch.Tensor], after: Callable[[torch.Tensor], torch.Tensor]) -> torch.Tensor | None:
    total = None
    for t in tensors:
        if not (t.requires_grad and (t.is_floating_point() or t.is_complex())):
            continue
        t = after(t.to_dense() if t.layout != torch.strided else t)
        t = torch.view_as_real(t) if t.is_complex() else t
        weights = torch.linspace(0.5, 1.5, t.numel(), dtype=t.dtype).reshape(t.shape)
        part = (t * weights).sum().to(torch.float64)
        total = part if total is None else total + part
    return total


def run(case: Case, forward: Callable[[], Any] = contextlib.nullcontext) -> list[torch.Tensor | None] | None:
    """Everything to compare, or None if nothing has a gradient. `forward`: what is put around the forward pass."""
    leaves, spec = tree_flatten(case.arguments)
    roots: dict[int, torch.Tensor] = {}
    state = []  # what an operator may write to, such as running statistics
    for i, leaf in enumerate(leaves):
        if not isinstance(leaf, torch.Tensor):
            continue
        if leaf.requires_grad:
            leaves[i] = roots.setdefault(id(leaf), leaf.detach().requires_grad_())
        elif leaf.layout == torch.strided:
            leaves[i] = leaf.clone()
            state.append(leaves[i])
    torch.manual_seed(5)
    with forward():
        tried = [case.before(t) if isinstance(t, torch.Tensor) and t.requires_grad else t for t in leaves]
        first, args, kwargs = tree_unflatten(tried, spec)
        results = case.process(case.call(first, *args, **kwargs))
        results = [t for t in tree_leaves(results) if isinstance(t, torch.Tensor)]
        loss = _weighted(results, case.after)
    if loss is None:
        return None
    seen = [t.detach().clone() for t in results] + [loss.detach()] + state + [torch.get_rng_state()]
    del results, tried, first, args, kwargs
    inputs = list(roots.values())
    gradients = list(torch.autograd.grad(loss, inputs, allow_unused=True, create_graph=case.twice))
    if case.twice:
        again = _weighted([g for g in gradients if g is not None], torch.sin)
        if again is not None and again.requires_grad:
            seen += torch.autograd.grad(again, inputs, allow_unused=True)
    return seen + [None if g is None else g.detach() for g in gradients] + [torch.get_rng_state()]


class _Operators(TorchDispatchMode):
    """Writes down what an operator calls below autograd."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: list[tuple[Any, list[torch.Tensor]]] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        results = func(*args, **(kwargs or {}))
        self.calls.append((func, [t for t in tree_leaves(results) if isinstance(t, torch.Tensor)]))
        return results


def why_kept(case: Case) -> str:
    """Why nothing of the operator itself was replayed."""
    with _Operators() as seen:
        first, args, kwargs = case.arguments
        torch.manual_seed(5)
        leaves, spec = tree_flatten((first, args, kwargs))
        leaves = [t.detach().clone() if isinstance(t, torch.Tensor) and t.requires_grad else t for t in leaves]
        first, args, kwargs = tree_unflatten(leaves, spec)
        seen.calls.clear()
        results = case.call(first, *args, **kwargs)
    if not seen.calls:
        return "returns its input"
    made = [(f, ts) for f, ts in seen.calls if not (f.is_view or torch.Tag.inplace_view in f.tags) and ts]
    names = {f._schema.name for f, _ in made}
    if names <= VIEWS:
        return "views"
    outputs = [t for t in tree_leaves(case.process(results)) if isinstance(t, torch.Tensor)]
    if all(t.numel() == 0 for t in outputs if t.is_floating_point() or t.is_complex()):
        return "no elements"
    if any(t.layout != torch.strided for _, ts in made for t in ts):
        return "a result is not a plain tensor"
    for rule, operators_ in KEPT_BY_RULE.items():
        if names & operators_:
            return f"{rule}: {', '.join(sorted(names & operators_))}"
    return f"{', '.join(sorted(names))} made nothing that was saved and dropped"


def _differing(a: list[torch.Tensor | None], b: list[torch.Tensor | None]) -> list[int]:
    return [i for i in range(max(len(a), len(b))) if i >= min(len(a), len(b)) or not same_bits(a[i], b[i])]


def _stir(value: int) -> None:
    """Leaves freed memory full of `value`, so that what reads memory that nobody has filled shows itself."""
    for _ in range(2):
        _ = [torch.full((n,), value, dtype=torch.int32) for n in (*range(1, 65), 1024, 4096)]


def _unless_irreproducible(case: Case, plain: list[torch.Tensor | None], what: str) -> Outcome:
    for value in range(20):
        _stir(value)
        if _differing(plain, run(case)):
            return Outcome(IRREPRODUCIBLE)
    return Outcome(WRONG, what)


def judge(case: Case) -> Outcome:
    """Runs a case plain twice, under a policy, and under a policy in a session that checks every replay."""
    try:
        _stir(0)
        plain = run(case)
        _stir(1)
        if plain is None:
            return Outcome(UNTRIED, "nothing has a gradient")
        if _differing(plain, run(case)):
            return Outcome(IRREPRODUCIBLE)
    except Exception as error:  # whatever an operator raises on a sample, plain
        return Outcome(UNTRIED, f"plain raises {type(error).__name__}")
    session = remat.Session(verify=True)
    try:
        _stir(2)
        with remat.policy():
            bare = run(case)
        _stir(3)
        with session.step():
            ours = run(case, remat.policy)
    except remat.Error as error:
        return Outcome(UNSUPPORTED, str(error))
    except Exception as error:
        return _unless_irreproducible(case, plain, f"{type(error).__name__}: {error}")
    for kind, seen in (("policy", bare), ("session", ours)):
        if different := _differing(plain, seen):
            return _unless_irreproducible(case, plain, f"{kind}: tensors {different} of {len(plain)} differ")
    if case.own(session.report()):
        return Outcome(DROPPED)
    return Outcome(KEPT, why_kept(case))


def cases(op: Any, dtype: torch.dtype, twice: bool, most: int | None = None) -> Iterator[Case]:
    """The samples of an operator, and of its in-place variant; `most`: so many samples, from all over."""
    torch.manual_seed(3)
    samples = list(op.sample_inputs("cpu", dtype, requires_grad=True))
    if most is not None and len(samples) > most:
        samples = [samples[i * len(samples) // most] for i in range(most)]
    multiplied = op.name == "fmod" or dtype.is_complex
    before = (lambda t: t * 1) if multiplied else (lambda t: t.fmod(math.inf) if t.layout == torch.strided else t * 1)
    after = torch.cos if op.name == "sin" else torch.sin
    chain = {"aten::mul" if multiplied else "aten::fmod", f"aten::{after.__name__}"}

    def case_of(call: Callable[..., Any], sample: Any) -> Case:
        arguments = (sample.input, sample.args, sample.kwargs)
        return Case(call, arguments, sample.output_process_fn_grad, before, after, chain, twice)

    for sample in samples:
        yield case_of(op, sample)
        if op.inplace_variant is not None and not sample.broadcasts_input and dtype == torch.float32:
            yield case_of(op.inplace_variant, sample)


def name_of(op: Any) -> str:
    return f"{op.name}.{op.variant_test_name}" if op.variant_test_name else op.name


def operators() -> list[Any]:
    """All that have gradients on the CPU."""
    return [op for op in op_db if op.supports_autograd and op.dtypes & {torch.float32, torch.complex64}]


def examine(op: Any, most: int | None = None) -> Operator:
    """`most`: samples of each type; None: all."""
    begin = time.perf_counter()
    counts: collections.Counter[str] = collections.Counter()
    reasons: collections.Counter[str] = collections.Counter()
    types_ = [t for t in (torch.float32, torch.bfloat16) if t in op.dtypes] or [torch.complex64]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for dtype in types_:
            if not op.supports_dtype(dtype, "cpu"):
                continue
            twice = op.supports_gradgrad and dtype != torch.bfloat16
            for case in cases(op, dtype, twice, most):
                outcome = judge(case)
                if outcome.status == UNTRIED and case.twice:
                    outcome = judge(dataclasses.replace(case, twice=False))
                counts[outcome.status] += 1
                if outcome.status != DROPPED:
                    reasons[f"{outcome.status}: {outcome.reason}"] += 1
    return Operator(name_of(op), dict(counts), dict(reasons), time.perf_counter() - begin)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", help="operators; default: all")
    parser.add_argument("--json", metavar="FILE", help="writes the results")
    parser.add_argument("--markdown", metavar="FILE", help="writes the published table")
    parser.add_argument("--most", type=int, help="samples of each type; default: all")
    parser.add_argument("--part", default="0/1", help="I/N: every Nth operator from the Ith on")
    parser.add_argument("--merge", nargs="+", metavar="FILE", help="runs nothing: takes results of other runs")
    options = parser.parse_args()
    found = opinfo_table.read(options.merge) if options.merge else []
    first, step = map(int, options.part.split("/"))
    for op in [] if options.merge else operators()[first::step]:
        if options.names and op.name not in options.names and name_of(op) not in options.names:
            continue
        found.append(examine(op, options.most))
        print(f"{found[-1].seconds:6.1f} s  {found[-1].name}: {found[-1].counts} {found[-1].reasons or ''}", flush=True)
        if options.json:
            opinfo_table.write(found, options.json)
    if options.markdown:
        with open(options.markdown, "w", encoding="utf-8") as file:
            file.write(opinfo_table.markdown(found, options.most))


if __name__ == "__main__":
    main()
