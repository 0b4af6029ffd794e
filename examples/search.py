"""Search a corpus with MiniLM, off the shelf and adapted to the corpus. Nothing is trained.

python examples/search.py [QUERY ...]

In a terminal: repro search MODEL "my question" --corpus docs.jsonl, and repro adapt MODEL --corpus docs.jsonl --to FOLDER
"""

import json
import os
import sys
import tempfile
from pathlib import Path

# Importing the libraries takes seconds, so this line is printed first.
if __name__ == "__main__":
    print("loading libraries …", flush=True)

from own_corpus import iter_docstrings

from repro.data.tokens import get_minilm_folder
from repro.interop.adapting import adapt_model
from repro.interop.search import Found, search
from repro.text import shorten

QUERIES = ("read the members of a zip archive", "wait until a thread has ended", "split text into words like a shell")
TOP = 3


def main(folder: Path, queries: tuple[str, ...] = QUERIES, num_documents: int = 500) -> dict[str, list[list[Found]]]:
    """Return the best documents of each query, by model."""
    os.environ["REPRO_HOME"] = str(folder / "out")
    rows = [{"_id": str(number), "text": row["document"]} for number, row in enumerate(iter_docstrings())]
    documents = folder / "documents.jsonl"
    documents.write_text("\n".join(map(json.dumps, rows[:num_documents])), encoding="utf-8")
    minilm = str(get_minilm_folder())
    for line in adapt_model(minilm, str(documents), folder / "adapted"):
        print(line, flush=True)
    found = {}
    for name, model in (("off-the-shelf MiniLM", minilm), ("MiniLM adapted", str(folder / "adapted"))):
        found[name] = search(model, str(documents), queries, top=TOP)
    for number, query in enumerate(queries):
        print(f"\n{query}")
        for name, rankings in found.items():
            for one in rankings[number]:
                print(f"  {name:<16} {one.rank}  {one.score:.3f}  {shorten(one.text, 80)}", flush=True)
    return found


if __name__ == "__main__":
    main(Path(tempfile.mkdtemp()), tuple(sys.argv[1:]) or QUERIES)
