"""Import your own corpus, train a contextual model on it for twenty steps, evaluate it and export it.

python examples/own_corpus.py     In a terminal: repro data import, repro run, repro evaluate, repro export.
"""

import json
import os
import tempfile
from pathlib import Path

# ruff: noqa: E402 (importing the libraries takes seconds, so this line is printed first)
print("loading libraries …", flush=True)

from repro.data.own.imported import bring
from repro.execute import execute
from repro.interop.evaluating import Asked, evaluate_anything
from repro.interop.exporting import export_model
from repro.planning.imported import plan_imported
from repro.report.formats import render
from repro.spec import base
from repro.spec.identity import run_id

THINGS = ("kettle", "lamp", "radio", "bicycle", "printer")


def write_pairs(path: Path) -> Path:
    """Write 600 questions and answers. Replace them by your own."""
    rows = (
        {
            "query": f"how do I repair {THINGS[n % 5]} model {n}",
            "document": f"The {THINGS[n % 5]} {n} is repaired with part {7 * n} and some care.",
            "domain": THINGS[n % 5],
        }
        for n in range(600)
    )
    path.write_text("\n".join(map(json.dumps, rows)), encoding="utf-8")
    return path


def main(folder: Path, num_steps: int = 20) -> None:
    """Go from a file of pairs to a folder that sentence-transformers opens. All files are below `folder`."""
    os.environ["REPRO_HOME"] = str(folder / "out")
    bring(write_pairs(folder / "pairs.jsonl"), name="mine")
    for line in plan_imported("mine", "smoke").lines():
        print(line, flush=True)
    rows = json.loads((folder / "out" / "corpora" / "mine" / "mine-smoke.json").read_text(encoding="utf-8"))
    changed = next(row for row in rows if row["architecture"] == "contextual") | {"num_steps": num_steps}
    run = base(changed.pop("scale"), **changed)
    execute(run)
    for view in evaluate_anything(Asked(run_id(run), "mine", ("own", "null"))).views():
        render(view)
    for line in export_model(run_id(run), folder / "mine", "sentence-transformers"):
        print(line, flush=True)


if __name__ == "__main__":
    main(Path(tempfile.mkdtemp()))
