#!/usr/bin/env python3
"""Builds the documents as a site: docs/site/build.py FOLDER. The pages are in FOLDER/html; any warning is an error.

The documents are Markdown that is read well as it is, beside the sources. Here they become pages: links that lead out
of docs/ go to pages with those files, and the reference is made of the headers (Doxygen) and the docstrings (Sphinx).
"""

from __future__ import annotations

import ast
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SITE = Path(__file__).resolve().parent
# Documents that are not in docs/, and the file that is the first page.
PAGES = {
    "docs/README.md": "index.md",
    "README.md": "index.md",
    "ARCHITECTURE.md": "architecture.md",
    "CONTRIBUTING.md": "contributing.md",
    "CHANGELOG.md": "changes.md",
    "include/remat": "reference/cpp.rst",
    "python/remat": "reference/python.rst",
}
NOT_EXPORTED = {"remat.report": ["Picture"], "remat.audit.result": ["Row", "Difference"]}  # what a public call returns
SHOWN = {  # of their public names
    "remat.estimate": ["estimate", "Estimate", "Point", "optimizer_state_bytes"],
    "remat.device_estimate": ["DeviceEstimate", "DevicePoint"],
}
LANGUAGES = {".cpp": "cpp", ".h": "cpp", ".py": "python", ".sh": "sh", ".cmake": "cmake"}
LINK = re.compile(r"\[([^\]]*)\]\(([^)\s#]+)(#[^)\s]*)?\)")


class Site:
    def __init__(self, folder: Path) -> None:
        self.source = folder / "source"
        self.shown: set[str] = set()  # sources that have a page
        shutil.rmtree(self.source, ignore_errors=True)
        self.source.mkdir(parents=True)

    def write(self, name: str, text: str) -> None:
        path = self.source / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")

    def page_of(self, path: str) -> str:
        """The page for a path of the repository; one with the file is made where there is none."""
        if path in PAGES:
            return PAGES[path]
        if re.fullmatch(r"docs/([\w.-]+\.md|[\w./-]+\.svg)", path):
            return path.removeprefix("docs/")
        if not (ROOT / path).exists():
            raise SystemExit(f"build.py: a document links to {path}, which does not exist")
        page = f"source/{path}.md"
        if path not in self.shown:
            self.shown.add(path)
            if path.endswith("README.md"):
                self.document(path)
            else:
                self.write(page, self.listing(path))
        return page

    def listing(self, path: str) -> str:
        place = ROOT / path
        if place.is_dir():
            files = sorted(file.name for file in place.iterdir() if not file.name.startswith((".", "__")))
            return f"---\norphan: true\n---\n# {path}/\n\nIn the sources:\n\n" + "".join(
                f"- `{name}`\n" for name in files
            )
        language = LANGUAGES.get(place.suffix, "text")
        return f"---\norphan: true\n---\n# {path}\n\n````{language}\n{place.read_text(encoding='utf-8')}````\n"

    def document(self, path: str) -> None:
        """A document of the repository, with links between pages in place of those between files."""
        page = PAGES.get(path) or self.page_of(path)

        def link(match: re.Match[str]) -> str:
            words, target, anchor = match.groups()
            if re.match(r"[a-z]+:", target):
                return match[0]
            there = os.path.normpath(os.path.join(os.path.dirname(path), target))
            to = os.path.relpath(self.page_of(there), os.path.dirname(page) or ".")
            name = os.path.basename(target)
            words = "" if name == words and to.endswith((".md", ".rst")) else words  # a page's title says more
            return f"[{words}]({to}{anchor or ''})"

        parts = re.split(r"(^```.*?^```$)", (ROOT / path).read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)
        text = "".join(part if part.startswith("```") else LINK.sub(link, part) for part in parts)
        orphan = "---\norphan: true\n---\n" if page.startswith("source/") else ""
        self.write(page, orphan + text + (contents_of(text) if page == "index.md" else ""))


def contents_of(index: str) -> str:
    """The sidebar: under each heading of the first page, the pages that it names."""
    seen = set()
    text = ""
    for section in re.split(r"^## ", index, flags=re.MULTILINE)[1:]:
        caption = section.splitlines()[0]
        pages = [match[2] for match in LINK.finditer(section) if match[2].endswith((".md", ".rst"))]
        new = [page for page in dict.fromkeys(pages) if page not in seen and not page.startswith("source/")]
        seen.update(new)
        if new:
            text += f"\n```{{toctree}}\n:hidden:\n:caption: {caption}\n\n" + "\n".join(new) + "\n```\n"
    return text


def titled(title: str, mark: str = "=") -> str:
    return f"{title}\n{mark * len(title)}\n\n"


def cpp_reference() -> str:
    """Every public header: what it says of itself, then what it declares."""
    text = titled("C++ reference")
    text += "Made of the public headers. "
    text += "``#include <remat/remat.h>`` has all but ``extension.h`` and ``distributed.h``.\n\n"
    for header in sorted((ROOT / "include/remat").glob("*.h")):
        if header.name == "remat.h":
            continue
        comment = re.match(r"(?://.*\n)+", header.read_text(encoding="utf-8"))
        lines = [line.removeprefix("//").removeprefix(" ") for line in comment[0].splitlines()]
        what = re.sub(r"^\S+ -- ", "", lines[0])
        text += titled(f"remat/{header.name}", "-")
        text += rst_of([what[:1].upper() + what[1:], *lines[1:]])
        text += f".. doxygenfile:: {header.name}\n\n"
    return text


def rst_of(lines: list[str]) -> str:
    """A comment of a header as reStructuredText: paragraphs, and code where it is indented."""
    text, in_code = "", False
    for line in lines:
        code = line.startswith("  ")
        if code and not in_code:
            text += "\n.. code-block:: cpp\n\n"
        elif in_code and line and not code:
            text += "\n"
        in_code = code or (in_code and not line)
        text += (f" {line}" if code else line.replace("*", r"\*")) + "\n"
    return text + "\n"


def python_reference() -> str:
    """Every public name, under the module that it comes from."""
    package = ROOT / "python/remat"
    text = (
        titled("Python reference")
        + "Made of the docstrings, which ``help(remat)`` shows too.\n\n"
        + ".. currentmodule:: remat\n.. highlight:: python\n\n"
    )
    tree = ast.parse((package / "__init__.py").read_text(encoding="utf-8"))
    public = {
        name.value
        for node in tree.body
        if isinstance(node, ast.Assign) and node.targets[0].id == "__all__"
        for name in node.value.elts
    }
    for node in tree.body:
        if not isinstance(node, ast.ImportFrom) or not node.module.startswith("remat."):
            continue
        names = [alias.name for alias in node.names if alias.name in public]
        if names:
            text += section_of(node.module, names, "remat")
        text += "".join(
            f".. autoclass:: {node.module}.{name}\n   :members:\n\n" for name in NOT_EXPORTED.get(node.module, [])
        )
    integrations = ("remat.integrations.transformers", "remat.integrations.lightning")
    for module in ("remat.memory", "remat.estimate", "remat.device_estimate", *integrations):
        text += section_of(module, SHOWN.get(module) or public_names(module), module)
    return text


def public_names(module: str) -> list[str]:
    tree = ast.parse((ROOT / "python" / (module.replace(".", "/") + ".py")).read_text(encoding="utf-8"))
    return [
        node.name
        for node in tree.body
        if isinstance(node, (ast.ClassDef, ast.FunctionDef)) and not node.name.startswith("_")
    ]


def section_of(module: str, names: list[str], home: str) -> str:
    tree = ast.parse((ROOT / "python" / (module.replace(".", "/") + ".py")).read_text(encoding="utf-8"))
    kinds = {node.name: node for node in tree.body if isinstance(node, (ast.ClassDef, ast.FunctionDef))}
    title = module if home == module else ", ".join(names)
    text = titled(title, "-") + (ast.get_docstring(tree, clean=False) or "").rstrip() + "\n\n"
    for name in names:
        what = "function"
        if isinstance(kinds[name], ast.ClassDef):
            error = any(isinstance(base, ast.Name) and base.id.endswith("Error") for base in kinds[name].bases)
            what = "exception" if error else "class"
        text += f".. auto{what}:: {home}.{name}\n" + ("" if what == "function" else "   :members:\n") + "\n"
    return text


def doxygen(folder: Path) -> None:
    if shutil.which("doxygen") is None:
        raise SystemExit("build.py: doxygen is missing; install Debian's package doxygen")
    out = folder / "doxygen"
    out.mkdir(parents=True, exist_ok=True)
    settings = (SITE / "Doxyfile").read_text(encoding="utf-8") + f"\nOUTPUT_DIRECTORY = {out}\n"
    if subprocess.run(["doxygen", "-"], input=settings, text=True, cwd=ROOT).returncode:
        raise SystemExit("build.py: the comments of the public headers are incomplete; see above")


def main() -> None:
    folder = Path(sys.argv[1]).resolve()
    doxygen(folder)
    site = Site(folder)
    for path in sorted([*(f"docs/{file.name}" for file in (ROOT / "docs").glob("*.md")), *PAGES]):
        if path.endswith(".md") and path != "README.md":
            site.document(path)
    for file in (ROOT / "docs").rglob("*.svg"):
        picture = site.source / file.relative_to(ROOT / "docs")
        picture.parent.mkdir(exist_ok=True)
        shutil.copy(file, picture)
    site.write("reference/cpp.rst", cpp_reference())
    site.write("reference/python.rst", python_reference())
    sphinx = [sys.executable, "-m", "sphinx", "--fail-on-warning", "--keep-going", "-q", "-E", "-c", str(SITE)]
    sphinx += ["-D", f"breathe_projects.remat={folder / 'doxygen/xml'}", str(site.source), str(folder / "html")]
    raise SystemExit(subprocess.run(sphinx).returncode)


if __name__ == "__main__":
    main()
