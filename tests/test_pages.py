"""The pages say what is there: each source file on the map, each verb, door and artefact that is named exists."""

import re
from pathlib import Path

import pytest

from repro.cli import app
from repro.registry import artefacts

ROOT = Path(__file__).resolve().parent.parent
README = (ROOT / "README.md").read_text()
REPRODUCING = (ROOT / "REPRODUCING.md").read_text()
SOURCES = sorted(p for folder in ("repro", "experiments", "figures", "slurm") for p in (ROOT / folder).rglob("*.py"))
VERBS = {c.name or c.callback.__name__.replace("_", "-") for c in app.registered_commands if c.callback}
VERBS |= {group.name for group in app.registered_groups if group.name}


@pytest.mark.parametrize("path", [p for p in SOURCES if p.name != "__init__.py"], ids=lambda p: p.name)
def test_every_file_has_its_line_on_the_map(path: Path) -> None:
    folder, name = path.relative_to(ROOT).parent.as_posix(), path.name
    section = README.split(f"**`{folder}/`**")
    assert len(section) == 2, f"no part for {folder}/ on the map"
    assert f"`{name}`" in section[1].split("**`")[0], f"{folder}/{name} is not on the map"


def test_the_map_names_no_file_that_is_gone() -> None:
    for folder, part in re.findall(r"\*\*`([\w/]+)/`\*\*(.*?)(?=\*\*`|\n## |\Z)", README, flags=re.S):
        for name in re.findall(r"^- `([\w.-]+)`", part, flags=re.M):
            assert (ROOT / folder / name).is_file(), f"{folder}/{name} is on the map"


def test_every_artefact_is_in_the_table_of_artefacts() -> None:
    assert [name for name in artefacts() if f"`{name}`" not in README] == []


@pytest.mark.parametrize("page", [README, REPRODUCING], ids=["README", "REPRODUCING"])
def test_every_command_on_the_pages_exists(page: str) -> None:
    for verb in re.findall(r"(?:python -m repro|`repro|^repro) ([a-z-]+)", page, flags=re.M):
        assert verb in VERBS, f"`repro {verb}` is no verb; there are {sorted(VERBS)}"
    for door in re.findall(r"python -m repro\.(\w+)", page):
        assert door in artefacts(), f"there is no door {door}"


def test_every_row_of_the_errata_names_tests_that_exist() -> None:
    errata = REPRODUCING.split("## Errata")[1].split("\n## ")[0]
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
