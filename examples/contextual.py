"""A contextual model in sentence-transformers: exported, opened, and searched under two corpora as context.

python examples/contextual.py [MODEL]     MODEL: a run's id or a folder (default: an untrained one)
"""

import sys
import tempfile
from pathlib import Path

# ruff: noqa: E402 (libraries load for seconds: that is said first)
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


def untrained() -> ContextualModel:
    """Build a small model that knows MiniLM's word vectors, and gives words less weight if many documents hold them.

    The weights of words are set here, by their share of the context documents, and not trained.
    """
    sizes = {"hidden_size": 64, "num_heads": 2, "intermediate_size": 128, "num_contexts": 3, "pooling": "frequency"}
    model = build_model(ModelConfig(architecture="contextual", **sizes), start="words", heads="both-identity").eval()
    with torch.no_grad():
        logits_K = model.second_stage_model.frequency_weights.logits_K
        logits_K[:-1] = torch.linspace(0, -0.3, len(logits_K) - 1)  # the last weight is that of the null context
    return model


def main(folder: Path, source: str | None = None) -> dict[str, float]:
    """Give the score of one pair under each corpus: a vector depends on the corpus it is searched in."""
    model = untrained() if source is None else open_model(source).model
    print(f"writing {folder / 'model'} …", flush=True)
    export_sentence_transformers(model, folder / "model")
    opened = SentenceTransformer(str(folder / "model"), trust_remote_code=True)  # the folder has its code
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
        print(f"{name}: found {best!r}; {WEATHER[0]!r} scores {found[name]:.4f} under this context", flush=True)
    return found


if __name__ == "__main__":
    main(Path(tempfile.mkdtemp()), *sys.argv[1:2])
