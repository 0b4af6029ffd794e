"""Promise of the page on ways in and out: each of its blocks runs as it stands."""

import json
import re
import warnings
from pathlib import Path

import repro.interop
from repro.interop.mteb_task import retrieval_task
from tests.interop.checkpoints import random_weights, write_checkpoint
from tests.interop.test_mteb import collection


def test_the_blocks_of_the_page_run(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    write_checkpoint(Path("cde-small-v1"), weights=random_weights("nomic", words=30528), base={"vocab_size": 30528})
    rows = [json.dumps({"query": f"question {n}", "document": f"answer {n}"}) for n in range(200)]
    Path("pairs.jsonl").write_text("\n".join(rows))
    data = collection()
    given = {
        "corpus": data.documents,
        "queries": data.queries,
        "documents": data.documents,
        "task": retrieval_task(data),
    }
    page = (Path(repro.interop.__file__).parent / "README.md").read_text()
    blocks = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for block in blocks:
            exec(block, given)
    assert len(blocks) == 4 and given["scores"].shape == (12, 12) and given["vectors"].shape == (12, 16)
    assert not given["results"].exceptions and list(Path("results").rglob("things.json"))
    assert "200 {" in capsys.readouterr().out
