"""The user's own hooks on saved tensors: inside their scope they win, and outside it remat goes on."""

from __future__ import annotations

import pytest
import torch
from compare import blocks
from scopes import assert_exact_when_dropped, loss_of
from torch import nn
from torch.autograd.graph import disable_saved_tensors_hooks, save_on_cpu, saved_tensors_hooks

import remat


def test_hooks_see_what_they_see_in_plain():
    packed, unpacked = [], []

    def program(model):
        x = torch.randn(32, 64)
        x = model[0](x)
        with saved_tensors_hooks(
            lambda t: (packed.append(tuple(t.shape)), t.clone())[1], lambda t: (unpacked.append(tuple(t.shape)), t)[1]
        ):
            x = model[1](x)
        loss = loss_of(model[2](x))
        loss.backward()
        return loss.detach()

    assert_exact_when_dropped(blocks(3), program, steps=1)
    for calls in (packed, unpacked):
        half = len(calls) // 2
        assert half > 0 and calls[:half] == calls[half:]


def test_hooks_that_change_what_is_saved():
    def program(model):
        x = model[0](torch.randn(32, 64))
        with saved_tensors_hooks(lambda t: t.bfloat16() if t.is_floating_point() else t, lambda t: t.float()):
            x = model[1](x)
        loss = loss_of(model[2](x))
        loss.backward()
        return loss.detach()

    assert_exact_when_dropped(blocks(3, dropout=0.0), program)


def test_hooks_that_hold_something_else(tmp_path):
    def program(model):
        count = iter(range(1000))

        def pack(tensor):
            path = tmp_path / f"{next(count)}.pt"
            torch.save(tensor, path)
            return path

        x = model[0](torch.randn(32, 64))
        with saved_tensors_hooks(pack, torch.load):
            x = model[1](x)
        loss = loss_of(model[2](x))
        loss.backward()
        return loss.detach()

    assert_exact_when_dropped(blocks(3), program)


def test_save_on_cpu():
    def program(model):
        x = model[0](torch.randn(32, 64))
        with save_on_cpu():
            x = model[1](x)
        loss = loss_of(model[2](x))
        loss.backward()
        return loss.detach()

    assert_exact_when_dropped(blocks(3), program)


def test_nested_hooks():
    def program(model):
        with saved_tensors_hooks(lambda t: t.clone(), lambda t: t):
            x = model[0](torch.randn(32, 64))
            with saved_tensors_hooks(lambda t: t * 2, lambda t: t / 2):
                x = model[1](x)
            x = model[2](x)
        loss = loss_of(model[3](x))
        loss.backward()
        return loss.detach()

    assert_exact_when_dropped(blocks(4), program)


def test_hooks_forbidden_in_a_region():
    def program(model):
        x = model[0](torch.randn(32, 64))
        with disable_saved_tensors_hooks("none here"):
            x = model[1](x)
            with pytest.raises(RuntimeError, match="none here"):
                with save_on_cpu():
                    pass
        loss = loss_of(model[2](x))
        loss.backward()
        return loss.detach()

    assert_exact_when_dropped(blocks(3), program)


def test_a_hook_on_one_saved_tensor():
    def program(model):
        y = model[0](torch.randn(32, 64)).exp()
        y.grad_fn._raw_saved_result.register_hooks(lambda t: t * 2, lambda t: t / 2)
        loss = loss_of(model[1](y))
        loss.backward()
        return loss.detach()

    def plain_or_refused(model):
        try:
            return program(model)
        except RuntimeError as error:  # autograd takes one pair of hooks for each saved tensor
            assert "hooks" in str(error)
            return torch.zeros(())

    import contextlib

    from compare import run
    from scopes import Dropping

    run(blocks(2), program, contextlib.nullcontext, 1)
    run(blocks(2), plain_or_refused, Dropping(), 1)


def test_looking_at_saved_tensors():
    def program(model):
        y = model[0](torch.randn(32, 64)).exp()
        seen = y.grad_fn._saved_result.clone()
        z = y.sigmoid()
        again = z.grad_fn._saved_result.detach().clone()
        loss = loss_of(model[1](z))
        loss.backward()
        return loss.detach(), seen.detach(), again

    assert_exact_when_dropped(blocks(2), program)


def test_an_exception_in_a_hook():
    def program(model):
        def fail(_):
            raise KeyError("mine")

        x = model[0](torch.randn(32, 64))
        with pytest.raises(KeyError, match="mine"), saved_tensors_hooks(fail, lambda t: t):
            model[1](x)
        with saved_tensors_hooks(lambda t: t, fail):
            broken = loss_of(model[1](x))
        with pytest.raises(KeyError, match="mine"):
            broken.backward(retain_graph=True)
        loss = loss_of(model[2](x))
        loss.backward()
        return loss.detach()

    assert_exact_when_dropped(blocks(3, dropout=0.0), program)


@pytest.mark.parametrize("around", [save_on_cpu, lambda: saved_tensors_hooks(lambda t: t, lambda t: t)])
def test_all_of_plain_is_enough_where_nothing_can_be_evicted(around):
    """The user's hooks hold what dropout saved. The record gives its generator's states up where they are in the way."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(64, 64), nn.Dropout(0.2), nn.ReLU(), nn.Linear(64, 8))
    x = torch.randn(256, 64)
    session = remat.Session(budget="100%", device="cpu")
    for _ in range(5):
        with session.step():
            with around():
                loss = model(x).square().mean()
            loss.backward()
            del loss
        report = session.report()
        assert report.values_dropped == 0
        states = report.peak_bytes - report.plain_peak_bytes
        assert 0 <= states <= torch.get_rng_state().numel()
