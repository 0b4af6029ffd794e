"""Promises about TREC run files made elsewhere."""

import gzip

import pytest

from repro.evaluate.retrieval import read_run


@pytest.mark.parametrize("score", ["nan", "inf", "high"])
def test_a_score_that_is_no_number_is_named_with_its_line(tmp_path, score):
    path = tmp_path / "run.trec.gz"
    path.write_bytes(gzip.compress(f"q1 Q0 d1 1 0.5 me\nq1 Q0 d2 2 {score} me\n".encode()))
    with pytest.raises(ValueError, match="line 2"):
        read_run(path)
