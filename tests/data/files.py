"""Write the files that the tests of importing read."""

import csv
import json
import zipfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from repro.data.beir import Retrieval


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


def make_judged(size: int, name: str = "judged") -> Retrieval:
    """Return a collection in which query n asks for document n."""
    documents, queries = (tuple(f"{kind}{n}" for n in range(size)) for kind in "dq")
    texts = tuple(f"text of document {n} and of thing {n % 7}" for n in range(size))
    judgements = {query: {document: 1} for query, document in zip(queries, documents, strict=True)}
    return Retrieval(name, documents, texts, queries, tuple(f"question {n}" for n in range(size)), judgements)


def make_repairs(size: int) -> list[dict[str, str]]:
    """Return pairs about repairs of five kinds of things, their domains."""
    things = [("kettle", "lamp", "radio", "bicycle", "printer")[number % 5] for number in range(size)]
    return [
        {"query": f"how do I repair {thing} {n}", "document": f"The {thing} {n} needs part {7 * n}.", "domain": thing}
        for n, thing in enumerate(things)
    ]


def pack_folder(folder: Path, archive: Path) -> Path:
    """Write a zip archive of a folder."""
    with zipfile.ZipFile(archive, "w") as opened:
        for path in folder.rglob("*"):
            opened.write(path, path.relative_to(folder.parent))
    return archive
