"""Work on several streams of a CUDA device, whose kernels are still running when the host is long past them."""

import contextlib

import cuda_devices
import pytest
import torch
from training import block_step, same_bits

import remat

ELEMENTS = 1 << 20
KERNEL_MICROSECONDS = 3000
LARGE = 1 << 29  # a budget that limits nothing


@pytest.fixture
def slow_kernels(device):
    with cuda_devices.asynchronous(KERNEL_MICROSECONDS):
        yield


def leaf(device):
    torch.manual_seed(0)
    return torch.randn(ELEMENTS, device=device, requires_grad=True)


def step_of(device, planned):
    return remat.Session(device=device, budget=LARGE).step() if planned else contextlib.nullcontext()


def written_on_a_side_stream(device, planned):
    """A buffer that replays need is written in place while earlier writes of the side stream are still to come."""
    parameter, one = leaf(device), torch.randn(ELEMENTS, device=device)
    torch.cuda.synchronize()
    with torch.cuda.stream(torch.cuda.Stream()):
        buffer = torch.zeros(ELEMENTS, device=device)
        cuda_devices.keep_busy()
        for _ in range(20):
            buffer.add_(one)
        with step_of(device, planned):

            def section():
                return (parameter + buffer).sin()

            result = remat.checkpoint(section) if planned else section()
            with torch.no_grad():
                buffer.add_(1)  # before it, remat copies the buffer
            result.sum().backward()
    torch.cuda.synchronize()
    return parameter.grad.cpu()


def read_by_a_side_stream(device, planned):
    """An activation is dropped, and memory of its size asked for, while a side stream has yet to read it."""
    parameter, zeros = leaf(device), torch.zeros(ELEMENTS, device=device)
    side, main = torch.cuda.Stream(), torch.cuda.current_stream()
    torch.cuda.synchronize()

    def section():
        activation = parameter * 2
        side.wait_stream(main)
        with torch.cuda.stream(side):
            busy = zeros
            cuda_devices.keep_busy()
            for _ in range(6):
                busy = torch.cos(busy)
            read = torch.neg(activation.detach())
        return activation.sin(), read

    with step_of(device, planned):
        result, read = remat.checkpoint(section) if planned else section()
        others = [torch.full((ELEMENTS,), 7.0, device=device) for _ in range(4)]
        main.wait_stream(side)
        result.sum().backward()
    del others
    torch.cuda.synchronize()
    return read.detach().cpu()


@pytest.mark.parametrize("hazard", [written_on_a_side_stream, read_by_a_side_stream])
def test_side_streams_see_the_values_that_they_see_without_remat(device, slow_kernels, hazard):
    plain = hazard(device, planned=False)
    launched = cuda_devices.launched_calls()
    assert torch.equal(hazard(device, planned=False), plain)
    if cuda_devices.SIMULATED:
        assert cuda_devices.launched_calls() > launched + 5  # or nothing was late
    assert torch.equal(hazard(device, planned=True), plain)


def test_training_on_a_side_stream(device, either_way):
    step = block_step(device)
    torch.cuda.synchronize()
    with torch.cuda.stream(torch.cuda.Stream()):
        plain = step()
        session = remat.Session(device=device, budget="40%")
        for index in range(4):
            assert same_bits(step(session), plain)
            if index > 0:
                assert session.report().peak_bytes <= session.report().budget_bytes
        assert session.report().ops_replayed > 0
