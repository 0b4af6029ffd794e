"""When a record was made: a claim is judged only by records that were made after it was stated."""

from __future__ import annotations

from datetime import UTC, datetime
from functools import lru_cache
from pathlib import Path

from repro.records.store import Record

MADE = "made"
"""The part of a record's provenance that holds the time."""
FIRST_COMMITS_FILE = "FIRST_COMMITS"
"""The day of the first commit of each published record that holds no time, one "DAY  ID" per line."""


def now_utc() -> str:
    """Return the time as new records store it, e.g. "2026-11-25T17:03:21+00:00"."""
    return datetime.now(UTC).isoformat(timespec="seconds")


def made_day(record: Record) -> str:
    """Return the day (UTC, ISO) on which a record was made or first committed; empty if neither is known."""
    stored = str(record.provenance.get(MADE, ""))[:10]
    return stored or _first_commits(record.path.parent).get(record.id, "")


@lru_cache(maxsize=8)
def _first_commits(folder: Path) -> dict[str, str]:
    path = folder / FIRST_COMMITS_FILE
    lines = path.read_text(encoding="utf-8").splitlines() if path.is_file() else []
    return {name: day for day, name in (line.split() for line in lines)}
