"""TREC's two files, in and out: judgements ("query 0 document grade") and, with those of a BEIR folder, their scores.

Runs are written and read in `repro.evaluate.retrieval`. Equal scores: the smaller id goes first here, the larger one in
trec_eval, which looks at scores only; a run without ties gets the same numbers from both.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np

from repro.data.beir import QRELS_HEADER
from repro.data.foreign import lines_of
from repro.evaluate.retrieval import read_run, score
from repro.writing import whole_file


def write_judgements(path: Path, judgements: Mapping[str, Mapping[str, int]]) -> None:
    """Writes judgements as trec_eval reads them; ValueError for an id that is empty or has a space."""
    lines = []
    for query, grades in judgements.items():
        for document, grade in grades.items():
            if any(len(identifier.split()) != 1 for identifier in (query, document)):
                raise ValueError(
                    f"{path.name}: TREC files cannot hold an empty id or one with a space: {query!r}, {document!r}"
                )
            lines.append(f"{query} 0 {document} {grade}\n")
    with whole_file(path) as part:
        part.write_text("".join(lines), encoding="utf-8")


def read_judgements(path: Path) -> dict[str, dict[str, int]]:
    """Reads judgements of TREC's four columns or of a BEIR folder's three; ValueError names the malformed line."""
    if not path.is_file():
        raise ValueError(f"{path} is not there")
    found: dict[str, dict[str, int]] = {}
    for number, line in lines_of(path):
        parts = line.split("\t") if line.count("\t") == len(QRELS_HEADER) - 1 else line.split()
        if number == 1 and parts[0] == QRELS_HEADER[0]:
            continue
        if len(parts) not in (3, 4):
            raise ValueError(f"{path}, line {number}: {len(parts)} columns, expected query, (0,) document and grade")
        try:
            grade = int(parts[-1])
        except ValueError as error:
            raise ValueError(f"{path}, line {number}: the grade {parts[-1]!r} is no whole number") from error
        found.setdefault(parts[0], {})[parts[-2]] = grade
    if not found:
        raise ValueError(f"{path} judges nothing")
    return found


def score_files(run: Path, judgements: Path) -> dict[str, float]:
    """Gives the mean of each measure over the judged queries; a judged query that the run lacks scores 0."""
    scores: dict[str, np.ndarray] = score(read_run(run), read_judgements(judgements))
    return {measure: float(values.mean()) for measure, values in scores.items()}
