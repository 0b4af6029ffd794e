"""Hard negatives are the nearest documents of the domain that are no likely positives. Texts of unknown tokens."""

import numpy as np
import pytest

from repro.batches.fixed_encoder import FixedEncoder
from repro.batches.mask import compute_content_keys, mask_directions, mask_false_negatives
from repro.batches.negatives import mine_negatives
from repro.batches.surrogate import check_vectors, load_surrogate
from repro.data.tokens import compute_unknown_share, load_tokenizer, tokenize
from repro.seeds import make_rng


def mine_by_brute_force(
    queries: np.ndarray, documents: np.ndarray, domains: np.ndarray, row: int, count: int
) -> list[int]:
    """Return the hard negatives of one pair by sorting every other document of its domain."""
    own_score = queries[row] @ documents[row]
    scored = [
        (queries[row] @ documents[other], other) for other in range(len(documents)) if domains[other] == domains[row]
    ]
    return [other for score, other in sorted(scored, reverse=True) if other != row and score < own_score][:count]


def test_negatives_rank_below_the_positive() -> None:
    rng = make_rng(0, "test negatives")
    queries, documents = (rng.normal(size=(120, 6)).astype(np.float32) for _ in range(2))
    documents += 2 * queries  # positives rank high, so most pairs have enough documents below them
    domains = np.repeat([0, 1, 2], 40)
    negatives = mine_negatives(queries, documents, domains, np.arange(120), num_hard_negatives=3, seed=0)
    num_checked = 0
    for row in range(120):
        expected = mine_by_brute_force(queries, documents, domains, row, 3)
        num_checked += len(expected) == 3
        assert negatives[row, : len(expected)].tolist() == expected
        assert row not in negatives[row] and len(set(negatives[row])) == 3
        assert set(domains[negatives[row]]) == {domains[row]}
    assert num_checked > 100


def test_copies_are_no_negatives() -> None:
    vectors = np.eye(4, dtype=np.float32)[[0, 0, 1, 2]]
    negatives = mine_negatives(vectors, vectors, np.zeros(4), np.array([7, 7, 8, 9]), num_hard_negatives=2, seed=0)
    assert set(negatives[0]) == set(negatives[1]) == {2, 3}


@pytest.mark.parametrize("width", [64, 384])
def test_twins_of_positive_are_no_negatives(width: int) -> None:
    """Texts that are equal up to the cut have one vector and one score, although float32 may round the two apart."""
    rng = make_rng(3, "test negatives")
    queries = rng.normal(size=(200, width))
    others = rng.normal(size=(400, width))
    own = queries + 0.3 * rng.normal(size=(200, width))
    # the twin of row n is row n + 200
    queries, documents = np.concatenate([queries, others]), np.concatenate([own, own, others[:200]])
    queries, documents = (
        (vectors / np.linalg.norm(vectors, axis=1, keepdims=True)).astype(np.float16)
        for vectors in (queries, documents)
    )
    negatives = mine_negatives(queries, documents, np.zeros(600), np.arange(600), num_hard_negatives=2, seed=0)
    exact = queries.astype(np.float64) @ documents.astype(np.float64).T
    for row in range(200):
        below = [other for other in np.argsort(-exact[row]) if exact[row, other] < exact[row, row] - 1e-5][:2]
        assert row + 200 not in negatives[row]
        assert exact[row, negatives[row]] == pytest.approx(exact[row, below], abs=1e-6), "twins of others tie"


@pytest.mark.parametrize("with_near", [True, False])
@pytest.mark.parametrize("grain", [1.0, 100.0], ids=["ties", "no ties"])
@pytest.mark.parametrize(("num_pairs", "num"), [(700, 1), (700, 7), (90, 7), (13, 12)])
def test_many_negatives_match_full_sort(num_pairs: int, num: int, grain: float, with_near: bool) -> None:
    """Ties take the first document. A pair with few documents below its positive draws others.

    The code sorts only groups with small minima. With `with_near`, negatives may rank above the positive.
    """
    rng = make_rng(num, "test negatives")
    queries, documents = (np.round(grain * rng.normal(size=(num_pairs, 3))) for _ in range(2))
    queries, documents = ((values / 512).astype(np.float32) for values in (queries, documents))  # exact in float32
    random_keys = make_rng(5, "hard negatives").random(num_pairs)
    options = {"num_hard_negatives": num, "with_near": with_near, "seed": 5}
    negatives = mine_negatives(queries, documents, np.zeros(num_pairs), np.arange(num_pairs), **options)
    scores, num_random = queries @ documents.T, 0
    for row in range(num_pairs):
        is_near = (scores[row] >= scores[row, row]) & (not with_near)
        order = [
            (is_near[other], random_keys[other] if is_near[other] else -scores[row, other], other)
            for other in range(num_pairs)
        ]
        expected = [other for _, _, other in sorted(order) if other != row][:num]
        num_random += any(is_near[other] for other in expected)
        assert negatives[row].tolist() == expected
    assert bool(num_random) != with_near


def test_small_domain_is_named() -> None:
    vectors = np.eye(3, dtype=np.float32)
    with pytest.raises(ValueError, match="domain of 3 pairs has 3 different documents"):
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
    keys_M = compute_content_keys(THAI)
    queries_BD = documents_MD = vectors_ND[:3]
    masked_BM = mask_false_negatives(keys_M, queries_BD @ documents_MD.T)
    assert not masked_BM.any()
    assert not mask_directions(compute_content_keys(THAI[::-1]), keys_M, masked_BM, (queries_BD, documents_MD)).any()


def test_known_texts_are_masked() -> None:
    """Unknown texts change nothing for the others, compared entry by entry."""
    rng = np.random.default_rng(0)
    queries_BD, documents_MD = rng.normal(size=(2, 6, 4)).astype(np.float32)
    queries_BD[2], documents_MD[4] = 0, 0
    scores_BM = queries_BD @ documents_MD.T
    masked_BM = mask_false_negatives(np.arange(6), scores_BM)
    for b in range(6):
        for m in range(6):
            is_known = b not in (2, 4) and m != 4
            assert masked_BM[b, m] == (b != m and is_known and scores_BM[b, m] >= scores_BM[b, b])


def test_unknown_tokens_are_counted() -> None:
    tokenizer = load_tokenizer("minilm")
    share, is_unknown = compute_unknown_share(tokenize(["a pump", "กขคง จฉช", ""], tokenizer, 40), tokenizer)
    assert (share, is_unknown.tolist()) == (0.5, [False, True, False])


def test_texts_of_nan_vectors_are_named() -> None:
    vectors = np.ones((3, 2), np.float32)
    check_vectors(vectors, ["a", "b", "c"])
    vectors[1, 0] = np.nan
    with pytest.raises(ValueError, match="1 text, first 'b'"):
        check_vectors(vectors, ["a", "b", "c"])


def test_encoders_name_texts_of_nan_vectors(monkeypatch: pytest.MonkeyPatch) -> None:
    """Encoders for evaluation or for batches without stored vectors name the text, too."""

    class Broken:
        num_dimensions, looks_at_neighbours = 2, False

        def embed(self, texts: list[str], max_tokens: int) -> np.ndarray:
            return np.array([[np.nan if "bad" in text else 1.0, 0.0] for text in texts], np.float32)

    monkeypatch.setattr("repro.batches.fixed_encoder.load_surrogate", lambda name: Broken())
    encoder = FixedEncoder("x", 40)
    assert encoder.encode(["good"]).shape == (1, 2)
    for encode in (encoder.encode, encoder.embed):
        with pytest.raises(ValueError, match="1 text, first 'a bad one'"):
            encode(["good", "a bad one"])
