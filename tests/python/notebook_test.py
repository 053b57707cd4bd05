"""examples/first_steps.ipynb runs as it is, cell by cell, and shows what its texts promise."""

from __future__ import annotations

import ast
import json
from pathlib import Path
from typing import Any

NOTEBOOK = Path(__file__).resolve().parents[2] / "examples/first_steps.ipynb"


def run_cell(source: str, names: dict[str, Any]) -> Any:
    """The value of the last line, where that is an expression: what a notebook shows."""
    tree = ast.parse(source)
    last = tree.body.pop() if isinstance(tree.body[-1], ast.Expr) else None
    exec(compile(tree, str(NOTEBOOK), "exec"), names)
    return None if last is None else eval(compile(ast.Expression(last.value), str(NOTEBOOK), "eval"), names)


def test_the_notebook_runs_and_shows_pictures_and_tables(capsys):
    notebook = json.loads(NOTEBOOK.read_text(encoding="utf-8"))
    assert (notebook["nbformat"], notebook["nbformat_minor"]) == (4, 5)
    cells = [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]
    assert all(cell["outputs"] == [] and cell["execution_count"] is None for cell in cells), "as it is committed: not run"
    names: dict[str, Any] = {"__name__": "__main__"}
    shown = [run_cell("".join(cell["source"]), names) for cell in cells]
    pictures = [value._repr_html_() for value in shown if hasattr(value, "_repr_html_")]
    assert len(pictures) == 1 and pictures[0].startswith("<svg ") and "measured peak" in pictures[0]
    lines = capsys.readouterr().out.splitlines()
    rows = [line.split("  ")[0] for line in lines]
    assert "0-7 x 8" in rows and "all" in rows, rows
    assert not any("1-2 x" in line for line in lines), "a Linear and the GELU behind it are no equal layers"
    least, plain = names["session"].report().min_budget_bytes, names["session"].report().plain_peak_bytes
    assert 0 < least < plain
