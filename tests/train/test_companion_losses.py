"""Nested and improved contrastive loss against sentence-transformers and the papers' equations, and runs with them."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from sentence_transformers.sentence_transformer.losses import MatryoshkaLoss, MultipleNegativesRankingLoss
from torch import Tensor, nn

from repro.analyses import training
from repro.analyses.retrieval import evaluate
from repro.analyses.training import compute_marks
from repro.batches.mask import compute_masked_fraction, mask_directions, mask_false_negatives
from repro.evaluate.collections import read_collections
from repro.execute import execute
from repro.model.texts import make_texts
from repro.pipeline.inputs import Inputs
from repro.spec import base
from repro.spec.identity import run_id
from repro.stopping import Interrupted
from repro.storage.paths import run_folder
from repro.train.checkpoint import read_checkpoint, read_metrics
from repro.train.loss import batch_loss, improved_contrastive, info_nce
from repro.train.setup import build_sampler, make_train_settings
from repro.train.trainer import make_optimizer, start_model, train_run
from tests.commands import ignore
from tests.train.fixtures import stop_after

SIZE, TEMPERATURE = 16, 0.1
FOUR = ("query_to_doc", "query_to_query", "doc_to_query", "doc_to_doc")
NO_LABELS = torch.zeros(0)


class StoredVectors(nn.Module):
    """A model of sentence-transformers that returns vectors of its features."""

    def forward(self, features: dict[str, Tensor]) -> dict[str, Tensor]:
        return {"sentence_embedding": features["vectors"]}

    def get_embedding_dimension(self) -> int:
        return SIZE


def draw_vectors(num_queries: int, num_negatives: int, seed: int = 0) -> list[Tensor]:
    """Return queries, documents, first hard negatives, and so on, float64."""
    generator = torch.Generator().manual_seed(seed)
    shape = (num_queries, SIZE)
    return [torch.randn(shape, generator=generator, dtype=torch.float64) for _ in range(2 + num_negatives)]


def order_documents(columns: list[Tensor]) -> tuple[Tensor, Tensor]:
    """Return queries and documents in our order, with all negatives of a query in adjacent rows."""
    negatives = torch.stack(columns[2:], 1).flatten(0, 1) if columns[2:] else columns[1][:0]
    return columns[0], torch.cat([columns[1], negatives])


Loss = Callable[[list[Tensor]], Tensor]


def assert_same_gradients(loss: Loss, reference: Loss, columns: list[Tensor]) -> None:
    """Assert that two losses have the same value and the same gradients, none of which is zero."""
    results = []
    for compute in (loss, reference):
        leaves = [column.clone().requires_grad_() for column in columns]
        value = compute(leaves)
        results.append((value.detach(), torch.autograd.grad(value, leaves)))
    (actual_loss, gradients), (expected_loss, expected_gradients) = results
    torch.testing.assert_close(actual_loss, expected_loss, rtol=1e-10, atol=0)
    for gradient, expected_gradient in zip(gradients, expected_gradients, strict=True):
        assert expected_gradient.abs().max() > 0
        torch.testing.assert_close(gradient, expected_gradient, rtol=1e-8, atol=1e-12)


@pytest.mark.parametrize("num_negatives", [0, 3])
@pytest.mark.parametrize(
    ("loss", "widths"), [("infonce", ()), ("infonce", (4, 8, 16)), ("infonce", (4,)), ("icl", ()), ("icl", (4, 16))]
)
def test_loss_matches_library(loss: str, widths: tuple[int, ...], num_negatives: int) -> None:
    options = {"directions": FOUR, "partition_mode": "joint"} if loss == "icl" else {}
    inner = MultipleNegativesRankingLoss(StoredVectors(), scale=1 / TEMPERATURE, **options)
    reference = MatryoshkaLoss(inner.model, inner, widths) if widths else inner
    assert_same_gradients(
        lambda columns: batch_loss(*order_documents(columns), loss=loss, widths=widths, temperature=TEMPERATURE).loss,
        lambda columns: reference([{"vectors": column} for column in columns], NO_LABELS),
        draw_vectors(6, num_negatives, seed=1),
    )


def mask_by_loop(
    queries: list[str], documents: list[str], num_hard: int, similarities: dict[str, np.ndarray], margin: float
) -> np.ndarray:
    """Return the masks of the four directions, entry by entry."""
    num_pairs, num_documents = len(queries), len(documents)
    rows = []
    for i in range(num_pairs):
        limit = similarities["qd"][i, i] + margin
        own_negatives = range(num_pairs + i * num_hard, num_pairs + (i + 1) * num_hard)
        same_pair = [queries[j] == queries[i] or documents[j] == documents[i] for j in range(num_pairs)]
        same_document = [document == documents[i] for document in documents]
        row = []
        for j in range(num_documents):
            is_near = similarities["qd"][i, j] >= limit and j not in own_negatives
            row.append(j != i and (same_document[j] or is_near))
        for scores in (similarities["qq"][i], similarities["qd"][:, i]):
            row += [j != i and (same_pair[j] or scores[j] >= limit) for j in range(num_pairs)]
        for j in range(num_documents):
            is_other = j != i and j not in own_negatives
            row.append(is_other and (same_document[j] or similarities["dd"][i, j] >= limit))
        rows.append(row)
    return np.array(rows)


def compute_similarities(queries: np.ndarray, documents: np.ndarray) -> dict[str, np.ndarray]:
    """Return similarities of queries (q) with documents (d), and of pairs of one side."""
    own_documents = documents[: len(queries)]
    return {"qd": queries @ documents.T, "qq": queries @ queries.T, "dd": own_documents @ documents.T}


@pytest.mark.parametrize("margin", [0.0, 0.4, -0.4])
@pytest.mark.parametrize("num_hard", [0, 2])
def test_direction_masks_match_loops(num_hard: int, margin: float) -> None:
    queries, rng = ["a", "b", "b", "c"], np.random.default_rng(5)
    documents = ["x", "y", "z", "x"]
    if num_hard:
        documents += ["x", "n", "y", "m", "z", "o", "p", "x"]
    vectors = tuple(rng.normal(size=(count, 3)) for count in (4, len(documents)))
    keys = {text: index for index, text in enumerate(sorted({*queries, *documents}))}
    query_keys, document_keys = (np.array([keys[text] for text in texts]) for texts in (queries, documents))
    options = {"margin": margin, "num_hard_negatives": num_hard}
    first_masked = mask_false_negatives(document_keys, vectors[0] @ vectors[1].T, **options)
    masked = mask_directions(query_keys, document_keys, first_masked, vectors, **options)
    expected = mask_by_loop(queries, documents, num_hard, compute_similarities(*vectors), margin)
    np.testing.assert_array_equal(masked, expected)
    assert 0 < masked.mean() < 1
    columns = [torch.from_numpy(array) for array in vectors]
    counted = float(improved_contrastive(*columns, masked_QK=torch.from_numpy(masked)).masked_fraction)
    assert compute_masked_fraction(masked, len(documents)) == pytest.approx(counted, rel=1e-6)


def test_accuracy_is_of_widest_prefix() -> None:
    queries, noise = draw_vectors(40, 0, seed=8)
    documents = queries + noise
    narrow, wide = (float(info_nce(queries[:, :m], documents[:, :m]).accuracy) for m in (2, 8))
    assert narrow < wide == float(batch_loss(queries, documents, widths=(8, 2)).accuracy)


@pytest.mark.parametrize(("num_negatives", "widths"), [(0, ()), (3, (2, 4))])
@pytest.mark.parametrize("loss", ["infonce", "icl"])
def test_fully_masked_batch_learns_nothing(loss: str, num_negatives: int, widths: tuple[int, ...]) -> None:
    """The masked fraction is 1: entries that no sum contains, such as the pair itself, are not negatives."""
    columns = [column.requires_grad_() for column in draw_vectors(4, num_negatives, seed=7)]
    queries, documents = order_documents(columns)
    num_columns = {"infonce": len(documents), "icl": 2 * (4 + len(documents))}[loss]
    parts = batch_loss(queries, documents, loss=loss, widths=widths, masked=torch.ones(4, num_columns).bool())
    assert float(parts.loss.detach()) == 0
    assert float(parts.masked_fraction) == 1
    assert not any(gradient.any() for gradient in torch.autograd.grad(parts.loss, columns))


FILTERED = base(
    "smoke", loss="icl", sampler="cluster", cluster_size=8, filter="surrogate", filter_margin=-0.1, num_steps=3
)


@pytest.fixture(autouse=True)
def one_thread() -> None:
    """Fix the order of sums, because numbers are compared bit by bit."""
    torch.set_num_threads(1)


def test_run_trains_on_its_filtered_loss(tmp_path: Path) -> None:
    """The first loss of a run follows from its texts, surrogate vectors, margin and temperature."""
    inputs = Inputs(FILTERED)
    inputs.build(ignore)
    train_run(inputs, progress=ignore)
    first = read_metrics(run_folder(run_id(FILTERED)))[0]
    batch_B = build_sampler(inputs).at(0)
    model = start_model(inputs, tmp_path, lambda: False, ignore).train()
    vectors, filters, texts = [], [], []
    for side in ("query", "document"):
        with torch.no_grad():
            vectors.append(model.embed_texts(make_texts(*inputs.tokens(side).pad(batch_B))))
        filters.append(np.asarray(inputs.embeddings(side, of_filter=True)[batch_B], np.float32))
        texts.append([" ".join(text.casefold().split()) for text in inputs.pairs.texts(side, batch_B)])
    masked = torch.from_numpy(mask_by_loop(*texts, 0, compute_similarities(*filters), FILTERED.filter_margin))
    queries_BD, documents_BD = (torch.nn.functional.normalize(side, dim=1) for side in vectors)
    directions = [(queries_BD, documents_BD), (queries_BD, queries_BD), (documents_BD, queries_BD)]
    directions.append((documents_BD, documents_BD))
    scores = torch.cat([left @ right.T for left, right in directions], 1) / FILTERED.temperature
    # a text is not compared with itself, so a row has this number of terms besides its target
    size = len(batch_B)
    num_terms = 4 * (size - 1) + 1
    is_itself = torch.cat([torch.zeros(size, size), torch.eye(size)], 1).bool().repeat(1, 2)
    scores = scores.masked_fill(masked | is_itself, -torch.inf)
    assert 0.02 < first["masked_fraction"] < 0.98
    assert first["masked_fraction"] == pytest.approx(float(masked.sum()) / (size * num_terms), abs=1e-6)
    loss = torch.nn.functional.cross_entropy(scores, torch.arange(size))
    assert first["loss"] == pytest.approx(float(loss), rel=1e-4)


def test_fifths_match_stopped_training(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`measure=steps` scores the model after each fifth of its steps, as if training had stopped there."""
    run = base("smoke", measure="steps", seed=1)
    record = execute(run, progress=ignore)
    steps = compute_marks(12)
    assert steps == (2, 5, 7, 10, 12) == tuple(record.provenance["suite"]["steps"])
    assert record.metrics["planted+fifth5/mean/ndcg_at_10"] == record.metrics["planted/mean/ndcg_at_10"]
    assert len({record.metrics[f"planted+fifth{part}/mean/ndcg_at_10"] for part in range(1, 6)}) > 1
    monkeypatch.setenv("REPRO_HOME", str(tmp_path / "other"))
    untouched = base("smoke", seed=1)
    with pytest.raises(Interrupted, match=f"stopped after step {steps[2]} "):
        execute(untouched, should_stop=stop_after(steps[2]), progress=ignore)
    inputs = Inputs(untouched)
    model = start_model(inputs, tmp_path, lambda: False, ignore)
    optimizer = make_optimizer(model, make_train_settings(untouched, 0))
    assert read_checkpoint(run_folder(run_id(untouched)), run_id(untouched), model, optimizer) is not None
    expected = evaluate(inputs, model.eval(), tmp_path, read_collections(inputs.suite)).metrics
    assert record.metrics["planted+fifth3/mean/ndcg_at_10"] == expected["planted/mean/ndcg_at_10"]


def test_too_few_steps_are_refused() -> None:
    with pytest.raises(ValueError, match=r"measure='steps' of a training of 4 steps: it needs at least 5"):
        compute_marks(4)


def test_curve_averages_equal_stretches(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """48 steps, whose loss is their number, make 24 points: (1 + 2) / 2 at step 2, …, (47 + 48) / 2 at step 48."""
    lines = [{"step": step, "loss": float(step), "accuracy": step / 48} for step in range(1, 49)]
    monkeypatch.setattr(training, "read_metrics", lambda folder: lines)
    metrics = training.measure_curve(Inputs(base("smoke", measure="curve")), None, tmp_path).metrics  # type: ignore[arg-type]
    assert len(metrics) == 48
    assert metrics["curve/2/loss"] == 1.5 and metrics["curve/48/loss"] == 47.5
    assert metrics["curve/4/accuracy"] == pytest.approx(3.5 / 48)
