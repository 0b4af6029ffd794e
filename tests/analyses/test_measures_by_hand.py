"""Each analysis on hand-made inputs whose result is known."""

import itertools
import math
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from repro.analyses import Measured, batches, disagreement, headroom, retrieval, whitening
from repro.analyses import corpora as corpora_module
from repro.analyses import pairs as pairs_module
from repro.analyses.contexts import measure_cross, measure_spread
from repro.analyses.corpora import measure_divergence
from repro.analyses.pairs import NUM_NEIGHBOURS, measure_cluster, measure_neighbours
from repro.batches.mask import compute_content_keys
from repro.data.beir import Suite, SuiteDataset, load_beir, write_beir_folder
from repro.data.pairs import Pairs
from repro.data.paper.collection_rules import CollectionRules
from repro.execute import execute
from repro.pipeline.inputs import Inputs
from repro.spec import base
from repro.train.loss import batch_loss
from repro.train.setup import build_filter, build_sampler
from tests.analyses.by_hand import (
    ContextBlindRanker,
    HandMadePairs,
    RandomVectors,
    Ranker,
    make_collection,
    make_inputs,
    make_numbered_collection,
    write_collections,
)
from tests.commands import ignore

SECOND = 1 / math.log2(3)
"""NDCG@10 if the only relevant document is at rank two."""
CHORD = 2 * math.sin(0.05)
"""Distance between the vectors of two documents whose numbers differ by one."""


def make_unit_vectors(*angles: float) -> np.ndarray:
    """Return unit vectors at these angles, (N, 2)."""
    return np.stack([np.cos(angles), np.sin(angles)], axis=1).astype(np.float32)


def test_retrieval_scores_are_known(searched: Inputs, tmp_path: Path) -> None:
    """A rival context reverses the ranking. The mean is over datasets."""
    measured = retrieval.measure(searched, Ranker(), tmp_path / "run")
    for view, home, rival in (("desk", 1.0, SECOND), ("desk+null", 1.0, SECOND), ("desk+wrong", SECOND, SECOND)):
        assert measured.metrics[f"{view}/home/ndcg_at_10"] == pytest.approx(home)
        assert measured.metrics[f"{view}/rival/ndcg_at_10"] == pytest.approx(rival)
        assert measured.metrics[f"{view}/mean/ndcg_at_10"] == pytest.approx((home + rival) / 2)
        assert sorted(measured.arrays[view]) == pytest.approx(sorted([home, home, rival]))
    assert len(list((tmp_path / "run").rglob("*.trec.gz"))) == 6


def test_cross_scores_every_context(tmp_path: Path) -> None:
    """Reversing three documents moves the answer to the last rank, two to the second, so the table is not symmetric."""
    home = make_collection("home", ("home says 1", "home says 2", "home says 3"), relevant=(0, 0))
    rival = make_collection("rival", ("rival says 1", "rival says 2"), relevant=(1,))
    run = base("desk", architecture="contextual", num_contexts=2)
    inputs = make_inputs(run, suite=write_collections(tmp_path, home, rival))
    measured = measure_cross(inputs, Ranker(), tmp_path / "run")
    expected = {("home", "home"): 1.0, ("rival", "home"): 0.5, ("home", "rival"): SECOND, ("rival", "rival"): SECOND}
    for (context, test), value in expected.items():
        assert measured.metrics[f"cross/{context}/{test}/ndcg_at_10"] == pytest.approx(value), (context, test)
    assert measured.arrays["cross/own/ndcg_at_10"] == pytest.approx([1, 1, SECOND])
    assert measured.arrays["cross/other/ndcg_at_10"] == pytest.approx([0.5, 0.5, SECOND])
    assert measured.metrics["cross/crossovers"] == 0.0


@pytest.mark.parametrize(
    ("model", "within", "between", "kept_apart"),
    [(ContextBlindRanker(), 0, CHORD, 1.0), (Ranker(), CHORD, CHORD / 2, 0.0)],
    ids=["ignored context", "swapped documents"],
)
def test_spread_is_over_contexts(
    model: Ranker, within: float, between: float, kept_apart: float, searched: Inputs, tmp_path: Path
) -> None:
    """Under the rival context of `Ranker`, each of the two documents has the vector of the other one."""
    metrics = measure_spread(searched, model, tmp_path).metrics
    assert metrics["spread/within"] == pytest.approx(within, abs=1e-3)
    assert metrics["spread/between"] == metrics["spread/nearest"] == pytest.approx(between, abs=1e-4)
    assert metrics["spread/kept_apart"] == kept_apart


def test_spread_needs_two_contexts(searched: Inputs, tmp_path: Path) -> None:
    alone = make_inputs(searched.run, suite=Suite("desk", searched.suite.datasets[:1]))
    with pytest.raises(ValueError, match="several collections"):
        measure_spread(alone, Ranker(), tmp_path)


def test_copies_are_no_wrong_corpora(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The held-out domains of one import share their documents. Whitening then lacks the wrong corpus."""
    home = make_numbered_collection("home", 20, (0, 3))
    suite = write_collections(tmp_path, home, replace(home, name="copy"))
    for measure, architecture, model in ((measure_cross, "contextual", Ranker()), (headroom.measure, "none", None)):
        with pytest.raises(ValueError, match="different documents"):
            measure(make_inputs(base("smoke", architecture=architecture), suite=suite), model, tmp_path / "run")
    monkeypatch.setattr(whitening, "load_validation_suite", lambda inputs: None)
    pairs = HandMadePairs([0] * 20)
    inputs = make_inputs(base("smoke", measure="whitening"), suite=suite, pairs=pairs)
    views = {path.split("/")[0] for path in whitening.measure(inputs, RandomVectors(), tmp_path / "run").metrics}
    assert {"desk+whitened", "desk+whitened-random"} < views and "desk+whitened-wrong" not in views


def test_divergence_matches_plain_loops(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Words in every document of a collection do not count. A word counts once per document."""
    monkeypatch.setattr(corpora_module, "TEXTS_PER_CHUNK", 2)
    training = ("a red apple", "a green apple a", "the sky")
    corpora = {"same": training, "other": ("a red sea sea", "the red sky", "a red sky")}
    suite = write_collections(tmp_path, *(make_collection(name, texts, (0,)) for name, texts in corpora.items()))
    run = base("desk", measure="divergence", architecture="none")
    inputs = make_inputs(run, pairs=HandMadePairs([0, 0, 1], training), suite=suite)
    metrics = measure_divergence(inputs, None, tmp_path).metrics

    def count(texts: tuple[str, ...], word: str) -> int:
        return sum(word in text.split() for text in texts)

    def idf(texts: tuple[str, ...], word: str) -> float:
        return math.log((len(texts) + 1) / (count(texts, word) + 0.5))

    words = ("a", "sea", "the", "sky")
    gaps = [abs(idf(training, word) - idf(corpora["other"], word)) for word in words]
    expected = np.average(gaps, weights=[count(corpora["other"], word) for word in words])
    assert metrics["desk/same/idf_divergence"] == 0.0
    assert metrics["desk/other/idf_divergence"] == pytest.approx(expected)
    assert metrics["desk/mean/idf_divergence"] == pytest.approx(expected / 2)
    parts = Suite(
        "desk", (*suite.datasets[:1], *(suite.datasets[1]._replace(name=name, part_of="forum") for name in "xy"))
    )
    measured = measure_divergence(make_inputs(run, pairs=inputs.pairs, suite=parts), None, tmp_path)
    assert measured.metrics["desk/mean/idf_divergence"] == pytest.approx(expected / 2), "two parts count once"
    assert measured.arrays["desk/mean/idf_divergence"].mean() == pytest.approx(expected / 2)
    with pytest.raises(ValueError, match="no word distinguishes its 1 documents"):
        corpora_module.compute_idf_divergence(np.ones(3), 2, np.ones(3), 1)


def measure_near(folder: Path, queries: np.ndarray, documents: np.ndarray, pairs: HandMadePairs) -> Measured:
    vectors = {"query": queries, "document": documents}
    parts = {"embeddings": vectors.get, "content_keys": compute_content_keys(pairs.documents)}
    return measure_neighbours(make_inputs(base("desk"), pairs=pairs, **parts), None, folder)


def compare_with_others(
    queries: np.ndarray, documents: np.ndarray, row: int, others: Sequence[int]
) -> tuple[float, float]:
    """Return the mean similarity of a pair's document to others, and the share of plausible positives among them."""
    similarities = [documents[row] @ documents[other] for other in others]
    is_plausible = [queries[row] @ documents[other] >= queries[row] @ documents[row] for other in others]
    return float(np.mean(similarities)), float(np.mean(is_plausible))


def test_neighbours_match_plain_loops(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Documents with the same text do not count, neither as nearest documents nor in a draw from the domain."""
    queries, documents = make_unit_vectors(0.4, 0.3, 1.2, 1.4, 1.5), make_unit_vectors(0.1, 0.25, 1.0, 1.1, 1.1)
    texts, codes = ["one", "two", "three", "four", "four"], [0, 0, 1, 1, 1]
    # Each row has one other document in its domain, or two with one vector. So draws with replacement have known means.
    same_domain = {0: (1,), 1: (0,), 2: (3, 4), 3: (2,), 4: (2,)}
    nearest = {}
    for row in range(5):
        others = [other for other in range(5) if texts[other] != texts[row]]
        nearest[row] = sorted(others, key=lambda other: -float(documents[row] @ documents[other]))[:2]
    for kind, others, count in (("domain", same_domain, 11), ("nearest", nearest, 2)):
        monkeypatch.setattr(pairs_module, "NUM_NEIGHBOURS", count)
        measured = measure_near(tmp_path, queries, documents, HandMadePairs(codes, texts))
        results = [compare_with_others(queries, documents, row, others[row]) for row in range(5)]
        similarities, shares = map(sorted, zip(*results, strict=True))
        assert sorted(measured.arrays[f"{kind}/similarity"]) == pytest.approx(similarities, abs=1e-6)
        assert sorted(measured.arrays[f"{kind}/plausible"]) == pytest.approx(shares)
        in_domain = [np.mean([codes[other] == codes[row] for other in others[row]]) for row in range(5)]
        assert measured.metrics[f"{kind}/same_domain"] == pytest.approx(np.mean(in_domain))
    assert 0 < np.mean(shares) < 1
    assert measured.metrics["nearest/any_plausible"] == pytest.approx(np.mean(np.array(shares) > 0))
    assert measured.exhibits["neighbours"][0]["may be a positive"] == "it is"


def test_copies_of_own_vector_are_plausible(tmp_path: Path) -> None:
    """A twin scores as the positive does, although float32 may round the two differently."""
    rng = np.random.default_rng(0)
    queries, documents = rng.normal(size=(2, 100, 384))
    documents += 2 * queries
    # The twin of row n is row n + 100.
    sides = (np.tile(side, (2, 1)) for side in (queries, documents))
    sides = ((side / np.linalg.norm(side, axis=1, keepdims=True)).astype(np.float16) for side in sides)
    measured = measure_near(tmp_path, *sides, HandMadePairs([0] * 200))
    only_the_twin = np.full(200, 1 / NUM_NEIGHBOURS)
    assert measured.arrays["nearest/plausible"] == pytest.approx(only_the_twin)
    answers = [row["may be a positive"] for row in measured.exhibits["neighbours"]]
    assert answers == ["it is", "yes", *["no"] * 10]


def test_copies_in_a_cluster_are_plausible(tmp_path: Path) -> None:
    """Every document of a cluster scores as the positive does, up to the last bit of its vector."""
    vectors = np.random.default_rng(0).normal(size=(65, 384)).astype(np.float32)
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    documents = np.tile(vectors[64], (64, 1))
    documents[::2] = np.nextafter(documents[::2], np.float32(2))
    parts = {
        "pairs": HandMadePairs([0] * 64),
        "embeddings": {"query": vectors[:64], "document": documents}.get,
        "clusters": SimpleNamespace(assignment_N=np.zeros(64, int)),
    }
    run = base("desk", sampler="cluster", cluster_size=64)
    measured = measure_cluster(make_inputs(run, **parts), None, tmp_path)
    assert measured.metrics["cluster/plausible"] == measured.metrics["domain/plausible"] == 1.0


def test_clusters_are_compared_with_domain_draws(tmp_path: Path) -> None:
    angles = [0.0, 0.2, 0.5, 1.0, 1.1, 1.5]
    documents, queries = make_unit_vectors(*angles), make_unit_vectors(*(angle + 0.15 for angle in angles))
    clusters = ((0, 1, 2), (3, 4, 5))

    def compare(rows: tuple[int, ...]) -> np.ndarray:
        """Return the mean similarity and the share of plausible pairs."""
        others = [[other for other in rows if other != row] for row in rows]
        results = (compare_with_others(queries, documents, *pair) for pair in zip(rows, others, strict=True))
        return np.mean(list(results), axis=0)

    run = base("desk", sampler="cluster", cluster_size=3)
    parts = {
        "pairs": HandMadePairs([0] * 6),
        "embeddings": {"query": queries, "document": documents}.get,
        "clusters": SimpleNamespace(assignment_N=np.array([0, 0, 0, 1, 1, 1])),
    }
    measured = measure_cluster(make_inputs(run, **parts), None, tmp_path)
    similarities, shares = np.transpose([compare(rows) for rows in clusters])
    assert sorted(measured.arrays["cluster/similarity"]) == pytest.approx(sorted(similarities), abs=1e-6)
    assert measured.metrics["cluster/plausible"] == pytest.approx(shares.mean())
    possible = np.array([compare(rows)[0] for rows in itertools.combinations(range(6), 3)])
    for similarity in measured.arrays["domain/similarity"]:
        assert np.abs(similarity - possible).min() < 1e-6, "three pairs drawn from the domain"
    assert measured.metrics["cluster/num_pairs"] == 3.0 and measured.provenance["num_clusters"] == 2
    examples = {row["document"] for row in measured.exhibits["pairs"]}
    assert examples in [{f"document {row}" for row in rows} for rows in clusters]


def measure_batches(folder: Path, **changes: Any) -> tuple[Inputs, Measured]:
    run = base("smoke", measure="batches", architecture="none", batch_size=16, **changes)
    inputs = Inputs(run)
    inputs.build(ignore)
    return inputs, batches.measure(inputs, None, folder)


def test_batches_match_plain_loops(tmp_path: Path) -> None:
    """The difficulty is the mean score of a batch. The masked share is that of the loss, and no filter masks less."""
    _, unfiltered = measure_batches(tmp_path, filter="none")
    for loss in ("infonce", "icl"):
        inputs, measured = measure_batches(tmp_path, filter="surrogate", loss=loss)
        judge, sampler = build_filter(inputs), build_sampler(inputs)
        queries, documents = inputs.embeddings("query"), inputs.embeddings("document")
        assert queries is not None and documents is not None
        difficulties, shares = (measured.arrays[f"batches/{name}"] for name in ("difficulty", "masked_fraction"))
        assert len(difficulties) == len(shares) == len(sampler) == measured.provenance["num_batches"]
        for step in (0, 1, len(sampler) - 1):
            scores = [float(queries[a] @ documents[b]) for a, b in itertools.permutations(sampler.at(step), 2)]
            assert difficulties[step] == pytest.approx(np.mean(scores), abs=1e-4)
            masked = torch.from_numpy(judge(sampler.at(step)).masked)
            expected = float(batch_loss(*torch.randn(2, 16, 4), loss=loss, masked=masked).masked_fraction)
            assert 0 < expected < 1 and shares[step] == pytest.approx(expected, rel=1e-6)
        assert measured.metrics["batches/masked_fraction"] == pytest.approx(shares.mean())
        assert measured.metrics["batches/masked_fraction"] > unfiltered.metrics["batches/masked_fraction"]
        assert measured.metrics["batches/difficulty"] == pytest.approx(unfiltered.metrics["batches/difficulty"])


def test_batches_count_negatives_of_same_text(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Pairs, "ids", lambda self, rows: [f"{row // 5}@{row}" for row in rows])
    inputs, measured = measure_batches(tmp_path)
    sampler = build_sampler(inputs)
    for step, share in enumerate(measured.arrays["batches/same_text"]):
        assert share == pytest.approx(
            np.mean([a // 5 == b // 5 for a, b in itertools.permutations(sampler.at(step), 2)])
        )
    assert measured.metrics["batches/same_text"] > 0


def test_counts_match_planted_corpus() -> None:
    run = base("smoke", measure="counts", architecture="none")
    metrics = execute(run, progress=ignore).metrics
    assert metrics["train/total/num_pairs"] == 240 and metrics["train/total/num_domains"] == 6
    assert metrics["planted/total/num_queries"] == 120 and metrics["planted/total/num_datasets"] == 3
    domains = [name for name in metrics if name.startswith("train/planted-train") and name.endswith("num_pairs")]
    assert len(domains) == 6 and sum(metrics[name] for name in domains) == 240
    collections = [load_beir(dataset.path) for dataset in Inputs(run).suite.datasets]
    for collection in collections:
        assert metrics[f"planted/{collection.name}/num_documents"] == len(collection.documents)
        num_words = [len(text.split()) for text in collection.documents]
        assert metrics[f"planted/{collection.name}/document_words"] == pytest.approx(np.mean(num_words))
    num_words = [len(text.split()) for collection in collections for text in collection.queries]
    assert metrics["planted/total/query_words"] == pytest.approx(np.mean(num_words)), "a mean over queries"
    shares = [value for name, value in metrics.items() if name.endswith("/share") and "total" not in name]
    assert sum(shares) == pytest.approx(1.0)


WIDTH = 32


class Placed:
    """A model that places texts by hand: in 8 dimensions and in all 32 they have different neighbours."""

    def __init__(self, vectors: dict[str, tuple[int, int]]) -> None:
        """Take the axis of each text within the first 8 dimensions and within the others."""
        self.vectors = vectors

    def encode(self, texts: list[str], prompt: str = "document") -> np.ndarray:
        """Return vectors whose wide part is much longer than the narrow part."""
        vectors = np.zeros((len(texts), WIDTH), np.float32)
        for row, text in enumerate(texts):
            narrow, wide = self.vectors[text]
            vectors[row, narrow] = 1
            vectors[row, 8 + wide] = 10
        return vectors


def test_outcomes_by_hand(tmp_path: Path) -> None:
    """Two collections share a family. Each query finds another outcome at the narrow width."""
    folders = write_collections(
        tmp_path,
        make_numbered_collection("cats", 2, (0, 0, 1)),
        make_numbered_collection("dogs", 1, (0,)),
        make_numbered_collection("cars", 1, (0,)),
    ).datasets
    families = {"cats": "animals", "dogs": "animals", "cars": "things"}
    suite = Suite("desk", tuple(SuiteDataset(row.name, families[row.name], row.path) for row in folders))
    documents = {"cats text 0": (0, 0), "cats text 1": (1, 1), "dogs text 0": (2, 2), "cars text 0": (3, 3)}
    # narrow: another document of the collection, another collection, another family, right, right
    queries = {"cats asks 0": (1, 0), "cats asks 1": (2, 0), "cats asks 2": (3, 3)}
    queries |= {"dogs asks 0": (2, 2), "cars asks 0": (3, 0)}
    run = base("smoke", measure="disagreement", nested_sizes="8+32")
    measured = disagreement.measure(make_inputs(run, suite=suite), Placed(documents | queries), tmp_path)
    metrics = measured.metrics
    narrow = [metrics[f"desk+width8/mean/{name}"] for name in disagreement.OUTCOMES]
    whole = [metrics[f"desk+width32/mean/{name}"] for name in disagreement.OUTCOMES]
    assert narrow == pytest.approx([2 / 5, 1 / 5, 1 / 5, 1 / 5])
    assert whole == pytest.approx([3 / 5, 0, 0, 2 / 5])
    assert measured.arrays["desk+width32/mean/relevant"].tolist() == [1, 1, 0, 1, 0]
    assert [metrics[f"desk+width{width}/mean/regained"] for width in (8, 32)] == [1 / 5, 0]


def test_outcomes_skip_self_hits(tmp_path: Path) -> None:
    """Each query is the copy of a document, which is removed unless the query judges it."""
    cats = make_numbered_collection("cats", 3, (2, 1))
    ids = cats.document_ids[:2]
    judgements = dict(zip(ids, cats.judgements.values(), strict=True))
    write_beir_folder(tmp_path / "cats", replace(cats, query_ids=ids, judgements=judgements))
    dataset = SuiteDataset("cats", "animals", tmp_path / "cats", CollectionRules(removes_self_hits=True))
    texts = {"cats text 0": (0, 0), "cats text 1": (1, 1), "cats text 2": (0, 2)}
    texts |= {"cats asks 0": (0, 0), "cats asks 1": (1, 1)}
    inputs = make_inputs(base("smoke", nested_sizes="8+32"), suite=Suite("desk", (dataset,)))
    measured = disagreement.measure(inputs, Placed(texts), tmp_path)
    assert measured.arrays["desk+width8/mean/relevant"].tolist() == [1, 1]
    assert measured.arrays["desk+width32/mean/relevant"].tolist() == [1, 1]
