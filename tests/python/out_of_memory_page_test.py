"""The programs of docs/out-of-memory.md work as they stand."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

PAGE = Path(__file__).resolve().parents[2] / "docs" / "out-of-memory.md"
PROGRAMS = [code for code in re.findall(r"^```python\n(.*?)^```", PAGE.read_text(encoding="utf-8"), re.M | re.S) if "import torch" in code]


def test_there_are_two():
    assert [("transformers" in program) for program in PROGRAMS] == [False, True]


@pytest.mark.parametrize("program", PROGRAMS, ids=["python", "trainer"][: len(PROGRAMS)])
def test_it_runs(program, tmp_path):
    if "transformers" in program:
        pytest.importorskip("transformers", reason="transformers is not installed")
    done = subprocess.run([sys.executable, "-c", program], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "Warning: [" not in done.stderr  # of remat's
    if "print(" in program:
        assert re.search(r"against plain +saved \d", done.stdout), done.stdout
