"""Write the files that the tests of importing read."""

import csv
import json
import tarfile
import zipfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq


def write_rows(path: Path, rows: Sequence[dict[str, Any]]) -> Path:
    """Write rows in the format of the file's ending: .jsonl, .csv, .tsv or .parquet."""
    if path.suffix == ".jsonl":
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    elif path.suffix == ".parquet":
        pq.write_table(pa.Table.from_pylist(list(rows)), path)
    else:
        with path.open("w", newline="") as file:
            writer = csv.DictWriter(file, list(rows[0]), delimiter="\t" if path.suffix == ".tsv" else ",")
            writer.writeheader()
            writer.writerows(rows)
    return path


def pack_folder(folder: Path, archive: Path, *, is_flat: bool = False) -> Path:
    """Write a zip or tar archive of a folder. A flat one has the files of the folder at its top."""
    root = folder if is_flat else folder.parent
    if archive.suffix == ".zip":
        with zipfile.ZipFile(archive, "w") as opened:
            for path in folder.rglob("*"):
                opened.write(path, path.relative_to(root))
    else:
        with tarfile.open(archive, "w:gz") as packed:
            packed.add(folder, "." if is_flat else folder.name)
    return archive
