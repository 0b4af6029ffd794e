"""Trains a small biencoder with sentence-transformers' own trainer and loss on batches from our clusters, on a CPU.

python examples/stock_trainer.py [FOLDER]
"""

import sys
import tempfile
from pathlib import Path

import numpy as np
from datasets import Dataset
from sentence_transformers import SentenceTransformer, SentenceTransformerTrainer, SentenceTransformerTrainingArguments
from sentence_transformers.sentence_transformer.losses import MultipleNegativesRankingLoss

from repro.batches.cluster import cluster_pairs
from repro.batches.surrogate import load_surrogate
from repro.interop.sentence_transformers_folder import as_sentence_transformer
from repro.interop.stock_trainer import cluster_batch_sampler
from repro.model.config import ModelConfig
from repro.model.start import build_model

THINGS = ("rain", "snow", "bread", "coffee", "copper", "iron", "violin", "drum")
SAYINGS = ("where does {0} come from", "what is {0} used for", "who likes {0}", "how much {0} is there")


def pairs() -> Dataset:
    """Thirty-two questions and answers in two domains."""
    rows = [
        (saying.format(thing), f"{saying.split()[0]}: {thing} and more {thing}")
        for thing in THINGS
        for saying in SAYINGS
    ]
    return Dataset.from_dict({"anchor": [row[0] for row in rows], "positive": [row[1] for row in rows]})


def train(folder: Path) -> SentenceTransformer:
    """Clusters the pairs, trains two epochs, saves a folder that `SentenceTransformer(folder)` opens."""
    dataset, surrogate = pairs(), load_surrogate("minilm-words")
    domains = np.repeat([0, 1], len(dataset) // 2).astype(np.int32)
    queries, documents = (surrogate.embed(dataset[side], 32) for side in ("anchor", "positive"))
    clusters = cluster_pairs(queries, documents, domains, cluster_size=8, seed=0)
    model = as_sentence_transformer(
        build_model(ModelConfig(architecture="biencoder", hidden_size=32, intermediate_size=64))
    )
    arguments = SentenceTransformerTrainingArguments(
        output_dir=str(folder / "training"),
        num_train_epochs=2,
        per_device_train_batch_size=8,
        batch_sampler=cluster_batch_sampler(domains, clusters),
        prompts={"anchor": "search_query: ", "positive": "search_document: "},
        learning_rate=1e-3,
        logging_steps=4,
        save_strategy="no",
        report_to=[],
        use_cpu=True,
    )
    loss = MultipleNegativesRankingLoss(model)
    SentenceTransformerTrainer(model=model, args=arguments, train_dataset=dataset, loss=loss).train()
    model.save_pretrained(str(folder / "model"), create_model_card=False)
    return model


if __name__ == "__main__":
    where = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(tempfile.mkdtemp())
    train(where)
    print(f"saved to {where / 'model'}")
