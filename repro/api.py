"""Import, train and evaluate from Python, for example in a notebook: the functions that the command line calls.

`docs/PYTHON.md` has an example. The other verbs are functions too: `repro.interop.search.search`,
`repro.interop.adapting.adapt_model` and `repro.interop.exporting.export_model`.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from datasets import Dataset
from sentence_transformers import SentenceTransformer

from repro.data.own.imported import ImportedCorpus, import_source
from repro.execute import execute
from repro.interop.evaluating import EvaluationRequest, Scores, run_evaluation
from repro.interop.exporting import export_model
from repro.pipeline.corpora import list_project_names
from repro.planning.imported import plan_imported
from repro.records.store import Record
from repro.spec import base
from repro.spec.identity import difference, run_id
from repro.storage.lease import acquire_when_free
from repro.storage.paths import get_home, run_folder


@dataclass(frozen=True)
class TrainedModel:
    """A trained model.

    Attributes:
        id: The id of its run, which every verb takes as a model.
        record: Its settings and scores.
        folder: Its export, for deployment.
        model: The opened export. `encode`, `encode_query` and `encode_document` of a contextual model take `context=`,
            documents of the searched corpus.
    """

    id: str
    record: Record
    folder: Path
    model: SentenceTransformer


def import_pairs(pairs: Dataset | str | Path, name: str, **options: Any) -> ImportedCorpus:
    """Import pairs of a query and a document under a name, and hold out some for evaluation (`repro data import`).

    Args:
        pairs: A dataset with the columns "query" and "document", or a file or folder as on the command line.
        name: The name of the corpus, and of the suite that is held out.
        options: Further arguments of `import_source`, for example `evaluate_on`.
    """
    options["reserved"] = list_project_names()
    if not isinstance(pairs, Dataset):
        return import_source(Path(pairs), name=name, **options)
    with tempfile.TemporaryDirectory() as folder:
        pairs.save_to_disk(folder)
        return import_source(Path(folder), name=name, **options)


def train(
    name: str,
    *,
    architecture: str = "contextual",
    scale: str = "mini2",
    progress: Callable[[str], None] = print,
    **fields: Any,
) -> TrainedModel:
    """Train a model on an imported corpus, score it on the held-out queries, and export it (`repro run`, `export`).

    A finished run is only opened again.

    Args:
        name: The name of the corpus.
        architecture: "contextual" or "biencoder".
        scale: "mini2" starts from MiniLM. "smoke" trains a tiny model in seconds.
        progress: Called with each message.
        fields: Further fields of the run, for example `learning_rate` and `seed`.
    """
    planned = next(run for run in plan_imported(name, scale, progress).runs if run.architecture == architecture)
    run = base(scale, **{**difference(planned), **fields})
    # `repro run` and `repro launch` take this lease too.
    lease_folder = run_folder(run_id(run)) / "owner"
    with acquire_when_free(lease_folder, lambda owner: progress(f"waiting for {owner}, which is executing this run")):
        record = execute(run, progress=progress)
    folder = get_home() / "models" / run_id(run)
    if not folder.is_dir():
        export_model(run_id(run), folder, progress=progress)
    model = SentenceTransformer(str(folder), trust_remote_code=True, local_files_only=True)
    return TrainedModel(run_id(run), record, folder, model)


def evaluate(model: str, suite: str, **options: Any) -> Scores:
    """Score a model on a suite (`repro evaluate`). `options` are further fields of `EvaluationRequest`."""
    return run_evaluation(EvaluationRequest(model=model, suite=suite, **options))
