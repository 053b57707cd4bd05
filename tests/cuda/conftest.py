"""Fixtures of the tests on simulated CUDA devices, which scripts/cuda-simulated runs."""

import contextlib
import gc
import os

import pytest

if "REMAT_SIMULATED_CUDA" not in os.environ:
    collect_ignore_glob = ["*_test.py"]
else:
    import simulated_cuda
    import torch

    from remat import _C

    @pytest.fixture
    def device():
        """The first device, with nothing cached, no limit and the peaks at zero."""
        device = simulated_cuda.load()
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
        with simulated_cuda.asynchronous() if request.param == "asynchronous" else contextlib.nullcontext():
            yield
