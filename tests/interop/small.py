"""Small models and collections, which the tests of this folder share."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from sentence_transformers import SentenceTransformer

from repro.data.beir import Retrieval
from repro.interop.exporting import export_model
from repro.model.biencoder import Biencoder
from repro.model.config import ModelConfig
from repro.model.contextual import ContextualModel
from repro.model.start import build_model
from tests.commands import ignore, run_command

CLOSE = {"atol": 1e-5, "rtol": 0}
TEXTS = ["one", "a somewhat longer text about rain", "rain falls, it does: on hills", "snow " * 60, "Hills & more"]
CORPUS = [f"document {n} about {word}" for n, word in enumerate(["rain", "snow", "hills", "bread", "copper", "iron"])]
COMMIT = "0123456789abcdef0123456789abcdef01234567"
WORDS = ("rain", "snow", "hills", "bread", "copper", "iron", "violin", "drum", "kettle", "lamp", "tea", "wool")
THINGS = ["rain", "snow", "bread", "coffee", "copper", "iron", "violin", "drum", "glass", "paper", "wool", "salt"]


def make_model(architecture: str, **changes: Any) -> Biencoder | ContextualModel:
    """Build a small model with random weights, in which every mistake changes the vectors."""
    sizes = {"hidden_size": 16, "num_heads": 2, "intermediate_size": 24, "num_contexts": 4, "prompts": "task"}
    model = build_model(ModelConfig(architecture=architecture, **(sizes | changes)))
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for weight in model.parameters():
            weight.add_(torch.randn(weight.shape, generator=generator) * 0.2)
    return model.eval()


def make_contextual(**changes: Any) -> ContextualModel:
    """Build a small contextual model with random weights."""
    model = make_model("contextual", **changes)
    assert isinstance(model, ContextualModel)
    return model


def export_small_model(folder: Path, architecture: str, **changes: Any) -> tuple[Biencoder | ContextualModel, Path]:
    """Save a small model as `ours` and export it as `out`. Return the model and the folder of the export."""
    model = make_model(architecture, **changes)
    model.save_pretrained(folder / "ours")
    export_model(str(folder / "ours"), folder / "out", progress=ignore)
    return model, folder / "out"


def open_folder(folder: Path, **options: Any) -> SentenceTransformer:
    """Open an export with sentence-transformers and its own code."""
    return SentenceTransformer(str(folder), trust_remote_code=True, device="cpu", **options)


def evaluate(*words: str, suite: str = "zoo") -> dict[str, Any]:
    """Return what `repro evaluate --json` prints, without BM25 unless it is asked for."""
    bm25 = () if "--bm25" in words else ("--no-bm25",)
    return json.loads(run_command("evaluate", "--suite", suite, "--json", *words, *bm25))


def make_hub_snapshot(cache: Path, name: str) -> Path:
    """Create an empty entry for a model in a cache of the hub. Return the folder of its only commit."""
    repository = cache / f"models--{name.replace('/', '--')}"
    (repository / "refs").mkdir(parents=True)
    (repository / "refs" / "main").write_text(COMMIT)
    (repository / "snapshots" / COMMIT).mkdir(parents=True)
    return repository / "snapshots" / COMMIT


def make_collection(
    name: str, documents: Sequence[str], queries: Sequence[str], judgements: dict[str, dict[str, int]] | None = None
) -> Retrieval:
    """Return a collection with the ids d00, d01, … and q00, q01, …. By default query n has the document n."""
    ids = [f"d{n:02d}" for n in range(len(documents))]
    query_ids = [f"q{n:02d}" for n in range(len(queries))]
    judged = judgements or {query: {document: 1} for query, document in zip(query_ids, ids, strict=False)}
    return Retrieval(name, tuple(ids), tuple(documents), tuple(query_ids), tuple(queries), judged)


def make_things() -> Retrieval:
    """Return a collection of twelve documents and queries with grades of 1 and 2."""
    documents = [f"all about {thing} and {other}" for thing, other in zip(THINGS, THINGS[1:] + THINGS[:1], strict=True)]
    judgements = {f"q{n:02d}": {f"d{n:02d}": 2, f"d{(n + 5) % 12:02d}": 1} for n in range(12)}
    return make_collection("things", documents, [f"what is {thing}" for thing in THINGS], judgements)
