"""Update the digests of the published records with `python -m repro.records.digests`, after records were added.

Every record is first read and checked against its arrays. If one fails, it is named and nothing is written.
"""

from __future__ import annotations

import hashlib
import sys
from pathlib import Path

from repro.records.store import DIGESTS_FILE, compute_listed_digests, read_record
from repro.storage.files import atomic_file
from repro.storage.paths import get_published_records


def write_digests(folder: Path) -> int:
    """Write the sha256 and the name of each record and array file, one per line. Return the number of records.

    Raises:
        ValueError: if a record is invalid or differs from the file listed before. A record is written once. To replace
            one on purpose, delete its lines from the list first.
    """
    records = [read_record(path) for path in sorted(folder.glob("*.json"))]
    for record in records:
        record.check_arrays()
    files = [path for record in records for path in (record.path, record.path.with_suffix(".npz"))]
    digests = {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in files}
    listed = compute_listed_digests(folder)
    if changed := sorted(name for name, digest in digests.items() if listed.get(name, digest) != digest):
        raise ValueError(f"{folder / changed[0]} is not the file that {DIGESTS_FILE} lists; restore it")
    with atomic_file(folder / DIGESTS_FILE, lasts=True) as part:
        part.write_text("".join(f"{digest}  {name}\n" for name, digest in digests.items()), encoding="utf-8")
    return len(records)


if __name__ == "__main__":
    print(f"{write_digests(get_published_records())} records listed in {DIGESTS_FILE}", file=sys.stderr)
