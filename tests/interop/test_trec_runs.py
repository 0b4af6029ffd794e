"""Scoring TREC run files of other programs: the numbers of trec_eval, and refused or reported problems."""

import gzip
import json
from pathlib import Path

import numpy as np
import pytest
import pytrec_eval
from typer.testing import CliRunner

from repro.cli.main import app
from repro.evaluate.retrieval import read_run
from repro.evaluate.trec import score_files
from tests.commands import run_command

Run = dict[str, dict[str, float]]
Judgements = dict[str, dict[str, int]]


def write_files(folder: Path, run: Run, judgements: Judgements) -> tuple[Path, Path]:
    """Write a run and judgements in the TREC formats and return their paths."""
    ranked = [f"{query} Q0 {one} 0 {value!r} me" for query, hits in run.items() for one, value in hits.items()]
    judged = [f"{query} 0 {one} {grade}" for query, grades in judgements.items() for one, grade in grades.items()]
    for name, lines in (("run.trec", ranked), ("qrels", judged)):
        (folder / name).write_text("\n".join(lines) + "\n")
    return folder / "run.trec", folder / "qrels"


def mean_by_trec_eval(run: Run, judgements: Judgements, measure: str) -> float:
    """Return the mean of a measure over queries, for example of ndcg_cut.10."""
    scores = pytrec_eval.RelevanceEvaluator(judgements, {measure}).evaluate(run)
    return float(np.mean([one[measure.replace(".", "_")] for one in scores.values()]))


@pytest.mark.parametrize("score", ["nan", "inf", "high"])
def test_malformed_score_is_named(tmp_path: Path, score: str) -> None:
    path = tmp_path / "run.trec.gz"
    path.write_bytes(gzip.compress(f"q1 Q0 d1 1 0.5 me\nq1 Q0 d2 2 {score} me\n".encode()))
    with pytest.raises(ValueError, match="line 2"):
        read_run(path)


@pytest.mark.parametrize("step", [1.0, 1e-3, 3e-7])
def test_foreign_runs_match_trec_eval(tmp_path: Path, step: float) -> None:
    rng = np.random.default_rng(3)
    queries, documents = [f"q{n}" for n in range(8)], [f"d{n:03d}" for n in range(150)]
    run = {query: {one: 0.5 + step * int(place) for one, place in zip(documents, rng.permutation(150), strict=True)}
           for query in queries}  # fmt: skip
    judgements = {query: {one: int(rng.integers(0, 3)) for one in rng.choice(documents, 9, False)} for query in queries}
    found = score_files(*write_files(tmp_path, run, judgements))
    best = {query: dict(sorted(hits.items(), key=lambda hit: -hit[1])[:10]) for query, hits in run.items()}
    assert found["ndcg_at_10"] == pytest.approx(mean_by_trec_eval(run, judgements, "ndcg_cut.10"), abs=1e-6)
    assert found["recall_at_100"] == pytest.approx(mean_by_trec_eval(run, judgements, "recall.100"), abs=1e-6)
    assert found["mrr_at_10"] == pytest.approx(mean_by_trec_eval(best, judgements, "recip_rank"), abs=1e-6)


def test_unjudged_queries_are_skipped_and_counted(tmp_path: Path) -> None:
    """They count neither here nor in trec_eval. Empty lines and a byte order mark are ignored."""
    ranked, judgements = {"q1": {"a": 0.5, "b": 0.4}, "q2": {"a": 0.5}}, {"q1": {"b": 1}}
    run, judged = write_files(tmp_path, ranked, judgements)
    lines: list[str] = []
    found = score_files(run, judged, lines.append)
    assert found["ndcg_at_10"] == pytest.approx(mean_by_trec_eval(ranked, judgements, "ndcg_cut.10"))
    assert lines == [f"1 of the 2 queries of {run} are not judged in {judged}, first 'q2': left out, as trec_eval does"]
    run.write_text("\ufeffq1 Q0 a 1 0.5 me\nq1 Q0 b 2 0.4 me\n\n")
    judged.write_text("q1 0 b 1\n\n")
    assert score_files(run, judged) == found
    run.write_text("q7 Q0 a 1 0.5 me\n")
    with pytest.raises(ValueError, match=r"1 of the 1 queries of \S+run\.trec are not judged in \S+qrels, first 'q7'"):
        score_files(run, judged)


def test_close_scores_are_distinguished(tmp_path: Path) -> None:
    files = write_files(tmp_path, {"q": {"a": 0.5000001, "b": 0.5000002}}, {"q": {"b": 1}})
    assert score_files(*files)["ndcg_at_10"] == pytest.approx(1.0)


@pytest.mark.parametrize("content", ["", "\n \n"])
def test_empty_run_is_refused(tmp_path: Path, content: str) -> None:
    (tmp_path / "run.trec").write_text(content)
    (tmp_path / "qrels").write_text("q 0 b 1\n")
    with pytest.raises(
        ValueError, match=r"run\.trec ranks nothing: expected lines of query, Q0, document, rank, score"
    ):
        score_files(tmp_path / "run.trec", tmp_path / "qrels")


def test_missing_rankings_are_counted(tmp_path: Path) -> None:
    """Judged queries without a ranking score 0."""
    run, judged = write_files(
        tmp_path, {f"q{n}": {"a": 0.5} for n in range(10)}, {f"q{n}": {"a": 1} for n in range(60)}
    )
    done = CliRunner().invoke(app, ["score", str(run), str(judged)])
    assert "10 of 60 judged queries have a ranking; the others count 0" in done.stderr
    assert "num_queries 60" in done.stdout and "ndcg_at_10 0.1667" in done.stdout
    found = json.loads(run_command("score", str(run), str(judged), "--json"))
    assert found["num_queries"] == 60 and found["ndcg_at_10"] == pytest.approx(1 / 6)
    lines: list[str] = []
    judged.write_text("".join(f"q{n} 0 a 1\n" for n in range(10)))
    assert score_files(run, judged, lines.append)["num_queries"] == 10 and lines == []


@pytest.mark.parametrize("step", [1e-9, 3e-8, 0.0])
def test_ties_rank_as_in_trec_eval(tmp_path: Path, step: float) -> None:
    """If scores are equal, also only in float32, the larger id ranks first, and one line is printed."""
    rng = np.random.default_rng(6)
    documents = [f"d{n:03d}" for n in range(150)]
    run = {f"q{n}": {one: 0.5 + step * int(rng.integers(0, 40)) for one in documents} for n in range(8)}
    judgements = {query: {one: int(rng.integers(0, 3)) for one in rng.choice(documents, 40, False)} for query in run}
    lines: list[str] = []
    found = score_files(*write_files(tmp_path, run, judgements), lines.append)
    for ours, theirs in (("ndcg_at_10", "ndcg_cut.10"), ("recall_at_100", "recall.100")):
        assert found[ours] == pytest.approx(mean_by_trec_eval(run, judgements, theirs), abs=1e-6)
    assert len(lines) == 1


def test_only_junk_judged_scores_zero(tmp_path: Path) -> None:
    files = write_files(tmp_path, {"q0": {"d0": 2.0}, "q1": {"d1": 1.0}}, {"q0": {"d0": 1}, "q1": {"d1": -2}})
    assert score_files(*files)["ndcg_at_10"] == 0.5


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("q1 0 a 1\nq1 b 1\n", "line 2: 3 columns, the lines before have 4"),
        ("query-id\tcorpus-id\tscore\nq1\ta\t1\nq1\t0\tb\t1\n", "line 3: 4 columns, the lines before have 3"),
        # Without the column of grades, the ids 17 and 18 would be grades of the document 0.
        ("q1 0 17\nq2 0 18\n", "judges only the document 0"),
        (gzip.compress(b"q1 0 a 1\n"), "gzip -dc"),
    ],
)
def test_unclear_judgements_are_refused(tmp_path: Path, content: str | bytes, message: str) -> None:
    (tmp_path / "run.trec").write_text("q1 Q0 17 1 0.5 me\n")
    (tmp_path / "qrels").write_bytes(content if isinstance(content, bytes) else content.encode())
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
        assert [("same document ids" in line) for line in lines] == ([True] if score == 0 else [])
