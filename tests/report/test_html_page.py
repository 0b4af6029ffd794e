"""The HTML report is one file without scripts or requests. Its numbers equal the records, and texts are escaped."""

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from figures.draw import Picture, draw
from repro.cli.figures import Inline
from repro.records.store import Record, write_record
from repro.report import artefacts as views
from repro.report.html import write_report
from repro.report.known import get_thresholds, make_counts_view
from repro.report.sections import Painter, Rows, make_deviations_view, make_sections
from repro.spec import Claim, Column, Exhibit, Experiment, Figure, Row, Run, Table, base, grid, pick, term
from repro.spec.scales import get_scale
from tests.browser import CHROMIUM, Browser, browser

EVIL = '<script>alert("x")</script> & $5'
NDCG = "{suite}/mean/ndcg_at_10"
RUNS = grid(base("desk"), sampler=("random", "domain"), batch_size=(64, 128), seed=(0, 1))
SERIES = (Row(label=EVIL, runs=pick(sampler="random")), Row(label="one domain", runs=pick(sampler="domain")))
NUMBERS = Table(
    name="table1",
    caption=f"A caption with {EVIL}",
    columns=(Column(label="NDCG@10", value=NDCG, factor=100),),
    rows=(replace(SERIES[0], paper={"NDCG@10": 59.9}), SERIES[1]),
)
DRAWING = Figure(
    name="figure3",
    caption="Score by batch size",
    kind="lines",
    x="batch_size",
    y=NDCG,
    x_label="batch size (pairs)",
    y_label="NDCG@10 (points)",
    factor=100,
    x_is_log=True,
    series=SERIES,
)
TEXTS = Exhibit(name="table3", caption="Neighbours", columns=("text",), runs=pick(seed=0))


def make_order(id: str, better: str, worse: str) -> Claim:
    pairs = [(term(NDCG, sampler=better), term(NDCG, sampler=worse))]
    return Claim.order(id, f"{better} above {worse}", pairs=pairs, seeds=(0, 1), source="here", because="a test")


EXPERIMENT = Experiment(
    number=99,
    title="An experiment",
    runs=lambda scale: tuple(replace(run, scale=scale) for run in RUNS),
    artefacts=(NUMBERS, DRAWING, TEXTS),
    claims=(
        make_order("T1.a", "domain", "random"),
        make_order("T1.b", "random", "domain"),
        Claim.order("F3.a", "never", pairs=[(term(NDCG, seed=7), term(NDCG))], source="here", because="no such runs"),
    ),
)


def write_scored(folder: Path, run: Run) -> Record:
    gain = 0.1 if run.sampler == "domain" else 0.0
    scores = np.random.default_rng(run.seed).uniform(0.3, 0.5, 100).astype(np.float32) + np.float32(gain)
    return write_record(
        folder,
        run,
        metrics={"desk/mean/ndcg_at_10": float(scores.mean())},
        arrays={"desk": scores},
        exhibits={"table3": [{"text": EVIL}], "batch": [{"query": EVIL, "document": "d"}]},
        provenance={
            "suite": {"datasets": [{"name": "a", "family": "f", "num_queries": 100}]},
            "machine": {"device": "a CPU", "dtype": "float32", "num_threads": 2},
            "training": {"id": f"{run.sampler}{run.batch_size}", "seconds": 60.0},
            "evaluation_seconds": 2.0,
        },
    )


@pytest.fixture
def records(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[Record]:
    folders = {"published": lambda: tmp_path / "records", "yours": lambda: tmp_path / "yours"}
    monkeypatch.setattr(views, "RECORDS", folders)
    monkeypatch.setattr("repro.report.sections.RECORDS", folders)
    return [write_scored(tmp_path / "records", run) for run in RUNS]


def make_painter(folder: Path) -> Painter:
    def paint(figure: Figure, scale: str, whose: str, rows: Rows) -> Future[Path] | None:
        assert rows or not views.load_records(RUNS, whose)
        words = {name: getattr(figure, name) for name in ("kind", "x", "y", "x_label", "y_label", "x_is_log")}
        return Inline().submit(draw, rows, folder / f"{figure.name}-{whose}", Picture(**words)) if rows else None

    return paint


def write_page(tmp_path: Path, **painters: Any) -> Path:
    return write_report("desk", tmp_path / "report.html", make_painter(tmp_path / "drawn"), [EXPERIMENT], **painters)


def make_forest_painter(folder: Path, title: str = "") -> Callable[[Sequence[Mapping[str, object]], str], Future[Path]]:
    """Return what draws the intervals of all claims in one picture."""
    picture = Picture(kind="forest", x="", y="", x_label="", y_label="", title=title)
    return lambda rows, scale: Inline().submit(draw, rows, folder / f"claims-{scale}", picture)


def get_section(page: str, name: str) -> str:
    """Return the HTML of the section with an id."""
    return page.split(f'<section id="{name}"')[1].split("</section>")[0]


class Reader(HTMLParser):
    """Collects the links, ids and tags of a page."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.ids: list[str] = []
        self.links: list[str] = []
        self.tags: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Store the tag, its id and its links."""
        found = dict(attrs)
        self.tags.append(tag)
        self.ids += [value for name, value in attrs if name == "id" and value]
        self.links += [found[name] or "" for name in ("href", "src", "xlink:href") if name in found]


def test_data_text_is_never_markup(records: list[Record], tmp_path: Path) -> None:
    text = write_page(tmp_path).read_text()
    assert "<script" not in text
    assert text.count("&lt;script&gt;") >= 5  # caption, row, legend, exhibit, batch


def test_page_links_to_itself_and_records(records: list[Record], tmp_path: Path) -> None:
    page = write_page(tmp_path)
    read = Reader(page.read_text())
    assert len(read.ids) == len(set(read.ids))
    inside = {link[1:] for link in read.links if link.startswith("#")}
    assert inside and inside <= set(read.ids)
    files = [link for link in read.links if not link.startswith(("#", "data:"))]
    assert len(files) == len(RUNS) and all((page.parent / link).is_file() for link in files)
    assert not {"script", "img", "iframe", "object", "form"} & set(read.tags)
    assert not re.search(r"url\((?!#)|@import", page.read_text())


def test_differing_claims_come_first(records: list[Record], tmp_path: Path) -> None:
    ledger = write_page(tmp_path).read_text().split('id="ledger"')[1].split("</section>")[0]
    assert "3 claims: 1 DIFFERS, 1 HOLDS, 1 not run" in ledger
    claims = (("table1", "T1.b"), ("table1", "T1.a"), ("figure3", "F3.a"))
    places = [ledger.index(f'<a href="#{name}">{claim}</a>') for name, claim in claims]
    assert places == sorted(places)
    assert places[1] < ledger.index("<details>") < places[2]


def test_section_is_complete(records: list[Record], tmp_path: Path) -> None:
    text = write_page(tmp_path).read_text()
    table, figure = (get_section(text, name) for name in ("table1", "figure3"))
    mean = np.mean([r.metrics["desk/mean/ndcg_at_10"] for r in records if r.run.sampler == "domain"])
    assert f"{100 * mean:.1f} ±" in table and "59.9" in table
    # two seeds share each training run of 60 s, so 8 runs count 240 s
    assert "8 of 8 runs shown have a published record; 4 min of training, 16 s of measuring" in table
    assert "python -m repro.table1 --scale desk" in table and "a CPU, float32, threads: 2" in table
    assert all(f'href="#run-{r.id}"' in table for r in records)
    assert "<svg" in figure and 'aria-label="Score by batch size"' in figure and "data:text/csv;base64," in figure


def test_failed_figure_spoils_nothing(records: list[Record], tmp_path: Path) -> None:
    """A figure that cannot be drawn and a missing record leave the rest of the page as it is."""
    records[0].path.unlink()

    def broken(figure: Figure, scale: str, whose: str, rows: Rows) -> Future[Path]:
        never: Future[Path] = Future()
        never.set_exception(ValueError("no pen"))
        return never

    sections = make_sections(EXPERIMENT, "desk", broken)
    assert sections[0].view.rows[1][1:] == ("published", "3/4", "–")
    assert [line.judged.verdict for line in sections[0].lines] == ["tentative", "tentative"]
    text = write_report("desk", tmp_path / "r.html", broken, [EXPERIMENT]).read_text()
    assert "Not drawn: published records: no pen; yours records: no pen" in text and "plan table1" in text


def test_deviations_differ_from_the_paper() -> None:
    rows = make_deviations_view("desk").rows
    assert ("num_layers", str(get_scale("desk").fields["num_layers"]), "6") in rows
    assert "temperature" not in [row[0] for row in rows] and make_deviations_view("small").rows == ()


def test_page_opens_with_forest_plot(records: list[Record], tmp_path: Path) -> None:
    drawn: list[dict[str, object]] = []

    def paint_forest(rows: Sequence[Mapping[str, object]], scale: str) -> Future[Path]:
        drawn.extend(map(dict, rows))
        return make_forest_painter(tmp_path)(rows, scale)

    known = get_section(write_page(tmp_path, paint_forest=paint_forest).read_text(), "known")
    names = re.findall(r"<th scope=.col.[^>]*>(.*?)</th>", known)[1:]
    counts = dict(zip(names, re.findall(r"<td[^>]*>(.*?)</td>", known), strict=True))
    assert counts == {"claims": "3", "holds": "1", "differs": "1", "no records": "1"} and "<svg" in known
    assert [(row["name"], row["verdict"]) for row in drawn] == [("T1.a", "HOLDS"), ("T1.b", "DIFFERS")]
    lines = make_sections(EXPERIMENT, "desk", make_painter(tmp_path))[0].lines
    assert [row["effect"] for row in drawn] == [100 * line.judged.effect for line in lines if line.judged.effect]
    assert all(row["bar_low"] == 0.0 and row["unit"] == "points" for row in drawn)
    assert "<svg" not in get_section(write_page(tmp_path).read_text(), "known")


def test_headline_table_opens_page(records: list[Record], tmp_path: Path) -> None:
    """The page opens with Table 1 in few columns, and its picture if there is one."""
    gains = tmp_path / "gains.svg"
    gains.write_text('<svg xmlns="http://www.w3.org/2000/svg" width="10pt" height="10pt"><path id="a"/></svg>')
    page = write_page(tmp_path, paint_gains=lambda scale: gains)
    first = page.read_text().split("<main")[1].split("</section>")[0]
    assert 'id="gains-a"' in first and "NDCG@10" in first and 'href="#table1"' in first


def test_claim_kinds_have_their_threshold() -> None:
    two = (term(NDCG, sampler="domain"), term(NDCG, sampler="random"))
    why = {"source": "here", "because": "a test"}
    assert get_thresholds(Claim.order("a", "", pairs=[two], margin=-0.01, **why)) == (-0.01, None)
    assert get_thresholds(Claim.trend("b", "", over=two[0], axis="batch_size", sign=-1, **why)) == (None, 0.0)
    assert get_thresholds(Claim.equivalence("c", "", pairs=[two], delta=0.02, **why)) == (-0.02, 0.02)
    assert get_thresholds(Claim.value("d", "", expected={two[0]: 0.5}, margin=0.03, **why)) == (-0.03, 0.03)
    assert make_counts_view([]).rows == ()


def in_browser(test: Callable[..., None]) -> Callable[..., None]:
    """Mark a test that opens the page in Chromium."""
    skip = pytest.mark.skipif(CHROMIUM is None, reason="Chromium is not installed: apt-get install chromium")
    return pytest.mark.browser(skip(test))


@pytest.fixture
def opened(records: list[Record], tmp_path: Path) -> Iterator[tuple[Browser, Path]]:
    page = write_page(tmp_path)
    with browser(tmp_path) as started:
        yield started, page


@in_browser
def test_browser_reports_no_errors(opened: tuple[Browser, Path], tmp_path: Path) -> None:
    started, page = opened
    for width, scheme in ((1200, "light"), (360, "dark")):
        started.open(page, width=width, scheme=scheme)
        assert started.value("document.documentElement.scrollWidth") <= width
        assert len(started.screenshot(tmp_path / f"{width}.png")) > 20_000
    assert set(started.requests) == {page.resolve().as_uri()}
    assert started.complaints == []


@in_browser
def test_contents_are_column_or_menu(opened: tuple[Browser, Path]) -> None:
    """At 1280 pixels the table of contents is left of the text. At 390 it opens on demand."""
    started, page = opened
    box = "JSON.stringify(document.querySelector('.contents').getBoundingClientRect())"
    started.open(page, width=1280)
    side = json.loads(started.value(box))
    assert side["width"] > 100
    assert side["right"] <= started.value("document.querySelector('main').getBoundingClientRect().left")
    started.open(page, width=390)
    assert json.loads(started.value(box))["height"] == 0
    started.value("document.querySelector('label[for=menu]').click()")
    assert json.loads(started.value(box))["height"] > 100


STICKS_OUT = """[...document.querySelectorAll("body *")].filter(one => {
  if (one.closest(".scroll, .picture, pre, .skip")) return false;
  const box = one.getBoundingClientRect();
  return box.width > 0 && (box.right > innerWidth + 1 || box.left < -1);
}).map(one => one.outerHTML.slice(0, 80))"""
CUT = """[...document.querySelectorAll(NAMES)].filter(one => one.getBoundingClientRect().right > innerWidth)
  .map(one => one.outerHTML.slice(0, 80))"""


@in_browser
@pytest.mark.parametrize("width", [360, 390])
def test_telephone_shows_everything(records: list[Record], tmp_path: Path, width: int) -> None:
    page = write_page(tmp_path, paint_forest=make_forest_painter(tmp_path, "All"))
    with browser(tmp_path) as started:
        started.open(page, width=width)
        assert started.value("document.querySelectorAll('#known svg text').length") > 5
        assert started.value(CUT.replace("NAMES", "'#known svg text, #known svg, .verdict, .says, .numbers'")) == []
        assert started.value(STICKS_OUT) == []
        small = started.value(
            "Math.min(...[...document.querySelectorAll('table')].map(one => parseFloat("
            "getComputedStyle(one).fontSize)))"
        )
        assert small >= 13


@in_browser
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_text_has_contrast(opened: tuple[Browser, Path], scheme: str) -> None:
    started, page = opened
    started.open(page, width=800, scheme=scheme)
    ground = compute_luminance(started.value("getComputedStyle(document.body).backgroundColor"))
    assert (ground < 0.1) == (scheme == "dark")
    selectors = ("body", "a", ".note", ".holds", ".differs", ".not-run", "dt", "pre")
    for name in selectors:
        text = compute_luminance(started.value(f"getComputedStyle(document.querySelector('{name}')).color"))
        assert (max(text, ground) + 0.05) / (min(text, ground) + 0.05) >= 4.5, name
    turned = started.value("getComputedStyle(document.querySelector('.picture svg')).filter")
    assert (turned != "none") == (scheme == "dark")


@in_browser
def test_keyboard_reaches_content_first(opened: tuple[Browser, Path]) -> None:
    started, page = opened
    started.open(page, width=800)
    for key, code in (("Tab", 9), ("Enter", 13)):
        for kind in ("rawKeyDown", "char", "keyUp"):
            text = "\r" if (key, kind) == ("Enter", "char") else ""
            started.ask("Input.dispatchKeyEvent", type=kind, key=key, code=key, windowsVirtualKeyCode=code, text=text)
        if key == "Tab":
            assert started.value("document.activeElement.className") == "skip"
    assert started.value("location.hash") == "#content"
    assert started.value("document.activeElement.id") == "content"


def compute_luminance(colour: str) -> float:
    """Return the relative luminance of rgb(…), WCAG 2."""
    channels = [int(value) / 255 for value in re.findall(r"\d+", colour)[:3]]
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]
