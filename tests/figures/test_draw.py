"""Pictures show the data they were given, and leave it beside them."""

from pathlib import Path

import pandas as pd
import pytest

from figures.draw import draw
from figures.lines import draw_lines
from figures.style import new_axes, palette

ROWS = [
    {"series": series, "steps": steps, "seed": seed, "score": steps / 100 * gain + seed}
    for series, gain in (("own", 2.0), ("wrong", 1.0))
    for steps in (100, 200, 400)
    for seed in (0, 1)
]
LABELS = {"x": "steps", "y": "NDCG@10 (points)", "title": "a title", "x_scale": "log"}


def test_a_line_is_the_mean_over_repetitions_and_its_band_their_range() -> None:
    _, axes = new_axes()
    draw_lines(pd.DataFrame(ROWS), axes, x="steps", y="score", hue="series")
    own, wrong = axes.get_lines()
    assert list(own.get_xdata()) == [100, 200, 400]
    assert list(own.get_ydata()) == [2.5, 4.5, 8.5]
    assert list(wrong.get_ydata()) == [1.5, 2.5, 4.5]
    band = axes.collections[0].get_paths()[0].vertices[:, 1]
    assert (band.min(), band.max()) == (2.0, 9.0)
    assert [text.get_text() for text in axes.get_legend().get_texts()] == ["own (n = 2)", "wrong (n = 2)"]


def test_lines_differ_in_more_than_colour() -> None:
    _, axes = new_axes()
    draw_lines(pd.DataFrame(ROWS), axes, x="steps", y="score", hue="series")
    own, wrong = axes.get_lines()
    assert own.get_marker() != wrong.get_marker()
    lightness = [0.299 * r + 0.587 * g + 0.114 * b for r, g, b in palette(4)]
    assert min(abs(a - b) for a in lightness for b in lightness if a != b) > 0.05


def test_a_picture_leaves_its_data_beside_it_and_is_the_same_twice(tmp_path: Path) -> None:
    for name in ("one", "two"):
        draw(ROWS, tmp_path / name, kind="lines", x="steps", y="score", labels=LABELS)
    assert (tmp_path / "one.svg").read_bytes() == (tmp_path / "two.svg").read_bytes()
    assert pd.read_csv(tmp_path / "one.csv").to_dict("records") == ROWS
    assert (tmp_path / "one.png").stat().st_size > 1000
    assert "NDCG@10 (points)" in (tmp_path / "one.svg").read_text()


def test_bad_input_says_what_is_there(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"unknown kind of picture 'pie'; choose of \['lines'"):
        draw(ROWS, tmp_path / "x", kind="pie", x="steps", y="score", labels=LABELS)
    with pytest.raises(ValueError, match="nothing to draw for x"):
        draw([], tmp_path / "x", kind="lines", x="steps", y="score", labels=LABELS)
