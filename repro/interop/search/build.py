"""Build an index: encode the documents with the model, and store the query encoder as plain arrays."""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from repro.batches.surrogate import check_vectors
from repro.data.beir import Retrieval
from repro.data.tokens import write_tokenizer
from repro.data.wording import is_empty
from repro.evaluate.contexts import draw_context
from repro.interop.corpus import Corpus
from repro.interop.opening import Opened, open_model
from repro.interop.search.encoder import NORMALIZE, TOKENIZER_FILE, QueryEncoder, save_encoder
from repro.interop.search.index import (
    ENCODER_FOLDER,
    OFFSETS_FILE,
    PREFIX_FILE,
    SETTINGS_FILE,
    TEXTS_FILE,
    VECTORS_FILE,
    Index,
    Progress,
    SearchRequest,
)
from repro.interop.stock_encoder import StockEncoder
from repro.model.biencoder import Biencoder
from repro.model.contextual import ContextualModel
from repro.storage.files import atomic_folder
from repro.text import make_encoding_reporter

NUM_COMPARED = 8
MAX_DIFFERENCE = 1e-4
EncoderParts = tuple[dict[str, Any], dict[str, np.ndarray], np.ndarray]
"""Settings, weights and word vectors of a query encoder."""
HEAD_NAMES = {"GELU": "gelu", "ReLU": "relu", "Tanh": "tanh", "Identity": "identity"}


def build_index(
    opened: Opened,
    request: SearchRequest,
    corpus: Corpus,
    context_corpus: Corpus | None,
    folder: Path,
    progress: Progress,
) -> None:
    """Write the index of a corpus into a folder, completely or not at all."""
    started = time.monotonic()
    documents, _ = corpus.read()
    if not documents:
        raise ValueError(f"corpus {corpus.name} holds no documents")
    context = set_context(opened, request, corpus, documents, context_corpus)
    opened.model.report = make_encoding_reporter(progress)
    with atomic_folder(folder) as part:
        texts = list(documents.values())
        vectors_ND = opened.model.encode(texts, "document")
        # NaN scores would rank these documents last, and no message would say so
        check_vectors(vectors_ND, texts, "model")
        np.save(part / VECTORS_FILE, vectors_ND)
        # byte offsets of the lines, so that a query reads only the texts that it finds
        offsets, offset = [], 0
        with (part / TEXTS_FILE).open("wb") as file:
            for document_id, text in documents.items():
                offsets.append(offset)
                # `write` returns the number of bytes, which is the offset of the next line.
                offset += file.write(json.dumps({"id": document_id, "text": text}).encode() + b"\n")
        np.save(part / OFFSETS_FILE, np.asarray(offsets, np.int64))
        # After the vectors, because the encoder is compared with the model on some of these texts.
        _write_encoder(opened, part, texts)
        settings = {"model": opened.called, "corpus": corpus.name, "num_documents": len(texts), "context": context}
        (part / SETTINGS_FILE).write_text(json.dumps(settings, indent=1) + "\n", encoding="utf-8")
    num_empty = sum(map(is_empty, texts))
    note = f", {num_empty} of them empty" if num_empty else ""
    progress(f"index of {len(texts)} documents{note} built in {time.monotonic() - started:.0f} s, in {folder}")


def encode_queries(request: SearchRequest, index: Index, queries: Sequence[str], progress: Progress) -> np.ndarray:
    """Encode queries with the model itself, under the context of the index. Return vectors (N, D)."""
    opened = open_model(request.model, progress=progress)
    if isinstance(opened.model, ContextualModel):
        opened.model.context_CE = torch.from_numpy(np.load(index.folder / "context.npy", allow_pickle=False))
    return opened.model.encode(list(queries), "query")


def set_context(
    opened: Opened,
    request: SearchRequest,
    corpus: Corpus,
    documents: dict[str, str],
    context_corpus: Corpus | None,
) -> dict[str, Any] | None:
    """Set the context of a contextual model. Return how it was drawn, or None if the model takes no context.

    Raises:
        ValueError: if a context was requested of a model without contexts.
    """
    if not opened.num_contexts:
        if request.context is not None:
            raise ValueError(f"{opened.called} has no context: leave out --context")
        return None
    texts = documents if context_corpus is None else context_corpus.read()[0]
    name = corpus.name if context_corpus is None else context_corpus.name
    source = Retrieval(name, tuple(texts), tuple(texts.values()), (), (), {})
    kind = "own"
    if request.context == "null":
        kind = "null"
    elif context_corpus is not None:
        # "wrong" is the word of records for a context of another corpus.
        kind = "wrong"
    context = draw_context(kind, source, num_contexts=opened.num_contexts, seed=request.context_seed)
    opened.ours.set_context(context.texts, request.context_seed)
    return context.provenance


def _write_encoder(opened: Opened, folder: Path, texts: Sequence[str]) -> None:
    """Store the query encoder for numpy if it reproduces the model's vectors. Store the context for torch in any case."""
    target = folder / ENCODER_FOLDER
    if isinstance(opened.model, ContextualModel):
        np.save(folder / "context.npy", opened.model.current_context().detach().cpu().numpy())
    parts = _convert_encoder(opened)
    if parts is None:
        return
    settings, weights, words_VD = parts
    prefix_PD = _get_prefix(opened)
    target.mkdir()
    save_encoder(target, settings, weights, words_VD)
    if isinstance(opened.model, StockEncoder):
        opened.model.theirs.tokenizer.backend_tokenizer.save(str(target / TOKENIZER_FILE))
    else:
        write_tokenizer(opened.ours.config.tokenizer, target)
    if prefix_PD is not None:
        np.save(folder / PREFIX_FILE, prefix_PD)
    # Short beginnings of documents resemble queries. The last sample is longer than the model reads, to compare how it is
    # cut. One difference disables the numpy encoder.
    samples = [" ".join(text.split()[:12]) for text in texts[:NUM_COMPARED]] or ["a question"]
    samples.append(" ".join(f"{number} {samples[0]}" for number in range(int(settings["max_tokens"]))))
    encoder = QueryEncoder(target, prefix_PD)
    vectors_ND = np.stack([encoder.encode(text) for text in samples])
    expected_ND = opened.model.encode(samples, "query")
    # Models that rank by the inner product may have long vectors, so the tolerance scales with them.
    scale = max(1.0, float(np.abs(expected_ND).max()))
    if not np.allclose(vectors_ND, expected_ND, rtol=0, atol=MAX_DIFFERENCE * scale):
        shutil.rmtree(target)
        (folder / PREFIX_FILE).unlink(missing_ok=True)


def _get_prefix(opened: Opened) -> np.ndarray | None:
    """Return context vectors and soft prompts, which precede each text, (P, D). None for a model without context."""
    model = opened.model
    if not isinstance(model, ContextualModel):
        return None
    with torch.no_grad():
        contexts_CD = model.context_vectors()[: model.config.num_context_vectors]
        return torch.cat([contexts_CD, model.second_stage_model.soft_prompts()]).cpu().numpy()


def _convert_encoder(opened: Opened) -> EncoderParts | None:
    """Return settings, weights and word vectors of the query encoder. None if numpy does not support the model."""
    model = opened.model
    if isinstance(model, StockEncoder):
        return _convert_stock_encoder(model)
    config = opened.ours.config
    if config.pooling != "mean" or config.instruction_end is not None or config.prefix_is_pooled:
        return None
    from repro.data.prompts import get_prompt

    if isinstance(model, ContextualModel):
        backbone, layers = model.second_stage_model.backbone, model.second_stage_model.output_projection
        num_contexts = len(model.context_vectors()[: config.num_context_vectors])
    else:
        assert isinstance(model, Biencoder)
        backbone, layers, num_contexts = model.embedder, model.mlp, 0
    transformer = _convert_transformer(backbone.model, backbone.kind)
    if transformer is None or backbone.text_normalised_twice:
        return None
    settings, weights, words_VD = transformer
    for index, linear in enumerate(layer for layer in layers if isinstance(layer, torch.nn.Linear)):
        weights |= _convert_linear(f"head.{index}", linear)
    settings |= {
        "head": [HEAD_NAMES[type(layers[1]).__name__], "identity"],
        "pooling": "mean",
        # Only the second stage of a contextual model has the skip connection.
        "residual": config.residual and num_contexts > 0,
        "normalize": True,
        "prompt": get_prompt(config.prompts, "query"),
        "max_tokens": config.max_tokens,
        "num_contexts": num_contexts,
    }
    return settings, weights, words_VD


def _convert_stock_encoder(model: StockEncoder) -> EncoderParts | None:
    """Return the same for sentence-transformers: a BERT, mean or first-token pooling, dense layers, normalisation."""
    first, *others = list(model.theirs)
    inner = getattr(first, "auto_model", None)
    kind = {"BertModel": "bert", "NomicBertModel": "nomic"}.get(type(inner).__name__)
    transformer = None if inner is None or kind is None else _convert_transformer(inner, kind)
    if transformer is None or not hasattr(model.theirs.tokenizer, "backend_tokenizer") or not model.longest:
        return None
    settings, weights, words_VD = transformer
    head: list[str] = []
    pooling = None
    for module in others:
        module_type = type(module).__name__
        if module_type == "Pooling" and pooling is None:
            pooling = str(getattr(module, "pooling_mode", None) or getattr(module, "get_pooling_mode_str", str)())
        elif module_type == "Dense" and type(module.activation_function).__name__ in HEAD_NAMES:
            weights |= _convert_linear(f"head.{len(head)}", module.linear)
            head.append(HEAD_NAMES[type(module.activation_function).__name__])
        elif module_type == "Normalize":
            # `repro adapt` puts the whitening layer after it, so that its place matters
            head.append(NORMALIZE)
        else:
            return None
    if pooling not in ("mean", "cls") or model.theirs.truncate_dim is not None:
        return None
    settings |= {
        "head": head,
        "pooling": pooling,
        "residual": False,
        "normalize": not model.keeps_lengths,
        "prompt": model.role_prompts["query"],
        "max_tokens": model.longest,
        "num_contexts": 0,
    }
    return settings, weights, words_VD


def _convert_transformer(model: Any, kind: str) -> EncoderParts | None:
    """Return sizes, weights and word vectors of a BERT or NomicBERT of transformers. None for another backbone."""
    config = model.config
    activation = str(getattr(config, "hidden_act", ""))
    if kind not in ("bert", "nomic") or activation not in ("gelu", "relu", "silu"):
        return None
    embeddings = model.embeddings
    weights = _convert_norm("norm", embeddings.LayerNorm)
    weights["type"] = _to_array(embeddings.token_type_embeddings.weight[0])
    if kind == "bert":
        weights["positions"] = _to_array(embeddings.position_embeddings.weight)
        layers = model.encoder.layer
    else:
        weights["frequencies"] = _to_array(model.rotary_emb.inv_freq)
        layers = model.layers
    for index, layer in enumerate(layers):
        linears, norms = _list_bert_parts(layer) if kind == "bert" else _list_nomic_parts(layer)
        for name, linear in linears.items():
            weights |= _convert_linear(f"layer.{index}.{name}", linear)
        for name, norm in norms.items():
            weights |= _convert_norm(f"layer.{index}.{name}", norm)
    settings = {
        "kind": kind,
        "num_layers": config.num_hidden_layers,
        "num_heads": config.num_attention_heads,
        "eps": config.layer_norm_eps,
        "activation": activation,
    }
    return settings, weights, _to_array(model.get_input_embeddings().weight)


def _list_bert_parts(layer: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the linear layers and the norms of a layer of BERT by our names."""
    attention = layer.attention.self
    linears = {
        "query": attention.query,
        "key": attention.key,
        "value": attention.value,
        "out": layer.attention.output.dense,
        "up": layer.intermediate.dense,
        "down": layer.output.dense,
    }
    return linears, {"norm1": layer.attention.output.LayerNorm, "norm2": layer.output.LayerNorm}


def _list_nomic_parts(layer: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the linear layers and the norms of a layer of NomicBERT by our names."""
    attention, mlp = layer.self_attn, layer.mlp
    linears = {
        "query": attention.q_proj,
        "key": attention.k_proj,
        "value": attention.v_proj,
        "out": attention.o_proj,
        "gate": mlp.gate_proj,
        "up": mlp.up_proj,
        "down": mlp.down_proj,
    }
    return linears, {"norm1": layer.post_attention_layernorm, "norm2": layer.post_mlp_layernorm}


def _convert_linear(name: str, linear: Any) -> dict[str, np.ndarray]:
    arrays = {f"{name}.weight": _to_array(linear.weight)}
    if linear.bias is not None:
        arrays[f"{name}.bias"] = _to_array(linear.bias)
    return arrays


def _convert_norm(name: str, norm: Any) -> dict[str, np.ndarray]:
    return {f"{name}.weight": _to_array(norm.weight), f"{name}.bias": _to_array(norm.bias)}


def _to_array(tensor: torch.Tensor) -> np.ndarray:
    return tensor.detach().float().cpu().numpy()
