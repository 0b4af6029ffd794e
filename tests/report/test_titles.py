"""Each figure of the paper says what is seen and what its marks are; no bar of it is missing."""

import json
import re

import matplotlib.pyplot as plt
import numpy as np
import pytest

from experiments.e16_contexts_of_a_document import draw_documents
from experiments.e17_number_of_contexts import FIGURE_DRAWS
from figures.draw import Picture, plot
from repro.cli.main import list_artefacts
from repro.report.figure_data import format_subtitle
from repro.report.names import format_title
from repro.report.sections import make_sections
from repro.spec import Figure
from repro.spec.registry import artefacts, experiments, find_experiment

FIGURES = [shown for experiment in experiments() for shown in experiment.shows if isinstance(shown, Figure)]


@pytest.mark.parametrize("figure", FIGURES, ids=lambda figure: figure.name)
def test_a_figure_has_a_title_of_its_own_and_a_caption_that_says_what_is_drawn(figure: Figure) -> None:
    assert figure.title and figure.name != figure.title and not re.search(r"(figure|table)\d", figure.title)
    has_interval = figure.kind in ("lines", "bars", "dots", "crossed")
    told = "95 %" in figure.caption and " n " in figure.caption
    assert not has_interval or told, "a caption says what the band is ('95 %'), and of how many seeds it is (' n ')"


def test_no_two_artefacts_are_listed_under_the_same_words(capsys: pytest.CaptureFixture[str]) -> None:
    list_artefacts(as_json=True)
    titles = {row["artefact"]: row["title"] for row in json.loads(capsys.readouterr().out)}
    assert len(set(titles.values())) == len(titles) == len(artefacts())
    assert titles["figure4"] == "Score with and without the filter, run by run"
    assert titles["table7"] == "Two phases"


def test_each_artefact_of_an_experiment_has_its_own_heading_in_the_report() -> None:
    experiment = find_experiment("figure6")
    titles = [section.title for section in make_sections(experiment, "smoke", lambda *_: None)]
    assert titles == [format_title(experiment, shown) for shown in experiment.shows] and len(set(titles)) == 2


def test_the_small_line_says_which_figure_scale_whose_records_and_how_many_seeds() -> None:
    figure = next(one for one in FIGURES if one.name == "figure6_sizes")
    rows = [{"series": "a", "seed": 1}, {"series": "a", "seed": 2}, {"series": "a", "seed": 2}]
    rows.append({"series": "untrained", "seed": 0})
    assert (
        format_subtitle(figure, "desk", "your records", rows) == "Figure 6 (sizes), scale desk, your records, 2 seeds"
    )
    assert format_subtitle(figure, "lab", "", []) == "Figure 6 (sizes), scale lab"


def test_a_score_that_does_not_move_is_a_dot_and_a_dataset_may_lack_a_size() -> None:
    moved = {("a", 1): (1.0, 3.0), ("b", 1): (2.0, 2.0), ("a", 4): (5.0, 5.5)}
    rows = [
        {"series": "s", "part1": name, "num_test_contexts": size, "value": value, "seed": 0}
        for (name, size), values in moved.items()
        for value in values
    ]
    own = FIGURE_DRAWS.draw
    (axes,) = plot(rows, Picture(kind="own", x="", y="", x_label="", y_label="", own=own))[0].axes
    bars = [part[:, 0].tolist() for lines in axes.collections for part in lines.get_segments()]
    assert sorted(bars) == [[-1.0, 1.0], [-0.25, 0.25], [0.0, 0.0]]
    assert sum(len(line.get_xdata()) for line in axes.get_lines() if line.get_marker() == "o") == 1
    plt.close("all")


def test_documents_are_drawn_alone_on_one_scale_under_their_names() -> None:
    path = "pca/{part1}/{part2}/"
    rows = [
        {"part1": f"document {n}", "name": f"words of number {n}", "seed": 0, f"{path}x": n + gap, f"{path}y": -n - gap}
        for n in (1, 2)
        for gap in np.array([0.0, 0.01 * n])
    ]
    picture = Picture(kind="own", x="", y="", x_label="", y_label="", own=draw_documents)
    every, *alone = plot(rows, picture)[0].axes
    drawn = [axes for axes in alone if axes.get_lines()]
    assert len({axes.get_xlim() + axes.get_ylim() for axes in drawn}) == 1
    assert [axes.get_title(loc="left") for axes in drawn] == ["1: words of number 1", "2: words of number 2"]
    assert np.ptp(every.get_xlim()) > 10 * np.ptp(drawn[0].get_xlim())
    plt.close("all")


def test_numbers_of_documents_that_lie_close_stand_apart() -> None:
    path = "pca/{part1}/{part2}/"
    places = {1: (0.0, 0.0), 2: (1.0, 1.0), 3: (0.02, 0.0)}
    rows = [
        {"part1": f"document {n}", "name": f"words of number {n}", "seed": 0, f"{path}x": x + gap, f"{path}y": y}
        for n, (x, y) in places.items()
        for gap in (0.0, 0.001)
    ]
    figure, _ = plot(rows, Picture(kind="own", x="", y="", x_label="", y_label="", own=draw_documents))
    figure.canvas.draw()
    first, _, third = (words.get_window_extent() for words in figure.axes[0].texts)
    assert not first.overlaps(third)
    assert [words.get_text() for words in figure.axes[0].texts] == ["1", "2", "3"]
    plt.close("all")
