"""The paper's unsupervised training data: the number of pairs of each source (Table 5)."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

TRAINING_PAIRS: Mapping[str, int] = MappingProxyType(
    {
        "reddit_title_body": 64_978_944,
        "paq": 52_953_088,
        "amazon_reviews": 38_682_624,
        "s2orc_title_abstract": 35_438_592,
        "wikianswers": 9_912_320,
        "s2orc_citation_titles": 7_585_792,
        "s2orc_abstract_citation": 7_503_872,
        "s2orc_abstract_body": 6_389_760,
        "wikipedia": 6_078_464,
        "gooaq": 1_245_184,
        "codesearch": 835_584,
        "agnews": 409_600,
        "ccnews": 344_064,
        "npr": 344_064,
        "cnn": 278_528,
        "yahoo_title_answer": 262_144,
        "amazonqa": 212_992,
        "yahoo_title_question": 196_608,
        "sentence_compression": 163_840,
        "yahoo_qa": 131_072,
        "eli5": 98_304,
        "altlex": 98_304,
        "wikihow": 81_920,
        "simplewiki": 81_920,
        "stackexchange_duplicate_questions": 65_536,
        "stackexchange_title_body": 65_536,
        "stackexchange_body_body": 65_536,
        "quora": 32_768,
        "squad": 16_384,
    }
)
