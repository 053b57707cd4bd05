#!/usr/bin/env python3
"""What scripts/wheel says while pip compiles."""
import os
import stat
import subprocess
import tempfile
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent

# Stands for an interpreter that has torch, and whose pip compiles 40 files, the last of which fails.
PYTHON = """#!/bin/sh
case "$*" in
  *torch.__version__*) echo 2.13 ;;
  *"pip --disable-pip-version-check wheel"*)
    echo "Processing $PWD"
    i=0
    while [ $i -lt 39 ]; do i=$((i + 1)); echo "  [$i/40] Building CXX object some/file$i.cpp.o"; done
    echo "  some/file40.cpp:1:1: error: nothing of the kind" >&2
    exit 1 ;;
esac
"""


class Wheel(unittest.TestCase):
    def test_says_how_far_it_is_and_why_it_failed(self):
        with tempfile.TemporaryDirectory() as directory:
            python = Path(directory) / "python"
            python.write_text(PYTHON)
            python.chmod(python.stat().st_mode | stat.S_IXUSR)
            made = subprocess.run(["bash", ROOT / "scripts/wheel", python], capture_output=True, text=True,
                                  env={**os.environ, "TMPDIR": directory}, check=False)
            self.assertNotEqual(made.returncode, 0)
            self.assertEqual(made.stdout, "")  # which is for the name of the wheel
            said = made.stderr.splitlines()
            self.assertIn("compiling remat for torch 2.13", said[0])
            counts = [line for line in said if line.startswith("wheel: compiled ")]
            self.assertIn("wheel: compiled 20 of 40 files", counts)
            self.assertTrue(5 <= len(counts) <= 12, counts)
            self.assertIn("error: nothing of the kind", made.stderr)
            self.assertIn("wheel: remat does not build with torch 2.13", made.stderr)
            self.assertEqual([path.name for path in Path(directory).iterdir()], ["python"])


if __name__ == "__main__":
    unittest.main()
