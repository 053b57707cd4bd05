#!/usr/bin/env python3
"""Numbers are the same text under every locale: nothing but include/remat/support/number_text.h and
<charconv> writes or reads those with a point, and no stream groups the digits of whole ones."""
import os
import re
import subprocess
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
FOLDERS = ("include", "src", "app", "python/src")
# What asks the locale wherever it stands. c10::str() is a stream.
ASKS = re.compile(
    r"\b(?:strto(?:d|f|ld)|sto(?:d|f|ld)|atof|v?f?s?scanf|setprecision|std::(?:of|wof|f)stream|std::(?:cout|cerr|clog)"
    r"|std::v?format|put_money|c10::str)\b(?=\s*[({\w<])"
)
PRINTS = re.compile(r"\bv?[fsd]?n?printf\s*\(")
POINT = re.compile(r"%[-+ #0']*(?:\*|\d+)?(?:\.(?:\*|\d*))?[lL]?[aefgAEFG]")
GROUPED = re.compile(r"%[-+ #0]*'")
STREAM = re.compile(r"\bstd::(?:i|o)?stringstream (\w+)|\bstd::(?:i|o)?stringstream[({]")


def arguments(text, begin):
    """The text between the parenthesis that ends at `begin` and the one that closes it."""
    depth, quoted, at = 1, False, begin
    while depth:
        if text[at] == '"' and text[at - 1] != "\\":
            quoted = not quoted
        elif not quoted:
            depth += {"(": 1, ")": -1}.get(text[at], 0)
        at += 1
    return text[begin : at - 1]


def problems(text):
    """What in a source asks the locale how numbers are written."""
    text = re.sub(r"//[^\n]*", "", text)
    found = [match.group() for match in ASKS.finditer(text)]
    for match in PRINTS.finditer(text):
        call = arguments(text, match.end())
        formats = re.findall(r'"((?:[^"\\]|\\.)*)"', call)
        if not formats:
            found.append(f"{match.group()}{call}), of which the format is not written there")
        elif any(POINT.search(f.replace("%%", "")) or GROUPED.search(f.replace("%%", "")) for f in formats):
            found.append(f"{match.group()}{call})")
    for match in STREAM.finditer(text):
        name = match.group(1)
        if not name or (f"{name}.imbue(std::locale::classic())" not in text and f"std::getline({name}," not in text):
            found.append(f"{match.group()}, which is not given std::locale::classic()")
    return found


class Numbers(unittest.TestCase):
    def test_are_written_and_read_without_the_locale(self):
        files = [path for folder in FOLDERS for path in sorted((ROOT / folder).rglob("*")) if path.suffix in (".cpp", ".h")]
        self.assertGreater(len(files), 300)
        for path in files:
            with self.subTest(file=str(path.relative_to(ROOT))):
                self.assertEqual(problems(path.read_text(encoding="utf-8")), [])

    def test_what_asks_the_locale_is_found(self):
        for text in (
            'std::snprintf(text, sizeof text, "%g", x);',
            'std::printf("%s: %-8.*f\\n", f("(").c_str(), 2, x);',
            "std::snprintf(text, sizeof text, format, x);",
            "printf(\"%'d\", n);",
            "const double x = std::stod(text);",
            "std::strtod(text, &end)",
            'sscanf(text, "%d", &n)',
            "std::ostringstream out; out << 1000;",
            "std::istringstream(text) >> n;",
            "c10::str(1000)",
            'std::ofstream file("x");',
            "out << std::setprecision(3) << x;",
        ):
            with self.subTest(text=text):
                self.assertEqual(len(problems(text)), 1)
        for text in (
            'std::snprintf(text, sizeof text, "%d:%02d, 5 %% free", a, b);',
            "std::ostringstream out; out.imbue(std::locale::classic()); out << 1000;",
            "std::istringstream lines(text); std::getline(lines, line);",
            'std::fprintf(stderr, "remat: %s\\n", to_text(1.5).c_str());',
            "// as printf(format) has them",
        ):
            with self.subTest(text=text):
                self.assertEqual(problems(text), [])

    @unittest.skipUnless(os.environ.get("REMAT_LIBRARIES"), "REMAT_LIBRARIES names no built libraries; ctest does")
    def test_no_double_is_given_to_to_string(self):
        """By what was compiled, since no text tells the type: of a double it is a call of vsnprintf()."""
        for library in os.environ["REMAT_LIBRARIES"].split(os.pathsep):
            with self.subTest(library=library):
                names = subprocess.run(["nm", "-A", library], check=True, capture_output=True, text=True).stdout
                self.assertIn("remat", names)
                self.assertEqual([line for line in names.splitlines() if "__to_xstring" in line], [])


if __name__ == "__main__":
    unittest.main()
