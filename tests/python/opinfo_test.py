"""A sample of PyTorch's operators, with the same bits under remat; all of them with REMAT_OPINFO=all (half an hour)."""

from __future__ import annotations

import functools
import os

import pytest
import torch
from opinfo import Case, Operator, Outcome, examine, judge, name_of, operators
from opinfo_table import DROPPED, IRREPRODUCIBLE, KEPT, UNSUPPORTED, UNTRIED, WRONG, markdown

ALL = os.environ.get("REMAT_OPINFO") == "all"
HARD = {  # random, in place, of several results, written in parts, or not reproducible
    "nn.functional.dropout",
    "nn.functional.rrelu",
    "nn.functional.batch_norm",
    "nn.functional.scaled_dot_product_attention",
    "nn.functional.max_pool2d",
    "nn.functional.pad.circular",
    "linalg.lstsq.grad_oriented",
    "linalg.svd",
    "matmul",
    "index_put",
    "cumprod",
    "sort",
    "stft",
    "zero_",
}
NAMED = {name_of(op): op for op in operators()}
CHOSEN = [name for i, name in enumerate(NAMED) if ALL or i % 9 == 0 or name in HARD]


@functools.cache
def examined(name: str) -> Operator:
    return examine(NAMED[name], most=None if ALL else 2)


@pytest.mark.parametrize("name", CHOSEN)
def test_an_operator_has_the_same_bits(name):
    operator = examined(name)
    assert WRONG not in operator.counts, operator.reasons
    assert UNSUPPORTED not in operator.counts, operator.reasons


def test_nine_of_ten_operators_with_something_to_drop_are_replayed():
    some = [operator for operator in map(examined, CHOSEN) if operator.had_something]
    kept = [operator.name for operator in some if operator.status != DROPPED]
    assert len(some) > len(CHOSEN) // 2
    assert len(kept) <= 0.1 * len(some), kept


def case_of(call):
    x = torch.randn(3, 4, requires_grad=True)
    return Case(call, (x, (), {}), lambda t: t, lambda t: t.fmod(9.0), torch.sin, {"aten::fmod", "aten::sin"}, False)


def test_what_comes_out_is_told_apart():
    calls = []

    def changing(x):  # other bits at every fourth call: plain, plain, under a policy, in a session
        calls.append(x)
        return x.exp() * (len(calls) // 3 + 1)

    assert judge(case_of(torch.exp)).status == DROPPED
    assert judge(case_of(torch.t)).reason == "views"
    assert judge(case_of(torch.zero_)).status == DROPPED
    kept = judge(case_of(lambda x: torch.nn.functional.rrelu(x, training=True)))
    assert kept == Outcome(KEPT, "fills memory piece by piece: aten::rrelu_with_noise")
    assert judge(case_of(lambda x: x.detach())).status == UNTRIED
    assert judge(case_of(changing)).status == IRREPRODUCIBLE


def test_other_bits_under_remat_are_found(monkeypatch):
    import opinfo

    seen = []
    original = opinfo.run

    def run(case, *scope):
        seen.append(original(case, *scope))
        if len(seen) == 3:  # the first under a policy
            seen[-1][0] = seen[-1][0] + 1
        return seen[-1]

    monkeypatch.setattr(opinfo, "run", run)
    outcome = judge(case_of(torch.exp))
    assert outcome.status == WRONG
    assert "policy: tensors [0]" in outcome.reason


def test_an_exception_that_plain_does_not_raise_is_found():
    calls = []

    def raising(x):
        calls.append(x)
        if len(calls) == 3:
            raise RuntimeError("only under remat")
        return x.exp()

    outcome = judge(case_of(raising))
    assert outcome.status == WRONG
    assert "only under remat" in outcome.reason


def test_the_table_says_what_was_kept_and_why():
    text = markdown(
        [
            Operator("exp", {DROPPED: 3}, {}, 0.1),
            Operator("lstsq", {KEPT: 2}, {"kept: not reproducible": 2}, 0.1),
            Operator("t", {KEPT: 4}, {"kept: views": 4}, 0.1),
        ]
    )
    assert "| dropped, of those with something to drop | 1 of 2 (50.0 %) |" in text
    assert "| lstsq | 2 kept | not reproducible (2) |" in text
    assert "- views: t\n" in text
