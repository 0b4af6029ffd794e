"""Each measure on inputs made by hand, whose answer is known: counted, drawn, or written down beforehand."""

import itertools
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import repro.evaluate.collections
from repro.analyses import batches, cluster, cross, divergence, neighbours, retrieval, spread
from repro.analyses.batch_text import LONGEST_TEXT, make_batch_exhibit, shorten
from repro.analyses.microscope import explain
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
from tests.analyses.by_hand import HandMadePairs, Ranker, collection, inputs_of, suite_of
from tests.commands import ignore

SECOND = 1 / math.log2(3)
"""NDCG@10 of an only answer at rank two."""


def unit(*angles: float) -> np.ndarray:
    """Return unit vectors at these angles, (N, 2)."""
    return np.stack([np.cos(angles), np.sin(angles)], axis=1).astype(np.float32)


@pytest.fixture
def searched(tmp_path: Path) -> Inputs:
    """Two collections of two documents; "home" answers with its first, "rival" with its second."""
    home = collection("home", ("home says 1", "home says 2"), relevant=(0, 0))
    rival = collection("rival", ("rival says 1", "rival says 2"), relevant=(1,))
    return inputs_of(base("desk", architecture="biencoder"), suite=suite_of(tmp_path, home, rival))


def test_retrieval_scores_are_those_written_down(searched: Inputs, tmp_path: Path) -> None:
    found = retrieval.measure(searched, Ranker(), tmp_path / "run")
    assert found.metrics["desk/home/ndcg_at_10"] == pytest.approx(1.0)
    assert found.metrics["desk/rival/ndcg_at_10"] == pytest.approx(SECOND)
    assert found.metrics["desk/mean/ndcg_at_10"] == pytest.approx((1 + SECOND) / 2), "datasets weigh alike, not queries"
    assert sorted(found.arrays["desk"]) == pytest.approx([SECOND, 1, 1])
    assert len(list((tmp_path / "run").rglob("*.trec.gz"))) == 2


def test_each_context_is_scored_apart(searched: Inputs, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "repro.analyses.context_effect.compute_word_scores", lambda *given: None
    )  # it has no training text
    run = base("desk", architecture="contextual", num_contexts=2)
    found = retrieval.measure(inputs_of(run, suite=searched.suite), Ranker(), tmp_path / "run").metrics
    assert found["desk/home/ndcg_at_10"] == found["desk+null/home/ndcg_at_10"] == pytest.approx(1.0)
    assert found["desk+wrong/home/ndcg_at_10"] == pytest.approx(SECOND), "the rival's context turns the ranking round"
    assert found["desk+wrong/rival/ndcg_at_10"] == found["desk/rival/ndcg_at_10"] == pytest.approx(SECOND)


def test_cross_scores_every_context(tmp_path: Path) -> None:
    """Turned round, the answer of three documents is the last, of two the second: no table is its own transpose."""
    run = base("desk", architecture="contextual", num_contexts=2)
    home = collection("home", ("home says 1", "home says 2", "home says 3"), relevant=(0, 0))
    rival = collection("rival", ("rival says 1", "rival says 2"), relevant=(1,))
    found = cross.measure(inputs_of(run, suite=suite_of(tmp_path, home, rival)), Ranker(), tmp_path / "run")
    expected = {("home", "home"): 1.0, ("rival", "home"): 0.5, ("home", "rival"): SECOND, ("rival", "rival"): SECOND}
    for (context, test), value in expected.items():
        assert found.metrics[f"cross/{context}/{test}/ndcg_at_10"] == pytest.approx(value), (context, test)
    assert found.arrays["cross/own/ndcg_at_10"] == pytest.approx([1, 1, SECOND])
    assert found.arrays["cross/other/ndcg_at_10"] == pytest.approx([0.5, 0.5, SECOND])
    assert found.metrics["cross/crossovers"] == 0.0, "no domain does better under the other's context"


def test_ignored_context_has_no_spread(searched: Inputs, tmp_path: Path) -> None:
    class Deaf(Ranker):
        def set_context(self, texts: object, seed: int = 0, prompt: str = "document") -> None:
            """Take no notice."""

    run = base("desk", architecture="contextual", num_contexts=2)
    found = spread.measure(inputs_of(run, suite=searched.suite), Deaf(), tmp_path).metrics
    assert found["spread/within"] == pytest.approx(0, abs=1e-3) and found["spread/kept_apart"] == 1.0
    assert found["spread/between"] == found["spread/nearest"] == pytest.approx(2 * math.sin(0.05), abs=1e-4)


def test_swapped_documents_spread_within(searched: Inputs, tmp_path: Path) -> None:
    run = base("desk", architecture="contextual", num_contexts=2)
    found = spread.measure(inputs_of(run, suite=searched.suite), Ranker(), tmp_path).metrics
    chord = 2 * math.sin(0.05)  # each document stands where the other stood under the other context
    assert found["spread/within"] == pytest.approx(chord, abs=1e-4) and found["spread/kept_apart"] == 0.0
    assert found["spread/between"] == pytest.approx(chord / 2, abs=1e-4)


def test_text_has_no_divergence_from_itself(tmp_path: Path) -> None:
    texts = ("a red apple", "a green apple", "the sky")
    same, other = collection("same", texts, (0,)), collection("other", ("a red sea", "the red sky"), (0,))
    pairs = HandMadePairs([0, 0, 1], texts)
    run = base("desk", measure="divergence", architecture="none")
    found = divergence.measure(inputs_of(run, pairs=pairs, suite=suite_of(tmp_path, same, other)), None, tmp_path)
    assert found.metrics["desk/same/idf_divergence"] == 0.0

    def idf(count: int, of: int) -> float:
        return math.log((of + 1) / (count + 0.5))

    # "red" is in both documents of the other and tells nothing apart; four words are in one of them each
    in_training = {"a": 2, "sea": 0, "the": 1, "sky": 1}
    expected = np.mean([abs(idf(count, 3) - idf(1, 2)) for count in in_training.values()])
    assert found.metrics["desk/other/idf_divergence"] == pytest.approx(expected)
    assert found.metrics["desk/mean/idf_divergence"] == pytest.approx(expected / 2)


def test_neighbours_match_plain_loops(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(neighbours, "NUM_NEIGHBOURS", 2)
    queries = unit(0.4, 0.3, 0.5, 1.2, 1.5)
    documents = unit(0.1, 0.25, 0.5, 1.0, 1.5)
    pairs = HandMadePairs([0, 0, 0, 0, 0], ["one", "two", "three", "four", "four"])
    vectors = {"query": queries, "document": documents}
    parts = {"embeddings": vectors.get, "content_keys": compute_content_keys(pairs.documents)}
    found = neighbours.measure(inputs_of(base("desk"), pairs=pairs, **parts), None, tmp_path)
    plausible, similar, kin = [], [], []
    for row in range(5):
        others = [other for other in range(5) if pairs.documents[other] != pairs.documents[row]]
        near = sorted(others, key=lambda other: -float(documents[row] @ documents[other]))[:2]
        plausible.append(np.mean([queries[row] @ documents[other] >= queries[row] @ documents[row] for other in near]))
        similar.append(np.mean([documents[row] @ documents[other] for other in near]))
        kin.append(np.mean([pairs.domain_codes[other] == pairs.domain_codes[row] for other in near]))
    assert 0 < np.mean(plausible) < 1, "the case must tell plausible from not"
    assert sorted(found.arrays["nearest/plausible"]) == pytest.approx(sorted(plausible))
    assert found.metrics["nearest/similarity"] == pytest.approx(np.mean(similar))
    assert found.metrics["nearest/same_domain"] == pytest.approx(np.mean(kin))
    assert found.metrics["nearest/any_plausible"] == pytest.approx(np.mean(np.array(plausible) > 0))
    assert found.metrics["domain/same_domain"] == 1.0
    assert found.exhibits["neighbours"][0]["may be a positive"] == "it is"


def test_copies_of_own_vector_are_plausible(tmp_path: Path) -> None:
    """Its score is that of the positive, which float32 may round apart."""
    rng = np.random.default_rng(0)
    queries, own = rng.normal(size=(2, 100, 384))
    own += 2 * queries
    vectors = {"query": np.concatenate([queries, queries]), "document": np.concatenate([own, own])}  # row + 100: twins
    vectors = {
        side: (one / np.linalg.norm(one, axis=1, keepdims=True)).astype(np.float16) for side, one in vectors.items()
    }
    pairs = HandMadePairs([0] * 200)
    parts = {"embeddings": vectors.get, "content_keys": compute_content_keys(pairs.documents)}
    found = neighbours.measure(inputs_of(base("desk"), pairs=pairs, **parts), None, tmp_path)
    share = 1 / neighbours.NUM_NEIGHBOURS  # the twin, and no other
    assert found.arrays["nearest/plausible"] == pytest.approx(np.full(200, share))
    assert [row["may be a positive"] for row in found.exhibits["neighbours"]] == ["it is", "yes", *["no"] * 10]


def test_copies_of_own_text_do_not_count(tmp_path: Path) -> None:
    queries, documents = unit(0.4, 0.3, 1.2, 1.4, 1.5), unit(0.1, 0.25, 1.0, 1.1, 1.1)
    pairs = HandMadePairs([0, 0, 1, 1, 1], ["one", "two", "three", "four", "four"])
    vectors = {"query": queries, "document": documents}
    parts = {"embeddings": vectors.get, "content_keys": compute_content_keys(pairs.documents)}
    found = neighbours.measure(inputs_of(base("desk"), pairs=pairs, **parts), None, tmp_path)
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
    documents, queries = unit(*angles), unit(*(angle + 0.15 for angle in angles))
    vectors, assignment = {"query": queries, "document": documents}, np.array([0, 0, 0, 1, 1, 1])

    def alike(rows: tuple[int, ...]) -> tuple[float, float]:
        two = list(itertools.permutations(rows, 2))
        plausible = [queries[a] @ documents[b] >= queries[a] @ documents[a] for a, b in two]
        return float(np.mean([documents[a] @ documents[b] for a, b in two])), float(np.mean(plausible))

    class Clusters:
        assignment_N = assignment

    run = base("desk", sampler="cluster", cluster_size=3)
    parts = {"pairs": HandMadePairs([0] * 6), "embeddings": vectors.get, "clusters": Clusters}
    found = cluster.measure(inputs_of(run, **parts), None, tmp_path)
    expected = [alike((0, 1, 2)), alike((3, 4, 5))]
    assert sorted(found.arrays["cluster/similarity"]) == pytest.approx(sorted(one for one, _ in expected), abs=1e-6)
    assert found.metrics["cluster/plausible"] == pytest.approx(np.mean([share for _, share in expected]))
    possible = [alike(rows)[0] for rows in itertools.combinations(range(6), 3)]
    for value in found.arrays["domain/similarity"]:
        assert min(abs(value - one) for one in possible) < 1e-6, "as many pairs as the cluster has, from its domain"
    assert found.metrics["cluster/num_pairs"] == 3.0 and found.provenance["num_clusters"] == 2
    shown = {row["document"] for row in found.exhibits["pairs"]}
    assert shown in ({f"document {row}" for row in rows} for rows in ((0, 1, 2), (3, 4, 5)))


def test_small_distances_are_exact() -> None:
    """One less the product of units of seven digits has no digit left at a distance of a thousandth."""
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
        says = float(batch_loss(torch.randn(16, 4), documents, loss=loss, masked=masked).masked_fraction)
        assert 0 < says < 1
        assert found.arrays["batches/masked_fraction"][step] == pytest.approx(says, rel=1e-6)


def test_words_are_counted_as_written() -> None:
    run = base("smoke", measure="counts", architecture="none")
    metrics, inputs = execute(run, progress=ignore).metrics, Inputs(run)
    read = {dataset.name: load_beir(dataset.path) for dataset in inputs.suite.datasets}
    for name, one in read.items():
        assert metrics[f"planted/{name}/num_documents"] == len(one.documents)
        words = sum(len(text.split()) for text in one.documents)
        assert metrics[f"planted/{name}/document_words"] == pytest.approx(words / len(one.documents))
    queries = [text for one in read.values() for text in one.queries]
    expected = sum(len(text.split()) for text in queries) / len(queries)
    assert metrics["planted/total/query_words"] == pytest.approx(expected), "a mean over queries, not over collections"
    shares = [v for k, v in metrics.items() if k.endswith("/share") and "total" not in k]
    assert sum(shares) == pytest.approx(1.0)


def test_batch_text_has_a_row_per_pair() -> None:
    run = base("smoke", sampler="cluster", cluster_size=8, filter="surrogate")
    told = explain(run, 1)
    rows = make_batch_exhibit(told)
    assert [row["pair"] for row in rows] == [pair.place for pair in told.pairs] and len(rows) == run.batch_size
    for row, pair in zip(rows, told.pairs, strict=True):
        assert all(f"{other.place} ({other.score:.3f})" in str(row["hardest"]) for other in pair.hardest)
        assert (row["removed"] == "–") == (not pair.removed)


def test_long_texts_are_cut_at_words() -> None:
    assert shorten("two\n words ") == "two words"
    cut = shorten("word " * 100)
    assert cut.endswith("word …") and len(cut) <= LONGEST_TEXT


SHORT = {"num_steps": 2, "num_warmup_steps": 1}
CASES: dict[str, tuple[Run, Any, int]] = {
    "widths": (base("smoke", measure="widths", **SHORT), ModelSystem, 4),
    "widths by SVD": (base("smoke", measure="widths", **SHORT), ModelSystem, 6),
    "cross": (base("smoke", measure="cross", architecture="contextual", **SHORT), repro.evaluate.collections, 3),
    "headroom": (base("smoke", measure="headroom", architecture="none"), repro.evaluate.collections, 12),
    "headroom of a model": (base("smoke", measure="headroom", **SHORT), repro.evaluate.collections, 6),
}
"""A run, what has the `search` that each number comes from, and after how many searches it is killed."""


@pytest.fixture(autouse=True)
def one_thread() -> None:
    """Numbers are compared to the last bit, so sums must come in one order."""
    torch.set_num_threads(1)


class Searches:
    """Counts the searches of a run, and is killed in the one that it is told."""

    def __init__(self, holder: Any, monkeypatch: pytest.MonkeyPatch) -> None:
        self.count, self.dies_in = 0, 0
        real = holder.search

        def search(*given: Any) -> Any:
            self.count += 1
            if self.count == self.dies_in:
                raise KeyboardInterrupt
            return real(*given)

        monkeypatch.setattr(holder, "search", search)

    def of(self, run: Run, *, dies_in: int = 0) -> tuple[Record, dict[str, np.ndarray], int]:
        """Carry a run out; its record is removed, so that it can be measured again."""
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
    whole, values, num_searches = searches.of(run)
    assert not (run_folder(run_id(run)) / "kept").exists(), "nothing is kept of a run that has a record"
    with pytest.raises(KeyboardInterrupt):
        searches.of(run, dies_in=num_kept + 1)
    again, values_again, num_left = searches.of(run)
    assert num_left == num_searches - num_kept > 0, "what was found before is not searched again, and nothing left out"
    assert again.metrics == whole.metrics and again.provenance["suite"] == whole.provenance["suite"]
    assert values_again.keys() == values.keys()
    for path, expected in values.items():
        np.testing.assert_array_equal(values_again[path], expected)
        assert values_again[path].dtype == expected.dtype
