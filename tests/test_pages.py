"""Pages refer only to existing commands, artefacts, paths, tests and claims. `check --write --dry-run` compares generated parts."""

import re
from pathlib import Path

import pytest

from benchmarks.phases import format_table
from repro.cli.main import app
from repro.report.gallery import compute_digest, iter_gallery_figures, load_findings
from repro.spec.artefact import MAIN
from repro.spec.registry import artefacts, experiments

ROOT = Path(__file__).resolve().parent.parent
PAGES = [path for place in ("*.md", "docs/*.md", "repro/interop/*.md", "slurm/*.md") for path in ROOT.glob(place)]
TEXT = {path.relative_to(ROOT).with_suffix("").as_posix(): path.read_text() for path in PAGES}
VERBS = {c.name or c.callback.__name__.rstrip("_").replace("_", "-") for c in app.registered_commands if c.callback}
VERBS |= {group.name for group in app.registered_groups if group.name}
MAX_README_CHARACTERS = 8_000
# Placeholders for many paths.
PLACEHOLDERS = {"experiments/e99_what_varies.py", "tests/golden/NAME.json"}


def test_phases_follow_their_records() -> None:
    assert format_table() in TEXT["REPRODUCING"], "insert the output of `python -m benchmarks.phases`"


def test_pictures_depend_on_drawing_code(monkeypatch: pytest.MonkeyPatch) -> None:
    _, figure, scale, rows = next(iter_gallery_figures(MAIN))
    before = compute_digest(figure, rows, scale)
    monkeypatch.setattr("repro.report.gallery.hash_python_files", lambda folders: f"code of {folders[0].name}")
    assert before != compute_digest(figure, rows, scale)


def test_findings_belong_to_experiments() -> None:
    assert set(load_findings()) <= {experiment.number for experiment in experiments()}


def test_front_page_stays_short() -> None:
    assert len(TEXT["README"]) <= MAX_README_CHARACTERS


@pytest.mark.parametrize("page", sorted(TEXT.keys() - {"CHANGELOG"}))
def test_every_command_exists(page: str) -> None:
    """Commands and artefact modules on the pages exist."""
    for verb in re.findall(r"(?:python -m repro|`repro|^repro) ([a-z-]+)", TEXT[page], flags=re.M):
        assert verb in VERBS, f"`repro {verb}` does not exist. Commands: {sorted(VERBS)}"
    for name in re.findall(r"python -m repro\.(\w+)\b(?!\.\w)", TEXT[page]):
        assert name in artefacts() or name == "NAME" or (ROOT / "repro" / name).is_dir(), f"no artefact {name}"


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_every_link_leads_somewhere(path: Path) -> None:
    """Paths in backticks and relative links exist."""
    text = path.read_text()
    named = set(re.findall(r"`((?:repro|experiments|figures|slurm|tests|benchmarks|examples|docs)/[\w./-]*)`", text))
    assert [name for name in sorted(named - PLACEHOLDERS) if not (ROOT / name).exists()] == []
    links = {link.partition("#")[0] for link in re.findall(r"(?:\]\(|src=\"|srcset=\")([^)\"]+)", text)}
    missing = [link for link in sorted(links) if link and "://" not in link and not (path.parent / link).exists()]
    assert missing == []


def list_anchors(path: Path) -> list[str]:
    """Return the anchors of a page: those set by hand, and those that GitHub derives from headings."""
    text = re.sub(r"^```.*?^```", "", path.read_text(), flags=re.M | re.S)
    headings = re.findall(r"^#+ (.+)$", text, flags=re.M)
    slugs = [re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings]
    return re.findall(r'<a id="([^"]+)"', text) + slugs


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_links_to_sections_have_anchors(path: Path) -> None:
    links = re.findall(r"\]\(([\w./-]*\.md)?#([^)]+)\)", path.read_text())
    missing = [link for link in links if list_anchors(path.parent / link[0] if link[0] else path).count(link[1]) != 1]
    assert missing == []


def test_errata_name_existing_tests() -> None:
    """Each row on the authors' code names a test that exists."""
    errata = TEXT["docs/ERRATA"].split("## The authors' code and ours")[1].split("\n## ")[0]
    rows = [line for line in errata.splitlines() if line.startswith("| ")][2:]
    sources = [path.read_text() for path in (ROOT / "tests").rglob("test_*.py")]
    existing = {name for text in sources for name in re.findall(r"^def (test_\w+)", text, re.M)}
    named = [set(re.findall(r"`(test_\w+)`", row)) for row in rows]
    assert len(rows) >= 20 and all(named), "each row needs a test"
    assert set().union(*named) <= existing
