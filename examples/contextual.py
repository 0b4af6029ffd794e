"""Export a contextual model, open it with sentence-transformers, and search with two corpora as context.

python examples/contextual.py [MODEL]     MODEL: the id of a run or a folder. Default: an untrained model.
"""

import sys
import tempfile
from pathlib import Path

# ruff: noqa: E402 (importing the libraries takes seconds, so this line is printed first)
print("loading libraries …", flush=True)

import torch
from sentence_transformers import SentenceTransformer

from repro.interop.opening import open_model
from repro.interop.sentence_transformers_folder import export_sentence_transformers
from repro.model.config import ModelConfig
from repro.model.contextual import ContextualModel
from repro.model.start import build_model

WEATHER = ["Rain falls from clouds.", "Snow stays on high hills.", "Wind turns before a storm."]
KITCHEN = ["Bread rises in a warm place.", "Coffee is ground before it is brewed.", "Rain water makes good tea."]


def make_untrained_model() -> ContextualModel:
    """Return a small model with MiniLM's word vectors, which weights words by their frequency in the context.

    A word that occurs in many context documents counts less. These weights are set here instead of trained.
    """
    sizes = {"hidden_size": 64, "num_heads": 2, "intermediate_size": 128, "num_contexts": 3, "pooling": "frequency"}
    model = build_model(ModelConfig(architecture="contextual", **sizes), start="words", heads="both-identity").eval()
    with torch.no_grad():
        logits_K = model.second_stage_model.frequency_weights.logits_K
        # The last weight is that of the null context.
        logits_K[:-1] = torch.linspace(0, -0.3, len(logits_K) - 1)
    return model


def main(folder: Path, source: str | None = None) -> dict[str, float]:
    """Return the score of the same query and document with each corpus as context. The two scores differ."""
    model = make_untrained_model() if source is None else open_model(source).model
    print(f"writing {folder / 'model'} …", flush=True)
    export_sentence_transformers(model, folder / "model")
    # The folder contains the code of the model, which needs no installation of this project.
    opened = SentenceTransformer(str(folder / "model"), trust_remote_code=True)
    found = {}
    for name, corpus in (("weather", WEATHER), ("kitchen", KITCHEN)):
        opened.set_context(corpus, seed=0)
        query, documents, rain = (
            encode(texts)
            for encode, texts in (
                (opened.encode_query, ["what does rain do?"]),
                (opened.encode_document, corpus),
                (opened.encode_document, WEATHER[:1]),
            )
        )
        best = corpus[int((query @ documents.T)[0].argmax())]
        found[name] = float((query @ rain.T)[0, 0])
        print(f"{name}: found {best!r}; {WEATHER[0]!r} scores {found[name]:.4f} with this context", flush=True)
    return found


if __name__ == "__main__":
    main(Path(tempfile.mkdtemp()), *sys.argv[1:2])
