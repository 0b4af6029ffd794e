"""Evaluate a model with the loader, search and metrics of the beir package, with and without its corpus as context.

python examples/beir_search.py [MODEL BEIR_FOLDER]     Default: an untrained model on eight documents.
"""

import sys
import tempfile
from pathlib import Path

# Importing the libraries takes seconds, so this line is printed first.
if __name__ == "__main__":
    print("loading libraries …", flush=True)

from beir.datasets.data_loader import GenericDataLoader
from contextual import make_untrained_model
from mteb_contexts import PLANTS_TASK

from repro.data.beir import write_beir_folder
from repro.interop.beir import BeirModel, beir_retriever
from repro.interop.opening import open_model


def main(folder: Path, source: str | None = None) -> dict[str, float]:
    """Return NDCG@10 with the searched corpus as context and with the null context."""
    model = make_untrained_model() if source is None else open_model(source).model
    corpus, queries, judgements = GenericDataLoader(str(folder)).load(split="test")
    scores = {}
    for name, context in (("own", corpus), ("null", None)):
        print(f"searching {len(corpus)} documents with the {name} context …", flush=True)
        wrapped = BeirModel(model).set_context(context, name=folder.resolve().name)
        retriever = beir_retriever(wrapped)
        ndcg, _, recall, _ = retriever.evaluate(judgements, retriever.retrieve(corpus, queries), [10, 100])
        scores[name] = ndcg["NDCG@10"]
        print(f"{name}: NDCG@10 {ndcg['NDCG@10']}, recall@100 {recall['Recall@100']}", flush=True)
    return scores


if __name__ == "__main__":
    if len(sys.argv) not in (1, 3):
        sys.exit(__doc__)
    if len(sys.argv) == 3:
        main(Path(sys.argv[2]), sys.argv[1])
    else:
        here = Path(tempfile.mkdtemp()) / "plants"
        write_beir_folder(here, PLANTS_TASK)
        main(here)
