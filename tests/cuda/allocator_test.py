"""The simulated caching allocator takes the segments that PyTorch's own takes."""

import os
import random
import subprocess
import sys

import pytest
import torch

from remat import _C

MIB = 1 << 20
NO_LIMIT = 1 << 62
# Sizes where PyTorch's rules change, and sizes between them.
EDGES = (1, 511, 512, 513, MIB, MIB + 1, 10 * MIB - 1, 10 * MIB, 10 * MIB + 1, 12 * MIB, 20 * MIB)


def random_size(random_numbers):
    kind = random_numbers.random()
    if kind < 0.15:
        return random_numbers.choice(EDGES)
    most = random_numbers.choice((4096, MIB, MIB, 4 * MIB, 16 * MIB, 40 * MIB))
    size = random_numbers.randrange(1, most)
    return size if kind < 0.6 else max(1, size // 4096 * 4096)


class Trace:
    """Requests, and what PyTorch's allocator has after each: refused or not, allocated, reserved, its segments."""

    def __init__(self, device):
        self.device = device
        self.requests, self.outcomes = [], []
        self.tensors = {}  # by request

    def note(self, request, refused):
        self.requests.append(request)
        segments = [
            [(block["size"], block["state"] != "inactive") for block in segment["blocks"]]
            for segment in torch.cuda.memory._snapshot()["segments"]
            if segment["device"] == self.device.index
        ]
        allocated, reserved = torch.cuda.memory_allocated(self.device), torch.cuda.memory_reserved(self.device)
        self.outcomes.append((refused, allocated, reserved, sorted(segments)))

    def allocate(self, size):
        try:
            tensor = torch.empty(size, dtype=torch.uint8, device=self.device)
        except torch.OutOfMemoryError:
            tensor = None
        if tensor is not None:
            self.tensors[len(self.requests)] = tensor
        self.note((size, -1), tensor is None)

    def free(self, place):
        del self.tensors[place]
        self.note((0, place), False)

    def release_cached(self):
        torch.cuda.empty_cache()
        self.note((0, -1), False)


def run_randomly(device, seed, count, most_bytes):
    random_numbers = random.Random(seed)
    trace = Trace(device)
    for _ in range(count):
        alive = sum(tensor.nbytes for tensor in trace.tensors.values())
        kind = random_numbers.random()
        if kind < 0.01:
            trace.release_cached()
        elif trace.tensors and (kind < 0.45 or alive > most_bytes):
            places = list(trace.tensors)
            trace.free(random_numbers.choice((places[-1], random_numbers.choice(places))))
        else:
            trace.allocate(random_size(random_numbers))
    return trace


def check(trace, limit, settings=""):
    states = _C.simulate_allocator(trace.requests, limit, settings)
    for place, (state, outcome) in enumerate(zip(states, trace.outcomes, strict=True)):
        found = (state.refused, state.allocated_bytes, state.reserved_bytes, sorted(state.segments))
        assert found == outcome, f"after request {place} of {trace.requests}"


@pytest.mark.parametrize("seed", range(4))
def test_random_requests_get_the_same_segments(device, seed):
    check(run_randomly(device, seed, 300, 300 * MIB), NO_LIMIT)


@pytest.mark.parametrize("seed", range(3))
def test_where_a_limit_is_reached_the_same_is_released_or_refused(device, seed):
    total = torch.cuda.get_device_properties(device).total_memory
    limit = 100 * MIB
    torch.cuda.set_per_process_memory_fraction(limit / total, device)
    trace = run_randomly(device, seed, 300, 110 * MIB)
    assert any(outcome[0] for outcome in trace.outcomes)  # something was refused
    check(trace, limit)


SETTINGS = [
    "max_split_size_mb:24",
    "max_split_size_mb:30,max_non_split_rounding_mb:24",
    "roundup_power2_divisions:4",
    "roundup_power2_divisions:[1:8,4:2,16:1,>:4]",
    "large_segment_size_mb:32",
    "expandable_segments:True",
    "expandable_segments:True,roundup_power2_divisions:8",
]


@pytest.mark.parametrize("settings", SETTINGS)
def test_settings(settings):
    """In a process of its own: PyTorch reads them once."""
    program = f"""
import simulated_cuda, torch
device = simulated_cuda.load()
from allocator_test import MIB, check, run_randomly
total = torch.cuda.get_device_properties(device).total_memory
for seed, limit in ((0, total), (1, 160 * MIB), (2, 100 * MIB)):
    torch.cuda.empty_cache()
    torch.cuda.set_per_process_memory_fraction(limit / total, device)
    check(run_randomly(device, seed, 200, limit * 11 // 10), limit, {settings!r})
"""
    environment = {**os.environ, "PYTORCH_ALLOC_CONF": settings}
    subprocess.run([sys.executable, "-W", "ignore", "-c", program], check=True, timeout=300, env=environment)
