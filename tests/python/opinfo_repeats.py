"""Which operators of PyTorch's test database give other bits when they run again? Written to be run as a script:
`OMP_WAIT_POLICY=passive python tests/python/opinfo_repeats.py [--json FILE] [NAMES]`.

Each operator runs on samples that are enlarged until its kernels use several threads, forward and backward, many times
from the same seed. Every call below autograd is compared with the same call of the first run: the first that had the
same arguments and gave other bits is named. What PyTorch does not tag as nondeterministic, and is found here, belongs
into the table kNotReproducible of src/operators/operator_info.cpp.
"""

from __future__ import annotations

import argparse
import collections
import contextlib
import dataclasses
import json
import math
import resource
import signal
import sys
import time
import types
import unittest
import warnings
import zlib
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_flatten, tree_leaves, tree_unflatten

try:
    import expecttest  # noqa: F401
except ImportError:  # the database's module derives test cases from it, which nothing here uses
    sys.modules["expecttest"] = types.SimpleNamespace(TestCase=unittest.TestCase)
from torch.testing._internal.common_methods_invocations import op_db

# Of the largest tensor among the arguments. Kernels use another thread above at::internal::GRAIN_SIZE, 32768; threads
# that do little hardly ever meet.
ELEMENTS = (1_000_000, 150_000)
TOO_MANY = 6_000_000
MEMORY = 5 * 2**30  # bytes of address space: results that would be larger are an error of the sample
UNFILLED = ("aten::empty", "aten::new_empty")  # what they give is undefined by intent
TAGGED = (torch.Tag.nondeterministic_bitwise,)
RANDOM = torch.Tag.nondeterministic_seeded


class OutOfTime(Exception):
    """An operator took longer than its share."""


def bits(tensor: torch.Tensor) -> int:
    """A checksum of the contents, in the order of the elements."""
    if tensor.layout in (torch.sparse_csr, torch.sparse_csc, torch.sparse_bsr, torch.sparse_bsc):
        parts = [tensor.values()]
    elif tensor.layout == torch.sparse_coo:
        parts = [tensor._indices(), tensor._values()]
    elif tensor.layout != torch.strided:
        return 0
    else:
        parts = [tensor]
    result = 0
    for part in parts:
        part = part.detach().resolve_conj().resolve_neg().contiguous()
        if part.numel():
            result = zlib.crc32(part.reshape(-1).view(torch.uint8).numpy(), result)
    return result


@dataclasses.dataclass
class Call:
    """One call below autograd."""

    name: str
    tagged: bool
    before: tuple[int, ...]  # of every tensor among the arguments
    after: tuple[int, ...]  # of the same once it has run, and of the results


class Calls(TorchDispatchMode):
    """Writes down every call with checksums of what it reads and gives."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[Call] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        arguments = [t for t in tree_leaves((args, kwargs)) if isinstance(t, torch.Tensor)]
        draws = RANDOM in func.tags
        before = tuple(bits(t) for t in arguments) + ((bits(torch.get_rng_state()),) if draws else ())
        results = func(*args, **(kwargs or {}))
        after = tuple(bits(t) for t in [*arguments, *tree_leaves(results)] if isinstance(t, torch.Tensor))
        if func._schema.name.startswith(UNFILLED):
            after = ()
        self.seen.append(Call(str(func), any(tag in func.tags for tag in TAGGED), before, after))
        return results


def stir(value: int) -> None:
    """Leaves freed memory full of `value`, so that what reads memory that nobody has filled shows itself."""
    _ = [torch.full((n,), value * 0x01010101, dtype=torch.int32) for n in (*range(1, 65), 1024, 4096, 65536, 262144)]


def enlarged(arguments: Any, elements: int, size: int | None, dim: int | None, noise: bool) -> Any:
    """The arguments with tensors repeated: along every dimension of `size` elements, or along `dim`.

    Along `dim`: in all tensors that have as many elements there as the first has. Numbers get relative `noise`, since
    sums of equal numbers do not depend on the order.
    """
    leaves, spec = tree_flatten(arguments)
    tensors = [t for t in leaves if isinstance(t, torch.Tensor) and t.layout == torch.strided]
    if not tensors or not tensors[0].numel() or not tensors[0].dim():
        return None
    first = tensors[0]
    if size is not None:
        largest = max(tensors, key=lambda t: t.numel() if size in t.shape else 0)
        power = sum(n == size for n in largest.shape)
        if not power or not largest.numel():
            return None
        times = math.ceil((elements / largest.numel()) ** (1 / power))
    else:
        times = math.ceil(elements / first.numel())
        if dim >= first.dim():
            return None
    torch.manual_seed(11)
    for i, leaf in enumerate(leaves):
        if not isinstance(leaf, torch.Tensor) or leaf.layout != torch.strided:
            continue
        if size is not None:
            repeats = [times if n == size else 1 for n in leaf.shape]
        else:
            alike = leaf.dim() > dim and leaf.shape[dim] == first.shape[dim]
            repeats = [times if alike and d == dim else 1 for d in range(leaf.dim())]
        if math.prod(leaf.shape) * math.prod(repeats) > TOO_MANY:
            return None
        large = leaf.detach().repeat(repeats) if leaf.dim() else leaf.detach().clone()
        if noise and (large.is_floating_point() or large.is_complex()):
            large = large * (1 + 0.1 * torch.rand(large.shape)).to(large.dtype)
        leaves[i] = large.requires_grad_(leaf.requires_grad)
    return tree_unflatten(leaves, spec)


def variants(sample: Any) -> Iterator[Callable[[int], Any]]:
    """Ways to enlarge the arguments to so many elements, those that keep most of the sample's relations first."""
    arguments = (sample.input, sample.args, sample.kwargs)
    tensors = [t for t in tree_leaves(arguments) if isinstance(t, torch.Tensor) and t.layout == torch.strided]
    sizes = list(dict.fromkeys(n for t in tensors for n in t.shape if n > 1))
    for noise in (True, False):
        for size in sizes[:4]:
            yield lambda elements, size=size, noise=noise: enlarged(arguments, elements, size, None, noise)
        for dim in (0, 1):
            yield lambda elements, dim=dim, noise=noise: enlarged(arguments, elements, None, dim, noise)


def too_large(op: Callable[..., Any], arguments: Any) -> bool:
    """Would the results be? What cannot be asked on the meta device is tried."""
    leaves, spec = tree_flatten(arguments)
    leaves = [t.detach().to("meta") if isinstance(t, torch.Tensor) and t.layout == torch.strided else t for t in leaves]
    first, args, kwargs = tree_unflatten(leaves, spec)
    try:
        results = tree_leaves(op(first, *args, **kwargs))
    except OutOfTime:
        raise
    except Exception:
        return False
    return any(t.numel() > TOO_MANY for t in results if isinstance(t, torch.Tensor))


def run(op: Callable[..., Any], process: Callable[[Any], Any], arguments: Any) -> list[Call]:
    """The calls of one run, forward and backward."""
    leaves, spec = tree_flatten(arguments)
    copies = []
    for leaf in leaves:
        if isinstance(leaf, torch.Tensor) and leaf.layout == torch.strided:
            copies.append(leaf.detach().clone().requires_grad_(leaf.requires_grad))
        else:
            copies.append(leaf)
    first, args, kwargs = tree_unflatten(copies, spec)
    torch.manual_seed(5)
    with Calls() as calls:
        results = tree_leaves(process(op(first, *args, **kwargs)))
        results = [t for t in results if isinstance(t, torch.Tensor) and t.requires_grad and t.numel()]
        results = [t for t in results if t.is_floating_point() or t.is_complex()]
        if results:
            torch.manual_seed(7)
            weights = [torch.randn(t.shape, dtype=torch.float32).to(t.dtype) for t in results]
            inputs = [t for t in copies if isinstance(t, torch.Tensor) and t.requires_grad]
            with contextlib.suppress(RuntimeError):  # not every operator has a backward for every result
                torch.autograd.grad(results, inputs, weights, allow_unused=True)
    return calls.seen


@dataclasses.dataclass
class Found:
    """What came out for an operator of the database."""

    name: str
    cases: int = 0  # enlarged samples that ran
    largest: int = 0  # elements of the largest tensor among them
    differing: dict[str, int] = dataclasses.field(default_factory=dict)  # runs that differed, by the call to blame
    tagged: dict[str, int] = dataclasses.field(default_factory=dict)  # the same of calls that PyTorch tags
    seconds: float = 0.0
    note: str = ""


def compare(plain: list[Call], other: list[Call], found: Found) -> None:
    for a, b in zip(plain, other, strict=False):
        if a.name != b.name or a.before != b.before:
            return  # because of what went before, or of memory that nobody has filled
        if a.after != b.after:
            counts = found.tagged if a.tagged else found.differing
            counts[a.name] = counts.get(a.name, 0) + 1
            return


def examine(op: Any, times: int, seconds: float, cases: int = 6) -> Found:
    found = Found(f"{op.name}.{op.variant_test_name}" if op.variant_test_name else op.name)
    begin = time.perf_counter()

    def out_of_time(*_: Any) -> None:
        raise OutOfTime

    signal.signal(signal.SIGALRM, out_of_time)
    types_ = [torch.float32] if torch.float32 in op.dtypes else sorted(op.dtypes, key=str)[:1]
    try:
        for part, dtype in enumerate(types_):
            signal.setitimer(signal.ITIMER_REAL, seconds)
            torch.manual_seed(3)
            grad = op.supports_autograd and (dtype.is_floating_point or dtype.is_complex)
            try:
                samples = list(op.sample_inputs("cpu", dtype, requires_grad=grad))
            except OutOfTime:
                raise
            except Exception as error:
                found.note = f"no samples: {type(error).__name__}"
                continue
            some = [samples[i * len(samples) // 6] for i in range(6)] if len(samples) > 6 else samples
            for sample in some:
                worked = 0
                for variant in variants(sample):
                    if worked == 2 or found.cases == cases * (part + 1):
                        break
                    for elements in ELEMENTS:
                        arguments = variant(elements)
                        if arguments is None or too_large(op, arguments):
                            continue
                        try:
                            stir(0)
                            before = time.perf_counter()
                            plain = run(op, sample.output_process_fn_grad, arguments)
                        except OutOfTime:
                            raise
                        except Exception:  # whatever an operator raises on arguments that it was not given
                            continue
                        if time.perf_counter() - before > seconds / times / 4 and elements != ELEMENTS[-1]:
                            continue
                        worked += 1
                        found.cases += 1
                        tensors = [t for t in tree_leaves(arguments) if isinstance(t, torch.Tensor)]
                        found.largest = max(found.largest, *(t.numel() for t in tensors), 0)
                        for i in range(1, times):
                            stir(i)
                            compare(plain, run(op, sample.output_process_fn_grad, arguments), found)
                        break
    except OutOfTime:
        found.note = "out of time"
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
    found.seconds = time.perf_counter() - begin
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", help="operators; default: all")
    parser.add_argument("--json", metavar="FILE", help="writes what was found")
    parser.add_argument("--part", default="0/1", help="I/N: every Nth operator from the Ith on")
    parser.add_argument("--times", type=int, default=20, help="runs of each sample")
    parser.add_argument("--threads", type=int, default=4, help="sums of two parts are the same in either order")
    parser.add_argument("--seconds", type=float, default=10, help="for each operator at most")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    warnings.simplefilter("ignore")
    first, step = map(int, options.part.split("/"))
    all_found = []
    for op in op_db[first::step]:
        if options.names and op.name not in options.names:
            continue
        found = examine(op, options.times, options.seconds)
        all_found.append(found)
        told = " ".join(str(part) for part in (found.differing or "", found.tagged or "", found.note) if part)
        print(f"{found.seconds:6.1f} s  {found.name}: {found.cases} cases, {found.largest} elements {told}", flush=True)
        if options.json:
            with open(options.json, "w", encoding="utf-8") as file:
                json.dump([dataclasses.asdict(f) for f in all_found], file, indent=1)
    blamed: collections.Counter[str] = collections.Counter()
    for found in all_found:
        blamed.update(found.differing)
    print(f"{len(all_found)} operators, {sum(f.cases > 0 for f in all_found)} ran enlarged")
    for name, count in blamed.most_common():
        print(f"{name}: other bits in {count} runs")


if __name__ == "__main__":
    main()
