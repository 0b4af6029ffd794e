"""Where weights come from: seeds, encoders in folders, word vectors and heads."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import AutoModel

from repro.data.tokens import get_minilm_folder
from repro.model.backbone import Backbone
from repro.model.config import ModelConfig
from repro.model.modeling_cde import mean_pool
from repro.model.start import build_model, fit_to_start, get_backbones, load_word_vectors
from repro.model.texts import Texts, make_texts
from tests.interop.checkpoints import nomic_shapes
from tests.model.samples import draw_texts, make_small_config

MINILM = ModelConfig(
    architecture="contextual", backbone="bert", hidden_size=384, num_layers=2, num_first_stage_layers=1
)


def test_weights_follow_the_seed() -> None:
    first, repeated, other_seed = (build_model(make_small_config(), seed=seed) for seed in (1, 1, 2))
    for name, value in first.state_dict().items():
        torch.testing.assert_close(repeated.state_dict()[name], value, rtol=0, atol=0)
    assert not torch.equal(first.first_stage_model.mlp[0].weight, other_seed.first_stage_model.mlp[0].weight)


def test_building_keeps_the_global_generator() -> None:
    torch.manual_seed(7)
    expected = torch.rand(3)
    torch.manual_seed(7)
    build_model(make_small_config())
    torch.testing.assert_close(torch.rand(3), expected)


def test_minilm_gives_both_stages_layers() -> None:
    model = build_model(fit_to_start(MINILM, "minilm"), start="minilm")
    weights = load_file(get_minilm_folder() / "model.safetensors")
    for backbone, num_layers in zip(get_backbones(model), (1, 2), strict=True):
        state = backbone.model.state_dict()
        assert sum(name.endswith("attention.self.query.weight") for name in state) == num_layers
        for name, value in state.items():
            torch.testing.assert_close(value, weights[name])


def write_nomic_files(folder: Path, prefix: str) -> dict[str, torch.Tensor]:
    """Write a small model in Nomic's format, with a prefix before all names, and return its weights."""
    generator = torch.Generator().manual_seed(0)
    shapes = nomic_shapes(prefix, width=32, inner=64, words=128, layers=2)
    weights = {name: torch.randn(shape, generator=generator) / 2 for name, shape in shapes.items()}
    save_file(weights, folder / "model.safetensors", {"format": "pt"})
    config = {"model_type": "nomic_bert", "vocab_size": 128, "hidden_size": 32, "num_hidden_layers": 2}
    config |= {"num_attention_heads": 2, "intermediate_size": 64}
    config |= {"n_embd": 32, "n_layer": 2, "n_head": 2, "n_inner": 64, "rotary_emb_base": 1000}
    (folder / "config.json").write_text(json.dumps(config))
    return weights


NOMIC = ModelConfig(
    architecture="contextual",
    backbone="nomic",
    num_layers=2,
    num_first_stage_layers=1,
    hidden_size=32,
    num_heads=2,
    intermediate_size=64,
    vocab_size=128,
    num_contexts=2,
)


@pytest.mark.parametrize("prefix", ["", "bert."])
def test_both_nomic_formats_are_read(tmp_path: Path, prefix: str) -> None:
    weights = write_nomic_files(tmp_path, prefix)
    model = build_model(fit_to_start(NOMIC, str(tmp_path)), start=str(tmp_path))
    for backbone in get_backbones(model):
        state = backbone.model.state_dict()
        torch.testing.assert_close(
            state["embeddings.word_embeddings.weight"], weights[f"{prefix}embeddings.word_embeddings.weight"]
        )
        (name,) = [key for key in state if "layers.0" in key and "q_proj" in key]
        torch.testing.assert_close(state[name], weights[f"{prefix}encoder.layers.0.attn.Wqkv.weight"][:32])


def test_unknown_heads_are_refused() -> None:
    """They would be those of "identity"."""
    with pytest.raises(ValueError, match="identiy"):
        build_model(make_small_config(), heads="identiy")


def test_missing_weights_are_refused(tmp_path: Path) -> None:
    """transformers would initialise them at random and warn."""
    write_nomic_files(tmp_path, "foreign.")
    with pytest.raises(ValueError, match=r"does not fit this nomic backbone: \d+ missing.*\['emb"):
        build_model(fit_to_start(NOMIC, str(tmp_path)), start=str(tmp_path))


def test_whole_minilm_matches_transformers() -> None:
    config = fit_to_start(
        ModelConfig(architecture="biencoder", backbone="bert", hidden_size=384, num_layers=6), "minilm"
    )
    model = build_model(config, start="minilm").eval()
    reference = AutoModel.from_pretrained(get_minilm_folder(), attn_implementation="eager").eval()
    texts = make_texts(*model.tokenize(["a hill", "rain falls on the plain in spring"], "query").pad([0, 1]))
    is_token_NS = texts.mask_NS.bool()
    with torch.no_grad():
        states_NSD = model.embedder(*texts)
        expected_NSD = reference(input_ids=texts.ids_NS, attention_mask=texts.mask_NS).last_hidden_state
    torch.testing.assert_close(states_NSD[is_token_NS], expected_NSD[is_token_NS], rtol=1e-4, atol=1e-5)


def test_word_vectors_keep_neighbourhoods() -> None:
    full = load_file(get_minilm_folder() / "model.safetensors")["embeddings.word_embeddings.weight"]
    projected = load_word_vectors(128)
    rows = torch.from_numpy(np.random.default_rng(0).choice(len(full), 300, replace=False))
    products = [(vectors[rows] @ vectors[rows].T).flatten() for vectors in (full, projected)]
    assert torch.corrcoef(torch.stack(products))[0, 1] > 0.9
    rotated = load_word_vectors(384)
    torch.testing.assert_close(rotated @ rotated[:50].T, full @ full[:50].T, rtol=1e-3, atol=1e-3)


def test_word_vectors_have_random_spread() -> None:
    config = ModelConfig(architecture="biencoder", num_layers=1)
    model = build_model(config, start="words")
    weight = model.embedder.model.get_input_embeddings().weight.detach()
    assert float(weight.std()) == pytest.approx(0.02, rel=0.01)
    assert torch.corrcoef(torch.stack([weight.flatten(), load_word_vectors(128).flatten()]))[0, 1] > 0.999


def test_cut_modernbert_keeps_layer_kinds(tmp_path: Path) -> None:
    kinds = ["full_attention", "sliding_attention"] * 2
    config = make_small_config(backbone="modernbert", backbone_settings={"layer_types": kinds})
    Backbone(config, 4).model.save_pretrained(tmp_path)
    fitted = fit_to_start(make_small_config(backbone="modernbert", num_layers=3), str(tmp_path))
    model = build_model(fitted, start=str(tmp_path))
    assert [layer.attention_type for layer in model.second_stage_model.backbone.model.layers] == kinds[:3]


@pytest.mark.parametrize("is_twice", [False, True])
def test_modernbert_may_be_normalised_twice(is_twice: bool) -> None:
    backbone = Backbone(make_small_config(backbone="modernbert", text_normalised_twice=is_twice), 1)
    ids, embeddings = torch.tensor([[5, 6, 7]]), backbone.model.embeddings
    expected = embeddings.tok_embeddings.weight[ids]
    if is_twice:
        expected = torch.nn.functional.layer_norm(expected, (16,), embeddings.norm.weight, None, 1e-5)
    torch.testing.assert_close(backbone.embed(ids), expected)


def assert_passes_states(vectors_ND: torch.Tensor, states_NSD: torch.Tensor, texts: Texts) -> None:
    """Assert that vectors have the direction of the mean over states."""
    pooled_ND = mean_pool(states_NSD, texts.mask_NS)
    assert torch.nn.functional.cosine_similarity(vectors_ND, pooled_ND).min() > 0.99


@torch.no_grad()
def test_identity_heads_pass_states() -> None:
    texts, contexts = draw_texts(12, seed=3), draw_texts(6, seed=4)
    biencoder = build_model(make_small_config(architecture="biencoder"), heads="identity").eval()
    assert_passes_states(biencoder(texts), biencoder.embedder(*texts), texts)
    model = build_model(make_small_config(), heads="both-identity").eval()
    contexts_CD, second = model.first_stage(contexts), model.second_stage_model
    assert_passes_states(contexts_CD, model.first_stage_model.embedder(*contexts), contexts)
    states_NLD = second.backbone.read_after(contexts_CD[None], second.soft_prompts(), *texts, with_prefix=True)
    assert_passes_states(model.second_stage(texts, contexts_CD), states_NLD[:, -texts.ids_NS.shape[1] :], texts)
    only_second = build_model(make_small_config(), heads="identity")
    identity = second.output_projection.state_dict()
    for name, value in only_second.second_stage_model.output_projection.state_dict().items():
        assert torch.equal(value, identity[name])
    assert not torch.equal(only_second.first_stage_model.mlp[0].weight, torch.eye(16))


def test_chosen_rows_keep_columns() -> None:
    texts = Texts(torch.tensor([[1, 2, 3], [4, 0, 0], [5, 6, 0]]), torch.tensor([[1, 1, 1], [1, 0, 0], [1, 1, 0]]))
    chosen = texts.rows(torch.tensor([2, 1]))
    assert chosen.ids_NS.tolist() == [[5, 6], [4, 0]]
