"""Hard negatives that were given with the pairs: which rows they are, and that training sees their texts."""

from pathlib import Path

import numpy as np
import pytest

from repro.batches.negatives import write_given_negatives
from repro.data.own.imported import import_source
from repro.data.pairs import Pairs, Row, read_pairs, write_pairs
from repro.pipeline import prompting
from repro.pipeline.inputs import Inputs
from repro.pipeline.needs import domain_codes
from repro.spec import Run, base
from repro.train.batch_view import BatchViewer
from tests.commands import ignore
from tests.data.files import write_rows

NUM_PAIRS = 240
DOCUMENTS = [f"answer {n} on topic {n % 7} is number {n * n} of the list" for n in range(NUM_PAIRS)]
NEGATIVES = {n: [DOCUMENTS[(n + 1) % NUM_PAIRS], f"a wrong answer on topic {n % 7}"] for n in range(0, NUM_PAIRS, 2)}
"""Every second pair has two negatives: the document of the next pair, and a text of its own."""


def write_small_pairs(path: Path, negatives: list[tuple[str, ...]]) -> Pairs:
    """Write pairs of two domains with these negatives."""
    rows = [Row(str(n), f"q{n}", f"d{n}", "ab"[n % 2], "s", texts) for n, texts in enumerate(negatives)]
    write_pairs(path, rows, with_negatives=True)
    return read_pairs(path)


@pytest.fixture
def run(tmp_path: Path) -> Run:
    """Training of a contextual model with two negatives per pair, clusters and the filter."""
    rows = [
        {"query": f"question {n} on topic {n % 7}", "document": text, "negatives": NEGATIVES.get(n, [])}
        for n, text in enumerate(DOCUMENTS)
    ]
    imported = import_source(write_rows(tmp_path / "pairs.jsonl", rows), name="mine")
    options = {"sampler": "cluster", "cluster_size": 16, "batch_size": 16, "filter": "surrogate", "num_steps": 2}
    options |= {"num_hard_negatives": 2, "mined_negatives": "given", "known_positives": "mask"}
    return base(
        "smoke",
        corpus=imported.corpus,
        suite="mine",
        num_pairs=None,
        architecture="contextual",
        num_warmup_steps=1,
        **options,
    )


def test_first_negatives_are_used(tmp_path: Path) -> None:
    """Of several, the first ones. A pair with too few gets documents of its domain, the same ones for the same seed."""
    pairs = write_small_pairs(tmp_path / "pairs.arrow", [("x", "y", "z"), ("u",), (), ("v", "w")])
    options = {"num_hard_negatives": 2, "seed": 3}
    rows = write_given_negatives(pairs, pairs.domain_codes, tmp_path / "given.arrow", **options)
    given = read_pairs(tmp_path / "given.arrow")
    assert given.texts("document", range(len(given))) == ["x", "y", "u", "v", "w"]
    assert rows[[0, 3]].tolist() == [[4, 5], [7, 8]] and rows[1, 0] == 6
    assert set(rows[2]) <= {0, 2} and rows[1, 1] in (1, 3), "pairs 0 and 2 are one domain, 1 and 3 the other"
    again = write_given_negatives(pairs, pairs.domain_codes, tmp_path / "again.arrow", **options)
    assert np.array_equal(rows, again)


def test_training_sees_given_texts(run: Run) -> None:
    """Tokens, vectors and keys of a given text are those of the same text as the document of a pair."""
    inputs = Inputs(run)
    inputs.build(ignore)
    pairs, rows_NH = inputs.pairs, inputs.negatives
    assert rows_NH is not None
    documents = pairs.texts("document", range(len(pairs)))
    place = {text: row for row, text in enumerate(documents)}
    num_compared = 0
    for row, text in enumerate(documents):
        given = NEGATIVES.get(DOCUMENTS.index(text))
        if given is None:
            codes = domain_codes(run, pairs)
            assert all(codes[other] == codes[row] for other in rows_NH[row])
            continue
        # an import takes evaluated texts out of the negatives
        kept = [negative for negative in given if negative in place or negative not in DOCUMENTS]
        assert inputs.document_texts(rows_NH[row])[: len(kept)] == kept
        if kept[0] in place:
            both = np.array([rows_NH[row, 0], place[kept[0]]])
            ids, mask = inputs.document_tokens().pad(both)
            vectors = inputs.document_embeddings(of_filter=True)
            assert vectors is not None
            for values in (ids, mask, inputs.document_keys[both], vectors[both]):
                assert np.array_equal(values[0], values[1])
            num_compared += 1
    assert num_compared > 50
    view = BatchViewer(inputs)(np.arange(16))
    assert view.masked_BM.shape == (16, 48) and view.scores_BM is not None
    expected = np.asarray(inputs.embeddings("query")[:16], np.float32) @ np.float32(vectors[view.rows_M]).T
    assert np.array_equal(view.scores_BM, expected)


def test_computed_vectors_are_the_stored_ones(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without stored vectors, texts are embedded with the prompts of their domain, as the stage embeds them."""
    monkeypatch.setattr("repro.batches.fixed_encoder.PROMPTED_ENCODERS", (run.surrogate,))
    prompts = ("topic question ", "number answer ")
    monkeypatch.setattr(prompting, "get_prompts_by_domain", lambda corpus, names: dict.fromkeys(names, prompts))
    stored = Inputs(run)
    stored.build(ignore)
    plain = Inputs(base(run.scale, **{**vars(run), "sampler": "random", "cluster_size": None, "filter": "none"}))
    plain.build(ignore)
    assert plain.embeddings("query") is None
    scores, expected = (BatchViewer(inputs, always_scores=True)(np.arange(16)).scores_BM for inputs in (plain, stored))
    assert scores == pytest.approx(expected, abs=5e-3)
