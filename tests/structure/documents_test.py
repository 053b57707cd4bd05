#!/usr/bin/env python3
"""What can be said of the documents without building the site (`make docs`): links lead somewhere, the index names
every page, and every public name of the Python package says what it is. Of the headers Doxygen says so."""

import ast
import re
import unittest
from pathlib import Path
from urllib.parse import unquote

ROOT = Path(__file__).resolve().parent.parent.parent
PACKAGE = ROOT / "python" / "remat"
DOCUMENTS = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").glob("*.md")])
LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
# Names that are public for Python's sake alone: methods that a framework calls.
CALLED_BY_FRAMEWORKS = re.compile(r"on_[a-z_]+")


def text_of(path):
    """The document without its code."""
    text = re.sub(r"^(```|~~~).*?^\1$", "", path.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)
    return text


def anchors_of(path):
    """Of its headings, as code hosts and Sphinx make them."""
    found = set()
    for heading in re.findall(r"^#{1,6} +(.*)$", text_of(path), re.MULTILINE):
        words = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).lower()
        found.add(re.sub(r"[^\w\- ]", "", words).strip().replace(" ", "-"))
    return found


def public_definitions(tree):
    for node in tree.body:
        if isinstance(node, (ast.ClassDef, ast.FunctionDef)) and not node.name.startswith("_"):
            yield node


class Merges(unittest.TestCase):
    def test_left_no_conflict_in_a_document(self):
        for path in DOCUMENTS:
            with self.subTest(document=path.name):
                self.assertIsNone(re.search(r"^(<{7}|>{7}|={7}$)", path.read_text(encoding="utf-8"), re.MULTILINE))


class Links(unittest.TestCase):
    def test_lead_somewhere(self):
        for path in DOCUMENTS:
            for target in LINK.findall(text_of(path)):
                if re.match(r"[a-z]+:", target):
                    continue
                with self.subTest(document=path.name, link=target):
                    name, _, anchor = target.partition("#")
                    place = (path.parent / unquote(name)).resolve() if name else path
                    self.assertTrue(place.exists(), "there is no such file")
                    if anchor:
                        self.assertIn(anchor, anchors_of(place), f"{place.name} has no such heading")

    def test_the_index_names_every_page(self):
        index = ROOT / "docs" / "README.md"
        named = {(index.parent / target.partition("#")[0]).resolve() for target in LINK.findall(text_of(index))}
        for path in DOCUMENTS:
            if path.name != "README.md":
                with self.subTest(document=path.name):
                    self.assertIn(path, named, "docs/README.md does not link to it")


class VersionsOfTorch(unittest.TestCase):
    def test_that_are_to_be_installed_are_tested(self):
        table = (ROOT / "docs" / "versions.md").read_text(encoding="utf-8").partition("| torch | tested |")[2]
        tested = re.findall(r"^\| (\d+\.\d+\.\d+)", table, re.MULTILINE)
        self.assertIn(re.search(r"^torch_version=(.*)", (ROOT / "scripts/setup").read_text(), re.MULTILINE)[1], tested)
        for path in (ROOT / "README.md", ROOT / "docs/python.md", ROOT / "docs/install.md"):
            named = re.findall(r"\btorch==(\d+\.\d+\.\d+)", path.read_text(encoding="utf-8"))
            self.assertTrue(named, f"{path.name} names no version to install")
            with self.subTest(document=path.name):
                self.assertLessEqual(set(named), set(tested))


class Docstrings(unittest.TestCase):
    def test_every_public_name_has_one(self):
        tree = ast.parse((PACKAGE / "__init__.py").read_text(encoding="utf-8"))
        exported = next(n.value for n in tree.body if isinstance(n, ast.Assign) and n.targets[0].id == "__all__")
        names = {name.value for name in exported.elts}
        modules = [
            node.module for node in tree.body if isinstance(node, ast.ImportFrom) and node.module != "__future__"
        ]
        found = {"memory"}  # a module
        for module in [
            *modules,
            "remat.memory",
            "remat.estimate",
            "remat.integrations.transformers",
            "remat.integrations.lightning",
        ]:
            path = ROOT / "python" / (module.replace(".", "/") + ".py")
            if not path.exists():
                continue  # `from remat import ...`
            for node in public_definitions(ast.parse(path.read_text(encoding="utf-8"))):
                if module in modules and node.name not in names:
                    continue
                found.add(node.name)
                self.check(path.name, node, node.name)
        self.assertLessEqual(names, found, "names of __all__ that no module defines")

    def check(self, file, node, name):
        with self.subTest(file=file, name=name):
            self.assertTrue(ast.get_docstring(node), "no docstring")
        if isinstance(node, ast.ClassDef):
            for member in public_definitions(node):
                if not CALLED_BY_FRAMEWORKS.fullmatch(member.name):
                    self.check(file, member, f"{name}.{member.name}")


if __name__ == "__main__":
    unittest.main()
