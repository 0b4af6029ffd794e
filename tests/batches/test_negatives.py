"""Hard negatives are the nearest documents of the domain that are no likely positives. Texts of unknown tokens."""

import numpy as np
import pytest

from repro.batches.fixed_encoder import FixedEncoder
from repro.batches.mask import compute_content_keys, mask_directions, mask_false_negatives
from repro.batches.negatives import mine_negatives
from repro.batches.surrogate import check_vectors, load_surrogate
from repro.data.tokens import compute_unknown_share, load_tokenizer, tokenize
from repro.seeds import make_rng
from tests.batches.planted import normalise


def test_copies_are_no_negatives() -> None:
    vectors = np.eye(4, dtype=np.float32)[[0, 0, 1, 2]]
    negatives = mine_negatives(vectors, vectors, np.zeros(4), np.array([7, 7, 8, 9]), num_hard_negatives=2, seed=0)
    assert set(negatives[0]) == set(negatives[1]) == {2, 3}


@pytest.mark.parametrize("width", [64, 384])
def test_twins_of_positive_are_no_negatives(width: int) -> None:
    """Texts that are equal up to the cut have one vector and one score, although float32 may round the two apart."""
    rng = make_rng(3, "test negatives")
    queries = rng.normal(size=(200, width))
    positives = queries + 0.3 * rng.normal(size=(200, width))
    fillers = rng.normal(size=(400, width))
    # the twin of row n is row n + 200
    queries, documents = np.concatenate([queries, fillers]), np.concatenate([positives, positives, fillers[:200]])
    queries, documents = (normalise(vectors).astype(np.float16) for vectors in (queries, documents))
    negatives = mine_negatives(queries, documents, np.zeros(600), np.arange(600), num_hard_negatives=2, seed=0)
    exact = queries.astype(np.float64) @ documents.astype(np.float64).T
    for row in range(200):
        nearest = np.argsort(-exact[row])
        below = nearest[exact[row, nearest] < exact[row, row] - 1e-5][:2]
        assert row + 200 not in negatives[row]
        assert exact[row, negatives[row]] == pytest.approx(exact[row, below], abs=1e-6), "twins of others tie"


@pytest.mark.parametrize("with_near", [True, False])
@pytest.mark.parametrize("grain", [1.0, 100.0], ids=["ties", "no ties"])
@pytest.mark.parametrize(("num_pairs", "num"), [(700, 7), (13, 12)])
def test_negatives_match_full_sort(num_pairs: int, num: int, grain: float, with_near: bool) -> None:
    """Ties take the first document. A pair with few documents below its positive draws others of its domain.

    The code sorts only groups with small minima. With `with_near`, negatives may rank above the positive.
    """
    rng = make_rng(num, "test negatives")
    domains = rng.permutation(np.repeat([3, 8], [num_pairs, 30]))
    queries, documents = (np.round(grain * rng.normal(size=(len(domains), 3))) for _ in range(2))
    queries, documents = ((values / 512).astype(np.float32) for values in (queries, documents))  # exact in float32
    random_keys = make_rng(5, "hard negatives").random(num_pairs)
    options = {"num_hard_negatives": num, "with_near": with_near, "seed": 5}
    negatives = mine_negatives(queries, documents, domains, np.arange(len(domains)), **options)
    scores, num_random = queries @ documents.T, 0
    members = np.flatnonzero(domains == 3)
    for row in members:
        is_near = (scores[row] >= scores[row, row]) & (not with_near)
        keys = np.where(is_near[members], random_keys, -scores[row, members])
        order = members[np.lexsort((keys, is_near[members]))]
        expected = order[order != row][:num]
        num_random += is_near[expected].sum()
        assert negatives[row].tolist() == expected.tolist()
    assert set(domains[negatives[domains == 8]].ravel()) == {8}
    assert bool(num_random) != with_near


def test_small_domain_is_named() -> None:
    vectors = np.eye(3, dtype=np.float32)
    with pytest.raises(ValueError, match="a domain has 3 different documents"):
        mine_negatives(vectors, vectors, np.zeros(3), np.arange(3), num_hard_negatives=3, seed=0)


@pytest.mark.parametrize("factor", [1e-3, 2.0**-30, 1e3])
def test_common_factor_changes_no_negatives(factor: float) -> None:
    """Also if too few documents are below the positive, so that others are drawn."""
    rng = make_rng(5, "test negatives")
    queries, documents = (rng.normal(size=(60, 6)).astype(np.float32) for _ in range(2))
    documents[:20] += 2 * queries[:20]

    def mine(scale: float) -> list[list[int]]:
        scaled = ((vectors * scale).astype(np.float32) for vectors in (queries, documents))
        options = {"num_hard_negatives": 20, "seed": 0}
        return mine_negatives(*scaled, np.zeros(60), np.arange(60), **options).tolist()

    assert mine(factor) == mine(1)


THAI = ["กขคง จฉช", "ซญดต ถทธน", "บปผ พฟม"]


@pytest.mark.parametrize("name", ["minilm-words", "minilm"])
def test_unknown_scripts_mask_nothing(name: str) -> None:
    """MiniLM's vocabulary has no Thai, so its vectors are zero and no negative is masked."""
    vectors_ND = load_surrogate(name).embed([*THAI, "an English text", "ok กขคง"], 40)
    assert (np.abs(vectors_ND).sum(1) > 0).tolist() == [False, False, False, True, True]
    tokenizer = load_tokenizer("minilm")
    share, is_unknown = compute_unknown_share(tokenize(["a pump", THAI[0], ""], tokenizer, 40), tokenizer)
    assert (share, is_unknown.tolist()) == (0.5, [False, True, False])
    keys_M = compute_content_keys(THAI)
    queries_BD = documents_MD = vectors_ND[:3]
    masked_BM = mask_false_negatives(keys_M, queries_BD @ documents_MD.T)
    assert not masked_BM.any()
    assert not mask_directions(compute_content_keys(THAI[::-1]), keys_M, masked_BM, (queries_BD, documents_MD)).any()


def test_texts_of_nan_vectors_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """Encoders for evaluation or for batches without stored vectors name the text, too."""

    class Broken:
        def embed(self, texts: list[str], max_tokens: int) -> np.ndarray:
            return np.array([[np.nan if "bad" in text else 1.0, 0.0] for text in texts], np.float32)

    monkeypatch.setattr("repro.batches.fixed_encoder.load_surrogate", lambda name: Broken())
    encoder = FixedEncoder("x", 40)
    assert encoder.encode(["good"]).shape == (1, 2)
    for encode in (encoder.encode, encoder.embed, lambda texts: check_vectors(Broken().embed(texts, 40), texts)):
        with pytest.raises(ValueError, match="1 text, first 'a bad one'"):
            encode(["good", "a bad one"])
