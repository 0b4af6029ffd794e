"""Adapts an encoder to a corpus without training: a stock sentence-transformers folder with whitened vectors.

1. The distinct documents of the corpus are encoded by the model as it is. The analysis `repro.analyses.whitening` counts
   repeated documents each time, so its numbers differ for a corpus that repeats some. `desk` repeats none.
2. Their mean m and the whitening matrix W (`repro.evaluate.adaptation`) become one affine layer: a `Dense` module
   without activation, weight W and bias −W m, followed by `Normalize`.
3. The folder holds the modules of the model and these two. It opens with sentence-transformers alone. Prompts and
   similarity function stay the same.

Shapes: N documents, H dimensions.
"""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Any

import numpy as np
import torch
from sentence_transformers import SentenceTransformer
from sentence_transformers.base.modules import Dense, Normalize

from repro.batches.surrogate import check_vectors
from repro.data.wording import is_empty
from repro.evaluate.adaptation import (
    DEFAULT_SHRINKAGE,
    AffineMap,
    Moments,
    describe_small_sample,
    list_distinct_rows,
    make_whitening_map,
)
from repro.interop.arguments import check_target, to_device
from repro.interop.card import INSTALL_STOCK, render_card
from repro.interop.corpus import Corpus, Progress, read_corpus
from repro.interop.exporting import list_opening_code, write_folder
from repro.interop.opening import find_named_run, open_model
from repro.interop.sentence_transformers_folder import as_sentence_transformer, save_stock_modules
from repro.interop.stock_encoder import DOT, StockEncoder
from repro.interop.trained_on import find_training_run
from repro.model.biencoder import Biencoder
from repro.text import count_noun


def adapt_model(source: str, corpus: str, folder: Path, *, progress: Progress = print) -> list[str]:
    """Write the model, whitened by the corpus, as a sentence-transformers folder. Return lines to print.

    Args:
        source: A run's id, a folder or a hub id.
        corpus: A BEIR folder, a file of documents, or the name of an imported corpus.
        folder: Target folder. It is written completely or not at all.
        progress: Called with each message.
    """
    folder = check_target(folder)
    # before the model is opened, which may train it
    run = find_named_run(source)
    if run is not None and run.architecture == "contextual":
        raise ValueError(_explain_contextual(source, source))
    found = read_corpus(corpus, progress)
    texts = read_distinct_documents(found, progress)
    model = open_stock(source, progress)
    adapted = append_map(model, fit_whitening_map(model, texts, found.document_role))
    card = render_card(
        "adapted_card.md.j2",
        # of a folder, the card names only the last part of its path
        name=Path(source).resolve().name if Path(source).is_dir() else source,
        corpus=found.name,
        num_documents=len(texts),
        shrinkage=f"{DEFAULT_SHRINKAGE:g}",
        install=INSTALL_STOCK,
        notes=UPDATE_NOTE,
    )
    write_folder(folder, lambda part: save_stock_modules(adapted, part), card, find_training_run(source))
    small_sample = describe_small_sample(len(texts))
    # a file of documents has no queries, so the user has to name a suite
    suite = "SUITE" if found.is_file else shlex.quote(corpus)
    return [
        *([] if small_sample is None else [small_sample]),
        f"wrote {folder} (shrinkage {DEFAULT_SHRINKAGE:g}); open it with",
        *(f"  {line}" for line in list_opening_code(folder)),
        *UPDATE_NOTE,
        "Whitening can lower scores. If you have judged queries for this text, measure the gain with",
        f"  repro evaluate --compare {shlex.quote(str(folder))} {shlex.quote(source)} --suite {suite}",
    ]


UPDATE_NOTE = (
    "Embed queries and all documents with this folder; vectors of the unadapted model do not match.",
    "If the corpus grows, run `adapt` again and map all documents again. Keep the vectors of the unadapted model, at unit "
    "length unless its similarity is the dot product: the last two modules map them without encoding any text again.",
)


def read_distinct_documents(corpus: Corpus, progress: Progress = print) -> list[str]:
    """Return the distinct documents of a corpus, and print what was skipped. ValueError if all texts are empty."""
    texts = list(corpus.documents.values())
    distinct = [texts[row] for row in list_distinct_rows(texts)]
    if not distinct:
        raise ValueError(f"corpus {corpus.name} has no document that is not empty")
    num_empty = sum(map(is_empty, texts))
    skipped = f"{num_empty} empty, {len(texts) - num_empty - len(distinct)} repeated"
    progress(f"{count_noun(len(distinct), 'document')} of {corpus.name}; skipped: {skipped}")
    return distinct


def open_stock(source: str, progress: Progress = print) -> SentenceTransformer:
    """Open a model as a SentenceTransformer. Raises ValueError for a contextual or a truncated model."""
    opened = open_model(source, progress=progress)
    to_device(opened.model)
    if isinstance(opened.model, StockEncoder):
        stock = opened.model.theirs
        truncated_width, stock.truncate_dim = stock.truncate_dim, None
        # An export of fewer dimensions stores their number too, but its last module has exactly that many.
        if truncated_width not in (None, stock.get_embedding_dimension()):
            raise ValueError(f"{opened.called} is truncated to {truncated_width} dimensions: set truncate_dim to null")
        return stock
    if not isinstance(opened.model, Biencoder):
        raise ValueError(_explain_contextual(opened.called, source))
    return as_sentence_transformer(opened.model)


def _explain_contextual(called: str, source: str) -> str:
    return (
        f"{called} is a contextual model, which stock modules cannot hold: adapt a biencoder, or measure what whitening "
        f"adds with `repro evaluate --model {shlex.quote(source)} --suite SUITE --whiten own`"
    )


def fit_whitening_map(model: SentenceTransformer, texts: list[str], role: str = "document") -> AffineMap:
    """Fit the whitening map to the vectors of these documents. `role` is the role of their prompt."""
    vectors_NH = StockEncoder(model).encode(texts, role)
    check_vectors(vectors_NH, texts, "model")
    return make_whitening_map(Moments.of(vectors_NH), DEFAULT_SHRINKAGE)


def append_map(model: SentenceTransformer, affine: AffineMap) -> SentenceTransformer:
    """Return the model followed by the affine map and normalisation, with its prompts and similarity."""
    width = len(affine.mean_H)
    # The final normalisation cancels any scale. It is chosen so that weights are near 1, which round well.
    scale = np.sqrt(width) / np.linalg.norm(affine.weight_HH)
    layer = Dense(width, width, activation_function=torch.nn.Identity())
    with torch.no_grad():
        layer.linear.weight.copy_(torch.from_numpy(scale * affine.weight_HH))
        layer.linear.bias.copy_(torch.from_numpy(-scale * (affine.weight_HH @ affine.mean_H)))
    modules: list[Any] = list(model)
    if model.similarity_fn_name != DOT and not isinstance(modules[-1], Normalize):
        # the map was fitted to unit vectors
        modules.append(Normalize())
    # The map was fitted under the prompts of the roles. If a model names its prompt "passage", the library adds an empty
    # one named "document", which `encode_document` would use.
    prompts = {**model.prompts, **StockEncoder(model).role_prompts}
    return SentenceTransformer(
        modules=[*modules, layer, Normalize()],
        prompts={name: text for name, text in prompts.items() if text is not None},
        default_prompt_name=model.default_prompt_name,
        similarity_fn_name=model.similarity_fn_name,
        device=str(model.device),
    ).eval()
