r"""Render a view as a LaTeX tabular in ASCII, no wider than the page. It needs no package except graphicx."""

from __future__ import annotations

import re

from repro.report.view import LONG_TEXT, View
from repro.text import NARROW_SPACE

# from α, in the order of Unicode
GREEK = "alpha beta gamma delta epsilon zeta eta theta iota kappa lambda mu nu xi"
MATHS = {chr(ord("α") + number): name for number, name in enumerate(GREEK.split())}
MATHS |= {"µ": "mu", "π": "pi", "ρ": "rho", "σ": "sigma", "τ": "tau", "φ": "phi", "χ": "chi", "ω": "omega"}
MATHS |= {"±": "pm", "·": "cdot", "≥": "geq", "≤": "leq", "→": "to", "←": "gets", "×": "times", "∝": "propto"}
MATHS |= {"Δ": "Delta", "Σ": "Sigma", "≈": "approx", "≠": "neq", "∞": "infty", "√": "surd", "∈": "in"}
BEYOND_ASCII = (
    {letter: rf"$\{name}$" for letter, name in MATHS.items()}
    | {"–": "--", "—": "---", "−": "$-$", "“": "``", "”": "''", "‘": "`", "’": "'", "…": r"\ldots{}", "§": r"\S{}"}
    | {"°": r"$^\circ$", "\N{NO-BREAK SPACE}": "~", NARROW_SPACE: r"\,"}
)
SPECIAL = str.maketrans(
    {c: f"\\{c}" for c in "&%$#_{}"}
    | {"\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}", "\n": " ", "\r": " "}
    | {"<": r"\textless{}", ">": r"\textgreater{}", "|": r"\textbar{}"}
    | BEYOND_ASCII
)
IN_COMMENTS = str.maketrans(BEYOND_ASCII)
MINUS = re.compile(r"(?<![\w)-])-(?=\d)")
"""A minus sign before a number, not a hyphen in a word or a date."""
PAGE_WIDTH, GAP = 70, 2.5
"""Width of a line in the class article, and of the gap between columns, in characters."""
PARAGRAPH_SHARE = 0.35
"""Width of a column of long texts, as a share of the line."""


def as_latex(view: View) -> str:
    """Return a view as a LaTeX tabular, with its title and notes as comments. All data are escaped.

    Without rows, only the comments are returned. A table wider than the page is scaled to its width.
    """
    view = view.shown
    title, *notes = (f"% {' '.join(text.split()).translate(IN_COMMENTS)}" for text in (view.title, *view.notes))
    if not view.header:
        return "\n".join((title, *notes, ""))
    head, *body = (" & ".join(map(_escape_latex, line)) + r" \\" for line in (view.header, *view.rows))
    columns = "".join(_format_column_type(view, index) for index in range(len(view.header)))
    table = [rf"\begin{{tabular}}{{{columns}}}", r"\hline", head, r"\hline", *body, r"\hline", r"\end{tabular}"]
    if sum(_measure_width(view, index) + GAP for index in range(len(view.header))) > PAGE_WIDTH:
        comment = r"% needs \usepackage{graphicx}: wider than the page, so it is scaled to it"
        table = [comment, r"\resizebox{\linewidth}{!}{%", *table[:-1], table[-1] + "}"]
    return "\n".join((title, *table, *notes, ""))


def _escape_latex(text: str) -> str:
    return MINUS.sub("−", text).translate(SPECIAL)


def _is_long(view: View, index: int) -> bool:
    return any(len(line[index]) > LONG_TEXT for line in view.rows)


def _format_column_type(view: View, index: int) -> str:
    return rf"p{{{PARAGRAPH_SHARE}\linewidth}}" if _is_long(view, index) else view.alignment[index]


def _measure_width(view: View, index: int) -> float:
    if _is_long(view, index):
        return PARAGRAPH_SHARE * PAGE_WIDTH
    return max(len(line[index]) for line in (view.header, *view.rows))
