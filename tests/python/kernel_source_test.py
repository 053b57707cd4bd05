"""What the source of a compiled kernel says: whether two threads may write to the same element, and its arguments."""

from __future__ import annotations

import pytest

from remat.kernel_source import is_repeatable, kernels_of, may_scatter


def loops(index: str, *bounds: str, parallel: int = 1, write: str = "out_ptr0[static_cast<int64_t>({})] = tmp0;") -> str:
    """A body that shares the iterations of the first `parallel` of its loops among threads, x0 the outermost."""
    lines = ["#pragma omp parallel num_threads(2)", "{"]
    for i, bound in enumerate(bounds):
        if i == 0 and parallel > 0:
            lines.append("#pragma omp for" + (f" collapse({parallel})" if parallel > 1 else ""))
        to = f"static_cast<int64_t>({bound})"
        lines.append(f"for(int64_t x{i}=static_cast<int64_t>(0L); x{i}<{to}; x{i}+=static_cast<int64_t>(1L))")
        if i + 1 >= parallel:
            lines.append("{")
    lines += ["auto tmp0 = in_ptr0[static_cast<int64_t>(tmp9)];", write.format(index)]
    return "\n".join(lines + ["}"] * (lines.count("{")))


@pytest.mark.parametrize(
    "body",
    [
        loops("x1 + 64L*x0", "8L", "64L"),
        loops("x0 + 8L*x1", "8L", "64L"),  # transposed
        loops("x1 + 100L*x0 + 36L", "8L", "64L"),  # a part of a concatenation
        loops("64L + x1 + ((-64L)*x0)", "8L", "64L"),  # flipped
        loops("x2 + 4L*x1 + 4L*ks0*x0", "8L", "ks0", "4L"),
        loops("x1 + x1_inner + 64L*x0", "8L", "64L"),
        loops("x1_tail + 64L*x0", "8L", "64L"),
        loops("x0", "8L", "64L"),  # a reduction
        loops("x1 + 64L*x0", "8L", "64L", parallel=2),
        loops("x1 + 64L*x0", "8L", "64L", write="tmp0.store(out_ptr0 + static_cast<int64_t>({}), static_cast<int64_t>(3L));"),
        loops("tmp5", "8L", parallel=0),  # one thread
        loops("x0 % 3L", "8L", parallel=0),
        loops("x1", "1L", "64L"),
        loops("x0", "8L", write="atomic_add(&out_ptr0[static_cast<int64_t>({})], tmp0);"),
        loops("x0", "8L", write="auto tmp1 = out_ptr1[static_cast<int64_t>(tmp0)]; out_ptr0[static_cast<int64_t>({})] = tmp1;"),
    ],
)
def test_writes_that_are_apart(body):
    assert is_repeatable(body)


@pytest.mark.parametrize(
    "body",
    [
        loops("x1 + 64L*(static_cast<int64_t>(x0) % static_cast<int64_t>(3L))", "6000L", "64L"),
        loops("x1 + 64L*(c10::div_floor_integer(static_cast<int64_t>(x0), static_cast<int64_t>(2L)))", "8L", "64L"),
        loops("x1 + 64L*tmp5", "8L", "64L"),
        loops("x0 + x1", "8L", "64L"),
        loops("x1 + 63L*x0", "8L", "64L"),
        loops("x1 + ks1*x0", "8L", "ks0"),
        loops("x0*x0", "8L"),
        loops("x1", "8L", "64L"),  # each thread writes to all
        loops("x1", "8L", "64L", parallel=2),
        loops("x0", "8L", write="atomic_add_vec<float, 2, 1>(out_ptr0, tmp1, tmp0);"),
        loops("tmp0", "8L", write="atomic_add(&out_ptr0[static_cast<int64_t>({})], tmp0);"),
        loops("x0", "8L", write="out_ptr0[static_cast<int64_t>({})] = tmp0; out_ptr0[static_cast<int64_t>(7L - x0)] = tmp0;"),
    ],
)
def test_writes_that_may_be_to_the_same_element(body):
    assert not is_repeatable(body)


def graph_of(arguments: str, body: str = "", other: str = "") -> str:
    return (
        "cpp_fused_0 = async_compile.cpp_pybinding(['float*'], r'''\n"
        f'extern "C"  void  kernel({arguments})\n{{\n{body}\n}}\n'
        f"''')\n{other}"
    )


def test_arguments_of_a_kernel():
    arguments = "float* in_out_ptr0,\n  const at::BFloat16* in_ptr0,\n  bool* out_ptr1,\n  const int64_t ks0"
    (kernel,) = kernels_of(graph_of(arguments)).values()
    assert kernel.arguments == "wrwn" and kernel.repeatable
    assert not kernels_of(graph_of("float* out_ptr0", loops("x0 + x1", "8L", "8L")))["cpp_fused_0"].repeatable
    assert kernels_of(graph_of("float* out_ptr0, const double ks0")) is None
    assert kernels_of(graph_of("float* Y")) is None
    assert kernels_of(graph_of("float* out_ptr0", other="triton_0 = async_compile.triton('a', '')\n")) is None


def test_operators_that_scatter():
    assert may_scatter("# Original ATen: [aten.add, aten.index_put]")
    assert may_scatter("# Original ATen: [aten.scatter_reduce]") and may_scatter("tl.atomic_add(out_ptr0, tmp0)")
    assert not may_scatter("# Original ATen: [aten.slice_scatter, aten.index_select, aten.native_dropout]")
