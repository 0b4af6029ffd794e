"""The planted corpus: a function of its seed, of the usual shape. Golden metrics pin its text."""

from pathlib import Path

import numpy as np

from repro.data.beir import load_beir, load_suite
from repro.data.pairs import read_pairs
from repro.data.planted import PlantedText, build_planted_corpus, list_vocabulary_words
from repro.data.tokens import load_tokenizer, tokenize

TEXT = PlantedText()
WORDS = list_vocabulary_words(TEXT.num_vocabulary_words, 0)


def test_corpus_is_function_of_seed(tmp_path: Path) -> None:
    """It has training pairs and two suites, as every corpus."""
    contents = []
    for name, seed in (("a", 1), ("b", 1), ("c", 2)):
        folder = tmp_path / name
        build_planted_corpus(folder, num_domains=3, pairs_per_domain=8, seed=seed, num_heldout_domains=2, text="wide")
        contents.append({path.relative_to(folder): path.read_bytes() for path in folder.rglob("*") if path.is_file()})
    assert contents[0] == contents[1]
    assert contents[0][Path("train.arrow")] != contents[2][Path("train.arrow")]
    assert np.bincount(read_pairs(tmp_path / "a/train.arrow").domain_codes).tolist() == [8, 8, 8]
    for name in ("planted", "planted-validation"):
        suite = load_suite(tmp_path / "a/suites" / name)
        assert [dataset.family for dataset in suite.datasets] == ["planted"] * 2
        assert [len(load_beir(dataset.path).queries) for dataset in suite.datasets] == [8, 8]


def test_every_planted_word_is_one_token() -> None:
    lengths = tokenize(WORDS.tolist(), load_tokenizer("minilm"), 8).lengths
    assert (lengths == 3).all()
