"""Promises about TREC run files made elsewhere."""

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
    lines = [f"{query} Q0 {one} 0 {value!r} me" for query, hits in run.items() for one, value in hits.items()]
    (tmp_path / "run.trec").write_text("\n".join(lines) + "\n")
    told = [f"{query} 0 {one} {grade}" for query, grades in judgements.items() for one, grade in grades.items()]
    (tmp_path / "qrels").write_text("\n".join(told) + "\n")
    found = score_files(tmp_path / "run.trec", tmp_path / "qrels")
    best = {query: dict(sorted(hits.items(), key=lambda hit: -hit[1])[:10]) for query, hits in run.items()}
    theirs = pytrec_eval.RelevanceEvaluator(judgements, {"ndcg_cut.10", "recall.100"}).evaluate(run)
    ranks = pytrec_eval.RelevanceEvaluator(judgements, {"recip_rank"}).evaluate(best)
    assert found["ndcg_at_10"] == pytest.approx(np.mean([one["ndcg_cut_10"] for one in theirs.values()]), abs=1e-6)
    assert found["recall_at_100"] == pytest.approx(np.mean([one["recall_100"] for one in theirs.values()]), abs=1e-6)
    assert found["mrr_at_10"] == pytest.approx(np.mean([one["recip_rank"] for one in ranks.values()]), abs=1e-6)


def test_unjudged_queries_are_skipped_and_counted(tmp_path: Path) -> None:
    run, judged = tmp_path / "run.trec", tmp_path / "qrels"
    run.write_text("q1 Q0 a 1 0.5 me\nq1 Q0 b 2 0.4 me\nq2 Q0 a 1 0.5 me\n\n")
    judged.write_text("q1 0 b 1\n\n")
    heard: list[str] = []
    found = score_files(run, judged, heard.append)
    both = {"q1": {"a": 0.5, "b": 0.4}, "q2": {"a": 0.5}}
    theirs = pytrec_eval.RelevanceEvaluator({"q1": {"b": 1}}, {"ndcg_cut.10"}).evaluate(both)
    assert found["ndcg_at_10"] == pytest.approx(theirs["q1"]["ndcg_cut_10"]) and list(theirs) == ["q1"]
    assert heard == [f"1 of the 2 queries of {run} are not judged in {judged}, first 'q2': left out, as trec_eval does"]
    run.write_text("\ufeffq1 Q0 a 1 0.5 me\nq1 Q0 b 2 0.4 me\n")
    assert score_files(run, judged) == found, "some editors begin a file with a mark"
    run.write_text("q7 Q0 a 1 0.5 me\n")
    with pytest.raises(ValueError, match=r"1 of the 1 queries of \S+run\.trec are not judged in \S+qrels, first 'q7'"):
        score_files(run, judged)


def test_close_documents_are_told_apart(tmp_path: Path) -> None:
    (tmp_path / "run.trec").write_text("q Q0 a 1 0.5000001 me\nq Q0 b 2 0.5000002 me\n")
    (tmp_path / "qrels").write_text("q 0 b 1\n")
    assert score_files(tmp_path / "run.trec", tmp_path / "qrels")["ndcg_at_10"] == pytest.approx(1.0)


@pytest.mark.parametrize("content", ["", "\n \n"])
def test_empty_run_is_refused(tmp_path: Path, content: str) -> None:
    (tmp_path / "run.trec").write_text(content)
    (tmp_path / "qrels").write_text("q 0 b 1\n")
    with pytest.raises(
        ValueError, match=r"run\.trec ranks nothing: expected lines of query, Q0, document, rank, score"
    ):
        score_files(tmp_path / "run.trec", tmp_path / "qrels")


def test_missing_rankings_are_counted(tmp_path: Path) -> None:
    run, judged = tmp_path / "run.trec", tmp_path / "qrels"
    run.write_text("".join(f"q{n} Q0 a 1 0.5 me\n" for n in range(10)))
    judged.write_text("".join(f"q{n} 0 a 1\n" for n in range(60)))
    done = CliRunner().invoke(app, ["score", str(run), str(judged)])
    assert "10 of 60 judged queries have a ranking; the others count 0" in done.stderr
    assert "num_queries 60" in done.stdout and "ndcg_at_10 0.1667" in done.stdout
    told = json.loads(CliRunner().invoke(app, ["score", str(run), str(judged), "--json"]).stdout)
    assert told["num_queries"] == 60 and told["ndcg_at_10"] == pytest.approx(1 / 6)
    heard: list[str] = []
    judged.write_text("".join(f"q{n} 0 a 1\n" for n in range(10)))
    assert score_files(run, judged, heard.append)["num_queries"] == 10 and heard == []


@pytest.mark.parametrize("step", [1e-9, 3e-8, 0.0])
def test_ties_rank_as_in_trec_eval(tmp_path: Path, step: float) -> None:
    """Scores that are equal, or equal in float32: the larger id goes first, and the output says so."""
    rng = np.random.default_rng(6)
    documents = [f"d{n:03d}" for n in range(150)]
    run = {f"q{n}": {one: 0.5 + step * int(rng.integers(0, 40)) for one in documents} for n in range(8)}
    judgements = {query: {one: int(rng.integers(0, 3)) for one in rng.choice(documents, 40, False)} for query in run}
    lines = [f"{query} Q0 {one} 0 {value!r} me" for query, hits in run.items() for one, value in hits.items()]
    (tmp_path / "run.trec").write_text("\n".join(lines) + "\n")
    told = [f"{query} 0 {one} {grade}" for query, grades in judgements.items() for one, grade in grades.items()]
    (tmp_path / "qrels").write_text("\n".join(told) + "\n")
    heard: list[str] = []
    found = score_files(tmp_path / "run.trec", tmp_path / "qrels", heard.append)
    names = {"ndcg_at_10": "ndcg_cut_10", "recall_at_100": "recall_100"}
    theirs = pytrec_eval.RelevanceEvaluator(judgements, {"ndcg_cut.10", "recall.100"}).evaluate(run)
    for ours, name in names.items():
        assert found[ours] == pytest.approx(np.mean([one[name] for one in theirs.values()]), abs=1e-6)
    assert len(heard) == 1


def test_only_junk_judged_scores_zero(tmp_path: Path) -> None:
    (tmp_path / "qrels").write_text("q0 0 d0 1\nq1 0 d1 -2\n")
    (tmp_path / "run.trec").write_text("q0 Q0 d0 1 2 x\nq1 Q0 d1 2 1 x\n")
    found = CliRunner().invoke(app, ["score", str(tmp_path / "run.trec"), str(tmp_path / "qrels"), "--json"])
    assert found.exit_code == 0 and json.loads(found.stdout)["ndcg_at_10"] == 0.5


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("q1 0 a 1\nq1 b 1\n", "line 2: 3 columns, the lines before have 4"),
        ("query-id\tcorpus-id\tscore\nq1\ta\t1\nq1\t0\tb\t1\n", "line 3: 4 columns, the lines before have 3"),
        # the grades are cut off, so the ids 17 and 18 would be grades of the document 0
        ("q1 0 17\nq2 0 18\n", "judges only the document 0"),
        (gzip.compress(b"q1 0 a 1\n"), "gzip -dc"),
    ],
)
def test_unclear_judgements_are_refused(tmp_path: Path, content: str | bytes, words: str) -> None:
    (tmp_path / "run.trec").write_text("q1 Q0 17 1 0.5 me\n")
    (tmp_path / "qrels").write_bytes(content if isinstance(content, bytes) else content.encode())
    with pytest.raises(ValueError, match=words):
        score_files(tmp_path / "run.trec", tmp_path / "qrels")


@pytest.mark.parametrize(("ranked", "judged"), [("é", "e\u0301"), ("1", "01"), ("1.0", "1"), ("doc-1", "1")])
def test_files_without_common_documents_are_noticed(tmp_path: Path, ranked: str, judged: str) -> None:
    """The score is 0, as in trec_eval, and a line asks whether the ids are the same."""
    (tmp_path / "run.trec").write_text(f"q1 Q0 {ranked} 1 0.5 me\nq2 Q0 {ranked} 1 0.5 me\n")
    (tmp_path / "qrels").write_text(f"q1 0 {judged} 1\nq2 0 {judged} 1\n")
    heard: list[str] = []
    assert score_files(tmp_path / "run.trec", tmp_path / "qrels", heard.append)["ndcg_at_10"] == 0.0
    assert len(heard) == 1 and "same document ids" in heard[0]
    (tmp_path / "qrels").write_text(f"q1 0 {judged} 1\nq2 0 {ranked} 1\n")
    heard.clear()
    assert score_files(tmp_path / "run.trec", tmp_path / "qrels", heard.append)["ndcg_at_10"] == 0.5 and not heard
