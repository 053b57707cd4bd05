"""Random numbers where remat.compile(activation_memory_budget=...) has backward compute again what forward did not save."""

from __future__ import annotations

import shutil
import time

import pytest
import torch
from scopes import loss_of
from torch import nn
from torch._inductor.custom_graph_pass import CustomGraphPass

import remat

pytestmark = pytest.mark.skipif(shutil.which("g++") is None, reason="compiling needs g++")


class Noisy(nn.Module):
    """Draws in all of Inductor's ways, each of which backward needs again."""

    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(8, 32), nn.Dropout(0.3), nn.Sigmoid(), nn.Linear(32, 8), nn.Dropout(0.5))

    def forward(self, x):
        y = self.layers(x * torch.rand_like(x).exp())
        z = nn.functional.scaled_dot_product_attention(y[None], x[None], y[None].tanh(), dropout_p=0.2)[0]
        return x + z.sin() * torch.randn(8).cos() * torch.randint(1, 5, (8,)) * torch.bernoulli(torch.full((8,), 0.5))


def noisy():
    return nn.Sequential(nn.Sequential(*(Noisy() for _ in range(2))))


@pytest.mark.parametrize(("share", "fallback"), [(0.5, False), (0, False), (0.1, True)])
def test_random_numbers_are_those_of_forward_whatever_is_saved(share, fallback):
    def gradients(given):
        torch.compiler.reset()
        torch.manual_seed(0)
        model = remat.compile(noisy(), activation_memory_budget=given, dynamic=False)
        for _ in range(2):
            loss_of(model(torch.randn(16, 8))).backward()
        return torch.cat([parameter.grad.flatten() for parameter in model.parameters()]), torch.get_rng_state()

    with torch._inductor.config.patch(fallback_random=fallback):
        (expected, state), (found, other) = gradients(None), gradients(share)
    assert torch.equal(state, other)
    torch.testing.assert_close(expected, found, rtol=1e-5, atol=1e-7)  # what is fused otherwise may round otherwise


@pytest.mark.parametrize("by_option", [False, True])
def test_passes_of_the_users_run_too(by_option):
    class Pass(CustomGraphPass):
        def __call__(self, graph):
            ran.append(len(graph.nodes))

        def uuid(self):
            return f"a test's pass {by_option} {time.time()}"

    def gradients(share):
        torch.compiler.reset()
        torch.manual_seed(0)
        options = {"options": passes} if by_option else {}
        model = remat.compile(noisy(), activation_memory_budget=share, dynamic=False, **options)
        loss_of(model(torch.randn(16, 8))).backward()
        return torch.cat([parameter.grad.flatten() for parameter in model.parameters()])

    ran, passes = [], {"joint_custom_post_pass": Pass()}
    with torch._inductor.config.patch({} if by_option else passes):
        usual, passed = gradients(1), len(ran)
        other = gradients(0.1)
    torch.testing.assert_close(usual, other, rtol=1e-5, atol=1e-7)
    assert len(ran) == 2 * passed > 0
