"""Scores of a suite under several contexts with a known encoder, pair tasks of MTEB, and polarity of film reviews."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.metrics import accuracy_score

from repro.analyses.polarity import measure
from repro.batches.surrogate import load_surrogate
from repro.data.beir import Retrieval, Suite, SuiteDataset, write_beir_folder
from repro.evaluate.adaptation import DEFAULT_SHRINKAGE, Moments, make_whitening_map, normalize
from repro.evaluate.collections import read_collections
from repro.evaluate.mteb.suite import _make_pair_task
from repro.evaluate.polarity import load_film_reviews
from repro.evaluate.retrieval import read_run, score
from repro.evaluate.suites import EvaluationOutputs, Setting, evaluate_setting
from repro.pipeline.inputs import Inputs
from repro.seeds import make_rng
from repro.spec import base
from tests.analyses.by_hand import make_collection
from tests.evaluate.scored import FAMILIES, SETTING, FakeEncoder


def test_averages_are_over_datasets(suite: Suite) -> None:
    """Each context has paths of its own."""
    evaluation = evaluate_setting(FakeEncoder(), suite, SETTING)
    metrics = evaluation.metrics
    assert metrics["zoo/mean/ndcg_at_10"] == metrics["zoo+null/mean/ndcg_at_10"] == 1
    assert metrics["zoo+wrong/mean/ndcg_at_10"] < 0.5
    assert {path.split("/")[1] for path in metrics} == {*FAMILIES, "insects", "trees", "mean"}
    sizes = [dataset["num_queries"] for dataset in evaluation.provenance["datasets"]]
    assert sizes == [12, 8, 14]
    for name in ("zoo", "zoo+wrong", "zoo+null"):
        values_Q = evaluation.per_query[name]
        ants, bees, oaks = (part_Q.mean() for part_Q in np.split(values_Q, np.cumsum(sizes)[:-1]))
        groups = {"ants": ants, "bees": bees, "oaks": oaks, "insects": (ants + bees) / 2, "trees": oaks}
        groups["mean"] = (ants + bees + oaks) / 3
        actual = {group: metrics[f"{name}/{group}/ndcg_at_10"] for group in groups}
        assert actual == pytest.approx(groups) and values_Q.dtype == np.float32


def test_context_documents_are_never_queries(suite: Suite) -> None:
    encoder = FakeEncoder()
    rows = evaluate_setting(encoder, suite, SETTING).provenance["contexts"]
    assert all(text.startswith("document") for texts in encoder.contexts if texts for text in texts)
    assert len(rows) == 9
    assert all(row["corpus"] == row["dataset"] for row in rows if row["kind"] == "own")
    assert all(row["corpus"] != row["dataset"] for row in rows if row["kind"] == "wrong")


def test_run_files_give_the_same_scores(suite: Suite, tmp_path: Path) -> None:
    metrics = evaluate_setting(FakeEncoder(), suite, SETTING, EvaluationOutputs(runs=tmp_path / "runs")).metrics
    run = read_run(tmp_path / "runs" / "zoo+wrong" / "bees.trec.gz")
    values = score(run, {f"q{number:02d}": {f"d{number:02d}": 1} for number in range(8)})["ndcg_at_10"]
    assert values.mean() == pytest.approx(metrics["zoo+wrong/bees/ndcg_at_10"])


def test_random_contexts_come_from_the_pool(suite: Suite) -> None:
    pool = Retrieval("general", ("x", "y"), ("document else 1", "document else 2"), (), (), {})
    encoder = FakeEncoder()
    evaluation = evaluate_setting(encoder, suite, Setting(contexts=("random",), num_contexts=2, pool=pool))
    assert all(sorted(texts) == sorted(pool.documents) for texts in encoder.contexts[1:])
    assert {row["corpus"] for row in evaluation.provenance["contexts"]} == {"general"}


def test_impossible_settings_are_refused(suite: Suite) -> None:
    with pytest.raises(ValueError, match="num_contexts=0"):
        evaluate_setting(FakeEncoder(), suite, Setting(contexts=("own", "wrong")))
    with pytest.raises(ValueError, match="'random' needs a pool"):
        Setting(contexts=("random",), num_contexts=3)


@pytest.mark.parametrize("options", [{"contexts": ("wrong",), "num_contexts": 4}, {"whitened": ("wrong",)}])
def test_searched_documents_are_no_wrong_corpus(suite: Suite, options: dict[str, Any]) -> None:
    """Otherwise the out-of-corpus context would score as the in-corpus one."""
    collections = {name: each.retrieval for name, each in read_collections(suite).items()}
    with pytest.raises(ValueError, match="the wrong corpus"):
        evaluate_setting(FakeEncoder(), suite, Setting(**options, wrong_from=collections))


def test_whitening_counts_each_text_once(tmp_path: Path) -> None:
    """The searched corpus is whitened by its distinct documents, and so by the map that `repro adapt` writes."""
    texts = [f"document {number}" for number in range(30)]
    repeated = (*texts, *texts[:1] * 40, "")
    vectors = {text: make_rng(0, text).normal(size=8) for text in (*repeated, "query")}

    class Random(FakeEncoder):
        def encode(self, texts: Sequence[str], prompt: str = "document") -> np.ndarray:
            return normalize(np.stack([vectors[text] for text in texts]))

    ids = tuple(f"d{number:02d}" for number in range(len(repeated)))
    retrieval = Retrieval("one", ids, repeated, ("q",), ("query",), {"q": {"d07": 1}})
    write_beir_folder(tmp_path / "one", retrieval)
    suite = Suite("one", (SuiteDataset("one", "one", tmp_path / "one"),))
    evaluation = evaluate_setting(
        Random(), suite, Setting(whitened=("own",)), EvaluationOutputs(runs=tmp_path / "trec")
    )
    assert "one+whitened/mean/ndcg_at_10" in evaluation.metrics
    whiten = make_whitening_map(Moments.of(Random().encode(texts)), DEFAULT_SHRINKAGE)
    expected = (whiten(Random().encode(["query"])) @ whiten(Random().encode(repeated)).T)[0]
    hits = read_run(tmp_path / "trec" / "one+whitened" / "one.trec.gz")["q"]
    np.testing.assert_allclose([hits[key] for key in ids], expected, atol=1e-6)
    # reranking embeds few documents, but is whitened by all of them
    setting = Setting(whitened=("own",), candidates={"one": {"q": dict.fromkeys(ids[5:9], 1.0)}})
    reranked = evaluate_setting(Random(), suite, setting, EvaluationOutputs(runs=tmp_path / "few"))
    hits = read_run(tmp_path / "few" / "one+whitened" / "one.trec.gz")["q"]
    np.testing.assert_allclose([hits[key] for key in ids[5:9]], expected[5:9], atol=1e-6)
    for each in (evaluation, reranked):
        (row,) = each.provenance["whitened"]
        assert (row["corpus"], row["num_documents"], row["shrinkage"]) == ("one", 30, DEFAULT_SHRINKAGE)


def test_reranking_embeds_candidates_only(suite: Suite) -> None:
    """The relevant document of q00 is a candidate, that of q01 is not."""
    candidates = {name: {"q00": {"d00": 1.0, "d03": 0.5}, "q01": {"d03": 2.0}} for name in FAMILIES}
    encoder = FakeEncoder()
    evaluation = evaluate_setting(encoder, suite, Setting(candidates=candidates))
    documents = [text for text in encoder.texts if text.startswith("document")]
    assert documents == [f"document {name} {number}" for name in FAMILIES for number in (0, 3)]
    for dataset in evaluation.provenance["datasets"]:
        for metric in ("recall_at_100", "ndcg_at_10"):
            actual = evaluation.metrics[f"zoo/{dataset['name']}/{metric}"]
            assert actual == pytest.approx(1 / dataset["num_queries"])
    assert evaluation.provenance["protocol"] == "reranking of a first stage"
    unknown = {name: {"q00": {"d99": 1.0}} for name in FAMILIES}
    with pytest.raises(ValueError, match="first 'd99'"):
        evaluate_setting(encoder, suite, Setting(candidates=unknown))


RAIN, SNOW, IRON, COPPER = DOCUMENTS = ("rain falls", "snow falls", "iron bars", "copper pots")


def make_pairs(grades: list[dict[int, int]]) -> list[tuple[str, str, int]]:
    """Return the pairs of a collection, given the grades of documents, by their place, for each query."""
    collection = make_collection("things", DOCUMENTS, relevant=[0] * len(grades))
    judgements = {
        f"things-q{number}": {f"things-d{place}": grade for place, grade in row.items()}
        for number, row in enumerate(grades)
    }
    task = _make_pair_task("things-pairs", replace(collection, judgements=judgements))
    task.load_data()
    rows = task.dataset["test"]
    queries = [text.replace("things asks ", "q") for text in rows["sentence1"]]
    return list(zip(queries, rows["sentence2"], rows["labels"], strict=True))


@pytest.mark.parametrize(
    ("grades", "right", "wrong"),
    [
        ([{0: 1}, {1: 2, 3: 1}, {3: 0, 2: 1}], {"q0": RAIN, "q1": SNOW, "q2": IRON}, [IRON, RAIN, SNOW]),
        # Document 7 has no text.
        ([{2: 0}, {0: 1}, {3: -1}, {1: 1}, {7: 1}], {"q1": RAIN, "q3": SNOW}, [SNOW, RAIN]),
        ([{0: 1}, {0: 1}, {1: 1}], {"q0": RAIN, "q1": RAIN, "q2": SNOW}, [SNOW, SNOW, RAIN]),
        ([{0: 1}, {1: 1, 0: 1}, {2: 1}], {"q0": RAIN, "q1": SNOW, "q2": IRON}, [IRON, IRON, SNOW]),
        ([{0: 1}, {0: 1, 1: 1}], {"q0": RAIN, "q1": RAIN}, [SNOW, IRON]),
        ([{0: 1, 1: 1, 2: 1, 3: 1}, {1: 1}], {"q0": RAIN, "q1": SNOW}, [None, RAIN]),
    ],
    ids=[
        "previous query",
        "no gold",
        "one right document",
        "right as well",
        "no other right document",
        "all are right",
    ],
)
def test_pairs_have_positives_and_negatives(
    grades: list[dict[int, int]], right: dict[str, str], wrong: list[str | None]
) -> None:
    """Negatives are from the previous query, and never relevant. Queries without gold are skipped."""
    positives = [(query, text, 1) for query, text in right.items()]
    negatives = [(query, text, 0) for query, text in zip(right, wrong, strict=True) if text]
    assert make_pairs(grades) == positives + negatives


def test_polarity_matches_scikit_learn() -> None:
    run = base("smoke", architecture="surrogate", measure="polarity")
    measured = measure(Inputs(run), None, Path())
    encoder = load_surrogate("minilm-words")
    texts, labels = load_film_reviews()
    vectors = encoder.embed(texts, run.max_tokens)
    for name, template in (("plain", "{}"), ("prompted", "this is an example of {} movie review")):
        sentences = [template.format(label) for label in ("negative", "positive")]
        negative, positive = encoder.embed(sentences, run.max_tokens)
        is_positive = vectors @ positive > vectors @ negative
        accuracy = measured.metrics[f"polarity/{name}/accuracy"]
        assert accuracy == pytest.approx(accuracy_score(labels, np.where(is_positive, "__label__pos", "__label__neg")))
        assert accuracy == measured.arrays[f"polarity/{name}/accuracy"].mean()
        assert measured.metrics[f"polarity/{name}/called_positive"] == is_positive.mean()
