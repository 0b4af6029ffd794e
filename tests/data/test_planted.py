"""The planted corpus: deterministic, of the usual shape, and solvable only with the noise words of the domain."""

from pathlib import Path

import numpy as np

from repro.data.beir import load_beir, load_suite
from repro.data.pairs import read_pairs
from repro.data.planted import PlantedDomain, PlantedText, build_planted_corpus, list_vocabulary_words, make_domain
from repro.data.tokens import load_tokenizer, tokenize

TEXT = PlantedText()
WORDS = list_vocabulary_words(TEXT.num_vocabulary_words, 0)


def compute_oracle_ndcg(domain: PlantedDomain, noise_words: frozenset[str]) -> float:
    """Return the mean NDCG@10 of counting shared words except `noise_words`. Ties share their mean rank."""
    queries = [set(text.split()) - noise_words for text in domain.queries]
    documents = [set(text.split()) - noise_words for text in domain.documents]
    gains = []
    for gold, query in enumerate(queries):
        scores = np.array([len(query & document) for document in documents])
        rank = (scores > scores[gold]).sum() + ((scores == scores[gold]).sum() - 1) / 2
        gains.append(1 / np.log2(rank + 2) if rank < 10 else 0.0)
    return float(np.mean(gains))


def make_domains(num: int) -> list[PlantedDomain]:
    """Return domains of 150 pairs each."""
    return [make_domain(f"domain-{number}", WORDS, TEXT, num_pairs=150, seed=0) for number in range(num)]


def test_noise_words_of_domain_matter() -> None:
    domains = make_domains(4)
    unaware = np.mean([compute_oracle_ndcg(domain, frozenset()) for domain in domains])
    in_domain = np.mean([compute_oracle_ndcg(domain, domain.noise_words) for domain in domains])
    others = domains[1:] + domains[:1]
    out_of_domain = np.mean([compute_oracle_ndcg(a, b.noise_words) for a, b in zip(domains, others, strict=True)])
    assert in_domain > unaware + 0.3
    assert out_of_domain < unaware + 0.02


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
