"""``python -m remat``."""

from __future__ import annotations

import io
import subprocess
import sys

import pytest
import torch

import remat
from remat import doctor


def test_the_doctor_finds_that_remat_works():
    run = subprocess.run([sys.executable, "-m", "remat", "doctor"], capture_output=True, text=True)
    assert run.returncode == 0, run.stderr
    assert f"built with torch {torch.__version__.split('+')[0]}" in run.stdout
    assert "same bits as plain" in run.stdout
    assert run.stderr == ""


def test_the_doctor_sees_wrong_bits(monkeypatch):
    monkeypatch.setattr(doctor.torch, "equal", lambda a, b: False)
    out = io.StringIO()
    assert not doctor.examine(out)
    assert "FAILED: gradients" in out.getvalue()


def test_the_doctor_leaves_the_generator_as_it_was():
    before = torch.get_rng_state()
    doctor.examine(io.StringIO())
    assert torch.equal(before, torch.get_rng_state())


@pytest.mark.parametrize("arguments", [[], ["nurse"]])
def test_wrong_usage_is_exit_code_2(arguments):
    run = subprocess.run([sys.executable, "-m", "remat", *arguments], capture_output=True, text=True)
    assert run.returncode == 2
    assert "usage" in run.stderr


def test_the_version_is_the_package_s():
    run = subprocess.run([sys.executable, "-m", "remat", "--version"], capture_output=True, text=True)
    assert run.stdout.split() == ["remat", remat.__version__]
