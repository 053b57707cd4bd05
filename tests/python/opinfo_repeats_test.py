"""The search for operators that give other bits when they run again."""

from __future__ import annotations

import itertools
import types

import torch
from opinfo_repeats import ELEMENTS, enlarged, examine

numbers = itertools.count()


@torch.library.custom_op("remat_tests::unsteady", mutates_args=())
def unsteady(x: torch.Tensor) -> torch.Tensor:
    return x + next(numbers)


def operator(name, call):
    """What an entry of PyTorch's database looks like."""

    class Entry:
        variant_test_name = ""
        dtypes = {torch.float32}
        supports_autograd = True

        def __init__(self):
            self.name = name

        def __call__(self, *args, **kwargs):
            return call(*args, **kwargs)

        def sample_inputs(self, device, dtype, requires_grad):
            x = torch.randn(5, 4, device=device, dtype=dtype, requires_grad=requires_grad)
            yield types.SimpleNamespace(input=x, args=(), kwargs={}, output_process_fn_grad=lambda t: t)

    return Entry()


def test_the_call_to_blame_is_named():
    found = examine(operator("unsteady", lambda x: unsteady(x.detach().sin()) * x), times=3, seconds=60, cases=1)
    assert found.cases > 0 and found.largest >= ELEMENTS[-1]
    assert set(found.differing) == {"remat_tests.unsteady.default"}


def test_what_repeats_is_not_blamed():
    found = examine(operator("exp", lambda x: torch.rand_like(x) * x.exp()), times=3, seconds=60, cases=1)
    assert found.cases > 0
    assert not found.differing and not found.tagged


def test_enlarging_keeps_what_sizes_have_in_common():
    a, b = torch.randn(5, 4), torch.randn(4, 3)
    large = enlarged((a, (b,), {}), 10_000, 4, None, noise=True)
    assert large[0].shape[1] == large[1][0].shape[0] > 1000
    assert enlarged((torch.randn(()), (), {}), 10_000, None, 0, noise=True) is None
