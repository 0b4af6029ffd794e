"""Opens what a reader may call a model or a suite: run ids, folders of ours and of others, hub ids, BEIR folders."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from transformers.utils import logging as transformers_logging

from repro.data.beir import Suite, check_groups, find_collections, get_legal_name, load_suite, say_skipped
from repro.evaluate.suites import Encoder
from repro.interop.named_runs import format_training_line, run_named
from repro.interop.official.folder import find_folder, is_official, load_official
from repro.interop.self_contained import is_self_contained, load_self_contained
from repro.interop.stock_encoder import StockEncoder, check_similarity
from repro.interop.typed import check_model, check_suite
from repro.model.contextual import ContextualModel, Model
from repro.model.start import load_model
from repro.spec import TRAINED, Run, base
from repro.storage.files import json_object
from repro.text import short

Progress = Callable[[str], None]
HUB_FILES = ("*.json", "*.safetensors", "*.txt", "*.model")
"""What is fetched of a hub id: settings, weights, words of a tokenizer; no code and no pickle."""
GIVEN = "given"


@dataclass(frozen=True)
class Opened:
    """A model, what it was called, and the run that trained it when that is known."""

    model: Encoder
    called: str
    run: Run | None = None
    revision: str | None = None  # of a hub id: the commit whose files were opened

    @property
    def ours(self) -> Model:
        """The model as one of our two classes; ValueError for a model of another library."""
        if not isinstance(self.model, Model):
            raise ValueError(f"{self.called} is a model of another library ({type(self.model).__name__}), none of ours")
        return self.model

    @property
    def num_contexts(self) -> int:
        """Context documents it takes; 0: it has no context."""
        return self.model.config.num_contexts if isinstance(self.model, ContextualModel) else 0


def open_model(source: str, *, revision: str | None = None, progress: Progress = print) -> Opened:
    """Return the model that `source` names, in eval mode; a run that has not ended is trained first.

    A folder or hub id may be ours, the authors', or an export for sentence-transformers or transformers. ValueError
    when it is nothing of these.
    """
    transformers_logging.disable_progress_bar()  # one for each part of a folder, in opening and in exporting
    folder = Path(source)
    if folder.is_dir():
        return _warn_unused_prompts(Opened(_open_folder(folder, revision), folder.resolve().name), progress)
    if (run := run_named(source)) is not None:
        if run.architecture not in TRAINED:
            raise ValueError(f"run {source} is of {run.architecture!r}, which has no model: choose one of {TRAINED}")
        from repro.train.trainer import trained_model

        if line := format_training_line(run):
            progress(line)
        return Opened(trained_model(run, progress), source, run)
    check_model(source)
    snapshot = find_folder(source, revision, files=HUB_FILES)
    return _warn_unused_prompts(Opened(_open_folder(snapshot, revision), source, revision=snapshot.name), progress)


def _warn_unused_prompts(opened: Opened, progress: Progress) -> Opened:
    """Say which prompts of a model stand before no text, and hand it on."""
    if isinstance(opened.model, StockEncoder) and (unused := opened.model.unused_prompts):
        behind = " and ".join(f"{role} texts behind {text!r}" for role, text in opened.model.prompts_used.items())
        progress(f"{opened.called}: its prompts {short(unused)} are not used; {behind}")
    return opened


def bm25_run(source: str) -> Run | None:
    """Return the run that `source` names when it is one of BM25, which has no model to open; else None."""
    run = run_named(source)
    return run if run is not None and run.architecture == "bm25" else None


def open_suite(source: str, progress: Progress = print) -> Suite:
    """Return a suite by name, building its corpus when it is not there, or from a folder.

    A folder holds suite.json, or is one BEIR folder, or holds some. ValueError when it is nothing of these.
    """
    folder = Path(source)
    check_suite(source)
    if folder.is_dir():
        if (folder / "suite.json").is_file():
            suite = load_suite(folder)
            for line in say_skipped(folder, suite.datasets):
                progress(line)
            return suite
        datasets = tuple(find_collections(folder, GIVEN))
        for line in say_skipped(folder, datasets):
            progress(line)
        check_groups([(one.name, one.family) for one in datasets], str(folder))
        return Suite(get_legal_name(folder.resolve().name), datasets)
    from repro.pipeline.corpora import load_run_suite, make_searched_stage

    asked = base("smoke", suite=source)
    make_searched_stage(asked).build(progress)
    return load_run_suite(asked)


def _open_folder(folder: Path, revision: str | None) -> Encoder:
    if is_self_contained(folder):
        return load_self_contained(folder)
    if (folder / "modules.json").is_file():
        from repro.interop.sentence_transformers_folder import open_sentence_transformers

        theirs = open_sentence_transformers(folder)
        inner = getattr(theirs[0], "model", None)
        if isinstance(inner, ContextualModel):
            return inner
        check_similarity(theirs, folder)
        return StockEncoder(theirs)
    if is_official(folder):
        return load_official(folder, revision=revision)
    if (kind := _kind_in_transformers(folder)) is not None:
        from repro.interop.transformers_model import CdeConfig, CdeModel

        if kind != CdeConfig.model_type:
            raise ValueError(
                f"{folder} is a plain model of transformers ({kind!r}): save it with sentence-transformers first, "
                "which then says how its vectors are pooled (`SentenceTransformer(FOLDER).save(OTHER)`)"
            )
        return CdeModel.from_pretrained(folder).encoder
    model: Model = load_model(folder)
    return model


def _kind_in_transformers(folder: Path) -> str | None:
    """Return what transformers calls the kind of a folder's model; None for a folder in another format."""
    path = folder / "config.json"
    kind = json_object(path).get("model_type") if path.is_file() else None
    return None if kind is None else str(kind)
