#!/usr/bin/env python3
"""scripts/gpu makes a bundle that is small and complete, and its script `run` goes on where it stopped. PYTHON: an
interpreter that has torch."""

import os
import re
import subprocess
import sys
import tarfile
import tempfile
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
BUNDLE = ROOT / "build/gpu/remat-gpu.tar.gz"
MIB = 1 << 20
NOT_OF_THE_BUNDLE = {"Python", "Threads", "Torch", "remat"}  # the machine has them; remat is what its users ask for


def tracked(*patterns):
    listing = subprocess.run(["git", "-C", ROOT, "ls-files", *patterns], capture_output=True, text=True, check=True)
    return listing.stdout.splitlines()


def asked_for(pattern):
    """What the build asks CMake for."""
    files = tracked("CMakeLists.txt", "*/CMakeLists.txt", "cmake/*.cmake")
    return {name for file in files for name in re.findall(pattern, (ROOT / file).read_text(), re.MULTILINE)}


class Bundle(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        made = subprocess.run([ROOT / "scripts/gpu"], capture_output=True, text=True)
        if made.returncode and re.search("pip could not fetch|this is no clone", made.stderr):
            raise unittest.SkipTest(made.stderr)
        assert made.returncode == 0, made.stderr
        cls.folder = tempfile.TemporaryDirectory()
        with tarfile.open(BUNDLE) as archive:
            cls.members = {member.name.removeprefix("remat-gpu/"): member for member in archive.getmembers()}
            for name in ("run", "sources/COMMIT"):
                archive.extract("remat-gpu/" + name, cls.folder.name)
        cls.place = Path(cls.folder.name) / "remat-gpu"

    @classmethod
    def tearDownClass(cls):
        cls.folder.cleanup()

    def assert_there(self, name):
        self.assertTrue(name in self.members, f"{name} is not in the bundle")

    def test_is_small(self):
        self.assertLessEqual(BUNDLE.stat().st_size, 60 * MIB)

    def test_has_all_sources(self):
        for name in tracked():
            self.assert_there("sources/" + name)
        self.assertRegex((self.place / "sources/COMMIT").read_text(), r"^[0-9a-f]{12}\+?$")

    def test_has_every_header_that_the_build_demands(self):
        headers = asked_for(r"^\s*remat_find_header\(\w+ ([\w./]+) ")
        self.assertIn("xxhash.h", headers)
        for header in headers:
            self.assert_there("dependencies/include/" + header)

    def test_has_every_package_that_the_build_demands(self):
        packages = asked_for(r"^\s*find_package\((\w+) [^)]*REQUIRED") - NOT_OF_THE_BUNDLE
        self.assertIn("CLI11", packages)
        for package in packages - {"GTest"}:
            self.assertTrue(any(name.startswith(f"dependencies/share/cmake/{package}/") for name in self.members), package)
        self.assert_there("dependencies/src/googletest/googletest/src/gtest-all.cc")
        self.assert_there("dependencies/lib/libutf8proc.a")

    def test_has_licenses(self):
        packages = re.search(r"^packages=\((.*)\)$", (ROOT / "scripts/gpu").read_text(), re.MULTILINE)[1].split()
        self.assertGreater(len(packages), 4)
        for package in packages:
            self.assert_there("dependencies/licenses/" + package)

    def test_has_wheels_of_every_python(self):
        wheels = [name for name in self.members if name.endswith(".whl")]
        for wanted in ("pytest", "pluggy", "iniconfig", "packaging", "pygments", "cmake", "ninja"):
            (found,) = [name for name in wheels if name.startswith(f"wheels/{wanted}-")]
            self.assertIn("-py3-none-", found)

    def test_has_what_its_script_names(self):
        script = (self.place / "run").read_text()
        names = re.findall(r'"\$here"?/((?:sources|dependencies)/[\w./-]+)', script)
        self.assertGreater(len(names), 3)
        for name in names:
            self.assert_there(name.removesuffix("/"))
        self.assertTrue(self.members["run"].mode & 0o111)

    def run_script(self, *words, **environment):
        program = [self.place / "run", *words]
        environment = os.environ | {"PYTHON": os.environ.get("PYTHON", sys.executable)} | environment
        result = subprocess.run(program, capture_output=True, text=True, env=environment)
        return result.returncode, result.stdout + result.stderr

    def set_state(self, **codes):
        state = self.place / "state"
        state.mkdir(exist_ok=True)
        for file in state.iterdir():
            file.unlink()
        for name, code in codes.items():
            (state / name).write_text(f"{code}\n")

    def test_script_says_what_is_next(self):
        self.set_state(environment=0)
        code, said = self.run_script("module", REMAT_RUN_SECONDS="30")
        self.assertEqual(code, 75)
        self.assertIn("next is configure: call ./run module again", said)

    def test_script_ends_with_success_once_all_is_done(self):
        self.set_state(environment=0, configure=0, module=0, doctor=0, build=0)
        self.assertEqual(self.run_script("module", "build", REMAT_RUN_SECONDS="30"), (0, "run: done: module build\n"))

    def test_script_remembers_what_failed_until_it_is_to_forget(self):
        self.set_state(environment=0, configure=0, module=0, doctor=3)
        code, said = self.run_script("module", REMAT_RUN_SECONDS="30")
        self.assertEqual(code, 1)
        self.assertIn("failed: doctor", said)
        self.assertEqual(self.run_script("retry")[0], 0)
        self.assertEqual({file.name for file in (self.place / "state").iterdir()}, {"environment", "configure", "module"})

    def test_script_does_not_go_on_without_what_is_built(self):
        self.set_state(environment=0, configure=1, module=0)
        code, said = self.run_script(REMAT_RUN_SECONDS="30")
        self.assertEqual(code, 1)
        self.assertIn("configure failed", said)

    def test_script_knows_its_parts(self):
        code, said = self.run_script("nonsense")
        self.assertEqual(code, 1)
        self.assertIn("no part 'nonsense'; there are module", said)

    def test_script_wants_a_torch(self):
        code, said = self.run_script("module", PYTHON="/bin/false")
        self.assertEqual(code, 1)
        self.assertIn("/bin/false has no torch", said)


if __name__ == "__main__":
    unittest.main(verbosity=2)
