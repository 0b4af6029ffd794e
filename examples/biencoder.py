"""Train a biencoder with the trainer of sentence-transformers on batches from our clusters, save it, and search with it.

python examples/biencoder.py [FOLDER]
"""

import sys
import tempfile
from pathlib import Path

# Importing the libraries takes seconds, so this line is printed first.
if __name__ == "__main__":
    print("loading libraries …", flush=True)

import numpy as np
from datasets import Dataset
from sentence_transformers import SentenceTransformer, SentenceTransformerTrainer, SentenceTransformerTrainingArguments
from sentence_transformers.sentence_transformer.losses import MultipleNegativesRankingLoss

from repro.batches.cluster import cluster_pairs
from repro.batches.surrogate import load_surrogate
from repro.data.prompts import SEARCH
from repro.interop.sentence_transformers_folder import as_sentence_transformer
from repro.interop.stock_trainer import make_cluster_batch_sampler
from repro.model.config import ModelConfig
from repro.model.start import build_model

THINGS = ("rain", "snow", "bread", "coffee", "copper", "iron", "violin", "drum")
SAYINGS = ("where does {0} come from", "what is {0} used for", "who likes {0}", "how much {0} is there")


def make_pairs() -> Dataset:
    """Return 32 questions and answers in two domains. Replace them by your own."""
    rows = [
        (words.format(thing), f"{words.split()[0]}: {thing} and more {thing}") for thing in THINGS for words in SAYINGS
    ]
    return Dataset.from_dict({"anchor": [row[0] for row in rows], "positive": [row[1] for row in rows]})


def main(folder: Path) -> SentenceTransformer:
    """Cluster the pairs, train for two epochs, save the model, open it again and search with it."""
    dataset, surrogate = make_pairs(), load_surrogate("minilm-words")
    print(f"clustering {len(dataset)} pairs …", flush=True)
    # Batches never mix domains: the first half of the pairs is one domain, the second half the other.
    domains = np.repeat([0, 1], len(dataset) // 2).astype(np.int32)
    queries, documents = (surrogate.embed(dataset[side], 32) for side in ("anchor", "positive"))
    clusters = cluster_pairs(queries, documents, domains, cluster_size=8, seed=0)
    config = ModelConfig(architecture="biencoder", hidden_size=32, intermediate_size=64, prompts="task")
    model = as_sentence_transformer(build_model(config, heads="identity"))
    arguments = SentenceTransformerTrainingArguments(
        output_dir=str(folder / "training"),
        num_train_epochs=2,
        per_device_train_batch_size=8,
        batch_sampler=make_cluster_batch_sampler(domains, clusters),
        prompts={"anchor": SEARCH.query, "positive": SEARCH.document},
        learning_rate=1e-2,
        logging_steps=2,
        save_strategy="no",
        report_to=[],
        use_cpu=True,
        dataloader_pin_memory=False,
    )
    print("training eight steps …", flush=True)
    loss = MultipleNegativesRankingLoss(model)
    SentenceTransformerTrainer(model=model, args=arguments, train_dataset=dataset, loss=loss).train()
    model.save_pretrained(str(folder / "model"), create_model_card=False)
    print(f"saved to {folder / 'model'}; searching with it …", flush=True)
    opened = SentenceTransformer(str(folder / "model"), device="cpu")
    scores = opened.encode_query(["who likes violin"]) @ opened.encode_document(dataset["positive"]).T
    print("found:", dataset["positive"][int(scores[0].argmax())])
    return model


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else Path(tempfile.mkdtemp()))
