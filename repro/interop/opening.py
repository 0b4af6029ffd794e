"""Open models by name: run ids, folders and hub ids."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from transformers.utils import logging as transformers_logging

from repro.evaluate.suites import ReportingEncoder
from repro.interop.arguments import MINILM, check_model, find_model_folder
from repro.interop.corpus import Progress
from repro.interop.named_runs import find_named_run, format_training_line
from repro.interop.official.folder import find_folder, is_official, load_official
from repro.interop.self_contained import is_self_contained, load_self_contained_model
from repro.interop.stock_encoder import StockEncoder, check_similarity
from repro.model.config import ModelConfig
from repro.model.contextual import ContextualModel, Model
from repro.model.start import load_model
from repro.spec import TRAINED, Run
from repro.spec.start import check_weights_are_read
from repro.storage.files import json_object, name_in_errors
from repro.text import shorten

HUB_FILES = ("*.json", "*.safetensors", "*.txt", "*.model")
"""Files that are downloaded from a hub: settings, weights and tokenizers, but no code and no pickle."""


@dataclass(frozen=True)
class Opened:
    """An opened model.

    Attributes:
        model: The model, in eval mode.
        called: Its name in messages and tables.
        run: The run that trained it, or None if it is unknown.
        revision: The commit of the opened files, if the model comes from a hub.
        folder: The folder of the opened files, unless it is a run.
    """

    model: ReportingEncoder
    called: str
    run: Run | None = None
    revision: str | None = None
    folder: Path | None = None

    @property
    def ours(self) -> Model:
        """The model as one of our two classes. ValueError for a model of another library."""
        if not isinstance(self.model, Model):
            raise ValueError(f"{self.called} is a model of another library ({type(self.model).__name__}), none of ours")
        return self.model

    @property
    def config(self) -> ModelConfig | None:
        """The configuration of one of our models. None for a model of another library."""
        return self.model.config if isinstance(self.model, Model) else None

    @property
    def num_contexts(self) -> int:
        """Number of its context documents. 0 if it has no context."""
        return self.model.config.num_contexts if isinstance(self.model, ContextualModel) else 0


def open_model(source: str, *, revision: str | None = None, progress: Progress = print) -> Opened:
    """Open a model in eval mode. If it is a run that is not trained yet, train it first.

    Args:
        source: A run's id, a folder, a hub id or `minilm`. Folders may be in our format, in the authors' format, or
            exports for sentence-transformers or transformers.
        revision: A revision of a hub id.
        progress: Called with each message.

    Raises:
        ValueError: if `source` is none of these.
    """
    # otherwise there is one bar per part of a folder
    transformers_logging.disable_progress_bar()
    folder = find_model_folder(source)
    if folder is not None:
        name = source if source == MINILM else folder.resolve().name
        return _report_unused_prompts(Opened(_open_folder(folder, revision), name, folder=folder), progress)
    run = find_named_run(source)
    if run is not None:
        if run.architecture not in TRAINED:
            hint = (
                f"name {MINILM} instead"
                if (run.architecture, run.surrogate) == ("surrogate", MINILM)
                else f"choose one of {TRAINED}"
            )
            raise ValueError(f"run {source} is of {run.architecture!r}, which trains no model: {hint}")
        from repro.train.trainer import trained_model

        line = format_training_line(run)
        if line is not None:
            progress(line)
        return Opened(trained_model(run, progress), source, run)
    check_model(source)
    snapshot = find_folder(source, revision, files=HUB_FILES)
    opened = Opened(_open_folder(snapshot, revision), source, revision=snapshot.name, folder=snapshot)
    return _report_unused_prompts(opened, progress)


def _report_unused_prompts(opened: Opened, progress: Progress) -> Opened:
    """Report the prompts of a model that are never used, and return the model."""
    model = opened.model
    if isinstance(model, StockEncoder) and model.unused_prompts:
        used = " and ".join(f"{text!r} before {role} texts" for role, text in model.role_prompts.items())
        progress(f"{opened.called}: prompts {shorten(model.unused_prompts)} are not used; used are {used}")
    return opened


def find_bm25_run(source: str) -> Run | None:
    """Return the run that `source` names if it is one of BM25, which has no model to open. Otherwise None."""
    run = find_named_run(source)
    return run if run is not None and run.architecture == "bm25" else None


def _open_folder(folder: Path, revision: str | None) -> ReportingEncoder:
    check_weights_are_read(folder)
    with name_in_errors(folder):
        return _read_folder(folder, revision)


def _read_folder(folder: Path, revision: str | None) -> ReportingEncoder:
    if is_self_contained(folder):
        return load_self_contained_model(folder)
    # before modules.json, which the authors' checkpoints have, too
    if is_official(folder):
        return load_official(folder, revision=revision)
    if (folder / "modules.json").is_file():
        from repro.interop.sentence_transformers_folder import open_sentence_transformers

        opened = open_sentence_transformers(folder)
        check_similarity(opened, folder)
        return StockEncoder(opened)
    config = folder / "config.json"
    model_type = json_object(config).get("model_type") if config.is_file() else None
    if model_type is not None:
        raise ValueError(
            f"{folder} is a plain model of transformers ({model_type!r}): save it with sentence-transformers first, which "
            "adds the pooling (`SentenceTransformer(FOLDER).save(OTHER)`)"
        )
    return load_model(folder)
