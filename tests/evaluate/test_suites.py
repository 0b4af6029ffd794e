"""Scores of a suite under several contexts with a known encoder, pair tasks of MTEB, and polarity of film reviews."""

import weakref
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from sklearn.metrics import accuracy_score

from repro.analyses.polarity import measure
from repro.batches.surrogate import load_surrogate
from repro.data.beir import Retrieval, Suite, load_suite, write_beir_folder, write_suite
from repro.evaluate.mteb.suite import _make_pair_task
from repro.evaluate.polarity import LABELS, classify, encode_labels, load_film_reviews
from repro.evaluate.retrieval import read_run, score
from repro.evaluate.suites import Setting, evaluate_setting
from repro.pipeline.inputs import Inputs
from repro.spec import base
from tests.analyses.by_hand import make_collection
from tests.evaluate.scored import evaluate_suite

FAMILY = {"ants": "insects", "bees": "insects", "oaks": "trees"}


class FakeEncoder:
    """An encoder with one dimension per number. A query has the right one only if the context has its collection."""

    def __init__(self) -> None:
        self.context, self.contexts_seen = None, []

    def set_context(self, texts: Sequence[str] | None, seed: int = 0, prompt: str = "document") -> None:
        self.context = texts
        self.contexts_seen.append(texts)

    def encode(self, texts: Sequence[str], prompt: str = "document") -> np.ndarray:
        vectors = np.zeros((len(texts), 50), dtype=np.float32)
        for place, text in enumerate(texts):
            collection, number = text.split()[1], int(text.split()[2])
            knows = self.context is None or any(collection in other for other in self.context)
            vectors[place, number if knows or prompt == "document" else number + 20] = 1
        return vectors


@pytest.fixture
def suite(tmp_path: Path) -> Suite:
    for size, name in zip((12, 8, 14), FAMILY, strict=True):
        write_beir_folder(
            tmp_path / name,
            Retrieval(
                name,
                tuple(f"d{n:02d}" for n in range(size)),
                tuple(f"document {name} {n}" for n in range(size)),
                tuple(f"q{n:02d}" for n in reversed(range(size))),
                tuple(f"query {name} {n}" for n in reversed(range(size))),
                {f"q{n:02d}": {f"d{n:02d}": 1} for n in range(size)},
            ),
        )
    write_suite(tmp_path, "zoo", list(FAMILY.items()))
    return load_suite(tmp_path)


CONTEXTS = {"contexts": ("own", "wrong", "null"), "num_contexts": 4, "seed": 1}


def test_contexts_have_separate_paths(suite: Suite) -> None:
    found = evaluate_suite(FakeEncoder(), suite, **CONTEXTS)
    assert found.metrics["zoo/mean/ndcg_at_10"] == found.metrics["zoo+null/mean/ndcg_at_10"] == 1
    assert found.metrics["zoo+wrong/mean/ndcg_at_10"] < 0.5
    assert {path.split("/")[1] for path in found.metrics} == {*FAMILY, "insects", "trees", "mean"}


def test_averages_are_over_datasets(suite: Suite) -> None:
    found = evaluate_suite(FakeEncoder(), suite, **CONTEXTS)
    sizes = [dataset["num_queries"] for dataset in found.provenance["datasets"]]
    assert sizes == [12, 8, 14]
    for name in ("zoo", "zoo+wrong", "zoo+null"):
        parts = [part.mean() for part in np.split(found.per_query[name], np.cumsum(sizes)[:-1])]
        assert found.per_query[name].dtype == np.float32
        for dataset, part in zip(FAMILY, parts, strict=True):
            assert found.metrics[f"{name}/{dataset}/ndcg_at_10"] == pytest.approx(part)
        assert found.metrics[f"{name}/insects/ndcg_at_10"] == pytest.approx(np.mean(parts[:2]))
        assert found.metrics[f"{name}/mean/ndcg_at_10"] == pytest.approx(np.mean(parts))


def test_context_documents_are_never_queries(suite: Suite) -> None:
    encoder = FakeEncoder()
    drawn = evaluate_suite(encoder, suite, **CONTEXTS).provenance["contexts"]
    assert all(text.startswith("document") for texts in encoder.contexts_seen if texts for text in texts)
    assert len(drawn) == 9
    for row in drawn:
        if row["kind"] == "own":
            assert row["corpus"] == row["dataset"]
        if row["kind"] == "wrong":
            assert row["corpus"] != row["dataset"]


def test_run_files_give_the_same_scores(suite: Suite, tmp_path: Path) -> None:
    found = evaluate_suite(FakeEncoder(), suite, folder=tmp_path / "runs", **CONTEXTS)
    run = read_run(tmp_path / "runs" / "zoo+wrong" / "bees.trec.gz")
    again = score(run, {f"q{n:02d}": {f"d{n:02d}": 1} for n in range(8)})
    assert again["ndcg_at_10"].mean() == pytest.approx(found.metrics["zoo+wrong/bees/ndcg_at_10"])


def test_random_contexts_come_from_the_pool(suite: Suite) -> None:
    pool = Retrieval("general", ("x", "y"), ("document else 1", "document else 2"), (), (), {})
    encoder = FakeEncoder()
    setting = Setting(contexts=("random",), num_contexts=2, pool=pool)
    found = evaluate_setting(encoder, suite, setting)
    assert all(sorted(texts) == sorted(pool.documents) for texts in encoder.contexts_seen)
    assert {row["corpus"] for row in found.provenance["contexts"]} == {"general"}


def test_bad_input_is_one_clear_line(suite: Suite, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="without documents there is only 'own'"):
        evaluate_suite(FakeEncoder(), suite, contexts=("own", "wrong"))
    with pytest.raises(ValueError, match="pool of general text"):
        Setting(contexts=("random",), num_contexts=3)
    write_suite(tmp_path, "zoo", [("ants", "bees"), ("bees", "ants")])
    with pytest.raises(ValueError, match="name both a dataset and a mean"):
        evaluate_suite(FakeEncoder(), load_suite(tmp_path))


class Watched(FakeEncoder):
    """Stores what it encodes, and how many earlier vectors are still in memory at each call."""

    def __init__(self) -> None:
        super().__init__()
        self.encoded, self.given, self.held = [], [], []

    def encode(self, texts: Sequence[str], prompt: str = "document") -> np.ndarray:
        self.held.append(sum(one() is not None for one in self.given))
        self.encoded += texts
        vectors = super().encode(texts, prompt)
        self.given.append(weakref.ref(vectors))
        return vectors


def test_context_vectors_are_freed(suite: Suite) -> None:
    encoder = Watched()
    evaluate_suite(encoder, suite, **CONTEXTS)
    assert encoder.held == [0, 1] * 9, "only the queries are in memory while their documents are encoded"


def test_reranking_embeds_candidates_only(suite: Suite) -> None:
    names = [dataset.name for dataset in suite.datasets]
    full = evaluate_setting(FakeEncoder(), suite, Setting())
    candidates = {name: {"q00": {"d00": 1.0, "d03": 0.5}, "q01": {"d03": 2.0}} for name in names}
    encoder = Watched()
    found = evaluate_setting(encoder, suite, Setting(candidates=candidates))
    documents = [text for text in encoder.encoded if text.startswith("document")]
    assert documents == [f"document {name} {number}" for name in names for number in (0, 3)]
    sizes = np.array([dataset["num_queries"] for dataset in full.provenance["datasets"]])
    # the relevant document of q00 is a candidate, that of q01 is not
    for metric in ("recall_at_100", "ndcg_at_10"):
        np.testing.assert_allclose([found.metrics[f"zoo/{name}/{metric}"] for name in names], 1 / sizes)
    assert found.provenance["protocol"] == "reranking of a first stage"
    unknown = {name: {"q00": {"d99": 1.0}} for name in names}
    with pytest.raises(ValueError, match="'q00' has candidates that are not documents, first 'd99'"):
        evaluate_setting(encoder, suite, Setting(candidates=unknown))


DOCUMENTS = ("rain falls", "snow falls", "iron bars", "copper pots")


def make_pairs(grades: list[dict[int, int]]) -> list[tuple[str, str, int]]:
    """Return the pairs of a collection, given the grades of documents, by their place, for each query."""
    bare = make_collection("things", DOCUMENTS, relevant=[0] * len(grades))
    judgements = {
        query: {f"things-d{place}": grade for place, grade in of.items()}
        for query, of in zip(bare.query_ids, grades, strict=True)
    }
    task = _make_pair_task("things-pairs", replace(bare, judgements=judgements))
    task.load_data()
    rows = task.dataset["test"]
    names = {query: f"q{number}" for number, query in enumerate(bare.queries)}
    columns = zip(rows["sentence1"], rows["sentence2"], rows["labels"], strict=True)
    return [(names[query], text, label) for query, text, label in columns]


def test_negative_is_from_previous_query() -> None:
    rain, snow, iron, _ = DOCUMENTS
    assert make_pairs([{0: 1}, {1: 2, 3: 1}, {3: 0, 2: 1}]) == [
        *(("q0", rain, 1), ("q1", snow, 1), ("q2", iron, 1)),
        *(("q0", iron, 0), ("q1", rain, 0), ("q2", snow, 0)),
    ]


def test_queries_without_gold_are_skipped() -> None:
    rain, snow, *_ = DOCUMENTS
    expected = [("q1", rain, 1), ("q3", snow, 1), ("q1", snow, 0), ("q3", rain, 0)]
    assert make_pairs([{2: 0}, {0: 1}, {3: -1}, {1: 1}, {7: 1}]) == expected, "document 7 has no text"


@pytest.mark.parametrize(
    ("grades", "wrong"),
    [
        ([{0: 1}, {0: 1}, {1: 1}], {"q0": "snow falls", "q1": "snow falls", "q2": "rain falls"}),
        ([{0: 1}, {1: 1, 0: 1}, {2: 1}], {"q0": "iron bars", "q1": "iron bars", "q2": "snow falls"}),
        ([{0: 1}, {0: 1, 1: 1}], {"q0": "snow falls", "q1": "iron bars"}),
        ([{0: 1, 1: 1, 2: 1, 3: 1}, {1: 1}], {"q1": "rain falls"}),
    ],
    ids=["one right document", "right as well", "no other right document", "all are right"],
)
def test_relevant_documents_are_not_wrong(grades: list[dict[int, int]], wrong: dict[str, str]) -> None:
    assert {query: text for query, text, label in make_pairs(grades) if not label} == wrong


DIRECTIONS = {"positive": (1.0, 0.0), "negative": (0.0, 1.0)}


def count_labels(texts: Sequence[str]) -> np.ndarray:
    """Return how often each label occurs, (N, 2). In a sentence the first label counts 0.5 more."""
    rows = [sum(np.array(DIRECTIONS[word]) for word in text.split() if word in DIRECTIONS) for text in texts]
    return np.array(
        [row + (len(text.split()) > 1) * np.array([0.5, 0.0]) for row, text in zip(rows, texts, strict=True)]
    )


def test_label_is_that_of_nearest_words() -> None:
    texts_ND = np.array([[0.9, 0.1], [0.2, 0.8], [0.5, 0.5]])
    assert classify(texts_ND, count_labels, "plain").tolist() == [1, 0, 0], "the first of equals"
    # In a sentence 'negative' is (0.5, 1) and 'positive' is (1.5, 0), so the scores are 1.35 and 0.55, 0.3 and 0.9, …
    assert classify(texts_ND, count_labels, "prompted").tolist() == [1, 0, 0]
    assert classify(np.array([[0.55, 0.5]]), count_labels, "prompted").tolist() == [1]
    with pytest.raises(ValueError, match=r"unknown verbaliser 'shouted'; choose one of \['plain', 'prompted'\]"):
        classify(texts_ND, count_labels, "shouted")


def test_prompt_is_the_papers() -> None:
    seen: list[str] = []

    def encode(texts: Sequence[str]) -> np.ndarray:
        seen.extend(texts)
        return count_labels(texts)

    for verbaliser in ("plain", "prompted"):
        classify(np.zeros((1, 2)), encode, verbaliser)
    prompted = [f"this is an example of {label} movie review" for label in ("negative", "positive")]
    assert seen == ["negative", "positive", *prompted]


def test_reviews_are_balanced() -> None:
    texts, labels = load_film_reviews()
    assert np.bincount(encode_labels(labels)).tolist() == [100, 100]
    assert texts[0] == "simplistic , silly and tedious . " and LABELS[encode_labels(labels)[0]] == "negative"


def test_analysis_matches_scikit_learn() -> None:
    run = base("smoke", architecture="surrogate", measure="polarity")
    found = measure(Inputs(run), None, Path())
    encoder = load_surrogate("minilm-words")
    texts, labels = load_film_reviews()
    vectors = encoder.embed(texts, run.max_tokens)
    for name, words in (("plain", ("negative", "positive")), ("prompted", None)):
        labels_as_text = words or tuple(f"this is an example of {label} movie review" for label in LABELS)
        negative, positive = encoder.embed(list(labels_as_text), run.max_tokens)
        chosen = ["__label__pos" if vector @ positive > vector @ negative else "__label__neg" for vector in vectors]
        assert found.metrics[f"polarity/{name}/accuracy"] == pytest.approx(accuracy_score(labels, chosen))
        assert found.arrays[f"polarity/{name}/accuracy"].mean() == found.metrics[f"polarity/{name}/accuracy"]
        assert found.metrics[f"polarity/{name}/called_positive"] == chosen.count("__label__pos") / len(texts)
