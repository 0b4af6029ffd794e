"""Loss on pairs that are set apart from training: keep the weights where it is lowest, and end training early.

1. The loss is measured `NUM_MEASUREMENTS` times per training run, on all pairs as one batch, without random drops.
2. At each new minimum the weights are written next to the checkpoint.
3. After `PATIENCE` measurements in a row without a new minimum, training ends.
4. When training has ended, the checkpoint gets the best weights.

The context of a contextual model is drawn from the documents of these pairs, as in training from those of a batch.
"""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch

from repro.data.own.imported import SET_APART_FILE, explain_none_set_apart
from repro.data.pairs import Side, read_pairs
from repro.data.tokens import Tokens, load_tokenizer, tokenize
from repro.data.wording import identify_text
from repro.model.contextual import ContextualModel, Model
from repro.model.encoding import read_tensors, write_tensors
from repro.model.modeling_cde import fill_context
from repro.pipeline.inputs import Inputs
from repro.pipeline.needs import get_tokenizer_name
from repro.pipeline.prompting import PromptedTexts
from repro.train.checkpoint import TrainState
from repro.train.feed import SetApart
from repro.train.parallel import any_process, broadcast_weights, rank
from repro.train.setup import TrainSettings

LOSS = "set_apart_loss"
"""Name of the loss in the log."""
NUM_MEASUREMENTS = 12
PATIENCE = 4


def load(inputs: Inputs) -> SetApart:
    """Load the pairs of an imported corpus that are set apart. A repeated query or document is left out.

    Raises ValueError if the corpus has none.
    """
    run = inputs.run
    path = inputs.graph.corpus.path / SET_APART_FILE
    if not path.is_file():
        raise ValueError(explain_none_set_apart(run.corpus))
    pairs = read_pairs(path)
    all_rows = np.arange(len(pairs))
    queries = pairs.texts("query", all_rows)
    documents = pairs.texts("document", all_rows)
    used_forms: set[str] = set()
    rows: list[int] = []
    # All other documents of the batch count as negatives. A repeated text would make a right answer a wrong one.
    for row, (query, document) in enumerate(zip(queries, documents, strict=True)):
        forms = {identify_text(query), identify_text(document)}
        if not forms & used_forms:
            rows.append(row)
            used_forms |= forms
    tokenizer = load_tokenizer(get_tokenizer_name(run))

    def tokenize_side(side: Side) -> Tokens:
        prompted = PromptedTexts(pairs, side, run.prompts, run.corpus)
        return tokenize(prompted.texts(np.array(rows)), tokenizer, run.max_tokens)

    return SetApart(tokenize_side("query"), tokenize_side("document"))


def is_measured_after(step: int, num_steps: int) -> bool:
    """Return whether the loss is measured after a step: at equal distances, and after the last one."""
    # True if the number of completed twelfths rises with this step.
    return step * NUM_MEASUREMENTS // num_steps > (step - 1) * NUM_MEASUREMENTS // num_steps


def compute_loss(model: Model, pairs: SetApart, settings: TrainSettings) -> float:
    """Return the mean loss of the pairs set apart, as one batch. The seed of the run draws the context."""
    if isinstance(model, ContextualModel):
        if model.config.is_blind:
            context = model.context_from(None)
        else:
            rows = fill_context(len(pairs.documents), model.config.num_contexts, settings.seed)
            context = model.embed_context(select_tokens(pairs.documents, rows))
        sides = [model.encode_under(tokens, context) for tokens in pairs]
    else:
        sides = [model.encode_tokens(tokens) for tokens in pairs]
    queries_QD, documents_MD = map(torch.from_numpy, sides)
    return float(settings.compute_loss(queries_QD, documents_MD).loss)


def select_tokens(tokens: Tokens, rows: np.ndarray) -> Tokens:
    """Return the tokens of these texts."""
    parts = [tokens.ids[tokens.offsets[row] : tokens.offsets[row + 1]] for row in rows]
    return Tokens(np.concatenate(parts), np.concatenate([[0], np.cumsum([len(part) for part in parts])]))


def note_loss(folder: Path, state: TrainState, model: Model, loss: float) -> TrainState:
    """Return the state after a measurement, and write the weights if the loss is the lowest so far.

    Rank 0 decides for all processes.
    """
    is_lower = state.best_loss is None or loss < state.best_loss
    if any_process(rank() == 0 and is_lower and math.isfinite(loss), model.device):
        if rank() == 0:
            # Written before the checkpoint that names the step. If no checkpoint follows, the file is removed later.
            write_tensors(dict(model.state_dict()), _get_path(folder, state.step))
        return replace(state, best_step=state.step, best_loss=loss, num_worse=0)
    num_worse = state.num_worse + 1
    return replace(state, num_worse=num_worse, has_ended=num_worse >= PATIENCE)


def load_best_weights(folder: Path, state: TrainState, model: Model) -> None:
    """Load the weights with the lowest loss. Raises ValueError if their file is missing."""
    if rank() == 0:
        path = _get_path(folder, state.best_step)
        if not path.is_file():
            raise ValueError(f"{path} is missing: restore it, or remove {folder} to train again")
        model.load_state_dict(read_tensors(path))
    broadcast_weights(model.parameters())


def remove_worse_weights(folder: Path, state: TrainState) -> None:
    """Remove the weights that the checkpoint no longer needs: all but the best, or all if it holds the best."""
    if rank() == 0:
        needed = None if state.holds_best else _get_path(folder, state.best_step)
        for path in folder.glob("best-*.safetensors"):
            if path != needed:
                path.unlink()


def _get_path(folder: Path, step: int) -> Path:
    return folder / f"best-{step}.safetensors"
