"""Renews the list of digests of the committed records: `python -m repro.records.digests`, after records were added.

Each record is read and checked against its arrays first; one that does not hold is named, and nothing is written.
"""

from __future__ import annotations

import hashlib
import sys
from pathlib import Path

from repro.records.checks import DIGESTS_FILE, compute_listed_digests
from repro.records.store import read_record
from repro.storage.atomic import whole_file
from repro.storage.paths import get_published_records


def write_digests(folder: Path) -> int:
    """Write the list of a folder's records and arrays, sha256 and name a line; return how many records there are.

    ValueError when a record does not hold, or is not the file listed before: a record is written once. One that was
    made anew on purpose is taken off the list by hand first.
    """
    records = [read_record(path) for path in sorted(folder.glob("*.json"))]
    for record in records:
        record.check_arrays()
    files = [path for record in records for path in (record.path, record.path.with_suffix(".npz"))]
    found = {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in files}
    known = compute_listed_digests(folder)
    if changed := sorted(name for name, digest in found.items() if known.get(name, digest) != digest):
        raise ValueError(f"{folder / changed[0]} is not the file that {DIGESTS_FILE} lists; restore it")
    with whole_file(folder / DIGESTS_FILE, lasts=True) as part:
        part.write_text("".join(f"{digest}  {name}\n" for name, digest in found.items()), encoding="utf-8")
    return len(records)


if __name__ == "__main__":
    print(f"{write_digests(get_published_records())} records listed in {DIGESTS_FILE}", file=sys.stderr)
