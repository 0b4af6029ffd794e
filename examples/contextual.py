"""Export a contextual model, and search with it under two corpora in a process that cannot import this project.

python examples/contextual.py [MODEL]     MODEL: a contextual run or folder. Default: an untrained model.
"""

import json
import subprocess
import sys
import tempfile
from pathlib import Path

# Importing the libraries takes seconds, so this line is printed first.
if __name__ == "__main__":
    print("loading libraries …", flush=True)

import torch

from repro.interop.opening import open_model
from repro.interop.sentence_transformers_folder import export_sentence_transformers
from repro.model.config import ModelConfig
from repro.model.contextual import ContextualModel
from repro.model.start import build_model

UNTRAINED = "This model is untrained: its scores show that the context has an effect, not how well it searches."
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


PLAIN = """
import json, sys
sys.modules["repro"] = None  # as if this project were not installed
from sentence_transformers import SentenceTransformer
folder, corpora, query = json.loads(sys.argv[1])
model = SentenceTransformer(folder, trust_remote_code=True)
found = {}
for name, corpus in corpora.items():
    model.set_context(corpus, seed=0)
    every = [text for texts in corpora.values() for text in texts]
    scores = model.encode_query([query]) @ model.encode_document(every).T
    found[name] = dict(zip(every, map(float, scores[0])))
print(json.dumps(found))
"""
"""What a reader of the exported folder runs. It needs sentence-transformers alone."""


def main(folder: Path, source: str | None = None) -> dict[str, dict[str, float]]:
    """Return the score of every text under each corpus as context."""
    model = make_untrained_model() if source is None else open_model(source).model
    if source is None:
        print(UNTRAINED)
    print(f"writing {folder / 'model'} …", flush=True)
    export_sentence_transformers(model, folder / "model")
    query, corpora = "what does rain do?", {"weather": WEATHER, "kitchen": KITCHEN}
    words = [sys.executable, "-c", PLAIN, json.dumps([str(folder / "model"), corpora, query])]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(done.stderr)
    found: dict[str, dict[str, float]] = json.loads(done.stdout.splitlines()[-1])
    print(f"{query!r}, cosine under the context weather, kitchen:")
    for text in sorted(found["weather"], key=lambda text: -found["weather"][text]):
        print(f"  {found['weather'][text]:.3f}  {found['kitchen'][text]:.3f}  {text}", flush=True)
    return found


if __name__ == "__main__":
    main(Path(tempfile.mkdtemp()), *sys.argv[1:2])
