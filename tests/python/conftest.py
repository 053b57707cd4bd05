"""Fixtures of all tests: one seed, and no step left in progress."""

from __future__ import annotations

import gc
import os

import pytest
import torch

from remat import _C

os.environ["REMAT_VALIDATE"] = "1"  # every step checks the invariants of its tape when it ends
os.environ["CUDA_VISIBLE_DEVICES"] = ""  # sessions without a device are the CPU's; those on CUDA devices are in tests/cuda


def pytest_collection_finish():
    """What has been imported is never garbage: gc.collect(), which sessions call, need not look at it again and again."""
    gc.collect()
    gc.freeze()


@pytest.fixture
def one_thread():
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(autouse=True)
def _same_seed():
    torch.manual_seed(7)
    yield
    assert not _C.is_recording(), "the test left a step or scope in progress"
