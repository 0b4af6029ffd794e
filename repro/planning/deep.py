"""The deep look of `doctor`: every record against its digest and its arrays, every stage against its files' digests."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from repro.planning.doctor import Finding
from repro.records.store import read_record
from repro.storage.digests import check_digests
from repro.storage.json_files import read_json
from repro.storage.paths import get_local_records, get_published_records, get_stage_folder
from repro.storage.stages import STAGE_FILE


def examine_deeply() -> Iterator[Finding]:
    """Give one finding for each set of records and for the stages, and one for each thing that does not hold."""
    yield from _records("published records", get_published_records())
    yield from _records("your records", get_local_records())
    yield from _stages()


def _records(what: str, folder: Path) -> Iterator[Finding]:
    paths = sorted(folder.glob("*.json"))
    bad = [(path, why) for path in paths if (why := _what_is_wrong(path))]
    yield Finding(what, not bad, f"{len(paths) - len(bad)} of {len(paths)} hold: digests, types, means of their arrays")
    yield from (Finding(path.name, False, why) for path, why in bad)


def _what_is_wrong(path: Path) -> str:
    try:
        read_record(path).check_arrays()
    except (ValueError, OSError) as error:
        return str(error)
    return ""


def _stages() -> Iterator[Finding]:
    folders = sorted(path.parent for path in get_stage_folder().glob(f"*/[0-9a-f]*/{STAGE_FILE}"))
    unknown, bad = 0, []
    for folder in folders:
        try:
            content = read_json(folder / STAGE_FILE)
            unknown += "files" not in content  # a stage may have none: nothing to rank
            check_digests(folder, content.get("files", {}), folder.with_name(f"{folder.name}.building"), deep=True)
        except (ValueError, AttributeError) as error:
            bad.append((folder, str(error)))
    says = f"{len(folders) - len(bad)} of {len(folders)} hold; {unknown} were built before digests were kept"
    yield Finding("stages", not bad, says)
    yield from (Finding(f"{folder.parent.name}/{folder.name}", False, why) for folder, why in bad)
