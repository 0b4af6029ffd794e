"""The HTML report is one file without scripts or requests. Its numbers equal the records, and texts are escaped."""

import re
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pytest

from repro.cli.figures import draw_svg
from repro.records.store import Record, write_record
from repro.report import artefacts as views
from repro.report.html import embed_picture, render_inline_markdown, write_report
from repro.report.markdown_pages import read_summary
from repro.report.sections import ScaleReport, make_scale_report
from repro.spec import Claim, Column, Exhibit, Experiment, Row, Run, Table, base, grid, pick, term
from tests.browser import CHROMIUM, evaluate
from tests.report.test_figure_data import LINES

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
DRAWING = replace(LINES, name="figure3", caption="Score by batch size", x_is_log=True, series=SERIES)
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
        exhibits={"table3": [{"text": EVIL}]},
        provenance={
            "suite": {"datasets": [{"name": "a", "family": "f", "num_queries": 100}]},
            "machine": {"device": "a CPU", "dtype": "float32", "num_threads": 2},
            "training": {"id": f"{run.sampler}{run.batch_size}", "seconds": 60.0},
            "evaluation_seconds": 2.0,
        },
    )


def publish_records(folder: Path, patch: pytest.MonkeyPatch) -> list[Record]:
    """Write a record of each run, and read records from this folder only."""
    folders = {"published": lambda: folder / "records", "yours": lambda: folder / "yours"}
    patch.setattr(views, "RECORDS", folders)
    patch.setattr("repro.report.sections.RECORDS", folders)
    return [write_scored(folder / "records", run) for run in RUNS]


FRONT = '<svg xmlns="http://www.w3.org/2000/svg" width="576pt" height="90pt"/>'
"""A picture as wide as that of the front page: 8 inches."""


@dataclass(frozen=True)
class Report:
    """A written report with its records."""

    path: Path
    text: str
    records: list[Record]
    part: ScaleReport


def get_section(page: str, name: str) -> str:
    return page.split(f'<section id="{name}"')[1].split("</section>")[0]


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Report:
    """The report of EXPERIMENT, with a picture of each kind."""
    folder = tmp_path_factory.mktemp("report")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("REPRO_HOME", str(folder / "home"))
        records = publish_records(folder, patch)
        part = make_scale_report("desk", [EXPERIMENT], draw_svg)
        path = write_report(folder / "report.html", [part], FRONT)
    return Report(path, path.read_text(), records, part)


def test_data_text_is_never_markup(report: Report) -> None:
    assert "<script" not in report.text
    assert report.text.count("&lt;script&gt;") >= 4  # caption, row, legend, exhibit


def test_page_links_to_itself_and_records(report: Report) -> None:
    ids, links = (re.findall(rf"<[^>]*[\s:](?:{names})=\"([^\"]*)", report.text) for names in ("id", "href|src"))
    assert len(ids) == len(set(ids))
    anchors = {link[1:] for link in links if link.startswith("#")}
    assert anchors and anchors <= set(ids)
    assert next(link for link in links if link != "data:,") == "#content"
    files = [link for link in links if not link.startswith(("#", "data:"))]
    assert len({*files}) == len(RUNS) and all((report.path.parent / file).is_file() for file in files)
    assert not {"script", "svg", "iframe", "object", "form"} & set(re.findall(r"<(\w+)", report.text))
    assert not re.search(r"url\((?!#)|@import", report.text)


def test_differing_claims_come_first(report: Report) -> None:
    """The list of claims is folded."""
    ledger = get_section(report.text, "desk")
    claims = (("table1", "T1.b"), ("table1", "T1.a"), ("figure3", "F3.a"))
    places = [ledger.index(f'<a href="#desk-{name}">{claim}</a>') for name, claim in claims]
    folded = ledger.index("<summary>3 claims: 1 DIFFERS, 1 HOLDS, 1 not run</summary>")
    assert [folded, *places] == sorted([folded, *places])


def test_section_is_complete(report: Report) -> None:
    table, figure = (get_section(report.text, f"desk-{name}") for name in ("table1", "figure3"))
    scores = [record.metrics["desk/mean/ndcg_at_10"] for record in report.records if record.run.sampler == "domain"]
    assert f"{100 * np.mean(scores):.1f} ±" in table and "59.9" in table
    assert "8 of 8 runs have a published record" in table and "python -m repro.table1 --scale desk" in table
    assert all(f"{record.id}</a>" in table for record in report.records)
    assert 'alt="Score by batch size"' in figure


def test_page_opens_like_front_page(report: Report) -> None:
    """The sentences, the picture and the table come first, made from the same sources as those of README."""
    first = report.text.split("<main")[1].split("</section>")[0]
    introduction, sentences = read_summary()
    assert len(sentences) == 5
    assert all(str(render_inline_markdown(sentence)) in first for sentence in (introduction, *sentences))
    assert str(embed_picture(FRONT, "x")).split('src="')[1] in first and "<th" in first
    assert render_inline_markdown("**a < b** [c](d) `e`") == "<strong>a &lt; b</strong> c <code>e</code>"


STICKS_OUT = """[...document.querySelectorAll("body *")].filter(element => {
  if (element.closest(".scroll, .picture, pre, .skip")) return false;
  const box = element.getBoundingClientRect();
  return box.width > 0 && (box.right > innerWidth + 1 || box.left < -1);
}).map(element => element.outerHTML.slice(0, 80))"""
REQUESTS = "performance.getEntriesByType('resource').filter(entry => !entry.name.startsWith('data:')).length"
UNFOLDED = "[...document.querySelectorAll('.claims')].filter(list => list.checkVisibility()).length"


@pytest.mark.skipif(CHROMIUM is None, reason="Chromium is not installed: apt-get install chromium")
@pytest.mark.parametrize("width", [390, 1280])
def test_page_fits_its_width(report: Report, tmp_path: Path, width: int) -> None:
    """In a browser, also as narrow as a telephone, nothing sticks out, claims are folded, and nothing is requested."""
    expressions = ["document.documentElement.scrollWidth", REQUESTS, UNFOLDED, STICKS_OUT]
    page_width, *faults = evaluate(report.path, tmp_path, expressions, width=width)
    assert page_width <= width and faults == [0, 0, []]
