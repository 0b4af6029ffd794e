"""A kept picture is the one that drawing again would give; whatever decides or touches it makes it drawn again."""

import os
import shutil
import signal
import subprocess
import sys
import time
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from repro.cli import pictures
from repro.report import kept_pictures
from repro.report.kept_pictures import kept_picture
from repro.storage.paths import get_figures_folder

ROWS = [{"series": "a", "seed": seed, "x": x, "y": x * 0.5 + seed} for x in (1, 2, 4) for seed in (0, 1)]
PICTURE: dict[str, Any] = {"kind": "lines", "x": "x", "y": "y", "x_label": "x", "y_label": "y", "title": "by hand"}


def drawn(picture: dict[str, Any] = PICTURE, rows: list[dict[str, Any]] = ROWS, *, with_png: bool = False) -> Path:
    return pictures.drawn_once(rows, "a", picture, pictures.AtOnce(), with_png=with_png).result()


@pytest.fixture
def times_drawn(monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    import figures.draw

    found: list[Path] = []
    draw = figures.draw.draw
    monkeypatch.setattr(
        "figures.draw.draw", lambda rows, path, *a, **k: found.append(path) or draw(rows, path, *a, **k)
    )
    return found


def test_the_same_picture_is_drawn_once_and_is_the_same_to_the_last_byte(times_drawn: list[Path]) -> None:
    first = drawn().read_bytes()
    assert drawn().read_bytes() == first and len(times_drawn) == 1
    kept_picture(get_figures_folder() / "a", ROWS, PICTURE).memo.path.unlink()
    assert drawn().read_bytes() == first and len(times_drawn) == 2


@pytest.mark.parametrize("touched", ["a.svg", "a.csv", "a.drawn.json"])
@pytest.mark.parametrize("how", ["edited", "gone"])
def test_a_file_that_was_touched_is_drawn_again(touched: str, how: str, times_drawn: list[Path]) -> None:
    whole = drawn().read_bytes()
    path = get_figures_folder() / touched
    path.unlink() if how == "gone" else path.write_text("[]")
    assert drawn().read_bytes() == whole and len(times_drawn) == 2
    assert (get_figures_folder() / "a.csv").read_text().startswith("series,")


def test_rows_words_code_versions_and_styles_decide(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    keys = [kept_picture(tmp_path, ROWS, PICTURE).key]
    keys.append(kept_picture(tmp_path, [*ROWS[1:], ROWS[0]], PICTURE).key)
    keys.append(kept_picture(tmp_path, [ROWS[0] | {"y": float("nan")}, *ROWS[1:]], PICTURE).key)
    keys.append(kept_picture(tmp_path, ROWS, PICTURE | {"title": "another"}).key)
    (tmp_path / "matplotlibrc").write_text("lines.linewidth: 9")
    keys.append(kept_picture(tmp_path, ROWS, PICTURE).key)
    monkeypatch.setattr(kept_pictures, "get_versions", lambda packages: dict.fromkeys(packages, "0"))
    keys.append(kept_picture(tmp_path, ROWS, PICTURE).key)
    monkeypatch.setattr(kept_pictures, "compute_source_digest", lambda folders: "another")
    keys.append(kept_picture(tmp_path, ROWS, PICTURE).key)
    assert len(set(keys)) == len(keys)


def test_a_picture_kept_as_vectors_is_drawn_again_for_its_pixels(times_drawn: list[Path]) -> None:
    drawn()
    drawn(with_png=True)
    assert (get_figures_folder() / "a.png").is_file() and len(times_drawn) == 2
    drawn(with_png=True)
    drawn()
    assert len(times_drawn) == 2


def test_pictures_drawn_beside_are_those_drawn_here(tmp_path: Path) -> None:
    at_once = drawn().read_bytes()
    shutil.rmtree(get_figures_folder())
    with pictures.painting_beside(num_cores=2) as painters:
        executor = painters[0].keywords["executor"]
        beside = pictures.drawn_once(ROWS, "a", PICTURE, executor, with_png=False)
        no_such = pictures.drawn_once(ROWS, "b", PICTURE | {"kind": "pie"}, executor, with_png=False)
        assert beside.result().read_bytes() == at_once
        with pytest.raises(ValueError, match="unknown kind of picture 'pie'"):
            no_such.result()
        assert isinstance(executor, ProcessPoolExecutor)
    assert kept_picture(get_figures_folder() / "a", ROWS, PICTURE).is_there(("svg", "csv"))
    with pictures.painting_beside(num_cores=1) as painters:
        assert isinstance(painters[0].keywords["executor"], pictures.AtOnce)


BESIDE = """
import time
from repro.cli.pictures import painting_beside
with painting_beside(num_cores=2) as (paint, _):
    print(paint.keywords["executor"].submit(os.getpid).result(), flush=True)
    time.sleep(600)
"""


def test_what_draws_ends_with_the_process_that_asked() -> None:
    """A report that is killed leaves no process behind that waits for ever."""
    asks = subprocess.Popen([sys.executable, "-c", f"import os{BESIDE}"], stdout=subprocess.PIPE, text=True)
    assert asks.stdout is not None
    draws = int(asks.stdout.readline())
    os.kill(draws, 0)
    asks.kill()
    asks.wait()
    asks.stdout.close()
    for _ in range(300):
        if not is_running(draws):
            return
        time.sleep(0.1)
    pytest.fail("the process that draws still runs")


def test_a_picture_whose_process_was_killed_is_drawn_here(tmp_path: Path) -> None:
    at_once = drawn().read_bytes()
    shutil.rmtree(get_figures_folder())
    with pictures.painting_beside(num_cores=2) as painters:
        executor = painters[0].keywords["executor"]
        os.kill(executor.submit(os.getpid).result(), signal.SIGKILL)
        begun = [pictures.drawn_once(ROWS, name, PICTURE, executor, with_png=False) for name in "ab"]
        assert [one.result().read_bytes() for one in begun] == [at_once, at_once]


def test_no_picture_of_other_rows_stays_beside_a_new_one() -> None:
    drawn(with_png=True)
    assert (get_figures_folder() / "a.png").is_file()
    drawn(rows=ROWS[1:])
    assert not (get_figures_folder() / "a.png").exists()


def is_running(number: int) -> bool:
    """Return whether a process runs: one that nobody waited for has ended, too."""
    try:
        return "State:\tZ" not in Path(f"/proc/{number}/status").read_text()
    except FileNotFoundError:
        return False
