"""A cached picture equals a new one. A change of its data, settings, code or files draws it again."""

from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest

import figures.draw
from repro.cli import figures as pictures
from repro.report import picture_cache
from repro.report.picture_cache import get_cached_picture
from repro.storage.paths import get_figures_folder

ROWS = [{"series": "a", "seed": seed, "x": x, "y": x * 0.5 + seed} for x in (1, 2, 4) for seed in (0, 1)]
PICTURE: dict[str, Any] = {"kind": "lines", "x": "x", "y": "y", "x_label": "x", "y_label": "y", "title": "by hand"}


def draw_a(picture: dict[str, Any] = PICTURE, rows: list[dict[str, Any]] = ROWS, *, with_png: bool = False) -> Path:
    return pictures.draw_once(rows, "a", picture, with_png=with_png)


@pytest.fixture
def draw(monkeypatch: pytest.MonkeyPatch) -> Mock:
    """Count the drawn pictures."""
    counted = Mock(side_effect=figures.draw.draw)
    monkeypatch.setattr("figures.draw.draw", counted)
    return counted


def test_same_picture_is_drawn_once(draw: Mock) -> None:
    first = draw_a().read_bytes()
    assert draw_a().read_bytes() == first and draw.call_count == 1
    get_cached_picture(get_figures_folder() / "a", ROWS, PICTURE).memo.path.unlink()
    assert draw_a().read_bytes() == first and draw.call_count == 2


@pytest.mark.parametrize("touched", ["a.svg", "a.csv", "a.drawn.json"])
@pytest.mark.parametrize("how", ["edited", "gone"])
def test_touched_file_is_drawn_again(touched: str, how: str, draw: Mock) -> None:
    expected = draw_a().read_bytes()
    path = get_figures_folder() / touched
    path.unlink() if how == "gone" else path.write_text("[]")
    assert draw_a().read_bytes() == expected and draw.call_count == 2
    assert (get_figures_folder() / "a.csv").read_text().startswith("series,")


def test_everything_relevant_is_in_the_key(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def get_key(rows: list[dict[str, Any]] = ROWS, **changes: object) -> str:
        return get_cached_picture(tmp_path, rows, PICTURE | changes).key

    monkeypatch.chdir(tmp_path)
    without_number = [ROWS[0] | {"y": float("nan")}, *ROWS[1:]]
    keys = [get_key(), get_key([*ROWS[1:], ROWS[0]]), get_key(without_number), get_key(title="another")]
    (tmp_path / "matplotlibrc").write_text("lines.linewidth: 9")
    keys.append(get_key())
    monkeypatch.setattr(picture_cache, "get_versions", lambda packages: dict.fromkeys(packages, "0"))
    keys.append(get_key())
    monkeypatch.setattr(picture_cache, "hash_python_files", lambda folders: "another")
    keys.append(get_key())
    assert len(set(keys)) == len(keys) == 7


def test_pixels_need_another_drawing(draw: Mock) -> None:
    draw_a()
    draw_a(with_png=True)
    assert (get_figures_folder() / "a.png").is_file() and draw.call_count == 2
    draw_a(with_png=True)
    draw_a()
    assert draw.call_count == 2
    draw_a(rows=ROWS[1:])
    assert not (get_figures_folder() / "a.png").exists(), "old pixels are removed"
