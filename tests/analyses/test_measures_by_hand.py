"""Each analysis on hand-made inputs whose result is known, and its resumption after a kill."""

import itertools
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import repro.evaluate.collections
from repro.analyses import Measured, batches, cluster, cross, divergence, neighbours, retrieval, spread
from repro.analyses.batch_text import LONGEST_TEXT, shorten
from repro.batches.mask import compute_content_keys
from repro.data.beir import load_beir
from repro.evaluate.suites import ModelSystem
from repro.execute import execute
from repro.pipeline.inputs import Inputs
from repro.records.store import Record
from repro.spec import Run, base
from repro.spec.identity import run_id
from repro.storage.paths import get_local_records, run_folder
from repro.train.loss import batch_loss
from repro.train.trainer import build_filter, build_sampler
from tests.analyses.by_hand import (
    Deaf,
    HandMadePairs,
    Ranker,
    make_collection,
    make_inputs,
    write_collections,
    write_home_and_rival,
)
from tests.commands import ignore

SECOND = 1 / math.log2(3)
"""NDCG@10 if the only relevant document is at rank two."""
CONTEXTUAL = base("desk", architecture="contextual", num_contexts=2)


def make_unit_vectors(*angles: float) -> np.ndarray:
    """Return unit vectors at these angles, (N, 2)."""
    return np.stack([np.cos(angles), np.sin(angles)], axis=1).astype(np.float32)


@pytest.fixture
def searched(tmp_path: Path) -> Inputs:
    """Two collections of two numbered documents."""
    return make_inputs(base("desk", architecture="biencoder"), suite=write_home_and_rival(tmp_path))


def test_retrieval_scores_are_known(searched: Inputs, tmp_path: Path) -> None:
    found = retrieval.measure(searched, Ranker(), tmp_path / "run")
    assert found.metrics["desk/home/ndcg_at_10"] == pytest.approx(1.0)
    assert found.metrics["desk/rival/ndcg_at_10"] == pytest.approx(SECOND)
    assert found.metrics["desk/mean/ndcg_at_10"] == pytest.approx((1 + SECOND) / 2), "a mean over datasets"
    assert sorted(found.arrays["desk"]) == pytest.approx([SECOND, 1, 1])
    assert len(list((tmp_path / "run").rglob("*.trec.gz"))) == 2


def test_each_context_is_scored_apart(searched: Inputs, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # the inputs have no training text
    monkeypatch.setattr("repro.analyses.context_effect.compute_word_scores", lambda *given: None)
    found = retrieval.measure(make_inputs(CONTEXTUAL, suite=searched.suite), Ranker(), tmp_path / "run").metrics
    assert found["desk/home/ndcg_at_10"] == found["desk+null/home/ndcg_at_10"] == pytest.approx(1.0)
    assert found["desk+wrong/home/ndcg_at_10"] == pytest.approx(SECOND), "a rival context reverses the ranking"
    assert found["desk+wrong/rival/ndcg_at_10"] == found["desk/rival/ndcg_at_10"] == pytest.approx(SECOND)


def test_cross_scores_every_context(tmp_path: Path) -> None:
    """Reversing three documents moves the answer to the last rank, two to the second, so the table is not symmetric."""
    home = make_collection("home", ("home says 1", "home says 2", "home says 3"), relevant=(0, 0))
    rival = make_collection("rival", ("rival says 1", "rival says 2"), relevant=(1,))
    inputs = make_inputs(CONTEXTUAL, suite=write_collections(tmp_path, home, rival))
    found = cross.measure(inputs, Ranker(), tmp_path / "run")
    expected = {("home", "home"): 1.0, ("rival", "home"): 0.5, ("home", "rival"): SECOND, ("rival", "rival"): SECOND}
    for (context, test), value in expected.items():
        assert found.metrics[f"cross/{context}/{test}/ndcg_at_10"] == pytest.approx(value), (context, test)
    assert found.arrays["cross/own/ndcg_at_10"] == pytest.approx([1, 1, SECOND])
    assert found.arrays["cross/other/ndcg_at_10"] == pytest.approx([0.5, 0.5, SECOND])
    assert found.metrics["cross/crossovers"] == 0.0


def test_ignored_context_has_no_spread(searched: Inputs, tmp_path: Path) -> None:
    found = spread.measure(make_inputs(CONTEXTUAL, suite=searched.suite), Deaf(), tmp_path).metrics
    assert found["spread/within"] == pytest.approx(0, abs=1e-3) and found["spread/kept_apart"] == 1.0
    assert found["spread/between"] == found["spread/nearest"] == pytest.approx(2 * math.sin(0.05), abs=1e-4)


def test_swapped_documents_spread_within(searched: Inputs, tmp_path: Path) -> None:
    """Under the other context, each document has the vector of the other one."""
    found = spread.measure(make_inputs(CONTEXTUAL, suite=searched.suite), Ranker(), tmp_path).metrics
    chord = 2 * math.sin(0.05)
    assert found["spread/within"] == pytest.approx(chord, abs=1e-4) and found["spread/kept_apart"] == 0.0
    assert found["spread/between"] == pytest.approx(chord / 2, abs=1e-4)


def test_text_has_no_divergence_from_itself(tmp_path: Path) -> None:
    texts = ("a red apple", "a green apple", "the sky")
    same, other = make_collection("same", texts, (0,)), make_collection("other", ("a red sea", "the red sky"), (0,))
    pairs = HandMadePairs([0, 0, 1], texts)
    run = base("desk", measure="divergence", architecture="none")
    found = divergence.measure(
        make_inputs(run, pairs=pairs, suite=write_collections(tmp_path, same, other)), None, tmp_path
    )
    assert found.metrics["desk/same/idf_divergence"] == 0.0

    def idf(count: int, of: int) -> float:
        return math.log((of + 1) / (count + 0.5))

    # "red" is in both documents of the other collection, so it does not count. Four words are in one document each.
    in_training = {"a": 2, "sea": 0, "the": 1, "sky": 1}
    expected = np.mean([abs(idf(count, 3) - idf(1, 2)) for count in in_training.values()])
    assert found.metrics["desk/other/idf_divergence"] == pytest.approx(expected)
    assert found.metrics["desk/mean/idf_divergence"] == pytest.approx(expected / 2)


def measure_neighbours(folder: Path, queries: np.ndarray, documents: np.ndarray, pairs: HandMadePairs) -> Measured:
    vectors = {"query": queries, "document": documents}
    parts = {"embeddings": vectors.get, "content_keys": compute_content_keys(pairs.documents)}
    return neighbours.measure(make_inputs(base("desk"), pairs=pairs, **parts), None, folder)


def test_neighbours_match_plain_loops(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(neighbours, "NUM_NEIGHBOURS", 2)
    queries = make_unit_vectors(0.4, 0.3, 0.5, 1.2, 1.5)
    documents = make_unit_vectors(0.1, 0.25, 0.5, 1.0, 1.5)
    pairs = HandMadePairs([0, 0, 0, 0, 0], ["one", "two", "three", "four", "four"])
    found = measure_neighbours(tmp_path, queries, documents, pairs)
    plausible, similar, same_domain = [], [], []
    for row in range(5):
        others = [other for other in range(5) if pairs.documents[other] != pairs.documents[row]]
        near = sorted(others, key=lambda other: -float(documents[row] @ documents[other]))[:2]
        plausible.append(np.mean([queries[row] @ documents[other] >= queries[row] @ documents[row] for other in near]))
        similar.append(np.mean([documents[row] @ documents[other] for other in near]))
        same_domain.append(np.mean([pairs.domain_codes[other] == pairs.domain_codes[row] for other in near]))
    assert 0 < np.mean(plausible) < 1
    assert sorted(found.arrays["nearest/plausible"]) == pytest.approx(sorted(plausible))
    assert found.metrics["nearest/similarity"] == pytest.approx(np.mean(similar))
    assert found.metrics["nearest/same_domain"] == pytest.approx(np.mean(same_domain))
    assert found.metrics["nearest/any_plausible"] == pytest.approx(np.mean(np.array(plausible) > 0))
    assert found.metrics["domain/same_domain"] == 1.0
    assert found.exhibits["neighbours"][0]["may be a positive"] == "it is"


def test_copies_of_own_vector_are_plausible(tmp_path: Path) -> None:
    """A twin scores as the positive does, although float32 may round the two differently."""
    rng = np.random.default_rng(0)
    queries, own = rng.normal(size=(2, 100, 384))
    own += 2 * queries
    # the twin of row n is row n + 100
    sides = (np.concatenate([queries, queries]), np.concatenate([own, own]))
    sides = ((one / np.linalg.norm(one, axis=1, keepdims=True)).astype(np.float16) for one in sides)
    found = measure_neighbours(tmp_path, *sides, HandMadePairs([0] * 200))
    share = 1 / neighbours.NUM_NEIGHBOURS  # only the twin
    assert found.arrays["nearest/plausible"] == pytest.approx(np.full(200, share))
    assert [row["may be a positive"] for row in found.exhibits["neighbours"]] == ["it is", "yes", *["no"] * 10]


def test_copies_of_text_do_not_count(tmp_path: Path) -> None:
    queries, documents = make_unit_vectors(0.4, 0.3, 1.2, 1.4, 1.5), make_unit_vectors(0.1, 0.25, 1.0, 1.1, 1.1)
    pairs = HandMadePairs([0, 0, 1, 1, 1], ["one", "two", "three", "four", "four"])
    found = measure_neighbours(tmp_path, queries, documents, pairs)
    others = ((1,), (0,), (3, 4), (2,), (2,))
    similar = [float(np.mean([documents[row] @ documents[other] for other in of])) for row, of in enumerate(others)]
    plausible = [
        np.mean([queries[row] @ documents[other] >= queries[row] @ documents[row] for other in of])
        for row, of in enumerate(others)
    ]
    assert sorted(found.arrays["domain/similarity"]) == pytest.approx(sorted(similar), abs=1e-6)
    assert sorted(found.arrays["domain/plausible"]) == pytest.approx(sorted(plausible))
    assert found.metrics["domain/same_domain"] == 1.0


def test_clusters_are_compared_with_domain_draws(tmp_path: Path) -> None:
    angles = [0.0, 0.2, 0.5, 1.0, 1.1, 1.5]
    documents, queries = make_unit_vectors(*angles), make_unit_vectors(*(angle + 0.15 for angle in angles))
    vectors, assignment = {"query": queries, "document": documents}, np.array([0, 0, 0, 1, 1, 1])

    def compare(rows: tuple[int, ...]) -> tuple[float, float]:
        """Return the mean similarity and the share of plausible pairs."""
        two = list(itertools.permutations(rows, 2))
        plausible = [queries[a] @ documents[b] >= queries[a] @ documents[a] for a, b in two]
        return float(np.mean([documents[a] @ documents[b] for a, b in two])), float(np.mean(plausible))

    class Clusters:
        assignment_N = assignment

    run = base("desk", sampler="cluster", cluster_size=3)
    parts = {"pairs": HandMadePairs([0] * 6), "embeddings": vectors.get, "clusters": Clusters}
    found = cluster.measure(make_inputs(run, **parts), None, tmp_path)
    expected = [compare((0, 1, 2)), compare((3, 4, 5))]
    assert sorted(found.arrays["cluster/similarity"]) == pytest.approx(sorted(one for one, _ in expected), abs=1e-6)
    assert found.metrics["cluster/plausible"] == pytest.approx(np.mean([share for _, share in expected]))
    possible = [compare(rows)[0] for rows in itertools.combinations(range(6), 3)]
    for value in found.arrays["domain/similarity"]:
        assert min(abs(value - one) for one in possible) < 1e-6, "three pairs drawn from the domain"
    assert found.metrics["cluster/num_pairs"] == 3.0 and found.provenance["num_clusters"] == 2
    shown = {row["document"] for row in found.exhibits["pairs"]}
    assert shown in ({f"document {row}" for row in rows} for rows in ((0, 1, 2), (3, 4, 5)))


def test_small_distances_are_exact() -> None:
    """One minus a float32 cosine would lose all digits at a distance of 0.001."""
    rng = np.random.default_rng(0)
    vectors_CDH = rng.normal(size=(1, 3, 64)) + 1e-3 * rng.normal(size=(4, 3, 64))
    vectors_CDH = (vectors_CDH / np.linalg.norm(vectors_CDH, axis=2, keepdims=True)).astype(np.float32)
    exact_CDH = vectors_CDH.astype(np.float64)
    for document in range(3):
        pairs = itertools.combinations(exact_CDH[:, document], 2)
        expected = np.mean([np.linalg.norm(one - other) for one, other in pairs])
        found = spread.compute_distances(vectors_CDH)["spread/within"][document]
        assert 0 < expected < 3e-3 and found == pytest.approx(expected, rel=1e-9)


def test_difficulty_matches_plain_loops(tmp_path: Path) -> None:
    run = base("smoke", measure="batches", architecture="none", filter="surrogate", batch_size=16)
    inputs = Inputs(run)
    inputs.build(ignore)
    found = batches.measure(inputs, None, tmp_path)
    sampler = build_sampler(inputs)
    queries, documents = inputs.embeddings("query"), inputs.embeddings("document")
    assert queries is not None and documents is not None
    for step in (0, len(sampler) - 1):
        rows = sampler.at(step)
        scores = [float(queries[a] @ documents[b]) for a, b in itertools.permutations(rows, 2)]
        assert found.arrays["batches/difficulty"][step] == pytest.approx(np.mean(scores), abs=1e-4)
    assert len(found.arrays["batches/difficulty"]) == len(sampler) == found.provenance["num_batches"]
    assert found.metrics["batches/masked_fraction"] == pytest.approx(found.arrays["batches/masked_fraction"].mean())
    unfiltered = Run(**{**vars(run), "filter": "none"})
    without = batches.measure(Inputs(unfiltered), None, tmp_path)
    assert without.metrics["batches/masked_fraction"] < found.metrics["batches/masked_fraction"]
    assert without.metrics["batches/difficulty"] == pytest.approx(found.metrics["batches/difficulty"])


@pytest.mark.parametrize("loss", ["infonce", "icl"])
def test_masked_share_is_that_of_loss(loss: str, tmp_path: Path) -> None:
    run = base("smoke", measure="batches", architecture="none", filter="surrogate", batch_size=16, loss=loss)
    inputs = Inputs(run)
    inputs.build(ignore)
    found = batches.measure(inputs, None, tmp_path)
    judge, sampler, documents = build_filter(inputs), build_sampler(inputs), torch.randn(16, 4)
    for step in range(3):
        masked = torch.from_numpy(judge(sampler.at(step)).masked)
        expected = float(batch_loss(torch.randn(16, 4), documents, loss=loss, masked=masked).masked_fraction)
        assert 0 < expected < 1
        assert found.arrays["batches/masked_fraction"][step] == pytest.approx(expected, rel=1e-6)


def test_counts_match_planted_corpus() -> None:
    run = base("smoke", measure="counts", architecture="none")
    metrics, inputs = execute(run, progress=ignore).metrics, Inputs(run)
    assert metrics["train/total/num_pairs"] == 240 and metrics["train/total/num_domains"] == 6
    assert metrics["planted/total/num_queries"] == 120 and metrics["planted/total/num_datasets"] == 3
    domains = [name for name in metrics if name.startswith("train/planted-train") and name.endswith("num_pairs")]
    assert len(domains) == 6 and sum(metrics[name] for name in domains) == 240
    read = {dataset.name: load_beir(dataset.path) for dataset in inputs.suite.datasets}
    for name, one in read.items():
        assert metrics[f"planted/{name}/num_documents"] == len(one.documents)
        words = sum(len(text.split()) for text in one.documents)
        assert metrics[f"planted/{name}/document_words"] == pytest.approx(words / len(one.documents))
    queries = [text for one in read.values() for text in one.queries]
    expected = sum(len(text.split()) for text in queries) / len(queries)
    assert metrics["planted/total/query_words"] == pytest.approx(expected), "a mean over queries"
    shares = [v for k, v in metrics.items() if k.endswith("/share") and "total" not in k]
    assert sum(shares) == pytest.approx(1.0)


def test_long_texts_are_cut_at_words() -> None:
    assert shorten("two\n words ") == "two words"
    cut = shorten("word " * 100)
    assert cut.endswith("word …") and len(cut) <= LONGEST_TEXT
    assert shorten("one two three", 9) == "one …" and shorten("abcdefghijkl", 6) == "abcd …"


SHORT = {"num_steps": 2, "num_warmup_steps": 1}
CASES: dict[str, tuple[Run, Any, int]] = {
    "widths": (base("smoke", measure="widths", **SHORT), ModelSystem, 4),
    "widths by SVD": (base("smoke", measure="widths", **SHORT), ModelSystem, 6),
    "cross": (base("smoke", measure="cross", architecture="contextual", **SHORT), repro.evaluate.collections, 3),
    "headroom": (base("smoke", measure="headroom", architecture="none"), repro.evaluate.collections, 12),
    "headroom of a model": (base("smoke", measure="headroom", **SHORT), repro.evaluate.collections, 6),
}
"""By name: a run, the object whose `search` it calls, and the number of searches after which it is killed."""


@pytest.fixture(autouse=True)
def one_thread() -> None:
    """Fix the order of sums, because numbers are compared bit by bit."""
    torch.set_num_threads(1)


class Searches:
    """Counts the searches of a run and kills it in a given one."""

    def __init__(self, holder: Any, monkeypatch: pytest.MonkeyPatch) -> None:
        self.count, self.dies_in = 0, 0
        real = holder.search

        def search(*given: Any) -> Any:
            self.count += 1
            if self.count == self.dies_in:
                raise KeyboardInterrupt
            return real(*given)

        monkeypatch.setattr(holder, "search", search)

    def execute(self, run: Run, *, dies_in: int = 0) -> tuple[Record, dict[str, np.ndarray], int]:
        """Execute a run and remove its record, so that it can be measured again."""
        self.count, self.dies_in = 0, dies_in
        record = execute(run, progress=lambda line: None)
        arrays = dict(record.arrays)
        for path in get_local_records().glob(f"{record.id}*"):
            path.unlink()
        return record, arrays, self.count


@pytest.mark.parametrize("name", CASES)
def test_killed_analysis_resumes_after_last_part(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    run, holder, num_kept = CASES[name]
    searches = Searches(holder, monkeypatch)
    whole, values, num_searches = searches.execute(run)
    assert not (run_folder(run_id(run)) / "kept").exists(), "the cache of a recorded run is removed"
    with pytest.raises(KeyboardInterrupt):
        searches.execute(run, dies_in=num_kept + 1)
    again, values_again, num_left = searches.execute(run)
    assert num_left == num_searches - num_kept > 0
    assert again.metrics == whole.metrics and again.provenance["suite"] == whole.provenance["suite"]
    assert values_again.keys() == values.keys()
    for path, expected in values.items():
        np.testing.assert_array_equal(values_again[path], expected)
        assert values_again[path].dtype == expected.dtype
