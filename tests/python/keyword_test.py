"""examples/keyword, which docs/tutorial-export.md shows: a spotter learns a new word, on this machine in place of a board."""

from __future__ import annotations

import re
import runpy
import subprocess
import sys
from pathlib import Path

import pytest

from remat.__main__ import main

EXAMPLE = Path(__file__).resolve().parents[2] / "examples/keyword"


def test_the_new_word_is_learnt(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", ["spotter.py", "--epochs", "8"])
    runpy.run_path(str(EXAMPLE / "spotter.py"), run_name="__main__")
    known = float(re.search(r"([\d.]+) % of 124", capsys.readouterr().out)[1])
    assert known > 75

    main(["export", f"{EXAMPLE / 'spotter.py'}:spotter", "--ram", "256KiB", "--out", "c"])
    assert int(re.search(r"RAM: (\d+) bytes", capsys.readouterr().out)[1]) <= (256 << 10) - 1024

    done = subprocess.run([EXAMPLE / "board", "host"], check=True, capture_output=True, text=True)
    words = re.findall(r"(before|after): new word (\d+) of 30, known words (\d+) of 124", done.stdout)
    (_, new_before, known_before), (_, new_after, known_after) = ((name, int(new), int(old)) for name, new, old in words)
    assert known_before / 124 == pytest.approx(known / 100, abs=0.01)  # the C hears what PyTorch heard
    assert new_before <= 5
    assert new_after >= 24
    assert known_after > 62
    first, _, last = (int(loss) for loss in re.findall(r"in thousandths: (\d+)", done.stdout))
    assert last < first / 2


def test_the_words_take_little() -> None:
    assert (EXAMPLE / "words.npz").stat().st_size <= 200 << 10
