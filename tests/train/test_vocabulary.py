"""A model reads the ids of its own vocabulary: the tokenizer follows what the weights start from."""

from pathlib import Path

import numpy as np
import pytest
from tokenizers import Tokenizer, models, pre_tokenizers, processors

from repro.execute import execute
from repro.model.backbone import build_backbone
from repro.model.config import ModelConfig
from repro.pipeline.inputs import Inputs
from repro.spec import Run, base
from repro.train.trainer import check_model, make_model_config

LETTERS = "abcdefghijklmnopqrstuvwxyz"
WORDS = ["[UNK]", "[CLS]", "[SEP]", "[PAD]", *LETTERS]


def quiet(line: str) -> None:
    """Says nothing."""


def checkpoint(folder: Path, num_word_vectors: int) -> Run:
    """A tiny ModernBERT with a tokenizer of letters, and a smoke run that starts from it."""
    config = ModelConfig(
        architecture="biencoder",
        backbone="modernbert",
        hidden_size=32,
        num_heads=1,
        intermediate_size=64,
        vocab_size=num_word_vectors,
        backbone_settings={"pad_token_id": 3},
    )
    build_backbone(config, 1).model.save_pretrained(folder)
    tokenizer = Tokenizer(models.WordLevel({word: place for place, word in enumerate(WORDS)}, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.Split("", "isolated")
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", special_tokens=[("[CLS]", 1), ("[SEP]", 2)]
    )
    tokenizer.save(str(folder / "tokenizer.json"))
    return base("smoke", start=str(folder))


def test_a_pretrained_start_is_trained_and_scored_on_its_own_tokens(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("REPRO_HOME", str(tmp_path / "home"))
    run = checkpoint(tmp_path / "letters", len(WORDS))
    record = execute(run, progress=quiet)
    ids = np.asarray(Inputs(run).tokens("query").ids)
    assert ids.max() < len(WORDS) and 0 < record.metrics["planted/mean/ndcg_at_10"] <= 1
    assert make_model_config(run).tokenizer == run.start
    assert Inputs(run).graph.tokens.path != Inputs(base("smoke")).graph.tokens.path


@pytest.mark.parametrize("start", ["random", "words"])
def test_starts_without_a_tokenizer_of_their_own_have_minilms(start: str) -> None:
    run = base("smoke", start=start)
    check_model(run)
    assert make_model_config(run).tokenizer == "minilm"
