"""Adapts an encoder to a corpus without training: a stock sentence-transformers folder with whitened vectors.

1. The documents of the corpus are encoded by the model as it is.
2. Their mean m and the whitening matrix W (`repro.evaluate.adaptation`) become one affine layer: a `Dense` module
   without activation, weight W and bias −W m, followed by `Normalize`.
3. The folder holds the modules of the model and these two. It opens with sentence-transformers alone. Prompts and
   similarity function stay the same.

Before step 1, the weights can be averaged with those of the encoder that the model was fine-tuned from (Wortsman et al.
2022, arXiv 2109.01903). This costs some accuracy on text like the training text and improves it on other text.

Shapes: N documents, H dimensions.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from sentence_transformers import SentenceTransformer
from sentence_transformers.base.modules import Dense, Normalize

from repro.batches.surrogate import check_vectors
from repro.data.wording import is_empty
from repro.evaluate.adaptation import DEFAULT_SHRINKAGE, AffineMap, Moments, describe_small_sample, make_whitening_map
from repro.interop.corpus import find_corpus
from repro.interop.opening import open_model
from repro.interop.sentence_transformers_folder import as_sentence_transformer
from repro.interop.stock_encoder import DOT, StockEncoder
from repro.interop.trained_on import find_training_run, write_trained_on
from repro.model.biencoder import Biencoder
from repro.storage.files import whole_file, whole_folder
from repro.text import count_noun, make_encoding_reporter, short

Progress = Callable[[str], None]


def adapt_model(
    source: str,
    corpus: str,
    folder: Path,
    *,
    shrinkage: float | None = None,
    average: float | None = None,
    base_model: str | None = None,
    progress: Progress = print,
) -> list[str]:
    """Write the model, whitened by the corpus, as a sentence-transformers folder. Return lines to print.

    Args:
        source: A run's id, a folder or a hub id.
        corpus: A BEIR folder, a file of documents, or the name of an imported corpus or suite.
        folder: Target folder. It is written completely or not at all.
        shrinkage: Shrinkage s of the covariance. Default: `DEFAULT_SHRINKAGE`.
        average: Share of `base_model` in the averaged weights, from 0 to 1. Default: no averaging.
        base_model: The encoder that the model was fine-tuned from.
    """
    model = open_stock(source, progress)
    if average is not None and base_model is not None:
        average_weights(model, open_stock(base_model, progress), average)
        progress(f"averaged the weights: {1 - average:g} of {source}, {average:g} of {base_model}")
    texts, num_collections = read_distinct_documents(corpus, progress)
    fitted, used = fit_whitening_map(model, texts, shrinkage, progress)
    adapted = append_map(model, fitted)
    with whole_folder(folder) as part:
        adapted.save_pretrained(str(part), create_model_card=False)
        # without it, an evaluation could not count the queries that the model was trained on
        if (trained := find_training_run(source) or find_training_run(base_model or "")) is not None:
            write_trained_on(part, trained)
        with whole_file(part / "README.md") as card:
            about = f"{len(texts)} documents of `{find_corpus(corpus).name}`"
            card.write_text(_card(source, about, used, average, base_model), encoding="utf-8")
        if folder.is_dir():
            folder.rmdir()
    warned = [line for line in (describe_small_sample(len(texts)),) if line]
    if num_collections > 1:
        warned.append(
            f"{num_collections} collections were treated as one corpus, which gave no gain when measured: "
            "adapt to each collection separately"
        )
    return [*warned, f"wrote {folder} (shrinkage {used:g}); open it with", *_how_to_open(folder), *UPDATE_NOTE]


UPDATE_NOTE = (
    "Embed queries and all documents with this folder; vectors of the unadapted model do not match.",
    "If the corpus grows, run `adapt` again and map all documents again. Keep the vectors of the unadapted model: the "
    "last two modules map them without encoding any text again.",
)


def read_distinct_documents(corpus: str, progress: Progress = print) -> tuple[list[str], int]:
    """Return the distinct documents of a corpus and its number of collections, and print what was skipped.

    Raises:
        ValueError: if the corpus does not exist, if no column holds documents, or if all texts are empty.
    """
    documents, num_collections = find_corpus(corpus).read()
    found = [text for text in documents.values() if not is_empty(text)]
    kept = list(dict.fromkeys(found))
    if not kept:
        raise ValueError(f"--corpus {short(corpus)} has no document that is not empty")
    skipped = f"{len(documents) - len(found)} empty, {len(found) - len(kept)} repeated"
    progress(f"{count_noun(len(kept), 'document')} of {corpus}; skipped: {skipped}")
    return kept, num_collections


def open_stock(source: str, progress: Progress = print) -> SentenceTransformer:
    """Open a model as a SentenceTransformer. Raises ValueError for a contextual or a truncated model."""
    opened = open_model(source, progress=progress)
    if isinstance(opened.model, StockEncoder):
        found = opened.model.theirs
        if found.truncate_dim is not None:
            raise ValueError(
                f"{opened.called} is truncated to {found.truncate_dim} dimensions after its last module, so the map "
                "would be cut: save it with a last layer of that width, or set truncate_dim to null"
            )
        return found
    if not isinstance(opened.model, Biencoder):
        raise ValueError(
            f"{opened.called} is a contextual model, which stock modules cannot hold: adapt a biencoder, or measure "
            "what whitening adds with `repro evaluate --whiten own`"
        )
    return as_sentence_transformer(opened.model)


def average_weights(model: SentenceTransformer, base: SentenceTransformer, share: float) -> None:
    """Replace each weight w of `model` by (1 − share) · w + share · w_base, in place.

    Raises:
        ValueError: if the share is outside 0 to 1, or if the weights of the models differ in name or shape.
    """
    if not 0.0 <= share <= 1.0:
        raise ValueError(f"--average {share}: must be from 0 to 1")
    own, other = model.state_dict(), base.state_dict()
    unlike = sorted(
        name
        for name in own.keys() | other.keys()
        if name not in own or name not in other or own[name].shape != other[name].shape
    )
    if unlike:
        raise ValueError(
            f"--base is not an encoder that the model was fine-tuned from: {len(unlike)} weights differ in name or shape, "
            f"first {unlike[0]!r}"
        )
    with torch.no_grad():
        # integer buffers, such as position ids, cannot be interpolated
        mixed = {
            name: torch.lerp(weight, other[name].to(weight), share) if weight.is_floating_point() else weight
            for name, weight in own.items()
        }
    model.load_state_dict(mixed)


def fit_whitening_map(
    model: SentenceTransformer, texts: list[str], shrinkage: float | None = None, progress: Progress = print
) -> tuple[AffineMap, float]:
    """Fit the whitening map to the vectors of these documents. Return it and the shrinkage that was used."""
    encoder = StockEncoder(model)
    encoder.report = make_encoding_reporter(progress)
    vectors_NH = encoder.encode(texts, "document")
    check_vectors(vectors_NH, texts, "model")
    used = DEFAULT_SHRINKAGE if shrinkage is None else shrinkage
    return make_whitening_map(Moments.of(vectors_NH), used), used


def append_map(model: SentenceTransformer, fitted: AffineMap) -> SentenceTransformer:
    """Return the model followed by the affine map and normalisation, with its prompts and similarity."""
    width = len(fitted.mean_H)
    # The final normalisation cancels any scale. It is chosen so that weights are near 1, which round well.
    scale = np.sqrt(width) / np.linalg.norm(fitted.weight_HH)
    layer = Dense(width, width, activation_function=torch.nn.Identity())
    with torch.no_grad():
        layer.linear.weight.copy_(torch.from_numpy(scale * fitted.weight_HH))
        layer.linear.bias.copy_(torch.from_numpy(-scale * (fitted.weight_HH @ fitted.mean_H)))
    modules: list[Any] = list(model)
    if model.similarity_fn_name != DOT and not isinstance(modules[-1], Normalize):
        # the map was fitted to unit vectors
        modules.append(Normalize())
    return SentenceTransformer(
        modules=[*modules, layer, Normalize()],
        prompts={name: text for name, text in model.prompts.items() if text is not None},
        default_prompt_name=model.default_prompt_name,
        similarity_fn_name=model.similarity_fn_name,
        device=str(model.device),
    ).eval()


def _how_to_open(folder: Path) -> list[str]:
    return [
        "  from sentence_transformers import SentenceTransformer",
        f'  model = SentenceTransformer("{folder}")',
    ]


def _card(source: str, documents: str, shrinkage: float, average: float | None, base_model: str | None) -> str:
    called = Path(source).resolve().name if Path(source).is_dir() else source
    base = Path(base_model or "").resolve().name if Path(base_model or "").is_dir() else base_model
    mixed = "" if average is None else f"Its weights are {1 - average:g} of that model and {average:g} of {base}.\n"
    return (
        "---\nlibrary_name: sentence-transformers\npipeline_tag: sentence-similarity\n---\n\n"
        f"# {called}, whitened by a corpus\n\n"
        f"The vectors of `{called}`, mapped by the mean and the covariance of {documents} "
        f"(shrinkage {shrinkage:g}) and normalised. No training.\n{mixed}\n"
        "```python\nfrom sentence_transformers import SentenceTransformer\n\nmodel = SentenceTransformer(FOLDER)\n"
        "queries = model.encode_query([...])\ndocuments = model.encode_document([...])\n"
        "scores = queries @ documents.T\n```\n\n" + "\n".join(f"- {line}" for line in UPDATE_NOTE) + "\n\n"
        "Use it to search this corpus. On other text it may be worse than the model it comes from.\n"
    )
