"""The tests on CUDA devices (tests/cuda) where there is none: skipped, and failed where a device is required."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

CUDA = Path(__file__).parent.parent / "cuda"


@pytest.mark.parametrize("required, outcome", [(None, "skipped"), ("1", "errors?")])
def test_without_a_device(required, outcome):
    taken = "REMAT_REQUIRE_CUDA", "REMAT_SIMULATED_CUDA"
    environment = {key: value for key, value in os.environ.items() if key not in taken}
    environment |= {"CUDA_VISIBLE_DEVICES": ""} | ({"REMAT_REQUIRE_CUDA": required} if required else {})
    program = [sys.executable, "-m", "pytest", "-q", "-rs", "-p", "no:cacheprovider", "--rootdir", CUDA, CUDA]
    result = subprocess.run(program, capture_output=True, text=True, env=environment)
    assert result.returncode == (1 if required else 0), result.stdout + result.stderr
    assert re.search(rf"\b\d\d {outcome} in ", result.stdout), result.stdout
    assert "sees no CUDA device" in result.stdout
