"""The package as somebody looks at it who has just imported it."""

from __future__ import annotations

import subprocess
import sys

from torch import nn

import remat


def test_dir_has_the_public_names_and_no_modules_behind_them():
    shown = {name for name in dir(remat) if not name.startswith("__")}
    assert shown == set(remat.__all__)
    assert {"__version__", "__doc__"} <= set(dir(remat))
    assert all(hasattr(remat, name) for name in dir(remat))


def test_importing_it_imports_no_compiler():
    """torch.compile's takes as long to import as torch."""
    code = "import sys, remat; print(*sorted({'sympy', 'torch._dynamo', 'torch._inductor'} & sys.modules.keys()))"
    child = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert child.stdout.split() == []


def test_found_blocks_are_modules_that_compile_and_policies_take():
    model = nn.Sequential(nn.Linear(4, 4), *(nn.Sequential(nn.Linear(4, 4), nn.GELU()) for _ in range(3)))
    assert remat.find_blocks(model) == list(model)[1:]
