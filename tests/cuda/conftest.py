"""Fixtures of the tests on CUDA devices, real ones or those that scripts/cuda-simulated simulates. Where there is no device
they are skipped; with REMAT_REQUIRE_CUDA=1 they fail."""

import contextlib
import gc
import os

import cuda_devices
import pytest
import torch

os.environ.setdefault("REMAT_VALIDATE", "1")  # before the package is imported

from remat import _C  # noqa: E402


def pytest_runtest_setup(item):
    if missing := cuda_devices.missing():
        (pytest.fail if os.environ.get("REMAT_REQUIRE_CUDA") == "1" else pytest.skip)(missing)
    if (wanted := item.get_closest_marker("devices")) and torch.cuda.device_count() < wanted.args[0]:
        pytest.skip(f"needs {wanted.args[0]} CUDA devices")


def pytest_configure(config):
    config.addinivalue_line("markers", "devices(count): the test needs so many CUDA devices")


@pytest.fixture
def device():
    """The first device, with nothing cached, no limit and the peaks at zero."""
    device = cuda_devices.load()
    gc.collect()
    for index in range(torch.cuda.device_count()):
        torch.cuda.set_per_process_memory_fraction(1.0, index)
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats()
    torch.manual_seed(7)
    yield device
    torch.cuda.synchronize()
    assert not _C.is_recording(), "the test left a step or scope in progress"


@pytest.fixture(params=["waiting", "asynchronous"])
def either_way(request):
    """The test runs twice: operators wait for their kernels, and don't."""
    if request.param == "waiting" and not cuda_devices.SIMULATED:
        pytest.skip("operators of real devices don't wait")
    with cuda_devices.asynchronous() if request.param == "asynchronous" else contextlib.nullcontext():
        yield
