"""Fine-tune a contextual model with the trainer of sentence-transformers, on batches from our clusters.

python examples/contextual_trainer.py [FOLDER]

As in the paper, the context of a batch is drawn from the documents of the batch. `make_collator` adds it. The saved
folder needs only sentence-transformers.
"""

import sys
import tempfile
from pathlib import Path

# Importing the libraries takes seconds, so this line is printed first.
if __name__ == "__main__":
    print("loading libraries …", flush=True)

import numpy as np
from biencoder import make_pairs
from sentence_transformers import SentenceTransformer, SentenceTransformerTrainer, SentenceTransformerTrainingArguments
from sentence_transformers.sentence_transformer.evaluation import InformationRetrievalEvaluator
from sentence_transformers.sentence_transformer.losses import MultipleNegativesRankingLoss

from repro.batches.cluster import cluster_pairs
from repro.batches.surrogate import load_surrogate
from repro.interop.sentence_transformers_folder import export_sentence_transformers
from repro.interop.stock_trainer import make_cluster_batch_sampler
from repro.model.config import ModelConfig
from repro.model.start import build_model


def main(folder: Path, num_epochs: int = 10) -> dict[str, float]:
    """Return NDCG@10 before and after training, with the searched documents as context. The folder must be new or empty."""
    if folder.is_dir() and any(folder.iterdir()):
        sys.exit(f"{folder} is not empty: name a new folder")
    dataset, surrogate = make_pairs(), load_surrogate("minilm-words")
    queries, documents = dataset["anchor"], dataset["positive"]
    domains = np.repeat([0, 1], len(dataset) // 2).astype(np.int32)
    vectors = [surrogate.embed(texts, 32) for texts in (queries, documents)]
    clusters = cluster_pairs(*vectors, domains, cluster_size=8, seed=0)

    sizes = {"hidden_size": 64, "num_heads": 2, "intermediate_size": 128, "num_contexts": 8, "prompts": "task"}
    untrained = build_model(ModelConfig(architecture="contextual", **sizes), start="words", heads="both-identity")
    export_sentence_transformers(untrained, folder / "untrained")
    model = SentenceTransformer(str(folder / "untrained"), trust_remote_code=True, device="cpu")

    judged = {str(number): {str(number)} for number in range(len(dataset))}
    named = [{str(number): text for number, text in enumerate(texts)} for texts in (queries, documents)]
    evaluator = InformationRetrievalEvaluator(*named, judged)
    model.set_context(documents, seed=0)
    found = {"before": evaluator(model)["cosine_ndcg@10"]}
    print(f"before training: NDCG@10 {100 * found['before']:.1f}", flush=True)

    arguments = SentenceTransformerTrainingArguments(
        output_dir=str(folder / "training"),
        num_train_epochs=num_epochs,
        per_device_train_batch_size=8,
        batch_sampler=make_cluster_batch_sampler(domains, clusters),
        learning_rate=2e-3,
        logging_steps=8,
        save_strategy="no",
        report_to=[],
        use_cpu=True,
        dataloader_pin_memory=False,
    )
    SentenceTransformerTrainer(
        model=model,
        args=arguments,
        train_dataset=dataset,
        loss=MultipleNegativesRankingLoss(model, scale=20.0),
        data_collator=model[0].make_collator(),  # the context of each batch
    ).train()

    # The context is embedded again with the new weights.
    found["after"] = evaluator(model)["cosine_ndcg@10"]
    print(f"after training: NDCG@10 {100 * found['after']:.1f}", flush=True)
    model.save_pretrained(str(folder / "model"), create_model_card=False)
    print(f"saved to {folder / 'model'}: SentenceTransformer(folder, trust_remote_code=True) opens it", flush=True)
    return found


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else Path(tempfile.mkdtemp()))
