"""The pages say what is there: each source file on the map, each verb, door and artefact that is named exists."""

import re
from pathlib import Path

import pytest

from repro.cli.main import app
from repro.records.golden import without_golden
from repro.report.contents import extract_first_sentence
from repro.report.markdown_pages import CONTENTS, list_begun_rows, replace_block
from repro.report.view import View
from repro.spec.artefact import PAPERS
from repro.spec.registry import artefacts, experiments

ROOT = Path(__file__).resolve().parent.parent
PAGES = ("README", "ARCHITECTURE", "CONTRIBUTING", "REPRODUCING", "RESULTS", "ERRATA")
TEXT = {name: (ROOT / f"{name}.md").read_text() for name in PAGES}
EVERY_PAGE = [*sorted(ROOT.glob("*.md")), ROOT / "repro" / "interop" / "README.md", ROOT / "slurm" / "README.md"]
SOURCES = sorted(p for folder in ("repro", "experiments", "figures", "slurm") for p in (ROOT / folder).rglob("*.py"))
VERBS = {c.name or c.callback.__name__.replace("_", "-") for c in app.registered_commands if c.callback}
VERBS |= {group.name for group in app.registered_groups if group.name}
MOST_WRITTEN_LINES = 100
"""Of the front page, by hand: its generated tables grow by a line with each artefact and each room."""
RENEW = "call `python -m repro check --write` and commit what it writes"
EXAMPLES = {"experiments/e99_what_varies.py", "tests/golden/NAME.json"}
"""Paths that stand for many."""


@pytest.mark.parametrize("path", [p for p in SOURCES if p.name != "__init__.py"], ids=lambda p: p.name)
def test_every_file_has_its_line_on_the_map(path: Path) -> None:
    name = path.relative_to(ROOT).as_posix()
    lines = [line for line in TEXT["ARCHITECTURE"].splitlines() if line.startswith(f"- [`{path.name}`]({name}) ")]
    assert len(lines) == 1, f"{name} has {len(lines)} lines on the map: {RENEW}"


def test_every_artefact_is_in_the_table_of_artefacts() -> None:
    rows = [line.split("|") for line in TEXT["README"].splitlines() if "](experiments/e" in line]
    by_paper = sorted(experiments(), key=lambda experiment: list(PAPERS).index(experiment.paper))
    shown = [name for experiment in by_paper for name in experiment.artefacts]
    assert [name for row in rows for name in re.findall(r"`(\w+)`", row[1])] == shown, RENEW
    claims = [[claim.id for claim in experiment.claims] for experiment in by_paper]
    assert [re.findall(r"[\w.]+", row[3]) for row in rows] == claims, RENEW


@pytest.mark.parametrize(("name", "page"), CONTENTS, ids=lambda value: value)
def test_what_is_read_from_the_source_is_as_the_source_says(name: str, page: str) -> None:
    path = ROOT / page
    assert replace_block(path, path.read_text(), name, CONTENTS[name, page](ROOT)) == path.read_text(), RENEW


def test_every_experiment_has_golden_metrics() -> None:
    assert [experiment.title for experiment in without_golden()] == [], RENEW


def test_the_front_page_stays_short() -> None:
    written = re.sub(r"<!-- (\w+) -->\n.*?<!-- \1 end -->", "", TEXT["README"], flags=re.DOTALL)
    assert len(written.splitlines()) <= MOST_WRITTEN_LINES


@pytest.mark.parametrize("page", PAGES)
def test_every_command_on_the_pages_exists(page: str) -> None:
    for verb in re.findall(r"(?:python -m repro|`repro|^repro) ([a-z-]+)", TEXT[page], flags=re.M):
        assert verb in VERBS, f"`repro {verb}` is no verb; there are {sorted(VERBS)}"
    for door in re.findall(r"python -m repro\.(\w+)\b(?!\.\w)", TEXT[page]):
        assert door in artefacts() or door == "NAME", f"there is no door {door}"


@pytest.mark.parametrize("path", EVERY_PAGE, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_every_path_and_link_on_the_pages_leads_somewhere(path: Path) -> None:
    text = path.read_text()
    named = set(re.findall(r"`((?:repro|experiments|figures|slurm|tests|benchmarks|examples)/[\w./-]*)`", text))
    assert [name for name in sorted(named - EXAMPLES) if not (ROOT / name).exists()] == []
    links = {link.partition("#")[0] for link in re.findall(r"(?:\]\(|src=\"|srcset=\")([^)\"]+)", text)}
    gone = [link for link in sorted(links) if link and "://" not in link and not (path.parent / link).exists()]
    assert gone == []


def test_every_row_of_the_errata_names_tests_that_exist() -> None:
    errata = TEXT["ERRATA"].split("## The authors' code and ours")[1].split("\n## ")[0]
    rows = [line for line in errata.splitlines() if line.startswith("| ")][2:]
    there = {
        name
        for path in (ROOT / "tests").rglob("test_*.py")
        for name in re.findall(r"^def (test_\w+)", path.read_text(), re.M)
    }
    assert len(rows) >= 20
    for row in rows:
        named = re.findall(r"`(test_\w+)`", row)
        assert named, f"no test holds us to: {row}"
        assert set(named) <= there, f"gone: {sorted(set(named) - there)}"


def test_intervals_that_the_prose_tells_of_a_claim_are_those_of_the_ledger() -> None:
    text, claim = TEXT["RESULTS"], r"((?:own|[A-Z]+\d*)\.[a-z])"
    ledger: dict[str, list[tuple[float, float]]] = {}
    for name, low, high in re.findall(rf"^\| {claim} \|[^|]*\|[^|]*\| \[([-+\d.]+), ([-+\d.]+)\] \|", text, re.M):
        ledger.setdefault(name, []).append((float(low), float(high)))
    prose, ends = " ".join(text.replace("−", "-").split()), r"(-?\d+\.\d+) to (-?\d+\.\d+)"
    told = [(name, low, high) for low, high, name in re.findall(rf"\({ends}; {claim}", prose)]
    told += re.findall(rf"\({claim}: {ends}", prose)
    assert len(told) >= 10, "no interval is read: is the prose written otherwise now?"
    gone = [each for each in told if (float(each[1]), float(each[2])) not in ledger.get(each[0], [])]
    assert gone == [], "the ledger has other intervals of these claims, at desk and at lab"


def test_every_claim_that_the_errata_name_is_declared() -> None:
    declared = {claim.id for experiment in experiments() for claim in experiment.claims}
    named = set(re.findall(r"\| ([TFC]\d*\.[a-z]) \|", TEXT["ERRATA"].split("contradicts itself")[1]))
    assert named and named <= declared


@pytest.mark.parametrize(
    ("docstring", "sentence"),
    [
        ("One job. Two jobs.", "One job"),
        ("The filter (eq. 4) of a batch. More.", "The filter (eq. 4) of a batch"),
        ("How far they move (fig. 15)", "How far they move (fig. 15)"),
        ("As in e.g. Table 1, 0.5 points.", "As in e.g. Table 1, 0.5 points"),
        ("A sentence that\ngoes on.\n\nA second part.", "A sentence that goes on"),
        ("Do they? Some do. Others not.", "Do they? Some do"),
    ],
)
def test_a_first_sentence_is_whole(docstring: str, sentence: str) -> None:
    assert extract_first_sentence(f'"""{docstring}"""\n') == sentence


def test_a_dear_table_leaves_out_rows_that_no_seed_has_begun() -> None:
    rows = (("a", "published", "0/3", "–"), ("b", "published", "2/3", "–"), ("c", "published", "3/3", "1.0 ± 0.1"))
    view = View(title="t", header=("", "whose", "seeds", "score"), rows=rows)
    assert [row[0] for row in list_begun_rows(view).rows] == ["b", "c"]
