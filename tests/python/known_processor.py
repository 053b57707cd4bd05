"""Are tiles with plain's bits to be found here? Tests ask for them with MKL on processors with AVX-512, AMD's and Intel's:
there they were looked for. Elsewhere a computation may be whole, and its bits are tested all the same."""

from __future__ import annotations

import os

import pytest
import torch

HAS_TILES = (
    torch.backends.mkl.is_available()
    and torch.backends.cpu.get_cpu_capability() == "AVX512"
    and "MKL_ENABLE_INSTRUCTIONS" not in os.environ
)

needs_tiles = pytest.mark.skipif(not HAS_TILES, reason="tiles with plain's bits may not be found on this processor")
