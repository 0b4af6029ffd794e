"""LaTeX tables of the published records are ASCII, compile and fit the page."""

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from repro.cli.main import app
from repro.report.latex import as_latex
from repro.report.view import SPREAD_NOTE, View
from repro.spec.registry import artefacts

DOCUMENT = "\\documentclass{article}\\usepackage{graphicx}\\begin{document}\n%s\\end{document}\n"


def find_problems(text: str, folder: Path) -> list[str]:
    """Return the errors of pdflatex and the lines that are wider than the page."""
    (folder / "tables.tex").write_text(DOCUMENT % text)
    command = ("pdflatex", "-interaction=nonstopmode", "tables.tex")
    output = subprocess.run(command, cwd=folder, capture_output=True, text=True, errors="replace", check=False).stdout
    return re.findall(r"^! .*|^Overfull \\hbox \(\d{2,}.*", output, re.MULTILINE)


def test_latex_is_ascii_and_compiles(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    app(["show", "all", "--format", "latex"], standalone_mode=False)
    text = capsys.readouterr().out
    num_artefacts = sum(bool(experiment.runs("desk")) for experiment, _ in artefacts().values())
    assert text.count(r"\begin{tabular}") >= num_artefacts
    assert text.isascii()
    if shutil.which("pdflatex"):
        body = "\\noindent\n" + text.replace("\n\n", "\n\n\\noindent\n")
        assert find_problems(body, tmp_path) == []


def test_negative_numbers_get_a_minus() -> None:
    view = View("t", ("claim", "effect", "interval"), (("F1-b of 2026-11-22", "-1.25", "[-2.0, -0.5]"),))
    assert r"F1-b of 2026-11-22 & $-$1.25 & [$-$2.0, $-$0.5] \\" in as_latex(view)


def test_notes_become_comments() -> None:
    lines = as_latex(View("t", ("a", "b"), (("x", "1 ± 2"),), (SPREAD_NOTE,))).splitlines()
    assert lines[-2:] == [r"\end{tabular}", r"% $\pm$: standard deviation over the runs that ``seeds'' counts"]


def test_wide_table_is_scaled() -> None:
    wide = View("t", tuple(f"column {number}" for number in range(9)), (("1.0 ± 0.1",) * 9,))
    text = as_latex(wide)
    assert "\\resizebox{\\linewidth}{!}{%\n\\begin{tabular}" in text and "\\end{tabular}}\n" in text
    assert "% needs \\usepackage{graphicx}" in text
    assert "graphicx" not in as_latex(View("t", ("a", "b"), (("x", "1"),)))
