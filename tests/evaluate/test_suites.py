"""A suite scored under several contexts, with an encoder whose vectors can be worked out by hand."""

import weakref
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from repro.data.beir import Retrieval, Suite, load_suite, write_beir_folder, write_suite
from repro.evaluate.retrieval import read_run, score
from repro.evaluate.suites import Setting, evaluate_bm25, evaluate_setting
from tests.evaluate.scored import evaluate_suite

FAMILY = {"ants": "insects", "bees": "insects", "oaks": "trees"}


class FakeEncoder:
    """One dimension a number; a text gets its number right only when the context shows its collection."""

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


def test_each_context_has_its_own_paths_and_scores(suite: Suite) -> None:
    found = evaluate_suite(FakeEncoder(), suite, **CONTEXTS)
    assert found.metrics["zoo/mean/ndcg_at_10"] == found.metrics["zoo+null/mean/ndcg_at_10"] == 1
    assert found.metrics["zoo+wrong/mean/ndcg_at_10"] < 0.5
    assert {path.split("/")[1] for path in found.metrics} == {*FAMILY, "insects", "trees", "mean"}


def test_averages_are_over_datasets_and_the_arrays_are_behind_them(suite: Suite) -> None:
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


def test_context_documents_are_never_queries_and_their_origin_is_recorded(suite: Suite) -> None:
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


def test_reranking_finds_only_what_the_first_stage_found(suite: Suite) -> None:
    first = {name: {f"q{n:02d}": {f"d{n % 4:02d}": 1.0} for n in range(14)} for name in FAMILY}
    found = evaluate_setting(FakeEncoder(), suite, Setting(candidates=first))
    assert found.metrics["zoo/bees/ndcg_at_10"] == pytest.approx(4 / 8)
    assert found.provenance["protocol"] == "reranking of a first stage"


def test_random_contexts_come_from_the_pool(suite: Suite) -> None:
    pool = Retrieval("general", ("x", "y"), ("document else 1", "document else 2"), (), (), {})
    encoder = FakeEncoder()
    setting = Setting(contexts=("random",), num_contexts=2, pool=pool)
    found = evaluate_setting(encoder, suite, setting)
    assert all(sorted(texts) == sorted(pool.documents) for texts in encoder.contexts_seen)
    assert {row["corpus"] for row in found.provenance["contexts"]} == {"general"}


def test_bm25_is_scored_the_same_way_and_its_parameters_are_kept(suite: Suite) -> None:
    found = evaluate_bm25(suite)
    assert {path.split("/")[0] for path in found.metrics} == {"zoo"}
    assert found.provenance["bm25"]["k1"] == 0.9
    assert len(found.per_query["zoo"]) == 34


def test_bad_input_is_one_clear_line(suite: Suite, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="without documents there is only 'own'"):
        evaluate_suite(FakeEncoder(), suite, contexts=("own", "wrong"))
    with pytest.raises(ValueError, match="pool of general text"):
        Setting(contexts=("random",), num_contexts=3)
    write_suite(tmp_path, "zoo", [("ants", "bees"), ("bees", "ants")])
    with pytest.raises(ValueError, match="name both a dataset and a mean"):
        evaluate_suite(FakeEncoder(), load_suite(tmp_path))


class Weighed(FakeEncoder):
    """Remembers what it encoded, and which vectors of before were still held when it was asked for more documents."""

    def __init__(self) -> None:
        super().__init__()
        self.encoded, self.given, self.held = [], [], []

    def encode(self, texts: Sequence[str], prompt: str = "document") -> np.ndarray:
        self.held.append(sum(one() is not None for one in self.given))
        self.encoded += texts
        vectors = super().encode(texts, prompt)
        self.given.append(weakref.ref(vectors))
        return vectors


def test_vectors_of_one_context_are_let_go_of_before_those_of_the_next_are_made(suite: Suite) -> None:
    encoder = Weighed()
    evaluate_suite(encoder, suite, **CONTEXTS)
    assert encoder.held == [0, 1] * 9, "queries find nothing held, documents the queries"


def test_a_reranked_collection_embeds_its_candidates_alone_and_ranks_them_as_before(suite: Suite) -> None:
    names = [dataset.name for dataset in suite.datasets]
    full = evaluate_setting(FakeEncoder(), suite, Setting())
    candidates = {name: {"q00": {"d00": 1.0, "d03": 0.5}, "q01": {"d03": 2.0}} for name in names}
    encoder = Weighed()
    found = evaluate_setting(encoder, suite, Setting(candidates=candidates))
    documents = [text for text in encoder.encoded if text.startswith("document")]
    assert documents == [f"document {name} {number}" for name in names for number in (0, 3)]
    sizes = np.array([dataset["num_queries"] for dataset in full.provenance["datasets"]])
    # q00's own document d00 is a candidate, q01's d01 is none
    np.testing.assert_allclose([found.metrics[f"zoo/{name}/recall_at_100"] for name in names], 1 / sizes)
    unknown = {name: {"q00": {"d99": 1.0}} for name in names}
    with pytest.raises(ValueError, match="'q00' has candidates that are no documents, first 'd99'"):
        evaluate_setting(encoder, suite, Setting(candidates=unknown))
