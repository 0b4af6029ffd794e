"""TREC's two files, in and out: judgements ("query 0 document grade") and, with those of a BEIR folder, their scores.

Runs are written and read in `repro.evaluate.retrieval`. They are ranked as trec_eval ranks them: by their scores in
float32, of equal scores the larger id first. `repro evaluate` puts the smaller id first in its own runs.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np

from repro.data.beir import HEADLINE, QRELS_HEADER, add_judgement, is_header, parse_grade
from repro.data.lines import iter_lines
from repro.evaluate.retrieval import ranked_as_trec_eval, ranked_in_float32, read_run, score
from repro.spec.values import count_noun
from repro.storage.json_files import check_regular, short


def read_judgements(path: Path) -> dict[str, dict[str, int]]:
    """Read judgements of TREC's four columns or of a BEIR folder's three; ValueError names the malformed line."""
    check_regular(path)
    found: dict[str, dict[str, int]] = {}
    for place, (number, line) in enumerate(iter_lines(path)):
        parts = line.split("\t") if line.count("\t") == len(QRELS_HEADER) - 1 else line.split()
        if place == 0 and is_header(parts):
            continue
        if len(parts) not in (3, 4):
            raise ValueError(f"{path}, line {number}: {len(parts)} columns, expected query, (0,) document and grade")
        try:
            grade = parse_grade(parts[-1])
        except ValueError as error:
            raise ValueError(f"{path}, line {number}: {error}") from error
        add_judgement(found, parts[0], parts[-2], grade, f"{path}, line {number}")
    if not any(grade > 0 for grades in found.values() for grade in grades.values()):
        raise ValueError(f"{path} judges nothing" + (" above 0: every score would be 0" if found else ""))
    return found


def score_files(run: Path, judgements: Path, tell: Callable[[str], None] = lambda line: None) -> dict[str, float]:
    """Return the mean of each measure over the judged queries, and `num_queries`, how many these are.

    A judged query that the run lacks scores 0, and `tell` hears how many have a ranking. Documents are ranked as
    trec_eval ranks them, and `tell` hears how many queries have ties that decide a score. Queries that nothing judges
    are left out, as trec_eval leaves them out, and `tell` hears how many; ValueError when these are all, or nothing is
    ranked.
    """
    found, judged = read_run(run), read_judgements(judgements)
    if not found:
        raise ValueError(f"{run} ranks nothing: expected lines of query, Q0, document, rank, score and name of the run")
    unjudged = sorted(set(found) - set(judged))
    if unjudged:
        words = f"{len(unjudged)} of the {len(found)} queries of {run} are not judged in {judgements}"
        if len(unjudged) == len(found):
            raise ValueError(f"{words}, first {short(unjudged[0])!r}: are these judgements another collection's?")
        tell(f"{words}, first {short(unjudged[0])!r}: left out, as trec_eval does")
    answered = {query: hits for query, hits in found.items() if query in judged}
    if len(answered) < len(judged):
        tell(f"{len(answered)} of {len(judged)} judged queries have a ranking; the others count 0")
    scores: dict[str, np.ndarray] = score(answered, judged, rank=ranked_as_trec_eval)
    other_way = score(answered, judged, (HEADLINE,), rank=ranked_in_float32)[HEADLINE]
    if num_decided := int((np.abs(other_way - scores[HEADLINE]) > 1e-6).sum()):
        tell(
            f"ids decide ties in {count_noun(num_decided, 'query', 'queries')}: the larger id goes first, as in trec_eval "
            f"(NDCG@10 {float(other_way.mean()):.4f} with the smaller one first)"
        )
    if junk := sum(all(grade < 0 for grade in grades.values()) for grades in judged.values()):
        tell(f"{count_noun(junk, 'query has', 'queries have')} only grades below 0 and count 0, as in trec_eval")
    return {"num_queries": len(judged)} | {measure: float(values.mean()) for measure, values in scores.items()}
