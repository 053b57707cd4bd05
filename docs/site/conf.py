"""Settings of Sphinx. build.py has put the documents and the pages of the reference in one folder."""

import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "python"))

project = "remat"
author = "the authors of remat"
copyright = "the authors of remat; MIT license"
extensions = [
    "breathe",
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.napoleon",
    "sphinx_copybutton",
]

myst_heading_anchors = 4
myst_enable_extensions = ["colon_fence"]

# The reference is of the docstrings: neither torch nor the compiled module is needed to read them.
autodoc_mock_imports = [
    "accelerate",
    "lightning",
    "remat._C",
    "remat._load",
    "torch",
    "transformers",
]
autodoc_member_order = "bysource"
autodoc_typehints = "signature"
autodoc_preserve_defaults = True
python_maximum_signature_line_length = 88
napoleon_use_ivar = True
default_role = "literal"  # of the docstrings, which are reStructuredText

breathe_default_project = "remat"
breathe_show_include = False
breathe_default_members = ("members",)
cpp_maximum_signature_line_length = 88

# Links to nothing are errors. The rest is about types of Python, torch and C++, which have no pages here.
nitpicky = True
nitpick_ignore_regex = [
    ("cpp:.*", ".*"),
    ("py:.*", r"(?!remat\b).*|remat\._.*|remat\.layers\..*"),
]

# Each header opens the namespace anew.
suppress_warnings = ["duplicate_declaration.cpp"]

html_theme = "furo"
html_static_path = [str(Path(__file__).parent / "static")]
html_title = "remat"
html_css_files = ["remat.css"]
html_copy_source = False
html_show_sphinx = False
html_theme_options = {"source_edit_link": "", "top_of_page_buttons": []}
highlight_language = "text"  # of code that names none
pygments_style = "friendly"
pygments_dark_style = "monokai"
