"""Stage keys contain all that decides the content of a stage and nothing else, so that existing stages stay valid."""

import json
import os
import shutil
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from types import MappingProxyType
from unittest.mock import Mock

import numpy as np
import pytest
import torch
from sentence_transformers import SentenceTransformer
from transformers import BertConfig, BertModel

from experiments.e01_table1 import EXPERIMENT
from repro.batches import fixed_encoder, mask, negatives
from repro.batches.fixed_encoder import FixedEncoder
from repro.batches.mask import compute_content_keys
from repro.batches.surrogate import load_surrogate
from repro.data.pairs import Row, read_pairs, write_pairs
from repro.data.prompts import PROMPTS, Prompts
from repro.data.tokens import get_minilm_folder
from repro.execute import execute
from repro.pipeline import prompting, stages
from repro.pipeline.encoders import find_commit
from repro.pipeline.inputs import Inputs
from repro.pipeline.needs import STAGE_KINDS
from repro.pipeline.prompting import PromptedTexts
from repro.pipeline.stages import SIDES, StageGraph, list_stages
from repro.spec import base, get_first_phase
from repro.storage.digests import hash_file
from repro.storage.stages import STAGE_FILE, Stage
from tests.commands import ignore
from tests.interop.small import COMMIT, make_hub_snapshot

TODAY = {
    "desk": {
        *("corpus/f54caf7316af", "selection/2be6d3cb0afe", "tokens/8048d8177595", "keys/203dcbcfd906"),
        *("embeddings/cbc7d788bcf2", "clusters/521ee6bc0c58", "headroom/664ae5a8f0e6"),
    },
    "smoke": {
        *("corpus/aeec32e242ad", "selection/08bd357a011c", "tokens/a2882fd4c3d8", "keys/7db86e67acce"),
        *("embeddings/e1eb3ddd0d66", "clusters/c0eeb34e82f8", "headroom/28d994674430"),
    },
}
"""Stages of Table 1 as users have them on disk. A change of one makes every user build and train again."""
NOMIC = "nomic-ai/nomic-embed-text-v1"
RUN = base("smoke", sampler="cluster", cluster_size=8, filter="surrogate", num_hard_negatives=1)


@pytest.fixture(autouse=True)
def without_the_hub(monkeypatch: pytest.MonkeyPatch) -> None:
    """Use local files only."""
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)


@pytest.mark.parametrize("scale", TODAY)
def test_table_1_stages_keep_names(scale: str) -> None:
    assert {stage.title for run in EXPERIMENT.runs(scale) for stage in list_stages(run)} == TODAY[scale]


def test_stage_kinds_are_listed() -> None:
    """Profiles set resources by these names."""
    graph = StageGraph(replace(RUN, measure="retrieval", protocol="rerank", rerank_depth=2))
    values = (getattr(graph, name) for name, value in vars(StageGraph).items() if isinstance(value, cached_property))
    assert {value.name for value in values if isinstance(value, Stage)} == set(STAGE_KINDS)


def test_new_prompts_make_new_tokens(monkeypatch: pytest.MonkeyPatch) -> None:
    def list_titles() -> list[str]:
        runs = [replace(RUN, prompts=prompts, filter_model=NOMIC) for prompts in ("none", "task")]
        return [StageGraph(run).tokens.title for run in runs] + [StageGraph(runs[0]).filter_embeddings.title]

    before = list_titles()
    edited = {**PROMPTS, "task": Prompts("search query: ", "search_document: ")}
    monkeypatch.setattr(prompting, "PROMPTS", MappingProxyType(edited))
    after = list_titles()
    assert [old == new for old, new in zip(before, after, strict=True)] == [True, False, False]


def test_domain_prompts_move_their_corpus(monkeypatch: pytest.MonkeyPatch) -> None:
    before = prompting.get_prompts_in_key("task", "nomic-supervised"), prompting.get_prompts_in_key("task", "desk")
    source = prompting.SOURCES["nomic-supervised"]
    domains = {**source.domains, "reddit": replace(source.domains["reddit"], prompts=("topic: ", "topic: "))}
    sources = {**prompting.SOURCES, "nomic-supervised": replace(source, domains=domains)}
    monkeypatch.setattr(prompting, "SOURCES", sources)
    assert prompting.get_prompts_in_key("task", "nomic-supervised") != before[0]
    assert prompting.get_prompts_in_key("task", "desk") == before[1]


@pytest.fixture(scope="module")
def saved_encoder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small random BERT with mean pooling in the format of sentence-transformers."""
    folder = tmp_path_factory.mktemp("encoder")
    torch.manual_seed(0)
    sizes = {"num_hidden_layers": 1, "num_attention_heads": 2, "hidden_size": 16, "intermediate_size": 32}
    BertModel(BertConfig(**sizes)).save_pretrained(folder / "bert")
    for name in ("tokenizer.json", "tokenizer_config.json", "vocab.txt"):
        shutil.copy(get_minilm_folder() / name, folder / "bert" / name)
    SentenceTransformer(str(folder / "bert"), device="cpu").save(str(folder / "encoder"))
    return folder / "encoder"


@pytest.fixture
def folder(saved_encoder: Path, tmp_path: Path) -> Path:
    """A copy of the encoder, which the test may change."""
    shutil.copytree(saved_encoder, tmp_path / "encoder")
    return tmp_path / "encoder"


def test_new_weights_make_new_embeddings(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = replace(RUN, surrogate=str(folder), filter_model=None)
    hashed: list[str] = []

    def record_hash(path: Path) -> str:
        hashed.append(path.name)
        return hash_file(path)

    def get_title() -> str:
        return StageGraph(run).embeddings.title

    monkeypatch.setattr("repro.storage.digests.hash_file", record_hash)
    before = get_title()
    num_hashed = len(hashed)
    assert get_title() == before and len(hashed) == num_hashed > 0
    (weights,) = folder.rglob("*.safetensors")
    weights.write_bytes(weights.read_bytes() + b"another")
    after = get_title()
    assert after != before and hashed[num_hashed:] == [weights.name]
    (folder / "README.md").write_text("another")
    assert get_title() == after, "a README does not change the model"


def test_silently_replaced_weights_change_the_key(folder: Path) -> None:
    """Other weights of the same size and time, as `cp -p` writes them, in place and as another file."""
    run = replace(RUN, surrogate=str(folder), filter_model=None)
    (weights,) = folder.rglob("*.safetensors")
    before, content = weights.stat(), weights.read_bytes()
    titles = [StageGraph(run).embeddings.title]
    for target in (weights, folder / "other"):
        content = content[:-1] + bytes([content[-1] ^ 1 if target == weights else content[-1] ^ 2])
        target.write_bytes(content)
        os.utime(target, ns=(before.st_atime_ns, before.st_mtime_ns))
        target.replace(weights)
        titles.append(StageGraph(run).embeddings.title)
    assert len({*titles}) == 3


@pytest.mark.parametrize(("name", "changes_tokens"), [("model.safetensors", False), ("tokenizer.json", True)])
def test_new_tokenizer_makes_new_tokens(name: str, changes_tokens: bool, tmp_path: Path) -> None:
    for file in ("tokenizer.json", "model.safetensors"):
        (tmp_path / file).write_text("a file")
    run = replace(RUN, start=str(tmp_path))
    before = StageGraph(run).tokens.title
    (tmp_path / name).write_text("another")
    assert (StageGraph(run).tokens.title != before) is changes_tokens


def test_stage_records_hub_commit(tmp_path: Path, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (make_hub_snapshot(tmp_path / "hub", "someone/encoder") / "modules.json").write_text("[]")
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path / "hub"))
    for name in ("someone/another", "/no/such/folder", "minilm", str(folder)):
        assert find_commit(name) == {}
    monkeypatch.setattr(fixed_encoder, "load_surrogate", lambda name: load_surrogate(str(folder)))
    stage = StageGraph(replace(RUN, surrogate="someone/encoder")).embeddings
    assert "commit" not in json.dumps(stage.key), "the commit is recorded, but not part of the key"
    description = json.loads((stage.build() / STAGE_FILE).read_text())
    assert description["made_with"] == {"model": "someone/encoder", "commit": COMMIT}


def test_weights_name_the_stages_of_their_pairs(own_home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """After a recipe has changed, another analysis of a run refuses the weights of the earlier one."""
    run = base("smoke", num_hard_negatives=1, sampler="domain")
    execute(run, progress=ignore)
    execute(replace(run, measure="curve"), progress=ignore)
    monkeypatch.setitem(stages.RECIPE, "negatives", stages.RECIPE["negatives"] + 1)
    with pytest.raises(ValueError, match="since its scale or the code changed"):
        execute(replace(run, measure="steps", suite="planted-validation"), progress=ignore)


@pytest.mark.parametrize("known_positives", ["ignore", "mask"])
@pytest.mark.parametrize("kind", stages.RECIPE)
def test_new_recipe_rebuilds_dependents(kind: str, known_positives: str, monkeypatch: pytest.MonkeyPatch) -> None:
    below = {"selection": {*stages.RECIPE} - {"candidates"}, "embeddings": {"embeddings", "clusters", "negatives"}}
    below |= {"keys": {"keys", "positives", "negatives"}}
    if known_positives == "mask":
        below["positives"] = {"positives", "negatives"}
    changes = {"protocol": "rerank-bm25", "rerank_depth": 3, "known_positives": known_positives}
    run = replace(RUN, architecture="contextual", **changes)
    before = {stage.name: stage.title for stage in list_stages(run)}
    monkeypatch.setitem(stages.RECIPE, kind, stages.RECIPE[kind] + 1)
    after = {stage.name: stage.title for stage in list_stages(run)}
    assert {name for name in before if before[name] != after[name]} == below.get(kind, {kind}) & before.keys()


def test_short_first_phase_has_short_warmup() -> None:
    """The scale's warm-up would be longer than the phase."""
    run = replace(RUN, pretraining_corpus="planted-tiny", num_pretraining_steps=2)
    first = get_first_phase(run)
    assert first is not None and (first.num_steps, first.num_warmup_steps) == (2, 1)


@pytest.mark.parametrize("prompts", [("", ""), ("search_query: ", "search_document: ")])
def test_paper_filter_sees_prompts(prompts: tuple[str, str], folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if prompts[0]:
        monkeypatch.setattr(fixed_encoder, "PROMPTED_ENCODERS", (folder.name,))
    run = replace(RUN, filter_model=str(folder))
    graph = StageGraph(run)
    graph.filter_embeddings.build()
    library = SentenceTransformer(str(folder), device="cpu")
    library.max_seq_length = run.max_tokens
    pairs = Inputs(run).pairs
    for side, prompt in zip(SIDES, prompts, strict=True):
        texts = [prompt + text for text in pairs.texts(side, np.arange(len(pairs)))]
        expected = library.encode(texts, normalize_embeddings=True, show_progress_bar=False)
        actual = np.asarray(graph.load_embeddings(side, of_filter=True), np.float32)
        np.testing.assert_allclose(actual, expected, atol=2e-3)
    assert ("prompt_texts" in graph.filter_embeddings.key) is bool(prompts[0])
    assert "prompt_texts" not in graph.embeddings.key


def test_encoder_sees_domain_prompts(tmp_path: Path) -> None:
    rows = [
        Row(str(n), f"q{n}", f"d{n}", domain, domain)
        for n, domain in enumerate(["nq_triples", "reddit", "nli_triplets", "nq_triples"])
    ]
    write_pairs(tmp_path / "train.arrow", rows)
    prompts = FixedEncoder(NOMIC, 8).prompts
    texts = PromptedTexts(read_pairs(tmp_path / "train.arrow"), "document", prompts, "nomic-supervised")
    expected = ["search_document: d0", "clustering: d1", "classification: d2", "search_document: d3"]
    assert texts.texts(np.array([2, 0, 1, 3])) == [expected[2], expected[0], expected[1], expected[3]]
    trained = PromptedTexts(read_pairs(tmp_path / "train.arrow"), "document", "task", "nomic-supervised")
    assert list(trained.blocks(3)) == [expected[:3], expected[3:]]


def test_negatives_use_stored_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    """Mining reads the keys of the documents from their stage, also if it is the only stage to build."""
    graph = StageGraph(RUN)
    graph.keys.build()
    pairs = Inputs(RUN).pairs
    expected = compute_content_keys(pairs.texts("document", np.arange(len(pairs))))
    mine = Mock(side_effect=negatives.mine_negatives)
    monkeypatch.setattr("repro.pipeline.stages.mine_negatives", mine)
    monkeypatch.setattr(mask, "compute_content_keys", lambda texts: pytest.fail("keys are computed again"))
    graph.negatives.build()
    np.testing.assert_array_equal(mine.call_args.args[3], expected)


@pytest.mark.parametrize(
    ("protocol", "title"),
    [("rerank", "candidates/927da047106f"), ("rerank-bm25", "candidates/73dd3f313495"), ("full", None)],
)
def test_first_stage_is_in_the_graph(protocol: str, title: str | None) -> None:
    """Candidates of the first stage are a stage, so that plans show it and launches build it."""
    run = replace(RUN, protocol=protocol, rerank_depth=None if protocol == "full" else 5)
    assert [stage.title for stage in list_stages(run) if stage.name == "candidates"] == ([title] if title else [])


def test_headroom_is_built_if_read() -> None:
    contextual = base("smoke", architecture="contextual")
    phases = replace(contextual, pretraining_corpus="planted", num_pretraining_steps=8, context_seed=1)
    readers = [contextual, phases, replace(contextual, num_test_contexts=2)]
    others = [
        base("smoke"),
        replace(contextual, test_contexts="own+null"),
        replace(contextual, measure="spread"),
        replace(contextual, protocol="rerank-bm25", rerank_depth=3),
    ]
    for run in readers + others:
        titles = [stage.title for stage in list_stages(run) if stage.name == "headroom"]
        assert titles == ([StageGraph(run).headroom.title] if run in readers else [])
    assert len({StageGraph(run).headroom.title for run in readers}) == 3


def test_first_phase_needs_training_data_only() -> None:
    run = base("desk", corpus="functions", suite="functions", pretraining_corpus="wide", num_pretraining_steps=8)
    assert {stage.key["corpus"] for stage in list_stages(run) if stage.name == "corpus"} == {"functions", "wide"}


def test_first_phase_needs_no_suite() -> None:
    """The default suite of `small` is missing here. A first phase is not evaluated on it."""
    own = {"corpus": "desk", "suite": "desk", "protocol": "full", "rerank_depth": None, "prompts": "none"}
    encoders = {"start": "minilm", "surrogate": "minilm-words", "filter": "none", "filter_model": None}
    steps = {"num_epochs": None, "num_steps": 20, "num_warmup_steps": 2, "num_pretraining_steps": 10, "num_pairs": 1000}
    run = base("small", pretraining_corpus="desk", **own, **encoders, **steps)
    assert {"corpus", "selection", "tokens"} <= {stage.name for stage in list_stages(run)}
