"""Train on your own text: imported, trained from MiniLM, compared with BM25 and off-the-shelf MiniLM, and exported.

python examples/own_corpus.py     In a terminal: repro data import pairs.jsonl, repro run, repro export

The text is the documentation of Python's own library: the first paragraph of a docstring asks for the rest of it. The
script takes some minutes on two cores.
"""

import ast
import json
import os
import sysconfig
import tempfile
from collections.abc import Iterator
from pathlib import Path

# Importing the libraries takes seconds, so this line is printed first.
if __name__ == "__main__":
    print("loading libraries …", flush=True)

from repro.data.own.imported import import_source
from repro.execute import execute
from repro.interop.exporting import export_model
from repro.planning.imported import plan_imported
from repro.report.own_corpus import format_own_corpus_lines
from repro.spec import TRAINED, base
from repro.spec.identity import run_id


def iter_docstrings() -> Iterator[dict[str, str]]:
    """Yield a pair per docstring of the standard library: its first paragraph and the others."""
    seen = set()
    for path in sorted(Path(sysconfig.get_paths()["stdlib"]).glob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.FunctionDef | ast.ClassDef):
                query, _, document = (
                    " ".join(part.split()) for part in (ast.get_docstring(node) or "").partition("\n\n")
                )
                if len(query.split()) >= 4 and len(document.split()) >= 8 and query not in seen:
                    seen.add(query)
                    yield {"query": query, "document": document}


def write_pairs(path: Path, num_pairs: int) -> Path:
    """Write pairs as jsonl. Put your own file in its place."""
    rows = list(iter_docstrings())[:num_pairs]
    path.write_text("\n".join(map(json.dumps, rows)), encoding="utf-8")
    return path


def main(folder: Path, num_pairs: int = 1000, scale: str = "mini", num_steps: int | None = None) -> list[str]:
    """Go from a file of pairs to a folder that sentence-transformers opens, and return the summary."""
    os.environ["REPRO_HOME"] = str(folder / "out")
    corpus = import_source(write_pairs(folder / "pairs.jsonl", num_pairs), name="docstrings")
    planned = plan_imported("docstrings", scale)
    for line in planned.lines():
        print(line, flush=True)
    runs = []
    for row in json.loads(planned.path.read_text(encoding="utf-8")):
        if row["architecture"] != "contextual":  # the biencoder is enough here
            shorter = {"num_steps": num_steps} if num_steps and row["architecture"] in TRAINED else {}
            runs.append(base(row["scale"], **{name: row[name] for name in row if name != "scale"} | shorter))
            execute(runs[-1])
    sizes = planned.report["suite"]
    summary = format_own_corpus_lines([run for run in runs if run.corpus == corpus.corpus], sizes)
    for line in [*summary, *export_model(run_id(runs[0]), folder / "docstrings", "sentence-transformers")]:
        print(line, flush=True)
    return summary


if __name__ == "__main__":
    main(Path(tempfile.mkdtemp()))
