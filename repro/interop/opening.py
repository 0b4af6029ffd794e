"""Open models by name: run ids, folders and hub ids."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from transformers.utils import logging as transformers_logging

from repro.data.tokens import get_minilm_folder
from repro.evaluate.suites import ReportingEncoder
from repro.interop.arguments import BM25, MINILM
from repro.interop.corpus import Progress
from repro.interop.official.folder import find_folder, is_official, load_official
from repro.interop.self_contained import is_self_contained, load_self_contained_model
from repro.interop.stock_encoder import StockEncoder
from repro.model.config import ModelConfig
from repro.model.contextual import ContextualModel, Model
from repro.model.start import load_model
from repro.records.lookup import ID_PREFIX, find_run_by_id
from repro.report.scores import find_records
from repro.spec import TRAINED, Run
from repro.spec.identity import get_training_id, run_id
from repro.spec.start import check_weights_are_read
from repro.storage.files import json_object, name_in_errors
from repro.storage.paths import HUB_NAME, run_folder
from repro.text import format_seconds, shorten


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
        ValueError: if `source` is none of these, or if it has no revisions but one is given.
    """
    check_revision(revision, [source])
    # otherwise there is one bar per part of a folder
    transformers_logging.disable_progress_bar()
    run = find_named_run(source)
    if run is not None:
        return Opened(_open_run(run, source, progress), source, run)
    folder = get_minilm_folder() if source == MINILM else Path(source)
    commit = None
    if not folder.is_dir():
        if not is_hub_id(source):
            kinds = f"a folder, the beginning of a run's id, a hub id (OWNER/NAME) or {MINILM}"
            raise ValueError(f"no model {shorten(repr(source))}: name {kinds}; evaluate also takes {BM25}")
        folder = find_folder(source, revision)
        commit = folder.name
    called = source if commit or source == MINILM else folder.resolve().name
    if not any((folder / name).is_file() for name in ("config.json", "modules.json")):
        raise ValueError(f"{folder} is no model: it has neither config.json nor modules.json")
    check_weights_are_read(folder)
    with name_in_errors(folder):
        model = _read_folder(folder, revision)
    if isinstance(model, StockEncoder) and model.unused_prompts:
        used = " and ".join(f"{text!r} before {role} texts" for role, text in model.role_prompts.items())
        progress(f"{called}: prompts {shorten(model.unused_prompts)} are not used; used are {used}")
    return Opened(model, called, revision=commit, folder=folder)


def is_hub_id(source: str) -> bool:
    """Return whether a model is opened from a hub: its name is OWNER/NAME, and there is no such folder."""
    return HUB_NAME.fullmatch(source) is not None and not Path(source).is_dir()


def check_revision(revision: str | None, sources: Sequence[str]) -> None:
    """Raise ValueError if a revision is given and no source is a hub id."""
    if revision is not None and not any(map(is_hub_id, sources)):
        raise ValueError(f"--revision {shorten(revision)}: only hub ids have revisions, not {' and '.join(sources)}")


def find_named_run(source: str) -> Run | None:
    """Return the run with this id, or with an id that begins so. None if `source` has another form.

    Raises:
        ValueError: if no run has this id.
    """
    if Path(source).is_dir() or not ID_PREFIX.fullmatch(source):
        return None
    return find_run_by_id(source)


def _open_run(run: Run, source: str, progress: Progress) -> Model:
    if run.architecture not in TRAINED:
        raise ValueError(f"run {source} is of {run.architecture!r}, which trains no model; {MINILM} is one by name")
    from repro.train.checkpoint import read_checkpoint_step
    from repro.train.trainer import trained_model

    training: dict[str, Any] = next((record.provenance.get("training", {}) for record in find_records([run])), {})
    # a run in epochs has its number of steps only in its record, and training may have ended early
    num_steps = training.get("num_steps", run.num_steps)
    if num_steps is None or read_checkpoint_step(run_folder(get_training_id(run))) < num_steps:
        seconds = training.get("seconds")
        time = f"; it took {format_seconds(seconds)} where it was recorded" if seconds else ""
        progress(f"run {run_id(run)}: its weights are not here, so it is trained{time}")
    return trained_model(run, progress)


def find_bm25_run(source: str) -> Run | None:
    """Return the run that `source` names if it is one of BM25, which has no model to open. Otherwise None."""
    run = find_named_run(source)
    return run if run is not None and run.architecture == BM25 else None


def _read_folder(folder: Path, revision: str | None) -> ReportingEncoder:
    if is_self_contained(folder):
        return load_self_contained_model(folder)
    # before modules.json, which the authors' checkpoints have, too
    if is_official(folder):
        return load_official(folder, revision=revision)
    if (folder / "modules.json").is_file():
        from repro.interop.sentence_transformers_folder import open_sentence_transformers

        return StockEncoder(open_sentence_transformers(folder), str(folder))
    model_type = json_object(folder / "config.json").get("model_type")
    if model_type is not None:
        raise ValueError(f"{folder} is a plain model of transformers ({model_type!r}): save it as SentenceTransformer")
    return load_model(folder)
