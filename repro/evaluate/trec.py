"""Read TREC judgements ("query 0 document grade") or those of a BEIR folder, and score a TREC run against them.

`repro.evaluate.retrieval` reads and writes the runs. Here they are ranked as in trec_eval: by float32 score, and ties
go to the larger id. In the runs that `repro evaluate` writes, ties go to the smaller id.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import chain
from pathlib import Path

import numpy as np

from repro.data.beir import HEADLINE, QRELS_HEADER, add_judgement, is_header, parse_grade
from repro.data.lines import iter_lines
from repro.evaluate.retrieval import rank_as_trec_eval, rank_in_float32, read_run, score
from repro.storage.files import check_regular
from repro.text import count_noun, shorten

PLACEHOLDERS = {"0", "Q0"}
"""Values of the second column of TREC judgements, which no program reads."""


def read_judgements(path: Path) -> dict[str, dict[str, int]]:
    """Load judgements with the four columns of TREC or the three of BEIR.

    Raises:
        ValueError: with the malformed line, also if a line has another number of columns than the first one, or if TREC
            judgements lack their grades, so that document ids would be read as grades.
    """
    check_regular(path)
    judgements: dict[str, dict[str, int]] = {}
    num_columns = 0
    for index, (line_number, line) in enumerate(iter_lines(path)):
        columns = line.split("\t") if line.count("\t") == len(QRELS_HEADER) - 1 else line.split()
        if index == 0 and is_header(columns):
            continue
        location = f"{path}, line {line_number}"
        if len(columns) not in (3, 4):
            raise ValueError(f"{location}: {len(columns)} columns, expected query, (0,) document and grade")
        num_columns = num_columns or len(columns)
        if len(columns) != num_columns:
            raise ValueError(f"{location}: {len(columns)} columns, the lines before have {num_columns}")
        try:
            grade = parse_grade(columns[-1])
        except ValueError as error:
            raise ValueError(f"{location}: {error}") from error
        add_judgement(judgements, columns[0], columns[-2], grade, location)
    if num_columns == len(QRELS_HEADER) and len(judgements) > 1 and {*chain(*judgements.values())} <= PLACEHOLDERS:
        raise ValueError(f"{path} judges only the document 0: are the grades of a TREC file missing?")
    if not any(grade > 0 for grades in judgements.values() for grade in grades.values()):
        raise ValueError(f"{path} judges nothing" + (" above 0: every score would be 0" if judgements else ""))
    return judgements


def score_files(
    run_path: Path, judgements_path: Path, progress: Callable[[str], None] = lambda line: None
) -> dict[str, float]:
    """Return the mean of each measure over the judged queries, and `num_queries`, their number.

    A judged query without a ranking scores 0. Documents are ranked as in trec_eval. Queries without judgements are
    dropped, as in trec_eval. `progress` receives a line about each of these: the number of ranked queries, the number
    of dropped ones, and the number whose score depends on ties.

    Raises:
        ValueError: if the run is empty, or if none of its queries is judged.
    """
    run, judgements = read_run(run_path), read_judgements(judgements_path)
    if not run:
        raise ValueError(
            f"{run_path} ranks nothing: expected lines of query, Q0, document, rank, score and name of the run"
        )
    unjudged = sorted(set(run) - set(judgements))
    if unjudged:
        message = (
            f"{len(unjudged)} of the {len(run)} queries of {run_path} are not judged in {judgements_path}, "
            f"first {shorten(unjudged[0])!r}"
        )
        if len(unjudged) == len(run):
            raise ValueError(f"{message}: do these judgements belong to another collection?")
        progress(f"{message}: skipped, as trec_eval does")
    judged_run = {query_id: hits for query_id, hits in run.items() if query_id in judgements}
    if len(judged_run) < len(judgements):
        progress(f"{len(judged_run)} of {len(judgements)} judged queries have a ranking; the others count as 0")
    if not any(document_id in judgements[query_id] for query_id, hits in judged_run.items() for document_id in hits):
        progress("no ranked document is judged, so every score is 0: do both files have the same document ids?")
    scores = score(judged_run, judgements, rank=rank_as_trec_eval)
    # Score again with ties in the opposite order. Queries whose score changes depend on ids alone.
    reversed_Q = score(judged_run, judgements, (HEADLINE,), rank=rank_in_float32)[HEADLINE]
    num_tied = int((np.abs(reversed_Q - scores[HEADLINE]) > 1e-6).sum())
    if num_tied:
        progress(
            f"ids decide ties in {count_noun(num_tied, 'query', 'queries')}: the larger id goes first, as in trec_eval "
            f"(NDCG@10 {float(reversed_Q.mean()):.4f} with the smaller one first)"
        )
    num_junk = sum(all(grade < 0 for grade in grades.values()) for grades in judgements.values())
    if num_junk:
        progress(f"queries with only negative grades: {num_junk}; they count as 0, as in trec_eval")
    return {"num_queries": len(judgements)} | {measure: float(values.mean()) for measure, values in scores.items()}
