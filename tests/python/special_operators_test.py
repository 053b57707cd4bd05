"""Without what remat knows of a special operator (src/operators/special_operator.h) a step is as correct, and less
efficient: the environment leaves each of their files out."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch.distributed as dist

PROGRAMS = Path(__file__).with_name("special_programs.py")
NAMES = ["batch_norm", "recurrent", "softmax_in_place"]
if dist.is_available():
    NAMES.append("collectives")
if shutil.which("g++") is not None:
    NAMES.append("compiled_code")


def measured(names, without=""):
    environment = {**os.environ, "REMAT_WITHOUT": without}
    done = subprocess.run(
        [sys.executable, PROGRAMS, *names], env=environment, capture_output=True, text=True, timeout=500, check=False
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.fixture(scope="module")
def with_all():
    return measured(NAMES)


@pytest.mark.parametrize("name", NAMES)
def test_without_one_steps_are_as_correct_and_take_more(name, with_all):
    without = measured([name], without=name)[name]
    for found in (with_all[name], without):
        assert found["same"], "other bits than plain's"
        assert found["within"], "the budget was exceeded"
        assert found["left"] <= 0, "bytes are left when the steps are over"
    assert not with_all[name]["refused"]
    # Of all that a step in which everything is dropped holds for its backward pass, or else of what that takes.
    more = "peak" if name == "softmax_in_place" else "held"
    assert without[more] > with_all[name][more]


def test_a_name_that_is_none_is_refused():
    done = subprocess.run(
        [sys.executable, "-c", "import remat; remat.Session()"],
        env={**os.environ, "REMAT_WITHOUT": "recurrent,convolution"}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode != 0
    assert '[operators] REMAT_WITHOUT names "convolution", which is none of batch_norm,' in done.stderr
