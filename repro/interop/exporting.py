"""Write a model as a folder for another library, with a model card. `export` and `adapt` share this writer."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path

from repro.interop.arguments import check_target
from repro.interop.card import make_model_card
from repro.interop.corpus import Progress
from repro.interop.opening import Opened, open_model
from repro.interop.self_contained import write_self_contained
from repro.interop.sentence_transformers_folder import export_sentence_transformers
from repro.interop.trained_on import find_training_run, write_trained_on
from repro.model.contextual import ContextualModel
from repro.model.encoding import TextEncoder
from repro.spec import Run
from repro.storage.files import atomic_folder, remove_dead_parts

CARD = "README.md"


@dataclass(frozen=True)
class Format:
    """How a folder is opened: the import, the call, the requirements, and the keyword of the prompt in `encode`."""

    imports: str
    call: str
    install: str
    keyword: str = "prompt_name="

    def list_opening_code(self, folder: Path) -> list[str]:
        """Return the code that opens the folder."""
        return [self.imports, f"model = {self.call.format(folder=folder)}"]


_WRITTEN = f"(written with {version('sentence-transformers')} and {version('transformers')})"
TRANSFORMERS = Format(
    "from transformers import AutoModel",
    'AutoModel.from_pretrained("{folder}", trust_remote_code=True)',
    f'`pip install "transformers>=5.17" safetensors` {_WRITTEN}',
    "",
)
CONTEXTUAL = Format(
    "from sentence_transformers import SentenceTransformer",
    'SentenceTransformer("{folder}", trust_remote_code=True)',
    f'`pip install "sentence-transformers>=6" "transformers>=5.17"` {_WRITTEN}',
)
STOCK = Format(
    "from sentence_transformers import SentenceTransformer",
    'SentenceTransformer("{folder}")',
    f'`pip install "sentence-transformers>=3"`; a NomicBERT needs `"transformers>=5"` {_WRITTEN}',
)
FORMATS = ("sentence-transformers", "transformers")


def export_model(source: str, folder: Path, to: str, *, progress: Progress = print) -> list[str]:
    """Export a model, completely or not at all. Return lines for the user, with the code that opens the folder.

    Args:
        source: A run's id, a folder or a hub id.
        folder: Target folder.
        to: One of `FORMATS`.
        progress: Called with each message.

    Raises:
        ValueError: if the format is unknown or cannot hold the model, or if the folder is not empty.
    """
    if to not in FORMATS:
        raise ValueError(f"unknown format {to!r}; choose one of {list(FORMATS)}")
    folder = check_target(folder)
    opened = open_model(source, progress=progress)
    if not isinstance(opened.model, TextEncoder):
        raise ValueError(f"{source} is not one of our models: it is already in the format of another library")
    # Weights are written from the CPU, so that the files do not depend on the device.
    model = opened.ours.to("cpu")
    is_contextual = isinstance(model, ContextualModel)
    warnings = []
    if isinstance(model, ContextualModel) and model.context_CE is not None:
        warnings.append(f"warning: the context stored in {source} is not exported: call set_context on the new folder")
    form, write = (TRANSFORMERS, write_self_contained)
    if to != "transformers":
        form, write = (CONTEXTUAL if is_contextual else STOCK), export_sentence_transformers
    training_run = opened.run or find_training_run(source)
    # The card names the folder without its path, because it is moved or uploaded.
    usage = [*form.list_opening_code(Path(folder.name)), "", *_list_ranking_code(opened, form)]
    card = make_model_card(opened, folder.name, to, usage, form.install, training_run=training_run)
    write_folder(folder, lambda part: write(model, part), card, training_run)
    return [*warnings, f"wrote {folder}; open it with", *(f"  {line}" for line in form.list_opening_code(folder))]


def write_folder(folder: Path, write: Callable[[Path], None], card: str, training_run: Run | None) -> None:
    """Write a model, its card and its training run to a folder, completely or not at all. An empty folder is replaced."""
    remove_dead_parts(folder)
    with atomic_folder(folder, must_be_first=True) as part:
        write(part)
        # without it, an evaluation could not count the queries that the model was trained on
        if training_run is not None:
            write_trained_on(part, training_run)
        (part / CARD).write_text(card, encoding="utf-8")


def _list_ranking_code(opened: Opened, form: Format) -> list[str]:
    """Return the code that ranks three documents for a question, after the folder is opened."""
    set_context = []
    if opened.num_contexts:
        set_context = ["model.set_context(documents)  # documents of the searched corpus"]
        if opened.ours.config.is_blind:
            set_context = ["model.set_context(None)  # the null context, the only one of this model"]
    return [
        'documents = ["Rain falls from clouds.", "Yeast makes bread rise.", "Copper carries current."]',
        'questions = ["why does bread rise?"]',
        *set_context,
        f'document_vectors = model.encode(documents, {form.keyword}"document")',
        f'question_vectors = model.encode(questions, {form.keyword}"query")',
        "scores = question_vectors @ document_vectors.T  # unit vectors: inner products are cosines",
        "print(documents[int(scores[0].argmax())])",
    ]
