"""Documents that the training pairs call relevant are no negatives: against plain loops over texts."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from repro.batches.mask import KnownPositives, compute_content_keys, find_links, mask_directions, mask_false_negatives
from repro.batches.negatives import mine_negatives
from repro.data.pairs import Row, write_pairs
from repro.pipeline.inputs import Inputs
from repro.seeds import generator_for
from repro.spec import base
from repro.train.batch_view import BatchViewer
from repro.train.loss import improved_contrastive, info_nce

QUERIES = ["how to mend a pump", "How to mend  a pump", "open a valve", "close a valve", "open a valve", "a fan"]
DOCUMENTS = ["replace its seal", "check the pump", "turn left", "turn right", "Turn  left", "check the pump"]


def known_of(queries: list[str], documents: list[str]) -> KnownPositives:
    keys = compute_content_keys(queries), compute_content_keys(documents)
    return KnownPositives(keys[0], *find_links(*keys))


def relevant(queries: list[str], documents: list[str], query: str) -> set[str]:
    """The documents of all pairs with this query, both without case and spacing."""
    plain = [
        (" ".join(q.casefold().split()), " ".join(d.casefold().split()))
        for q, d in zip(queries, documents, strict=True)
    ]
    return {d for q, d in plain if q == " ".join(query.casefold().split())}


def test_equal_documents_count_once() -> None:
    """The valve's two pairs have one document, so only the pump has several."""
    known = known_of(QUERIES, DOCUMENTS)
    assert (known.links_2L.shape, known.num_pairs_with_several) == ((2, 2), 2)
    assert "1 queries have several documents (2 of 6 pairs)" in known.describe()


def test_batches_mask_known_positives() -> None:
    """Whoever owns the document in the batch, and also as a pair's own hard negative."""
    rng = generator_for(0, "test known positives")
    queries = [f"q{n}" for n in rng.integers(0, 12, 40)]
    documents = [f"d{n}" for n in rng.integers(0, 30, 40)]
    known = known_of(queries, documents)
    pairs, negatives = np.arange(0, 40, 3), rng.integers(0, 40, 14)
    rows = np.concatenate([pairs, negatives])
    known_BM = known.find_in_batch(pairs, compute_content_keys([documents[row] for row in rows]))
    masked = mask_false_negatives(
        compute_content_keys([documents[row] for row in rows]), None, known_BM=known_BM, num_hard_negatives=1
    )
    for place, pair in enumerate(pairs):
        for column, row in enumerate(rows):
            expected = column != place and documents[row] in relevant(queries, documents, queries[pair])
            assert masked[place, column] == expected


@pytest.mark.parametrize("with_near", [True, False])
def test_mining_takes_no_known_positive(with_near: bool) -> None:
    rng = generator_for(1, "test known positives")
    vectors = rng.normal(size=(2, 60, 4)).astype(np.float32)
    queries, documents = [f"q{n // 3}" for n in range(60)], [f"d{n}" for n in range(60)]
    keys = compute_content_keys(documents)
    how: dict[str, Any] = {"num_hard_negatives": 5, "with_near": with_near, "seed": 0}
    domains = np.repeat([0, 1], 30)
    plain = mine_negatives(*vectors, domains, keys, **how)
    found = mine_negatives(*vectors, domains, keys, known=known_of(queries, documents), **how)
    assert any(queries[row] == queries[pair] for pair in range(60) for row in plain[pair])
    assert not any(queries[row] == queries[pair] for pair in range(60) for row in found[pair])
    scores = vectors[0] @ vectors[1].T
    for pair in range(60):
        others = [row for row in range(60) if domains[row] == domains[pair] and queries[row] != queries[pair]]
        nearest = sorted(others, key=lambda row: -scores[pair, row])
        below = [row for row in nearest if with_near or scores[pair, row] < scores[pair, pair] - 1e-6][:5]
        assert found[pair].tolist()[: len(below)] == below


def test_too_few_other_documents_are_refused() -> None:
    vectors = np.eye(4, dtype=np.float32)
    documents = ["a", "b", "c", "d"]
    with pytest.raises(ValueError, match="num_hard_negatives=2: a query has 1 documents"):
        known = known_of(["q", "q", "q", "r"], documents)
        mine_negatives(
            vectors, vectors, np.zeros(4), compute_content_keys(documents), num_hard_negatives=2, known=known, seed=0
        )


@pytest.fixture(scope="module")
def twins(tmp_path_factory: pytest.TempPathFactory) -> list[Row]:
    """Forty queries with two documents each, in one domain."""
    things = ["pump", "valve", "motor", "cable", "fan", "lamp", "tank", "heater"]
    faults = ["noise", "leak", "rust", "smell", "heat"]
    texts = [(f"mend the {fault} of a {thing}", thing, fault) for thing in things for fault in faults]
    found = []
    for number, (query, thing, fault) in enumerate(texts):
        for half, document in enumerate((f"{fault} of the {thing} needs a seal", f"check a {thing} for {fault} first")):
            found.append(Row(f"{number}-{half}", query, document, "one", "one"))
    return found


@pytest.mark.parametrize("loss", ["infonce", "icl"])
def test_a_run_that_masks_has_no_meeting(
    loss: str, twins: list[Row], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Stages, mined negatives and views of batches together; `ignore` has both faults on the same pairs."""
    monkeypatch.setenv("REPRO_HOME", str(tmp_path))
    meetings, mined = {}, {}
    for value in ("ignore", "mask"):
        run = base("smoke", loss=loss, known_positives=value, num_hard_negatives=1, filter="surrogate")
        inputs = Inputs(run)
        corpus = inputs.graph.corpus
        if not corpus.is_built:
            corpus.path.mkdir(parents=True)
            write_pairs(corpus.path / "train.arrow", twins)
            (corpus.path / "stage.json").write_text('{"files": {}}')
        inputs.build(lambda line: None)
        queries, documents = (inputs.pairs.texts(side, range(len(twins))) for side in ("query", "document"))
        assert inputs.negatives is not None
        mined[value] = sum(queries[row] == queries[pair] for pair, (row,) in enumerate(inputs.negatives))
        view = BatchViewer(inputs)(np.arange(24))
        met = [(b, m) for b, row in enumerate(view.pairs_B) for m, other in enumerate(view.rows_M)
               if queries[row] == queries[other] and documents[row] != documents[other]]  # fmt: skip
        meetings[value] = sum(not view.masked_BM[b, m] for b, m in met)
        assert len(met) >= 24
        if loss == "icl" and value == "mask":
            assert all(view.masked[b, view.masked_BM.shape[1] + m] for b, m in met if m < 24)
    assert mined["ignore"] > 0 and meetings["ignore"] > 0
    assert (mined["mask"], meetings["mask"]) == (0, 0)


def test_no_gradient_between_a_query_and_a_known_positive() -> None:
    """Under both losses: with one pair whose only other document is a known positive, nothing is pushed away."""
    queries, documents = ["one query", "one query"], ["first", "second"]
    known_BM = known_of(queries, documents).find_in_batch(np.arange(2), compute_content_keys(documents))
    masked = mask_false_negatives(compute_content_keys(documents), None, known_BM=known_BM)
    vectors = torch.randn(2, 2, 4, generator=torch.Generator().manual_seed(0)).requires_grad_()
    info_nce(vectors[0], vectors[1], masked_QM=torch.from_numpy(masked)).loss.backward()
    assert vectors.grad is not None and not vectors.grad.any()
    every = mask_directions(
        compute_content_keys(queries), compute_content_keys(documents), masked, None, known_BM=known_BM
    )
    vectors.grad = None
    parts = improved_contrastive(vectors[0], vectors[1], masked_QK=torch.from_numpy(every))
    alone = [improved_contrastive(vectors[0, n : n + 1], vectors[1, n : n + 1]).loss for n in range(2)]
    assert float(parts.loss.detach()) == pytest.approx(float(torch.stack(alone).mean().detach()), abs=1e-6)
