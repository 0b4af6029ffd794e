"""Write a model as a folder of sentence-transformers, with a model card. `export` and `adapt` share this writer."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from repro.interop.arguments import check_target
from repro.interop.card import make_model_card
from repro.interop.corpus import Progress
from repro.interop.opening import open_model
from repro.interop.sentence_transformers_folder import export_sentence_transformers
from repro.interop.trained_on import find_training_run, write_trained_on
from repro.model.contextual import ContextualModel
from repro.model.encoding import TextEncoder
from repro.spec import Run
from repro.storage.files import atomic_folder, remove_dead_parts

CARD = "README.md"


def list_opening_code(folder: Path, *, is_contextual: bool = False) -> list[str]:
    """Return the code that opens a folder. The folder of a contextual model has code of its own."""
    trust = ", trust_remote_code=True" if is_contextual else ""
    return [
        "from sentence_transformers import SentenceTransformer",
        f'model = SentenceTransformer("{folder}"{trust})',
    ]


def export_model(source: str, folder: Path, *, progress: Progress = print) -> list[str]:
    """Export a model for sentence-transformers, completely or not at all. Return lines for the user.

    Args:
        source: A run's id, a folder or a hub id.
        folder: Target folder.
        progress: Called with each message.

    Raises:
        ValueError: if stock modules cannot hold the model, or if the folder is not empty.
    """
    folder = check_target(folder)
    opened = open_model(source, progress=progress)
    if not isinstance(opened.model, TextEncoder):
        raise ValueError(f"{source} is not one of our models: it is already in the format of another library")
    # Weights are written from the CPU, so that the files do not depend on the device.
    model = opened.ours.to("cpu")
    warnings = []
    if isinstance(model, ContextualModel) and model.context_CE is not None:
        warnings.append(f"warning: the context stored in {source} is not exported: call set_context on the new folder")
    training_run = opened.run or find_training_run(source)
    # The card names the folder without its path, because it is moved or uploaded.
    card = make_model_card(opened, folder.name, training_run)
    write_folder(folder, lambda part: export_sentence_transformers(model, part), card, training_run)
    code = list_opening_code(folder, is_contextual=isinstance(model, ContextualModel))
    return [*warnings, f"wrote {folder}; open it with", *(f"  {line}" for line in code)]


def write_folder(folder: Path, write: Callable[[Path], None], card: str, training_run: Run | None) -> None:
    """Write a model, its card and its training run to a folder, completely or not at all. An empty folder is replaced."""
    remove_dead_parts(folder)
    with atomic_folder(folder, must_be_first=True) as part:
        write(part)
        # without it, an evaluation could not count the queries that the model was trained on
        if training_run is not None:
            write_trained_on(part, training_run)
        (part / CARD).write_text(card, encoding="utf-8")
