"""Pictures show their data, explain their bands and intervals, and are saved together with their data."""

import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pytest
from matplotlib.axes import Axes
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure
from matplotlib.text import Text
from scipy import stats

from figures import style
from figures.draw import Picture, draw, plot
from figures.intervals import summarise_seeds
from figures.style import make_palette
from repro.storage.paths import CHECKOUT

Rows = list[dict[str, object]]
ROWS = [
    {"series": series, "steps": steps, "seed": seed, "score": steps / 100 * gain + seed}
    for series, gain in (("own", 2.0), ("wrong", 1.0))
    for steps in (100, 200, 400)
    for seed in (0, 1)
]
AXES = {"x": "steps", "y": "score", "x_label": "steps", "y_label": "NDCG@10 (points)"}
LINES = Picture(kind="lines", title="a title", x_is_log=True, **AXES)
SCATTER = replace(LINES, kind="scatter", x="loss", x_is_log=False)
GRID = [
    {"series": series, "cluster_size": cluster, "batch_size": batch, "seed": seed, "score": cluster + batch / 64 + seed}
    for series in ("filtered", "unfiltered")
    for cluster in (8, 2, 4)
    for batch in (64, 128)
    for seed in (0, 2)
]
HEATMAP = Picture(kind="heatmap", x="cluster_size", y="batch_size", x_label="cluster", y_label="batch", cell="score")


def read_texts(texts: Iterable[Text]) -> list[str]:
    return [text.get_text() for text in texts]


def read_legend(figure: Figure) -> list[str]:
    return read_texts(figure.axes[0].get_legend().get_texts())


def collect_faint_marks(figure: Figure) -> dict[str, set[float]]:
    """Return the values of single seeds per marker. Their dots are transparent."""
    values: dict[str, set[float]] = {}
    for line in figure.axes[0].get_lines():
        if line.get_alpha():
            values.setdefault(line.get_marker(), set()).update(line.get_ydata())
    return values


@pytest.fixture(autouse=True)
def close_figures() -> Iterator[None]:
    """Close the figures that a test drew."""
    yield
    plt.close("all")


def plot_axes(rows: Rows, picture: Picture) -> Axes:
    """Return the first axes of a picture."""
    return plot(rows, picture)[0].axes[0]


def test_line_is_mean_over_seeds() -> None:
    figure, _ = plot(ROWS, LINES)
    (axes,) = figure.axes
    own, wrong = axes.get_lines()
    assert list(own.get_xdata()) == [100, 200, 400]
    assert list(own.get_ydata()) == [2.5, 4.5, 8.5]
    assert list(wrong.get_ydata()) == [1.5, 2.5, 4.5]
    band = axes.collections[0].get_paths()[0].vertices[:, 1]
    assert (band.min(), band.max()) == (2.0, 9.0)
    assert read_legend(figure) == ["own (n = 2)", "wrong (n = 2)"]
    assert own.get_marker() != wrong.get_marker() and own._dash_pattern != wrong._dash_pattern
    assert figure.get_supxlabel() == "bands: range over seeds"


def test_three_seeds_give_students_interval() -> None:
    scores = [1.0, 2.0, 6.0]
    rows = [
        {"series": "a", "steps": step, "seed": n, "score": score}
        for n, score in enumerate(scores)
        for step in (1, 2, 3)
    ]
    summary = summarise_seeds(pd.DataFrame(rows), "steps", "score").loc[1]
    expected = stats.t.interval(0.95, 2, loc=np.mean(scores), scale=stats.sem(scores))
    assert (summary["low"], summary["high"]) == pytest.approx(expected)
    repeated = [{"steps": 1, "seed": seed, "score": score} for seed, score in ((0, 0.0), (0, 2.0), (1, 5.0))]
    summary = summarise_seeds(pd.DataFrame(repeated), "steps", "score").loc[1]
    assert summary[["mean", "n", "low", "high"]].tolist() == [3.0, 2, 1.0, 5.0], "rows of one seed count once"
    three, one = (plot(part, LINES)[0].get_supxlabel() for part in (rows, rows[:1]))
    assert three == "bands: 95 % interval of the mean over n seeds (Student's t)" and one == "one seed: no interval"


@pytest.mark.parametrize("steps", [(200,), (100, 200)])
def test_two_points_are_not_joined(steps: tuple[int, ...]) -> None:
    """One or two points have bars, which stay visible, and no line."""
    figure, _ = plot([row for row in ROWS if row["steps"] in steps], LINES)
    bars = [collection.get_segments()[-1] for collection in figure.axes[0].collections]
    assert [bar[:, 1].tolist() for bar in bars] == [[4.0, 5.0], [2.0, 3.0]]
    assert {line.get_linestyle() for line in figure.axes[0].get_lines()} == {"None"}
    assert figure.get_supxlabel() == "bars: range over seeds"


def test_series_without_axis_is_level() -> None:
    level = {"series": "BM25", "steps": None, "seed": 0, "score": 7.0}
    line = plot_axes([*ROWS, level], LINES).get_lines()[-1]
    assert list(line.get_ydata()) == [7.0, 7.0]


def test_distant_reference_flattens_nothing() -> None:
    level = {"series": "BM25", "steps": None, "seed": 0, "score": -90.0}
    figure, _ = plot([*ROWS, level], LINES)
    assert figure.axes[0].get_ylim()[0] > 0
    assert read_legend(figure)[-1] == "BM25: −90.0, below the axis (n = 1)"


def test_references_are_inside_the_axis() -> None:
    """Without lines, and after one that is far away, a reference is still drawn."""
    near, far = ({"series": name, "steps": None, "seed": 0, "score": y} for name, y in (("near", 14.0), ("far", -90.0)))
    for rows in ([near], [*ROWS, far, near]):
        low, high = plot_axes(rows, LINES).get_ylim()
        assert 0 < low < 14 < high


def test_heatmap_shows_mean_per_cell() -> None:
    figure, _ = plot(GRID, HEATMAP)
    filtered, unfiltered, colourbar = figure.axes
    assert (filtered.get_title(), unfiltered.get_title()) == ("filtered", "unfiltered")
    assert read_texts(filtered.texts) == ["4.0", "6.0", "10.0", "5.0", "7.0", "11.0"]
    assert read_texts(filtered.get_xticklabels()) == ["2", "4", "8"]
    assert read_texts(filtered.get_yticklabels()) == ["64", "128"]
    assert colourbar.get_ylabel() == "score"
    assert figure.get_supxlabel() == "cells: mean over seeds, n = 2; no cell is clearly the best of its row"


def test_only_a_clear_best_is_framed() -> None:
    """Three seeds agree on the best cell of the first row only. Two seeds have no interval."""
    leads = {64: (0.9, 1.0, 1.1), 128: (-3.0, 1.0, 3.0)}
    rows = [
        {"series": "a", "cluster_size": size, "batch_size": batch, "seed": seed, "score": 10 * seed + gap * (size == 4)}
        for batch, gaps in leads.items()
        for seed, gap in enumerate(gaps)
        for size in (2, 4)
    ]
    figure, _ = plot(rows, HEATMAP)
    assert [(round(patch.get_x()), round(patch.get_y())) for patch in figure.axes[0].patches] == [(1, 0)]
    assert "no frame" in figure.get_supxlabel()
    assert not plot_axes(GRID, HEATMAP).patches
    gap = [row for row in GRID if (row["cluster_size"], row["batch_size"]) != (4, 64)]
    assert len(plot_axes(gap, HEATMAP).texts) == 5, "a missing cell is empty"
    one_seed, _ = plot([row for row in rows if row["seed"] == 0], HEATMAP)
    assert one_seed.get_supxlabel() == "cells: mean over seeds, n = 1; one seed: no best cell is marked"


def test_scatter_averages_seeds_of_a_dot() -> None:
    dots = [(1.0, 2.0), (2.0, 5.0), (3.0, 5.5)]
    shifts = {0: -0.5, 1: 0.5}
    rows = [
        {"series": "a", "seed": seed, "loss": x, "score": y + shift} for seed, shift in shifts.items() for x, y in dots
    ]
    figure, _ = plot(rows, SCATTER)
    assert [(float(x), float(y)) for x, y in figure.axes[0].get_lines()[0].get_xydata()] == dots
    assert read_legend(figure)[0].endswith("n = 3")


def test_correlation_is_over_setting_means() -> None:
    """Fifteen runs of five settings are five independent dots, as in a claim over runs. Four are too few for r."""
    generator = np.random.default_rng(3)
    rows = [
        {"series": "a", "setting": f"s{n}", "seed": seed, "loss": n + seed / 10, "score": generator.normal(n, 1.5)}
        for n in range(5)
        for seed in range(3)
    ]
    means = pd.DataFrame(rows).groupby("setting")[["loss", "score"]].mean()
    expected = stats.pearsonr(means["loss"], means["score"])
    low, high = expected.confidence_interval(0.95)
    figure, _ = plot(rows, SCATTER)
    assert read_legend(figure) == [
        f"a: r = {expected.statistic:+.2f} [{low:+.2f}, {high:+.2f}], n = 5".replace("-", "−")
    ]
    faint, bold, line = figure.axes[0].get_lines()
    assert len(faint.get_xdata()) == 15
    assert list(bold.get_xdata()) == pytest.approx(list(means["loss"]))
    slope, intercept = np.polyfit(means["loss"], means["score"], 1)
    assert line.get_ydata() == pytest.approx(intercept + slope * line.get_xdata())
    assert "over n settings" in figure.get_supxlabel()
    assert read_legend(plot([row for row in rows if row["setting"] != "s0"], SCATTER)[0]) == ["a: r = –, n = 4"]


CROSSED = Picture(
    kind="crossed", x="context", y="searched", cell="score", x_label="context", y_label="searched", cell_label="points"
)
# Scores per seed: searched collections a and b (rows) under the contexts a and b (columns).
SCORES = {0: [[50.0, 51.0], [60.5, 60.0]], 1: [[52.0, 52.0], [61.0, 62.0]], 2: [[51.0, 54.0], [60.0, 61.0]]}
CROSSES = [
    {"series": "s", "seed": seed, "searched": row, "context": column, "score": SCORES[seed][i][j]}
    for seed in SCORES
    for i, row in enumerate("ab")
    for j, column in enumerate("ab")
]


def test_crossed_heatmap_shows_differences() -> None:
    """Differences are from the row's own column, which shows its score. Colours are centred at zero."""
    axes = plot_axes(CROSSES, CROSSED)
    assert read_texts(axes.texts) == ["51.0", "+1.3", "−0.5", "61.0"]
    low, high = axes.collections[0].get_clim()
    assert low == -high
    gaps = np.array([[1.0, 0.0, 3.0], [0.5, -1.0, -1.0]])
    intervals = [(gap.mean(), *stats.t.interval(0.95, 2, loc=gap.mean(), scale=stats.sem(gap))) for gap in gaps]
    labels = [
        f"{name}: {m:+.2f} ({low:+.2f} to {high:+.2f})" for name, (m, low, high) in zip("ab", intervals, strict=True)
    ]
    assert read_texts(axes.get_yticklabels()) == [label.replace("-", "−") for label in labels]
    small = [{**row, "score": row["score"] / 10} for row in CROSSES]
    assert read_texts(plot_axes(small, CROSSED).texts) == ["5.1", "+0.13", "−0.05", "6.1"]


@pytest.mark.parametrize(
    ("is_there", "num_texts"),
    [
        (lambda row: row["seed"] == 0, 4),
        (lambda row: row["searched"] != row["context"], 0),
        (lambda row: (row["searched"], row["context"]) != ("a", "b"), 3),
    ],
    ids=["one seed", "no diagonal", "a missing cell"],
)
def test_crossed_heatmap_survives_gaps(is_there: Callable[[dict[str, object]], bool], num_texts: int) -> None:
    assert len(plot_axes(list(filter(is_there, CROSSES)), CROSSED).texts) == num_texts


def test_gains_are_bars_with_printed_values() -> None:
    gains = {"a": (1.0, 2.0, 4.5), "b": (-1.0, -1.1, -0.9)}
    rows = [
        {"series": name, "seed": seed, "score": gain, "paper": {"a": 1.5}.get(name)}
        for name, values in gains.items()
        for seed, gain in enumerate(values)
    ]
    axes = plot_axes(rows, replace(LINES, kind="gains"))
    assert read_texts(axes.get_yticklabels()) == ["a: +2.5 (paper +1.5)", "b: −1.0"]
    assert [bar.get_width() for bar in axes.patches] == pytest.approx([2.5, -1.0])


def test_long_texts_do_not_squeeze_the_axes() -> None:
    long = "difference in NDCG@10 after all of the training steps (points)"
    rows = [{**row, "series": f"{row['series']} of a trained filter, {copy}"} for row in ROWS for copy in range(4)]
    slanted = [{**row, "steps": f"after training of {row['steps']} steps"} for row in ROWS]
    for these, kind in ((rows, "lines"), (slanted, "dots")):
        figure, _ = plot(these, replace(LINES, kind=kind, x_is_log=kind == "lines", y_label=long, subtitle=long))
        figure.draw_without_rendering()
        height, label = figure.axes[0].bbox.height, figure.axes[0].yaxis.label.get_window_extent()
        assert height / figure.dpi > 0.6 * style.HEIGHT and label.height < height and label.y0 > 0


def test_means_have_intervals() -> None:
    axes = plot_axes(ROWS, replace(LINES, kind="dots", x_is_log=False))
    means = [1.5, 2.5, 4.5]
    ends = [segment[:, 1].tolist() for segment in axes.containers[-1].lines[2][0].get_segments()]
    assert np.mean(ends, axis=1).tolist() == means and ends[0] == [1.0, 2.0]
    values = [value for line in axes.get_lines() if line.get_alpha() for value in line.get_ydata()]
    assert sorted(values) == sorted(row["score"] for row in ROWS)


@pytest.mark.parametrize(("picture", "rows"), [(LINES, ROWS), (HEATMAP, GRID)], ids=["lines", "heatmap"])
def test_picture_saves_its_data(tmp_path: Path, picture: Picture, rows: Rows) -> None:
    for name in ("one", "two"):
        draw(rows, tmp_path / name, picture)
    for ending in ("svg", "png"):
        assert (tmp_path / f"one.{ending}").read_bytes() == (tmp_path / f"two.{ending}").read_bytes()
    assert pd.read_csv(tmp_path / "one.csv").to_dict("records") == rows
    assert (tmp_path / "one.png").stat().st_size > 1000
    assert picture.y_label in (tmp_path / "one.svg").read_text()


def test_data_text_is_only_text(tmp_path: Path) -> None:
    rows = [{**row, "series": f"<script>$x_{{{row['series']}}}$ & co"} for row in ROWS]
    text = draw(rows, tmp_path / "x", LINES).read_text()
    assert "&lt;script&gt;$x_{own}$ &amp; co" in text and "<script>" not in text


def test_impossible_pictures_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="unknown kind of picture 'pie'"):
        draw(ROWS, tmp_path / "x", replace(LINES, kind="pie"))
    with pytest.raises(ValueError, match="nothing to draw for x"):
        draw([], tmp_path / "x", LINES)


def test_documented_picture_command_works(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    score = "{suite}/mean/ndcg_at_10"
    rows = [{"series": "a", "cluster_size": size, score: size, "seed": seed} for size in (64, 512) for seed in (0, 1)]
    picture = Picture(kind="lines", x="cluster_size", y=score, x_label="", y_label="")
    draw(rows, Path("out/figures/figure12-desk-published"), picture)
    block = re.search(r"```python\n(.*?)```", (CHECKOUT / "REPRODUCING.md").read_text(), re.DOTALL)
    assert block is not None
    # The command changes the colours. monkeypatch restores them.
    monkeypatch.setattr(style, "COLOURS", "viridis")
    before, names = make_palette(2), {}
    exec(block[1], names)
    line = names["figure"].axes[0].get_lines()[0]
    assert make_palette(2) != before and to_rgb(line.get_color()) == pytest.approx(make_palette(1)[0])
    assert Path("figure12.pdf").read_bytes().startswith(b"%PDF")
