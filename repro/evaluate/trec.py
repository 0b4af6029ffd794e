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
from repro.text import count_noun, short

UNUSED = {"0", "Q0"}
"""Values of the second column of TREC judgements, which no program reads."""


def read_judgements(path: Path) -> dict[str, dict[str, int]]:
    """Load judgements with the four columns of TREC or the three of BEIR.

    Raises:
        ValueError: with the malformed line, also if a line has another number of columns than the first one, or if TREC
            judgements lack their grades, so that document ids would be read as grades.
    """
    check_regular(path)
    found: dict[str, dict[str, int]] = {}
    num_columns = 0
    for place, (number, line) in enumerate(iter_lines(path)):
        parts = line.split("\t") if line.count("\t") == len(QRELS_HEADER) - 1 else line.split()
        if place == 0 and is_header(parts):
            continue
        if len(parts) not in (3, 4):
            raise ValueError(f"{path}, line {number}: {len(parts)} columns, expected query, (0,) document and grade")
        num_columns = num_columns or len(parts)
        if len(parts) != num_columns:
            raise ValueError(f"{path}, line {number}: {len(parts)} columns, the lines before have {num_columns}")
        try:
            grade = parse_grade(parts[-1])
        except ValueError as error:
            raise ValueError(f"{path}, line {number}: {error}") from error
        add_judgement(found, parts[0], parts[-2], grade, f"{path}, line {number}")
    if num_columns == len(QRELS_HEADER) and len(found) > 1 and {*chain(*found.values())} <= UNUSED:
        raise ValueError(f"{path} judges only the document 0: are the grades of a TREC file missing?")
    if not any(grade > 0 for grades in found.values() for grade in grades.values()):
        raise ValueError(f"{path} judges nothing" + (" above 0: every score would be 0" if found else ""))
    return found


def score_files(run: Path, judgements: Path, tell: Callable[[str], None] = lambda line: None) -> dict[str, float]:
    """Return the mean of each measure over the judged queries, and `num_queries`, their number.

    A judged query without a ranking scores 0. Documents are ranked as in trec_eval. Queries without judgements are
    dropped, as in trec_eval. `tell` receives one line about each of these: the number of ranked queries, the number of
    dropped ones, and the number whose score depends on ties.

    Raises:
        ValueError: if the run is empty, or if none of its queries is judged.
    """
    found, judged = read_run(run), read_judgements(judgements)
    if not found:
        raise ValueError(f"{run} ranks nothing: expected lines of query, Q0, document, rank, score and name of the run")
    unjudged = sorted(set(found) - set(judged))
    if unjudged:
        words = f"{len(unjudged)} of the {len(found)} queries of {run} are not judged in {judgements}"
        if len(unjudged) == len(found):
            raise ValueError(
                f"{words}, first {short(unjudged[0])!r}: do these judgements belong to another collection?"
            )
        tell(f"{words}, first {short(unjudged[0])!r}: left out, as trec_eval does")
    answered = {query: hits for query, hits in found.items() if query in judged}
    if len(answered) < len(judged):
        tell(f"{len(answered)} of {len(judged)} judged queries have a ranking; the others count 0")
    if not any(document in judged[query] for query, hits in answered.items() for document in hits):
        tell("no ranked document is judged, so every score is 0: do both files have the same document ids?")
    scores: dict[str, np.ndarray] = score(answered, judged, rank=rank_as_trec_eval)
    # Scoring again with ties the other way shows the number of queries that depend on ids.
    other_way = score(answered, judged, (HEADLINE,), rank=rank_in_float32)[HEADLINE]
    if num_decided := int((np.abs(other_way - scores[HEADLINE]) > 1e-6).sum()):
        tell(
            f"ids decide ties in {count_noun(num_decided, 'query', 'queries')}: the larger id goes first, as in trec_eval "
            f"(NDCG@10 {float(other_way.mean()):.4f} with the smaller one first)"
        )
    if junk := sum(all(grade < 0 for grade in grades.values()) for grades in judged.values()):
        words = count_noun(junk, "query with only negative grades counts", "queries with only negative grades count")
        tell(f"{words} 0, as in trec_eval")
    return {"num_queries": len(judged)} | {measure: float(values.mean()) for measure, values in scores.items()}
