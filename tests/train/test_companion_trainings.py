"""Trainings of the companion papers: the improved loss under a filter, sources drawn by size, scores on the way."""

from pathlib import Path

import numpy as np
import pytest
import torch

from repro.analyses import curve
from repro.analyses.retrieval import evaluate
from repro.analyses.steps import compute_marks
from repro.execute import execute
from repro.model.texts import texts_from
from repro.pipeline.inputs import Inputs
from repro.spec import Run, base
from repro.spec.identity import run_id
from repro.stopping import Interrupted
from repro.storage.paths import run_folder
from repro.train.checkpoint import read_checkpoint, read_metrics
from repro.train.optimizer import build_optimizer
from repro.train.trainer import build_sampler, start_model
from tests.test_execute import quiet, stop_after

FILTERED = base(
    "smoke", loss="icl", sampler="cluster", cluster_size=8, packing="greedy", filter="surrogate", filter_margin=-0.1
)
MIXED = base("smoke", sampler="domain", mixing_alpha=0.5)


@pytest.fixture(autouse=True)
def one_thread() -> None:
    """Numbers are compared to the last bits, so sums must come in one order."""
    torch.set_num_threads(1)


def by_hand(inputs: Inputs) -> tuple[float, float]:
    """The first loss of a run and the share of its entries that the filter removes, text by text (GTE eq. 5 and 6)."""
    run, batch_B = inputs.run, build_sampler(inputs).at(0)
    model = start_model(inputs, lambda: False, quiet).train()
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
        kept = [own]  # the own pair, of query to documents
        entries = [(float(q[i] @ d[j]), fq[i] @ fd[j], text_d[i] == text_d[j]) for j in count if j != i]
        same = [text_q[i] == text_q[j] or text_d[i] == text_d[j] for j in count]
        entries += [(float(q[i] @ q[j]), fq[i] @ fq[j], same[j]) for j in count if j != i]
        entries += [(float(q[j] @ d[i]), fq[j] @ fd[i], same[j]) for j in count if j != i]
        entries += [(float(d[i] @ d[j]), fd[i] @ fd[j], text_d[i] == text_d[j]) for j in count if j != i]
        is_removed = [is_same or near >= threshold for _, near, is_same in entries]
        kept += [own]  # and again, of the document to queries, as eq. 6 has it
        kept += [score / run.temperature for (score, _, _), gone in zip(entries, is_removed, strict=True) if not gone]
        losses.append(float(torch.logsumexp(torch.tensor(kept), 0)) - own)
        num_removed, num_entries = num_removed + sum(is_removed), num_entries + len(entries) + 1
    return float(np.mean(losses)), num_removed / num_entries


def test_a_training_with_filter_and_improved_loss_begins_with_the_loss_by_hand() -> None:
    execute(FILTERED, progress=quiet)
    first = read_metrics(run_folder(run_id(FILTERED)))[0]
    loss, removed = by_hand(Inputs(FILTERED))
    assert 0.02 < removed < 0.98, "a filter that removes nothing or all would prove nothing"
    assert first["masked_fraction"] == pytest.approx(removed, abs=1e-6)
    assert first["loss"] == pytest.approx(loss, rel=1e-4)


@pytest.mark.parametrize("run", [FILTERED, MIXED], ids=["filtered", "mixed"])
def test_a_stopped_training_ends_with_the_same_numbers(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = execute(run, progress=quiet)
    batches = [line["batch"] for line in read_metrics(run_folder(run_id(run)))]
    monkeypatch.setenv("REPRO_HOME", str(tmp_path / "other"))
    with pytest.raises(Interrupted):
        execute(run, should_stop=stop_after(4), progress=quiet)
    resumed = execute(run, progress=quiet)
    assert [line["batch"] for line in read_metrics(run_folder(run_id(run)))] == batches
    assert {k: v for k, v in resumed.metrics.items() if "second" not in k} == {
        k: v for k, v in whole.metrics.items() if "second" not in k
    }


def test_a_fifth_of_the_steps_is_the_model_that_a_stopped_training_has_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = base("smoke", measure="steps", seed=1)
    found = execute(run, progress=quiet)
    steps = compute_marks(12)
    assert steps == (2, 5, 7, 10, 12) == tuple(found.provenance["suite"]["steps"])
    assert found.metrics["planted+fifth5/mean/ndcg_at_10"] == found.metrics["planted/mean/ndcg_at_10"]
    assert len({found.metrics[f"planted+fifth{part}/mean/ndcg_at_10"] for part in range(1, 6)}) > 1
    monkeypatch.setenv("REPRO_HOME", str(tmp_path / "other"))
    plain = base("smoke", seed=1)
    with pytest.raises(Interrupted, match=f"stopped after step {steps[2]} "):
        execute(plain, should_stop=stop_after(steps[2] - 1), progress=quiet)
    inputs = Inputs(plain)
    model = start_model(inputs, lambda: False, quiet)
    optimizer = build_optimizer(model, learning_rate=1.0, weight_decay=0.0)
    assert read_checkpoint(run_folder(run_id(plain)), run_id(plain), model, optimizer) is not None
    from repro.evaluate.collections import read_collections

    expected = evaluate(inputs, model.eval(), tmp_path, read_collections(inputs.suite)).metrics
    assert found.metrics["planted+fifth3/mean/ndcg_at_10"] == expected["planted/mean/ndcg_at_10"]


def test_a_training_of_fewer_steps_than_fifths_is_refused() -> None:
    with pytest.raises(ValueError, match=r"measure='steps' of a training of 4 steps: it needs at least 5"):
        compute_marks(4)


def test_a_curve_is_the_means_of_equal_stretches_of_the_log(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """48 steps with the loss of their number make 24 points: (1 + 2) / 2 at step 2, …, (47 + 48) / 2 at step 48."""
    lines = [{"step": step, "loss": float(step), "accuracy": step / 48} for step in range(1, 49)]
    monkeypatch.setattr(curve, "read_metrics", lambda folder: lines)
    found = curve.measure(Inputs(base("smoke", measure="curve")), None, tmp_path).metrics  # type: ignore[arg-type]
    assert len(found) == 48
    assert found["curve/2/loss"] == 1.5 and found["curve/48/loss"] == 47.5
    assert found["curve/4/accuracy"] == pytest.approx(3.5 / 48)


def test_models_of_all_sizes_see_the_same_batches() -> None:
    hashes = []
    for width in (16, 32):
        run = base("smoke", hidden_size=width, num_steps=4, num_warmup_steps=1, measure="curve")
        execute(run, progress=quiet)
        hashes.append(
            [
                line["batch"]
                for line in read_metrics(
                    run_folder(run_id(base("smoke", hidden_size=width, num_steps=4, num_warmup_steps=1)))
                )
            ]
        )
    assert hashes[0] == hashes[1] and len(set(hashes[0])) == 4


def test_a_source_smaller_than_a_batch_stops_a_run_before_it_trains() -> None:
    with pytest.raises(ValueError, match=r"batch_size=64 with mixing_alpha: \d of \d sources cannot fill a batch"):
        execute(base("smoke", sampler="domain", mixing_alpha=0.3, batch_size=64), progress=quiet)
