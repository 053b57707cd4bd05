#!/usr/bin/env python3
"""What ARCHITECTURE.md says of the folders: includes run in one direction, and no file is too long to be read."""
import graphlib
import re
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
# The folders of the engine: the sources of each may include those before it.
ENGINE = ("util", "memory", "device", "tiers", "pytorch", "operators", "tape", "observe", "replay", "session")
# What the sources of each folder of src/ may include, besides their own folder and the public headers.
MAY_INCLUDE = {
    **{folder: set(ENGINE[:place]) for place, folder in enumerate(ENGINE)},
    "session": {*ENGINE, "plan"},
    "plan": {"util"},
    "report": {"util", "plan"},
    "export": {"util", "plan"},
    "distributed": {"device"},
    "tiles": {"util", "memory", "device", "pytorch"},
}
MOST_LINES = 420
TOO_LONG = {}


def included(path):
    """Folders of src/ whose headers the file includes."""
    text = path.read_text(encoding="utf-8")
    return {folder for folder in re.findall(r'^\s*#\s*include "(\w+)/', text, re.MULTILINE)}


def parts(folder, root):
    """By name without suffix, the parts of a folder (a header with its source) and those whose headers they include.
    Includes begin at `root`."""
    files = [path for path in folder.rglob("*") if path.suffix in (".cpp", ".h")]
    headers = {str(path.relative_to(root).with_suffix("")) for path in files if path.suffix == ".h"}
    graph = {}
    for path in files:
        name = str(path.relative_to(root).with_suffix(""))
        names = re.findall(r'^\s*#\s*include "([^"]+)\.h"', path.read_text(encoding="utf-8"), re.MULTILINE)
        graph.setdefault(name, set()).update(set(names) & headers - {name})
    return graph


class Includes(unittest.TestCase):
    def test_every_folder_is_known(self):
        self.assertEqual({path.name for path in (ROOT / "src").iterdir() if path.is_dir()}, set(MAY_INCLUDE))

    def test_run_in_one_direction(self):
        for folder, allowed in MAY_INCLUDE.items():
            for path in sorted((ROOT / "src" / folder).rglob("*.[ch]*")):
                with self.subTest(file=str(path.relative_to(ROOT))):
                    self.assertLessEqual(included(path), allowed | {folder})

    def test_go_round_in_no_circle(self):
        for folder, root in (("src", "src"), ("app", "app"), ("bench", "."), ("python/src", "python/src")):
            with self.subTest(folder=folder):
                graph = parts(ROOT / folder, ROOT / root)
                self.assertTrue(any(graph.values()), "no include was followed")
                try:
                    graphlib.TopologicalSorter(graph).prepare()
                except graphlib.CycleError as error:
                    self.fail(" includes ".join(reversed(error.args[1])))

    def test_of_the_application_are_its_own_and_public_headers(self):
        own = {path.name for path in (ROOT / "app").iterdir() if path.is_dir()}
        public = {str(path.relative_to(ROOT / "include/remat")) for path in (ROOT / "include/remat").rglob("*.h")}
        for path in sorted((ROOT / "app").rglob("*.[ch]*")):
            with self.subTest(file=str(path.relative_to(ROOT))):
                text = path.read_text(encoding="utf-8")
                self.assertLessEqual(included(path), own)
                self.assertNotRegex(text, r'#\s*include "[^"]*\.\./')
                self.assertLessEqual(set(re.findall(r"#\s*include <remat/([^>]+)>", text)), public)

    def test_the_library_names_nothing_of_the_application(self):
        """Not even to compile: neither in an include nor in a CMake file of the library."""
        targets = re.findall(r"add_(?:library|executable)\((\w+)", "".join(
            path.read_text(encoding="utf-8") for path in (ROOT / "app").rglob("CMakeLists.txt")))
        self.assertIn("remat_command", targets)
        names = re.compile(rf"\bapp/|\b(?:{'|'.join(targets)})\b")
        for folder in ("include", "src", "runtime"):
            for path in sorted((ROOT / folder).rglob("*")):
                if path.suffix in (".cpp", ".h", ".c", ".txt", ".in"):
                    with self.subTest(file=str(path.relative_to(ROOT))):
                        self.assertEqual(names.findall(path.read_text(encoding="utf-8")), [])

    def test_public_headers_include_nothing_of_src(self):
        for path in sorted((ROOT / "include").rglob("*.h")):
            with self.subTest(file=str(path.relative_to(ROOT))):
                self.assertEqual(included(path), set())


# How code names a kind of device, in C++ and in Python.
NAMES_A_DEVICE = re.compile(
    r"\bk(?:CPU|CUDA|Meta|PrivateUse1|XPU|MPS)\b|\bis_(?:cpu|cuda|meta|privateuseone|xpu|mps)\(\)"
    r"|\bDispatchKey::\w*(?:CPU|CUDA|PrivateUse1|Meta)\b|\btorch\.(?:cuda|xpu|mps)\b|\"(?:cpu|cuda|meta|privateuseone|xpu|mps)\""
)
MAY_NAME_A_DEVICE = {
    "include/remat/memory.h",  # the default
    "include/remat/session.h",  # the default
}


def code_of(path):
    """Without comments and, in Python, docstrings."""
    text = path.read_text(encoding="utf-8")
    if path.suffix == ".py":
        return re.sub(r'""".*?"""|#[^\n]*', "", text, flags=re.DOTALL)
    return re.sub(r"//[^\n]*", "", text)


class Devices(unittest.TestCase):
    def test_their_kinds_are_named_in_their_own_files(self):
        own = {ROOT / "python/remat/device.py", ROOT / "app/cli/device.h", *(ROOT / "src/device").iterdir()}
        folders = ("include", "src", "app/cli", "python/src", "python/remat")
        files = [path for folder in folders for path in (ROOT / folder).rglob("*") if path.suffix in (".cpp", ".h", ".py")]
        naming = {path for path in files if path not in own and NAMES_A_DEVICE.search(code_of(path))}
        self.assertEqual({str(path.relative_to(ROOT)) for path in naming}, MAY_NAME_A_DEVICE)


# What is the name of an operator in a text of C++, or of a namespace whose kernels are registered. Names of PyTorch's
# operators without their namespace stand in util/compute_bound.cpp too, for graphs, which planners read without torch.
TEXT = re.compile(r'"((?:[^"\\\n]|\\.)*)"')
NAMES_AN_OPERATOR = re.compile(r"(?!remat::)[a-z_]\w*::\w|(?:aten|prims|c10d|compiled|fsdp)$|\w+Backward\d+$")
# A kernel of one operator called by itself, not through the dispatcher.
CALLS_A_KERNEL = re.compile(r"\bat::(?:cpu|native)::\w+")
MAY_NAME_AN_OPERATOR = {
    "src/device/accelerator.cpp",  # by record_stream() the allocator of a device is told who uses its memory
}


class Operators(unittest.TestCase):
    def test_are_named_in_folders_of_their_own(self):
        """What remat knows of them stands in src/operators, and what exports know in src/export."""
        own = (ROOT / "src/operators", ROOT / "src/export")
        files = [path for folder in ("include", "src") for path in (ROOT / folder).rglob("*") if path.suffix in (".cpp", ".h")]
        naming = set()
        for path in files:
            code = code_of(path)
            named = any(NAMES_AN_OPERATOR.match(text) for text in TEXT.findall(code)) or CALLS_A_KERNEL.search(code)
            if named and path.parent not in own:
                naming.add(str(path.relative_to(ROOT)))
        self.assertEqual(naming, MAY_NAME_AN_OPERATOR)

    def test_names_of_them_are_found(self):
        for text in ("aten::mm", "c10d::allreduce_", "compiled::kernel_", "aten", "SoftmaxBackward0", "mylib::gate"):
            self.assertTrue(NAMES_AN_OPERATOR.match(text), text)
        for text in ("remat::fit", "Ranks::gather", "[policy] no operator is named ", "std", "a: b", ""):
            self.assertFalse(NAMES_AN_OPERATOR.match(text), text)
        self.assertEqual(TEXT.findall(r'f("a\"b::c", "d::e")'), [r'a\"b::c', "d::e"])

    def test_each_special_one_has_a_file(self):
        text = (ROOT / "src/operators/special_operator.h").read_text(encoding="utf-8")
        names = re.search(r"extern const SpecialOperator ([^;]*);", text)[1].replace("k", "").split(", ")
        self.assertIn("BatchNorm", names)
        for name in names:
            file = re.sub(r"(?<!^)(?=[A-Z])", "_", name).lower() + ".cpp"
            with self.subTest(name=name):
                self.assertIn(f"special::k{name} = ", (ROOT / "src/operators" / file).read_text(encoding="utf-8"))


# How a member function is defined in a .cpp file.
DEFINES_A_MEMBER = re.compile(r"^(?:[\w:<>&*, \[\]]*[ &*])?((?:\w+::)*\w+)::~?\w+\(", re.MULTILINE)


class Classes(unittest.TestCase):
    def test_none_is_in_more_than_two_files(self):
        files = {}
        for path in sorted((ROOT / "src").rglob("*.cpp")):
            for found in DEFINES_A_MEMBER.finditer(path.read_text(encoding="utf-8")):
                if not found.group(0)[0].isspace():
                    files.setdefault(found.group(1), set()).add(path.name)
        self.assertEqual({name: sorted(of) for name, of in files.items() if len(of) > 2}, {})
        self.assertIn("Residency", files)


class Documents(unittest.TestCase):
    def test_the_architecture_is_a_map(self):
        self.assertLessEqual(len((ROOT / "ARCHITECTURE.md").read_text(encoding="utf-8").split()), 900)

    def test_every_folder_says_what_it_holds(self):
        for folder in MAY_INCLUDE:
            self.assertTrue((ROOT / "src" / folder / "README.md").is_file(), folder)

    def test_files_that_readmes_name_are_there(self):
        for readme in [ROOT / "ARCHITECTURE.md", *(ROOT / "src").rglob("README.md"), *(ROOT / "python").rglob("README.md")]:
            for name in re.findall(r"`([\w/]+\.(?:h|cpp|py))`", readme.read_text(encoding="utf-8")):
                with self.subTest(readme=str(readme.relative_to(ROOT)), name=name):
                    roots = [ROOT / name for name in ("", "src", "include", "include/remat", "python", "python/remat")]
                    beside = [readme.parent, *readme.parent.glob("*/"), *roots]
                    self.assertTrue(any((folder / name).is_file() for folder in beside))


class Files(unittest.TestCase):
    def test_none_is_too_long(self):
        folders = ("include", "src", "app", "python", "bench", "tests", "examples")
        for folder in folders:
            for path in sorted((ROOT / folder).rglob("*")):
                if path.suffix not in (".cpp", ".h", ".py"):
                    continue
                name = str(path.relative_to(ROOT))
                with self.subTest(file=name):
                    lines = len(path.read_text(encoding="utf-8").splitlines())
                    self.assertLessEqual(lines, TOO_LONG.get(name, MOST_LINES))


if __name__ == "__main__":  # with the other files here
    unittest.main(module=None, argv=[__file__, "discover", "-s", str(Path(__file__).parent), "-p", "*_test.py"])
