"""After locale.setlocale() of a language with a decimal comma, as toolkits call it, remat's numbers have points."""

from __future__ import annotations

import locale
import re
import subprocess

import pytest
import torch
from compare import blocks
from wrapped import batch

import remat

# No machine is sure to have such a locale: this one is made of the file alone, what it leaves out is as in "C".
_COMMA = 'LC_NUMERIC\ndecimal_point "<U002C>"\nthousands_sep "<U002E>"\ngrouping 3;3\nEND LC_NUMERIC\n'


@pytest.fixture
def comma_locale(tmp_path, monkeypatch):
    (tmp_path / "comma.def").write_text(_COMMA)
    made = ["localedef", "-c", "-i", str(tmp_path / "comma.def"), str(tmp_path / "comma")]
    subprocess.run(made, check=False, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    monkeypatch.setenv("LOCPATH", str(tmp_path))
    before = locale.setlocale(locale.LC_ALL)
    locale.setlocale(locale.LC_ALL, "comma")
    assert locale.localeconv()["decimal_point"] == ","
    yield
    locale.setlocale(locale.LC_ALL, before)


def _trained(session):
    model = blocks()
    for _ in range(3):
        model.zero_grad()
        with session.step():
            model(batch()).square().mean().backward()
    return session.report()


def test_reports_and_pictures_have_decimal_points(comma_locale, tmp_path):
    report = _trained(remat.Session(budget="50%", device="cpu"))
    comma = re.compile(r"\d,\d")
    text = str(report)
    assert "iB" in text and not comma.search(text), text
    report.plot().save(tmp_path / "step.svg")
    picture = (tmp_path / "step.svg").read_text()
    # Between x and y there is a comma, and then a number with a point or none; a picture of commas has three in a row.
    paths = [path for path in re.findall(r' d="([^"]*)"', picture)]
    assert paths and not [path for path in paths if re.search(r"\d,\d+,", path)], paths[0][:100]
    sides = re.findall(r' (?:x|y|x1|y1|x2|y2|width|height)="([^"]*)"', picture)
    assert sides and not [side for side in sides if "," in side]


def test_what_a_refusal_names_is_read_by_a_budget(comma_locale):
    with pytest.raises(remat.BudgetError) as refused:
        _trained(remat.Session(budget="40 KiB", device="cpu"))
    named = re.findall(r"[\d.,]+ [KMG]iB", str(refused.value))
    assert named, refused.value
    for amount in named:
        remat.Session(budget=amount, device="cpu")
    with pytest.raises(remat.Error, match=r"would be 12\.5 bytes"):
        remat.Session(budget="12.5", device="cpu")


def test_what_fits_is_told_with_decimal_points(comma_locale):
    model = blocks()

    def make_step(size):
        x = torch.randn(size, 64)
        return lambda: model(x).square().mean().backward()

    found = remat.fit(make_step, [8, 16, 32, 64, 128], "4 MiB", device="cpu")
    assert not re.search(r"\d,\d", str(found)), found
