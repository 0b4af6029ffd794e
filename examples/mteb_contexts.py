"""Evaluate a contextual model with mteb under the in-corpus context, an unrelated corpus, and the null context.

python examples/mteb_contexts.py [MODEL]     MODEL: a contextual run or folder. Default: an untrained model.

Half of the documents repeat the words of every query. The in-corpus context shows that these words are common, so they
count less.
"""

import sys
import tempfile
from pathlib import Path

# Importing the libraries takes seconds, so this line is printed first.
if __name__ == "__main__":
    print("loading libraries …", flush=True)

import mteb
from contextual import KITCHEN, UNTRAINED, make_untrained_model

from repro.data.beir import Retrieval
from repro.evaluate.mteb.model import MtebModel
from repro.evaluate.mteb.task import retrieval_task
from repro.interop.opening import open_model

PLANTS = ("oak", "birch", "fern", "moss", "rose", "ivy", "reed", "lily")
DOCUMENTS = tuple(
    f"Where does it grow? It does grow where the sun is: the {plant}." if n % 2 else f"A {plant} likes shade."
    for n, plant in enumerate(PLANTS)
)
JUDGED = {f"q{n}": {f"d{n}": 1} for n in range(len(PLANTS))}
QUERIES = tuple(f"where does the {plant} grow" for plant in PLANTS)
PLANTS_TASK = Retrieval("plants", tuple(f"d{n}" for n in range(8)), DOCUMENTS, tuple(JUDGED), QUERIES, JUDGED)


def main(folder: Path, source: str | None = None) -> dict[str, float]:
    """Return NDCG@10 by context, as measured by mteb. Each context has its own result folder."""
    model = make_untrained_model() if source is None else open_model(source).model
    if source is None:
        print(UNTRAINED)
    contexts = {
        "own": {"context": "own", "context_seed": 0},
        "wrong": {"context": "fixed", "fixed_context": KITCHEN},
        "null": {"context": "null"},
    }
    found = {}
    for kind, options in contexts.items():
        print(f"evaluating under the {kind} context …", flush=True)
        wrapped = MtebModel(model, name="me/my-model", **options)
        cache = mteb.ResultCache(folder / "results")
        results = mteb.evaluate(wrapped, retrieval_task(PLANTS_TASK), cache=cache, show_progress_bar=False)
        found[kind] = float(results.task_results[0].get_score())
        print(f"{kind}: NDCG@10 {100 * found[kind]:.1f}", flush=True)
    return found


if __name__ == "__main__":
    main(Path(tempfile.mkdtemp()), *sys.argv[1:2])
