"""Export a model as a folder for another library, with a model card."""

from __future__ import annotations

from importlib.metadata import version
from pathlib import Path

from repro.interop.arguments import check_export
from repro.interop.card import make_model_card
from repro.interop.corpus import Progress
from repro.interop.opening import Opened, open_model
from repro.interop.trained_on import find_training_run, write_trained_on
from repro.model.contextual import ContextualModel, Model
from repro.model.encoding import TextEncoder
from repro.storage.files import atomic_file, atomic_folder, remove_dead_parts

CARD = "README.md"
CARD_TEXTS = '["Rain falls from clouds.", "Yeast makes bread rise.", "Copper carries current."]'
CARD_QUESTION = "why does bread rise?"
OPENERS = {
    "transformers": (
        "from transformers import AutoModel",
        'AutoModel.from_pretrained("{folder}", trust_remote_code=True)',
    ),
    "contextual": (
        "from sentence_transformers import SentenceTransformer",
        'SentenceTransformer("{folder}", trust_remote_code=True)',
    ),
    "sentence-transformers": (
        "from sentence_transformers import SentenceTransformer",
        'SentenceTransformer("{folder}")',
    ),
}
"""The import and the call that open a folder, by format. Contextual folders contain code that must be trusted."""
INSTALL = {
    "transformers": f'`pip install "transformers>=5.17" safetensors` (written with {version("transformers")})',
    "contextual": '`pip install "sentence-transformers>=6" "transformers>=5.17"` (written with '
    f"{version('sentence-transformers')} and {version('transformers')})",
    "sentence-transformers": '`pip install "sentence-transformers>=3"`; a NomicBERT needs `"transformers>=5"` '
    f"(written with {version('sentence-transformers')} and {version('transformers')})",
}
"""Requirements of a program that opens a folder, by format."""


def export_model(
    source: str,
    folder: Path,
    to: str,
    *,
    progress: Progress = print,
) -> list[str]:
    """Export a model, completely or not at all. Return lines for the user, with the code that opens the folder.

    Args:
        source: A run's id, a folder or a hub id.
        folder: Target folder.
        to: One of `FORMATS`.
        progress: Called with each message.

    Raises:
        ValueError: if the format is unknown or cannot hold the model, or if the folder is not empty.
    """
    check_export(source, folder, to)
    folder = folder.resolve() if folder.is_symlink() else folder
    opened = open_model(source, progress=progress)
    if not isinstance(opened.model, TextEncoder):
        raise ValueError(f"{source} is not one of our models: it is already in the format of another library")
    # Weights are written from the CPU, so that the files do not depend on the device.
    opened.ours.to("cpu")
    training_run = opened.run or find_training_run(source)
    warnings = []
    if isinstance(opened.model, ContextualModel) and opened.model.context_CE is not None:
        warnings.append(f"warning: the context stored in {source} is not exported: call set_context on the new folder")
    remove_dead_parts(folder)
    # An empty folder is replaced.
    with atomic_folder(folder, must_be_first=True) as part:
        _write(opened.ours, part, to)
        if training_run is not None:
            write_trained_on(part, training_run)
        with atomic_file(part / CARD) as card:
            # The card names the folder without its path, because it is moved or uploaded.
            usage = [*_list_opening_code(opened, Path(folder.name), to), "", *_list_ranking_code(opened, to)]
            install = INSTALL[_get_opener_name(opened, to)]
            text = make_model_card(opened, folder.name, to, usage, training_run=training_run, install=install)
            card.write_text(text, encoding="utf-8")
    code = [f"  {line}" for line in _list_opening_code(opened, folder, to)]
    return [*warnings, f"wrote {folder}; open it with", *code]


def _write(model: Model, folder: Path, to: str) -> None:
    if to == "sentence-transformers":
        from repro.interop.sentence_transformers_folder import export_sentence_transformers

        export_sentence_transformers(model, folder)
    else:
        from repro.interop.self_contained import write_self_contained

        write_self_contained(model, folder)


def _get_opener_name(opened: Opened, to: str) -> str:
    """Return the key of a model and format in `OPENERS` and `INSTALL`."""
    if to == "sentence-transformers" and isinstance(opened.model, ContextualModel):
        return "contextual"
    return to


def _list_opening_code(opened: Opened, folder: Path, to: str) -> list[str]:
    """Return the code that opens the folder."""
    imports, opener = OPENERS[_get_opener_name(opened, to)]
    return [imports, f"model = {opener.format(folder=folder)}"]


def _list_ranking_code(opened: Opened, to: str) -> list[str]:
    """Return the code that ranks three documents for a question, to run after `_list_opening_code`."""
    set_context = []
    if isinstance(opened.model, ContextualModel):
        set_context = ["model.set_context(documents)  # documents of the searched corpus"]
        if opened.model.config.is_blind:
            set_context = ["model.set_context(None)  # the null context, the only one of this model"]
    keyword = "prompt_name=" if to == "sentence-transformers" else ""
    return [
        f"documents = {CARD_TEXTS}",
        f'questions = ["{CARD_QUESTION}"]',
        *set_context,
        f'document_vectors = model.encode(documents, {keyword}"document")',
        f'question_vectors = model.encode(questions, {keyword}"query")',
        "scores = question_vectors @ document_vectors.T  # unit vectors: inner products are cosines",
        "print(documents[int(scores[0].argmax())])",
    ]
