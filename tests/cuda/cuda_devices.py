"""The CUDA devices that the tests run on: simulated ones, where scripts/cuda-simulated runs them, or else the machine's."""

import contextlib
import functools
import os

# For real devices, before CUDA is initialized: the bits that are compared are the same from run to run, and what cuBLAS
# takes for itself, 32 MiB unless told otherwise, is small beside the tests' budgets.
os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":16:8")
os.environ.setdefault("CUBLASLT_WORKSPACE_SIZE", "128")

import torch  # noqa: E402

SIMULATED = "REMAT_SIMULATED_CUDA" in os.environ
if SIMULATED:
    import remat_simulated_cuda_kernels as kernels
    import simulated_cuda


def missing():
    """Why the tests cannot run; None where they can."""
    return None if torch.cuda.is_available() else f"torch {torch.__version__} sees no CUDA device"


@functools.cache
def load():
    """The first device."""
    if SIMULATED:
        return simulated_cuda.load()
    torch.use_deterministic_algorithms(True, warn_only=True)
    torch.utils.deterministic.fill_uninitialized_memory = False
    return torch.device("cuda:0")


def asynchronous(microseconds=0):
    """Operators return at once, as they always do on real devices."""
    return simulated_cuda.asynchronous(microseconds) if SIMULATED else contextlib.nullcontext()


def keep_busy():
    """What follows on the current stream is late: on a real device by some 10 ms. Simulated kernels are slow themselves."""
    if not SIMULATED:
        torch.cuda._sleep(20_000_000)


def launched_calls():
    """How many operators have returned before they had computed; on real devices nobody counts."""
    return kernels.launched_calls() if SIMULATED else None
