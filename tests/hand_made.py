"""Records with known scores in place of the published ones, so that the expected output is known."""

from collections.abc import Callable, Iterable
from pathlib import Path

import numpy as np
import pytest

from repro.records.store import write_record
from repro.report import artefacts as views
from repro.spec import Claim, Run, term

NDCG = "{suite}/mean/ndcg_at_10"


def above(id: str, better: int, worse: int = 64, delta: float | None = None) -> Claim:
    """Claim that one batch size scores above another."""
    pairs = [(term(NDCG, batch_size=better), term(NDCG, batch_size=worse))]
    origin = {"source": "here", "because": "a test"}
    return Claim.order(id, f"{better} above {worse}", pairs=pairs, delta=delta, seeds=(0, 1, 2), **origin)


def write_scores(folder: Path, run: Run, scores_Q: np.ndarray) -> None:
    """Write the record of a run with one score per query on a suite of one dataset."""
    write_record(
        folder,
        run,
        metrics={"desk/mean/ndcg_at_10": float(scores_Q.mean())},
        arrays={"desk": scores_Q},
        provenance={"suite": {"datasets": [{"name": "a", "family": "f", "num_queries": len(scores_Q)}]}},
    )


def publish(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, runs: Iterable[Run], write: Callable[[Path, Run], None]
) -> Path:
    """Write the records of these runs into the folder that replaces the published records. Return the folder."""
    folder = tmp_path / "published"
    for run in runs:
        write(folder, run)
    monkeypatch.setattr(views, "RECORDS", {"published": lambda: folder, "yours": lambda: tmp_path / "yours"})
    return folder
