"""Nested and improved contrastive loss against sentence-transformers and the papers' equations, and runs with them."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from sentence_transformers.sentence_transformer.losses import (
    GISTEmbedLoss,
    MatryoshkaLoss,
    MultipleNegativesRankingLoss,
)
from torch import Tensor, nn

from repro.analyses import curve
from repro.analyses.retrieval import evaluate
from repro.analyses.steps import compute_marks
from repro.batches.mask import compute_masked_fraction, mask_directions
from repro.evaluate.collections import read_collections
from repro.execute import execute
from repro.model.texts import texts_from
from repro.pipeline.inputs import Inputs
from repro.spec import Run, base
from repro.spec.identity import run_id
from repro.stopping import Interrupted
from repro.storage.paths import run_folder
from repro.train.checkpoint import read_checkpoint, read_metrics
from repro.train.chunks import ChunkSizes
from repro.train.gradcache import Stages, StepTexts, add_gradients
from repro.train.loss import LossParts, batch_loss, improved_contrastive, info_nce
from repro.train.optimizer import build_optimizer
from repro.train.trainer import build_sampler, start_model
from tests.commands import ignore
from tests.model.samples import build_small_model, draw_texts
from tests.test_execute import stop_after

SIZE, TEMPERATURE = 16, 0.1
FOUR = ("query_to_doc", "query_to_query", "doc_to_query", "doc_to_doc")
NO_LABELS = torch.zeros(0)


class Given(nn.Module):
    """A model of sentence-transformers whose vectors are given."""

    def forward(self, features: dict[str, Tensor]) -> dict[str, Tensor]:
        return {"sentence_embedding": features["given"]}

    def get_embedding_dimension(self) -> int:
        return SIZE


class GivenGuide(Given):
    """A guide model whose vectors are given."""

    def forward(self, features: dict[str, Tensor]) -> dict[str, Tensor]:
        return {"sentence_embedding": features["of_guide"]}


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


@pytest.mark.parametrize("num_negatives", [0, 1, 3])
@pytest.mark.parametrize(
    ("loss", "widths"),
    [("infonce", (4, 8, 16)), ("infonce", (2, 16)), ("infonce", (4,)), ("icl", ()), ("icl", (4, 16))],
)
def test_loss_matches_library(loss: str, widths: tuple[int, ...], num_negatives: int) -> None:
    options = {"directions": FOUR, "partition_mode": "joint"} if loss == "icl" else {}
    inner = MultipleNegativesRankingLoss(Given(), scale=1 / TEMPERATURE, **options)
    reference = MatryoshkaLoss(inner.model, inner, widths) if widths else inner
    assert_same_gradients(
        lambda c: batch_loss(*order_documents(c), loss=loss, widths=widths, temperature=TEMPERATURE).loss,
        lambda c: reference([{"given": column} for column in c], NO_LABELS),
        draw_vectors(6, num_negatives, seed=1),
    )


def test_improved_loss_matches_equations() -> None:
    queries, documents = draw_vectors(4, 0, seed=2)

    def e(one: Tensor, other: Tensor) -> Tensor:
        return torch.exp(torch.cosine_similarity(one, other, dim=0) / TEMPERATURE)

    losses = []
    for i in range(4):
        others = [j for j in range(4) if j != i]
        z = sum(e(queries[i], documents[j]) for j in range(4)) + sum(e(queries[i], queries[j]) for j in others)
        z = z + sum(e(queries[j], documents[i]) for j in range(4)) + sum(e(documents[j], documents[i]) for j in others)
        losses.append(-torch.log(e(queries[i], documents[i]) / z))
    parts = improved_contrastive(queries, documents, temperature=TEMPERATURE)
    torch.testing.assert_close(parts.loss, torch.stack(losses).mean())
    assert float(parts.masked_fraction) == 0


def compute_gist_loss(columns: list[Tensor], guide: list[Tensor]) -> Tensor:
    """Return GISTEmbed's loss on given vectors of model and guide."""
    loss = GISTEmbedLoss.__new__(GISTEmbedLoss)
    nn.Module.__init__(loss)
    loss.model, loss.guide, loss.temperature = Given(), GivenGuide(), TEMPERATURE
    loss.similarity_fct, loss.cross_entropy_loss = nn.CosineSimilarity(dim=-1), nn.CrossEntropyLoss()
    loss.margin_strategy, loss.margin, loss.must_retokenize = "absolute", 0.0, False
    loss.contrast_anchors = loss.contrast_positives = True
    loss.gather_across_devices = False
    features = [
        {"given": column, "of_guide": guide_column} for column, guide_column in zip(columns, guide, strict=True)
    ]
    return loss(features, NO_LABELS)


def test_filtered_loss_matches_gist_embed() -> None:
    columns, guide = draw_vectors(7, 0, seed=3), [column * 1.0 for column in draw_vectors(7, 0, seed=4)]
    guide[0][1], guide[1][2] = guide[0][0] + 0.01, guide[1][3] + 0.01  # near neighbours, which are masked
    queries, documents = (torch.nn.functional.normalize(column, dim=1).numpy() for column in guide)
    scores, different = queries @ documents.T, np.arange(7)
    masked = np.array(scores >= np.diagonal(scores)[:, None])
    np.fill_diagonal(masked, False)
    all_masked = torch.from_numpy(mask_directions(different, 100 + different, masked, (queries, documents)))
    of_queries, of_documents = all_masked[:, 7:14], all_masked[:, 21:]
    assert masked.any() and of_queries.any() and of_documents.any()
    without = torch.cat([all_masked[:, :14], torch.ones(7, 7, dtype=torch.bool), of_documents], 1)
    assert_same_gradients(
        lambda c: improved_contrastive(*order_documents(c), temperature=TEMPERATURE, masked_QK=without).loss,
        lambda c: compute_gist_loss(c, guide),
        columns,
    )


def mask_by_loop(
    queries: list[str], documents: list[str], num_hard: int, f: dict[str, np.ndarray], margin: float
) -> np.ndarray:
    """Return the masks of the four directions, entry by entry."""
    count, total = len(queries), len(documents)
    rows = []
    for i in range(count):
        limit = f["qd"][i, i] + margin
        owner = [j if j < count else (j - count) // num_hard for j in range(total)]
        alike = [queries[j] == queries[i] or documents[j] == documents[i] for j in range(count)]
        to_queries = [j != i and (alike[j] or f["qq"][i, j] >= limit) for j in range(count)]
        from_queries = [j != i and (alike[j] or f["qd"][j, i] >= limit) for j in range(count)]
        chosen = [j >= count and owner[j] == i for j in range(total)]
        to_documents = [
            j != i and not chosen[j] and (documents[j] == documents[i] or f["dd"][i, j] >= limit) for j in range(total)
        ]
        rows.append([False] * total + to_queries + from_queries + to_documents)
    return np.array(rows)


@pytest.mark.parametrize("margin", [0.0, 0.4, -0.4])
@pytest.mark.parametrize("num_hard", [0, 2])
def test_direction_masks_match_loops(num_hard: int, margin: float) -> None:
    queries, rng = ["a", "b", "b", "c"], np.random.default_rng(5)
    documents = ["x", "y", "z", "x", *(["x", "n", "y", "m", "z", "o", "p", "x"] if num_hard else [])]
    vectors_of = [rng.normal(size=(count, 3)) for count in (4, len(documents))]
    q, d = vectors = tuple(array / np.linalg.norm(array, axis=1, keepdims=True) for array in vectors_of)
    f = {"qd": q @ d.T, "qq": q @ q.T, "dd": d[:4] @ d.T}
    keys = {word: index for index, word in enumerate(sorted({*queries, *documents}))}
    query_keys, document_keys = (np.array([keys[word] for word in texts]) for texts in (queries, documents))
    unmasked = np.zeros((4, len(documents)), bool)
    masked = mask_directions(query_keys, document_keys, unmasked, vectors, margin=margin, num_hard_negatives=num_hard)
    np.testing.assert_array_equal(masked, mask_by_loop(queries, documents, max(1, num_hard), f, margin))
    assert 0 < masked.mean() < 1
    columns = [torch.from_numpy(array) for array in vectors_of]
    counted = float(improved_contrastive(*columns, masked_QK=torch.from_numpy(masked)).masked_fraction)
    assert compute_masked_fraction(masked, len(documents)) == pytest.approx(counted, rel=1e-6)


def test_plain_loss_is_infonce() -> None:
    queries, documents = order_documents(draw_vectors(5, 1, seed=6))
    masked = torch.rand(5, 10, generator=torch.Generator().manual_seed(0)) < 0.3
    parts: LossParts = batch_loss(queries, documents, masked=masked)
    expected = info_nce(queries, documents, masked_QM=masked)
    assert torch.equal(parts.loss, expected.loss) and float(parts.masked_fraction) == float(expected.masked_fraction)


def test_accuracy_is_of_widest_prefix() -> None:
    queries, noise = draw_vectors(40, 0, seed=8)
    documents = queries + noise
    narrow, wide = (float(info_nce(queries[:, :m], documents[:, :m]).accuracy) for m in (2, 8))
    assert narrow < wide == float(batch_loss(queries, documents, widths=(8, 2)).accuracy)


def test_masked_text_gets_no_gradient() -> None:
    queries, documents = (vectors.requires_grad_() for vectors in draw_vectors(3, 0, seed=7))
    everything = torch.ones(3, 12, dtype=torch.bool)
    parts = improved_contrastive(queries, documents, masked_QK=everything)
    parts.loss.backward()
    assert float(parts.loss.detach()) == 0 and float(parts.masked_fraction) == 1
    assert queries.grad is not None and float(queries.grad.abs().max()) == 0


def test_misfitting_shapes_are_refused() -> None:
    with pytest.raises(ValueError, match="5 documents cannot be split evenly among 3 queries"):
        improved_contrastive(torch.randn(3, 4), torch.randn(5, 4))
    with pytest.raises(ValueError, match=r"\(3, 3\), not \(3, 12\)"):
        improved_contrastive(torch.randn(3, 4), torch.randn(3, 4), masked_QK=torch.ones(3, 3, dtype=torch.bool))
    with pytest.raises(ValueError, match="a prefix of 8 dimensions is wider than vectors of 4"):
        batch_loss(torch.randn(3, 4), torch.randn(3, 4), widths=(2, 8))


@pytest.mark.parametrize("architecture", ["biencoder", "contextual"])
@pytest.mark.parametrize(("loss", "widths"), [("infonce", (2, 4, 8)), ("icl", ()), ("icl", (2, 8))])
def test_cached_gradients_match_one_graph(architecture: str, loss: str, widths: tuple[int, ...]) -> None:
    model = build_small_model(architecture=architecture, sequence_dropout=0.0).double().train()
    queries, documents, contexts = draw_texts(5, seed=1), draw_texts(10, seed=2), draw_texts(4, seed=3)
    masked = torch.rand(5, 10 if loss == "infonce" else 30, generator=torch.Generator().manual_seed(1)) < 0.2

    def of(queries_QD: Tensor, documents_MD: Tensor) -> LossParts:
        return batch_loss(queries_QD, documents_MD, loss=loss, widths=widths, masked=masked)

    is_contextual = architecture == "contextual"
    second = model.second_stage if is_contextual else lambda texts, _: model(texts)
    stages = Stages(second, of, model.first_stage if is_contextual else None)
    vectors_CD = model.first_stage(contexts) if is_contextual else None
    expected_loss = of(second(queries, vectors_CD), second(documents, vectors_CD)).loss
    expected_loss.backward()
    expected = [weight.grad for weight in model.parameters()]
    model.zero_grad(set_to_none=True)
    parts = add_gradients(stages, StepTexts(queries, documents, contexts if is_contextual else None), ChunkSizes(3, 2))
    torch.testing.assert_close(parts.loss, expected_loss.detach(), rtol=1e-10, atol=0)
    for weight, gradient in zip(model.parameters(), expected, strict=True):
        assert weight.grad is not None and gradient is not None
        assert gradient.abs().max() > 0
        torch.testing.assert_close(weight.grad, gradient, rtol=1e-7, atol=1e-9 * float(gradient.abs().max()))


@pytest.mark.parametrize("num_hard", [0, 1, 3])
@pytest.mark.parametrize("loss", ["infonce", "icl"])
def test_fully_masked_batch_counts_fully(loss: str, num_hard: int) -> None:
    """Entries that no sum contains, such as the pair itself, are not counted as negatives."""
    queries, documents = torch.randn(4, 5), torch.randn(4 * (1 + num_hard), 5)
    num_columns = len(documents) if loss == "infonce" else 2 * (4 + len(documents))
    masked = torch.ones(4, num_columns, dtype=torch.bool)
    assert float(batch_loss(queries, documents, loss=loss, masked=masked).masked_fraction) == 1.0


FILTERED = base(
    "smoke", loss="icl", sampler="cluster", cluster_size=8, packing="greedy", filter="surrogate", filter_margin=-0.1
)
MIXED = base("smoke", sampler="domain", mixing_alpha=0.5)


@pytest.fixture(autouse=True)
def one_thread() -> None:
    """Fix the order of sums, because numbers are compared bit by bit."""
    torch.set_num_threads(1)


def compute_first_loss(inputs: Inputs) -> tuple[float, float]:
    """Return the first loss of a run and the share of entries that the filter removes, by loops (GTE eq. 5 and 6)."""
    run, batch_B = inputs.run, build_sampler(inputs).at(0)
    model = start_model(inputs, lambda: False, ignore).train()
    with torch.no_grad():
        q, d = (
            torch.nn.functional.normalize(model.embed_texts(texts_from(*inputs.tokens(side).pad(batch_B))), dim=-1)
            for side in ("query", "document")
        )
    filters = (inputs.filter_embeddings("query"), inputs.filter_embeddings("document"))
    fq, fd = (np.asarray(vectors[batch_B], np.float32) for vectors in filters if vectors is not None)
    text_q, text_d = (inputs.pairs.texts(side, batch_B) for side in ("query", "document"))
    losses, num_removed, num_entries, count = [], 0, 0, range(len(batch_B))
    for i in count:
        threshold = fq[i] @ fd[i] + run.filter_margin
        own = float(q[i] @ d[i]) / run.temperature
        terms = [own]  # the own pair, from query to documents
        entries = [(float(q[i] @ d[j]), fq[i] @ fd[j], text_d[i] == text_d[j]) for j in count if j != i]
        same = [text_q[i] == text_q[j] or text_d[i] == text_d[j] for j in count]
        entries += [(float(q[i] @ q[j]), fq[i] @ fq[j], same[j]) for j in count if j != i]
        entries += [(float(q[j] @ d[i]), fq[j] @ fd[i], same[j]) for j in count if j != i]
        entries += [(float(d[i] @ d[j]), fd[i] @ fd[j], text_d[i] == text_d[j]) for j in count if j != i]
        is_removed = [is_same or similarity >= threshold for _, similarity, is_same in entries]
        terms += [own]  # again, from document to queries, as in eq. 6
        terms += [
            score / run.temperature for (score, _, _), is_gone in zip(entries, is_removed, strict=True) if not is_gone
        ]
        losses.append(float(torch.logsumexp(torch.tensor(terms), 0)) - own)
        num_removed, num_entries = num_removed + sum(is_removed), num_entries + len(entries) + 1
    return float(np.mean(losses)), num_removed / num_entries


def test_first_loss_matches_loops() -> None:
    execute(FILTERED, progress=ignore)
    first = read_metrics(run_folder(run_id(FILTERED)))[0]
    loss, removed = compute_first_loss(Inputs(FILTERED))
    assert 0.02 < removed < 0.98
    assert first["masked_fraction"] == pytest.approx(removed, abs=1e-6)
    assert first["loss"] == pytest.approx(loss, rel=1e-4)


@pytest.mark.parametrize("run", [FILTERED, MIXED], ids=["filtered", "mixed"])
def test_stopped_training_ends_the_same(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    uninterrupted = execute(run, progress=ignore)
    batches = [line["batch"] for line in read_metrics(run_folder(run_id(run)))]
    monkeypatch.setenv("REPRO_HOME", str(tmp_path / "other"))
    with pytest.raises(Interrupted):
        execute(run, should_stop=stop_after(4), progress=ignore)
    resumed = execute(run, progress=ignore)
    assert [line["batch"] for line in read_metrics(run_folder(run_id(run)))] == batches
    assert {k: v for k, v in resumed.metrics.items() if "second" not in k} == {
        k: v for k, v in uninterrupted.metrics.items() if "second" not in k
    }


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
        execute(untouched, should_stop=stop_after(steps[2] - 1), progress=ignore)
    inputs = Inputs(untouched)
    model = start_model(inputs, lambda: False, ignore)
    optimizer = build_optimizer(model, learning_rate=1.0, weight_decay=0.0)
    assert read_checkpoint(run_folder(run_id(untouched)), run_id(untouched), model, optimizer) is not None
    expected = evaluate(inputs, model.eval(), tmp_path, read_collections(inputs.suite)).metrics
    assert record.metrics["planted+fifth3/mean/ndcg_at_10"] == expected["planted/mean/ndcg_at_10"]


def test_too_few_steps_are_refused() -> None:
    with pytest.raises(ValueError, match=r"measure='steps' of a training of 4 steps: it needs at least 5"):
        compute_marks(4)


def test_curve_averages_equal_stretches(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """48 steps, whose loss is their number, make 24 points: (1 + 2) / 2 at step 2, …, (47 + 48) / 2 at step 48."""
    lines = [{"step": step, "loss": float(step), "accuracy": step / 48} for step in range(1, 49)]
    monkeypatch.setattr(curve, "read_metrics", lambda folder: lines)
    metrics = curve.measure(Inputs(base("smoke", measure="curve")), None, tmp_path).metrics  # type: ignore[arg-type]
    assert len(metrics) == 48
    assert metrics["curve/2/loss"] == 1.5 and metrics["curve/48/loss"] == 47.5
    assert metrics["curve/4/accuracy"] == pytest.approx(3.5 / 48)


def test_model_size_keeps_the_batches() -> None:
    hashes = []
    for width in (16, 32):
        run = base("smoke", hidden_size=width, num_steps=4, num_warmup_steps=1)
        execute(replace(run, measure="curve"), progress=ignore)
        hashes.append([line["batch"] for line in read_metrics(run_folder(run_id(run)))])
    assert hashes[0] == hashes[1] and len(set(hashes[0])) == 4
