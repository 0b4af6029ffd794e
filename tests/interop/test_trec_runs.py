"""Scoring TREC run files of other programs: the numbers of trec_eval, and refused or reported problems."""

import gzip
import json
from pathlib import Path

import numpy as np
import pytest
import pytrec_eval
from typer.testing import CliRunner

from repro.cli.main import app
from repro.evaluate.trec import score_files
from tests.commands import run_command

Run = dict[str, dict[str, float]]
Judgements = dict[str, dict[str, int]]


def write_files(folder: Path, run: Run, judgements: Judgements) -> tuple[Path, Path]:
    """Write a run and judgements in the TREC formats and return their paths."""
    ranked = [
        f"{query} Q0 {document} 0 {score!r} me" for query, hits in run.items() for document, score in hits.items()
    ]
    judged = [f"{query} 0 {document} {grade}" for query, row in judgements.items() for document, grade in row.items()]
    for name, lines in (("run.trec", ranked), ("qrels", judged)):
        (folder / name).write_text("\n".join(lines) + "\n")
    return folder / "run.trec", folder / "qrels"


def mean_by_trec_eval(run: Run, judgements: Judgements, measure: str) -> float:
    """Return the mean of a measure over queries, for example of ndcg_cut.10."""
    scores = pytrec_eval.RelevanceEvaluator(judgements, {measure}).evaluate(run)
    return float(np.mean([row[measure.replace(".", "_")] for row in scores.values()]))


@pytest.mark.parametrize(("step", "has_ties"), [(1.0, False), (3e-7, False), (1e-9, True), (3e-8, True), (0.0, True)])
def test_measures_match_trec_eval(tmp_path: Path, step: float, has_ties: bool) -> None:
    """Scores are compared in float32. If they are equal, the larger id ranks first, and one line is printed."""
    rng = np.random.default_rng(3)
    documents = [f"d{n:03d}" for n in range(150)]
    run: Run = {}
    for query in [f"q{n}" for n in range(8)]:
        places = rng.integers(0, 40, 150) if has_ties else rng.permutation(150)
        run[query] = {document: 0.5 + step * int(place) for document, place in zip(documents, places, strict=True)}
    judgements = {query: {name: int(rng.integers(0, 3)) for name in rng.choice(documents, 20, False)} for query in run}
    lines: list[str] = []
    scores = score_files(*write_files(tmp_path, run, judgements), lines.append)
    top_ten: Run = {}
    for query, hits in run.items():
        ranking = sorted(hits.items(), key=lambda hit: (np.float32(hit[1]), hit[0]), reverse=True)
        top_ten[query] = dict(ranking[:10])
    for name, measure, ranked in (
        ("ndcg_at_10", "ndcg_cut.10", run),
        ("recall_at_100", "recall.100", run),
        ("mrr_at_10", "recip_rank", top_ten),
    ):
        assert scores[name] == pytest.approx(mean_by_trec_eval(ranked, judgements, measure), abs=1e-6)
    assert len(lines) == has_ties


def test_unjudged_queries_are_skipped_and_counted(tmp_path: Path) -> None:
    """They count neither here nor in trec_eval. Empty lines and a byte order mark are ignored."""
    ranked, judgements = {"q1": {"a": 0.5, "b": 0.4}, "q2": {"a": 0.5}}, {"q1": {"b": 1}}
    run, judged = write_files(tmp_path, ranked, judgements)
    lines: list[str] = []
    scores = score_files(run, judged, lines.append)
    assert scores["ndcg_at_10"] == pytest.approx(mean_by_trec_eval(ranked, judgements, "ndcg_cut.10"))
    assert len(lines) == 1 and lines[0].startswith("1 of the 2 queries") and "'q2'" in lines[0]
    run.write_text("\ufeffq1 Q0 a 1 0.5 me\nq1 Q0 b 2 0.4 me\n\n")
    judged.write_text("q1 0 b 1\n\n")
    assert score_files(run, judged) == scores


def test_missing_rankings_are_counted(tmp_path: Path) -> None:
    """Judged queries without a ranking score 0."""
    queries = [f"q{n}" for n in range(60)]
    run, judged = write_files(
        tmp_path, {name: {"a": 0.5} for name in queries[:10]}, {name: {"a": 1} for name in queries}
    )
    done = CliRunner().invoke(app, ["score", str(run), str(judged)])
    assert "10 of 60 judged queries" in done.stderr
    assert "num_queries 60" in done.stdout and "ndcg_at_10 0.1667" in done.stdout
    scores = json.loads(run_command("score", str(run), str(judged), "--json"))
    assert scores["num_queries"] == 60 and scores["ndcg_at_10"] == pytest.approx(1 / 6)


@pytest.mark.parametrize(
    ("run", "judgements", "message"),
    [
        ("q1 Q0 17 1 0.5 me\n", "q1 0 a 1\nq1 b 1\n", "line 2: 3 columns"),
        ("q1 Q0 17 1 0.5 me\n", "query-id\tcorpus-id\tscore\nq1\ta\t1\nq1\t0\tb\t1\n", "line 3: 4 columns"),
        # Without the column of grades, the ids 17 and 18 would be grades of the document 0.
        ("q1 Q0 17 1 0.5 me\n", "q1 0 17\nq2 0 18\n", "judges only the document 0"),
        ("q1 Q0 17 1 0.5 me\n", gzip.compress(b"q1 0 a 1\n"), "gzip -dc"),
        ("q7 Q0 a 1 0.5 me\n", "q1 0 a 1\n", "1 of the 1 queries .* first 'q7'"),
        ("\n \n", "q1 0 a 1\n", r"run\.trec ranks nothing"),
    ],
    ids=["fewer columns", "more columns", "no grades", "compressed", "other queries", "empty run"],
)
def test_unclear_files_are_refused(tmp_path: Path, run: str, judgements: str | bytes, message: str) -> None:
    (tmp_path / "run.trec").write_text(run)
    (tmp_path / "qrels").write_bytes(judgements if isinstance(judgements, bytes) else judgements.encode())
    with pytest.raises(ValueError, match=message):
        score_files(tmp_path / "run.trec", tmp_path / "qrels")


@pytest.mark.parametrize(("ranked", "judged"), [("é", "e\u0301"), ("1", "01"), ("1.0", "1"), ("doc-1", "1")])
def test_files_without_common_documents_are_noticed(tmp_path: Path, ranked: str, judged: str) -> None:
    """The score is 0, as in trec_eval, and one line suggests to compare the ids."""
    run = {"q1": {ranked: 0.5}, "q2": {ranked: 0.5}}
    for other, score in ((judged, 0.0), (ranked, 0.5)):
        lines: list[str] = []
        files = write_files(tmp_path, run, {"q1": {judged: 1}, "q2": {other: 1}})
        assert score_files(*files, lines.append)["ndcg_at_10"] == score
        assert len(lines) == (score == 0)
