"""The simulated CUDA devices, for tests: load() makes PyTorch's operators compute there. scripts/cuda-simulated puts
the runtime in the place of CUDA's before Python starts."""

import contextlib
import functools

import remat_simulated_cuda_kernels as kernels
import torch


@functools.cache
def load():
    """The device. What CUDA's libraries alone compute (cuDNN, fused attention) is switched off."""
    torch.cuda.init()
    kernels.install()
    torch.backends.cudnn.enabled = False
    torch.backends.cuda.enable_flash_sdp(False)
    torch.backends.cuda.enable_mem_efficient_sdp(False)
    torch.backends.cuda.enable_cudnn_sdp(False)
    return torch.device("cuda:0")


@contextlib.contextmanager
def asynchronous(microseconds=0):
    """Operators return at once. Streams compute later, each kernel after so long, from addresses alone: memory that is
    reused too early shows as wrong values."""
    kernels.set_asynchronous(True, microseconds)
    try:
        yield
    finally:
        torch.cuda.synchronize()
        kernels.set_asynchronous(False, 0)
