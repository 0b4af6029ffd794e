"""What texts, paths and files of others may not do: reach the terminal as orders, the report as code, the home."""

from pathlib import Path
from xml.etree import ElementTree

import pytest

from repro.cli.common import say, tell
from repro.report.formats import render, render_line
from repro.report.html import inline_svg
from repro.report.view import View
from repro.storage.paths import who_else_may_write
from repro.text import visible

HOSTILE = "a\x1b[2Jb\x07c\u202ed\x9be\r"


def test_no_escape_sequence_reaches_the_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    """In lines, tables, titles and notes; other scripts, tabs and line breaks stay."""
    say(HOSTILE)
    tell(HOSTILE)
    render_line(HOSTILE)
    render(View(HOSTILE, ("name", "n"), ((HOSTILE, "1"),), (HOSTILE,)))
    shown = capsys.readouterr()
    assert not {*"\x1b\x07\u202e\x9b\r"} & {*shown.out, *shown.err}
    kept = "हिन्दी 中文 e\u0301 👩\u200d💻 x\ty\nz\u202f1"
    assert visible(kept) == kept
    visible("\udcff").encode()


HOSTILE_SVG = """<svg xmlns="http://www.w3.org/2000/svg" xmlns:xlink="http://www.w3.org/1999/xlink" width="72pt"
 height="72pt" onload="run()"><metadata/><script>run()</script><foreignObject><p xmlns="x">hi</p></foreignObject>
<defs><clipPath id="c"><rect width="1" height="1"/></clipPath></defs><a xlink:href="http://elsewhere"><text>x</text></a>
<g ONCLICK="run()" clip-path="url(#c)" style="fill: url(http://elsewhere/x)"><path d="M 0 0" id="p"/>
<use xlink:href="#p"/><use href="http://elsewhere#p"/><image href="data:image/png;base64,AA=="/>
<image href="javascript:run()"/></g></svg>"""


def test_picture_of_the_report_only_draws(tmp_path: Path) -> None:
    """Scripts, handlers, links and foreign elements go; what draws stays, with ids of its own."""
    (tmp_path / "p.svg").write_text(HOSTILE_SVG)
    page = inline_svg(tmp_path / "p.svg", "pre-", "label")
    found = ElementTree.fromstring(page)
    names = {element.tag.rpartition("}")[2] for element in found.iter()}
    assert names == {"svg", "defs", "clipPath", "rect", "g", "path", "use", "image"}
    assert "run()" not in page and "elsewhere" not in page
    assert "url(#pre-c)" in page and "#pre-p" in page and "data:image/png" in page
    (tmp_path / "p.svg").write_text("<html><svg/></html>")
    with pytest.raises(ValueError, match="expected svg"):
        inline_svg(tmp_path / "p.svg", "pre-", "label")


@pytest.mark.parametrize(("mode", "who"), [(0o777, "everybody"), (0o775, "its group"), (0o755, "")])
def test_home_that_others_may_write_to_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mode: int, who: str
) -> None:
    """Of the folder itself and of one above it; /tmp, where each may remove only their own, is safe."""
    home = tmp_path / "home"
    home.mkdir()
    monkeypatch.setenv("REPRO_HOME", str(home))
    home.chmod(mode)
    assert who_else_may_write().startswith(who) and bool(who_else_may_write()) == bool(who)
    home.chmod(0o755)
    tmp_path.chmod(mode)
    assert bool(who_else_may_write()) == bool(who)
    tmp_path.chmod(0o700)
