"""Fixtures of all tests: one seed, and no step left in progress."""

from __future__ import annotations

import pytest
import torch

from remat import _C


@pytest.fixture(autouse=True)
def _same_seed():
    torch.manual_seed(7)
    yield
    assert not _C.is_recording(), "the test left a step or scope in progress"
