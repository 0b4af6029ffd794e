"""A run that starts from the encoder in a folder takes its sizes. `plan` refuses what does not fit."""

import hashlib
import json
import re
import shutil
from collections.abc import Callable
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors
from transformers import AutoModel, AutoTokenizer, BertConfig

from repro.data.mined.sources.apis import mine_services
from repro.data.tokens import load_tokenizer
from repro.execute import execute
from repro.model.backbone import Backbone
from repro.model.config import ModelConfig
from repro.model.contextual import ContextualModel
from repro.model.start import get_backbones
from repro.pipeline.inputs import Inputs
from repro.planning.requirements import check_encoders, find_misfits, list_missing_requirements
from repro.records.lookup import read_runs
from repro.spec import base, grid
from repro.spec.identity import run_id
from repro.spec.start import DEFAULT_BERT_POSITIONS
from repro.train.setup import make_model_config
from repro.train.trainer import trained_model
from tests.commands import get_exit_code, ignore

WORDS = ["[UNK]", "[CLS]", "[SEP]", "[PAD]", *"abcdefghijklmnopqrstuvwxyz"]


def write_encoder(folder: Path, backbone: str) -> Path:
    """Write a tiny random encoder in transformers' format, with a tokenizer of letters."""
    torch.manual_seed(0)
    config = ModelConfig(
        architecture="biencoder",
        backbone=backbone,
        hidden_size=24,
        num_heads=2,
        intermediate_size=48,
        vocab_size=len(WORDS) + 2,
        backbone_settings={"pad_token_id": 3},
    )
    Backbone(config, 2).model.save_pretrained(folder)
    tokenizer = Tokenizer(models.WordLevel({word: index for index, word in enumerate(WORDS)}, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.Split("", "isolated")
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", special_tokens=[("[CLS]", 1), ("[SEP]", 2)]
    )
    tokenizer.save(str(folder / "tokenizer.json"))
    # as `save_pretrained` writes it. Without the class, transformers would take the tokenizer of the model type
    settings = {"pad_token": "[PAD]", "tokenizer_class": "PreTrainedTokenizerFast"}
    (folder / "tokenizer_config.json").write_text(json.dumps(settings))
    return folder


def write_runs(folder: Path, **fields: Any) -> Path:
    """Write a file with one run."""
    runs = folder / "runs.json"
    runs.write_text(json.dumps([{"scale": "smoke"} | fields]))
    return runs


@pytest.mark.parametrize("backbone", ["bert", "modernbert"])
def test_folder_sets_sizes_and_trains(tmp_path: Path, backbone: str) -> None:
    """Backbone, layers and width come from the folder. The run stores a name and a digest and trains its weights."""
    folder = write_encoder(tmp_path / "letters", backbone)
    run = base(
        "smoke", start=str(folder), architecture="contextual", num_steps=1, learning_rate=0.0, num_warmup_steps=0
    )
    assert (run.backbone, run.num_layers, run.num_first_stage_layers, run.hidden_size) == (backbone, 2, 2, 24)
    digest = hashlib.sha256((folder / "model.safetensors").read_bytes()).hexdigest()
    assert run.start == base("smoke", surrogate=str(folder)).surrogate and re.fullmatch(r"letters@\w{12}", run.start)
    assert run == base("smoke", **vars(run)), "its sizes are kept when it is also a surrogate"
    assert not any(str(tmp_path) in str(value) for value in vars(run).values())
    assert run_id(run) == run_id(base("smoke", **{**vars(run), "seed": 0}))
    record = execute(run, progress=ignore)
    inputs = Inputs(run)
    assert np.asarray(inputs.tokens("query").ids).max() < len(WORDS)
    assert inputs.graph.tokens.path != Inputs(base("smoke")).graph.tokens.path
    assert 0 < record.metrics["planted/mean/ndcg_at_10"] <= 1
    assert record.provenance["encoder"]["files"]["model.safetensors"] == digest
    weights = AutoModel.from_pretrained(folder).state_dict()
    for stage in get_backbones(trained_model(run, ignore)):
        for name, value in stage.model.state_dict().items():
            torch.testing.assert_close(value.cpu(), weights[name], rtol=0, atol=0)


def test_given_fields_win(tmp_path: Path) -> None:
    """A given field is kept. MiniLM with all of its sizes is the same run as MiniLM."""
    folder = write_encoder(tmp_path / "letters", "bert")
    run = base("smoke", start=str(folder), num_layers=1)
    assert (run.num_layers, run.num_first_stage_layers) == (1, 2)
    sizes: dict[str, Any] = {"backbone": "bert", "num_layers": 6, "num_first_stage_layers": 6, "hidden_size": 384}
    (explicit,) = grid(base("desk"), start="minilm", **sizes)
    assert base("desk", start="minilm") == explicit
    assert base("desk", start="minilm", num_layers=3).num_layers == 3


def test_runs_file_takes_folder(tmp_path: Path) -> None:
    """A file of runs may name the folder or the stored name. A missing folder is listed as a requirement."""
    folder = write_encoder(tmp_path / "letters", "modernbert")
    (run,) = read_runs(write_runs(tmp_path, start=str(folder)))
    assert run == base("smoke", start=str(folder))
    shutil.move(folder, tmp_path / "elsewhere")
    assert read_runs(write_runs(tmp_path, **vars(run))) == [run]
    (lack,) = (line for line in list_missing_requirements([run]) if "letters" in line)
    assert str(folder) in lack


def change_fields(name: str, **values: Any) -> Callable[[Path], None]:
    """Return a function that sets fields of a JSON file of the folder."""

    def act(folder: Path) -> None:
        (folder / name).write_text(json.dumps(json.loads((folder / name).read_text()) | values))

    return act


def remove_layer(folder: Path) -> None:
    """Remove the weights of the second layer."""
    remaining = {name: weight for name, weight in load_file(folder / "model.safetensors").items() if ".1." not in name}
    save_file(remaining, folder / "model.safetensors")


def add_words(folder: Path) -> None:
    """Give the tokenizer more words than the model has word vectors."""
    values = json.loads((folder / "tokenizer.json").read_text())
    values["model"]["vocab"] |= {f"more{index}": len(WORDS) + index for index in range(9)}
    (folder / "tokenizer.json").write_text(json.dumps(values))


@pytest.mark.parametrize(
    ("damage", "named"),
    [
        (change_fields("config.json", model_type="gpt2"), r"config\.json.*model_type.*gpt2"),
        (lambda folder: (folder / "tokenizer.json").unlink(), r"tokenizer\.json"),
        (change_fields("tokenizer_config.json", pad_token="[SEP]"), r"tokenizer\.json.*pad_token"),
        (lambda folder: (folder / "adapter_config.json").write_text("{}"), r"adapter_config\.json"),
        (lambda folder: (folder / "model.safetensors").rename(folder / "pytorch_model.bin"), r"pytorch_model\.bin"),
    ],
)
def test_broken_folder_is_refused(
    tmp_path: Path, damage: Callable[[Path], None], named: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """`plan` prints one line that names file and field, and ends with exit code 2."""
    folder = write_encoder(tmp_path / "letters", "bert")
    runs = write_runs(tmp_path, start=str(folder))
    damage(folder)
    capsys.readouterr()  # the progress of saving
    assert get_exit_code("plan", str(runs)) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert re.search(named, line)


@pytest.mark.usefixtures("shared_home")
@pytest.mark.parametrize("damage", [change_fields("config.json", hidden_size=48), remove_layer, add_words])
def test_misfits_are_refused_when_loaded(
    tmp_path: Path, damage: Callable[[Path], None], capsys: pytest.CaptureFixture[str]
) -> None:
    """Weights and tokenizers that do not fit the configuration train nothing, and the line names the folder."""
    folder = write_encoder(tmp_path / "letters", "bert")
    damage(folder)
    assert get_exit_code("run", str(write_runs(tmp_path, start=str(folder), num_steps=1, num_warmup_steps=0))) == 2
    assert "letters" in capsys.readouterr().err.splitlines()[-1]


def test_fixed_encoders_are_named_by_content(tmp_path: Path) -> None:
    """Another surrogate or filter model in the same folder is another run. Old runs refuse the new files."""
    folder = write_encoder(tmp_path / "letters", "bert")
    fields: dict[str, Any] = {"filter": "surrogate", "surrogate": "minilm-words", "filter_model": str(folder)}
    run, started = base("smoke", **fields), base("smoke", start=str(folder))
    assert run == base("smoke", **vars(run)) and str(tmp_path) not in str(vars(run))
    assert base("smoke", surrogate=str(folder)).surrogate == run.filter_model
    assert not list_missing_requirements([run])
    change_fields("config.json", layer_norm_eps=0.5)(folder)
    changed = base("smoke", **fields)
    assert run_id(changed) != run_id(run) and changed.filter_model != run.filter_model
    with pytest.raises(ValueError, match=r"config\.json has changed"):
        execute(started, progress=ignore)
    assert any("config.json" in line for line in list_missing_requirements([run]))
    with pytest.raises(ValueError, match=r"config\.json has changed"):
        execute(run, progress=ignore)


@pytest.mark.parametrize(
    "settings",
    [{}, {"do_lower_case": False}, {"strip_accents": False}, {"tokenize_chinese_chars": False}, {"cls_token": "[SEP]"}],
)
def test_start_reads_tokens_as_surrogate(tmp_path: Path, settings: dict[str, Any]) -> None:
    """A start has the ids of AutoTokenizer, which adds the settings of tokenizer_config.json to tokenizer.json."""
    folder = write_encoder(tmp_path / "words", "bert")
    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "hello", "Hello", "e", "é", "中", "国", "中国"]
    words += [f"[unused{number}]" for number in range(len(WORDS) - len(words))]
    tokenizer = Tokenizer(models.WordPiece({word: index for index, word in enumerate(words)}, unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.BertNormalizer(lowercase=False)
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.save(str(folder / "tokenizer.json"))
    (folder / "tokenizer_config.json").write_text(json.dumps({"tokenizer_class": "BertTokenizer"} | settings))
    (folder / "config.json").write_text(
        json.dumps(json.loads((folder / "config.json").read_text()) | {"pad_token_id": 0})
    )
    text = "Hello é 中国 hello [MASK]"
    ids = load_tokenizer(base("smoke", start=str(folder)).start).encode(text).ids
    assert ids == AutoTokenizer.from_pretrained(folder)(text)["input_ids"]


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"backbone": "nomic"}, "backbone"),
        ({"hidden_size": 128}, "hidden_size"),
        ({"num_layers": 7}, "num_layers"),
        ({"max_tokens": 4096}, "max_tokens"),
    ],
)
def test_plan_refuses_misfits(changes: dict[str, Any], field: str) -> None:
    """`plan` lists fields that do not fit the encoder. `run` and `launch` refuse them before anything is built."""
    run = base("smoke", start="minilm", **changes)
    (line,) = find_misfits([run])
    assert line.startswith(f"{field}=")
    with pytest.raises(ValueError, match=f"^{field}="):
        check_encoders([run])
    assert not find_misfits([base("smoke", start="minilm")])


@pytest.mark.parametrize("sizes", [{"max_tokens": 513}, {"architecture": "contextual", "num_contexts": 500}])
def test_untrained_bert_has_512_positions(sizes: dict[str, Any]) -> None:
    """One long text would end a training run in the middle."""
    (line,) = find_misfits([base("smoke", backbone="bert", start="random", **sizes)])
    assert "512 positions" in line
    assert BertConfig().max_position_embeddings == DEFAULT_BERT_POSITIONS
    assert not find_misfits([base("smoke", backbone="nomic", start="random", **sizes)])


def test_biencoder_has_no_first_stage() -> None:
    """Layers of a stage that it lacks do not matter. A contextual model is refused."""
    changes = {"start": "minilm", "num_first_stage_layers": 12}
    assert make_model_config(base("smoke", architecture="biencoder", **changes)).num_layers == 6
    with pytest.raises(ValueError, match="num_first_stage_layers=12"):
        make_model_config(base("smoke", architecture="contextual", **changes))


def test_untrained_contextual_model_is_near_its_biencoder() -> None:
    """MiniLM still reads a text behind a context if its positions stay, and hardly if they move."""
    rows = [row for row in islice(mine_services(), 1500) if len(row.document) > 40][::7][:120]
    queries, documents = [row.query for row in rows], [row.document for row in rows]
    at_0 = {"architecture": "contextual", "first_position": 0, "heads": "both-identity"}
    scores = []
    for changes in ({}, at_0, at_0 | {"first_position": None}):
        model = trained_model(base("mini", **changes, num_steps=0), ignore)
        if isinstance(model, ContextualModel):
            model.set_context(documents)
        cosines = model.encode(queries, "query") @ model.encode(documents, "document").T
        ranks = (cosines > np.diagonal(cosines)[:, None]).sum(1)
        scores.append(float(np.where(ranks < 10, 100 / np.log2(2 + ranks), 0).mean()))
    biencoder, stays, moves = scores
    assert stays > biencoder - 5 > moves + 5, "NDCG@10"
