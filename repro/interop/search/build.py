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
    AHEAD_FILE,
    ENCODER_FOLDER,
    PLACES_FILE,
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
from repro.storage.files import whole_folder
from repro.text import make_encoding_reporter

NUM_COMPARED = 8
LARGEST_DIFFERENCE = 1e-4
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
    with whole_folder(folder) as part:
        texts = list(documents.values())
        vectors_ND = opened.model.encode(texts, "document")
        # NaN scores would rank these documents last, and no message would say so
        check_vectors(vectors_ND, texts, "model")
        np.save(part / VECTORS_FILE, vectors_ND)
        # byte offsets of the lines, so that a query reads only the texts that it finds
        places, at = [], 0
        with (part / TEXTS_FILE).open("wb") as file:
            for key, text in documents.items():
                places.append(at)
                # `write` returns the number of bytes, which is the offset of the next line.
                at += file.write(json.dumps({"id": key, "text": text}).encode() + b"\n")
        np.save(part / PLACES_FILE, np.asarray(places, np.int64))
        # After the vectors, because the encoder is compared with the model on some of these texts.
        _write_encoder(opened, part, texts)
        settings = {"model": opened.called, "corpus": corpus.name, "num_documents": len(texts), "context": context}
        (part / SETTINGS_FILE).write_text(json.dumps(settings, indent=1) + "\n", encoding="utf-8")
    num_empty = sum(map(is_empty, texts))
    empty = f", {num_empty} of them empty" if num_empty else ""
    progress(f"index of {len(texts)} documents{empty} built in {time.monotonic() - started:.0f} s, in {folder}")


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
    drawn = draw_context(kind, source, num_contexts=opened.num_contexts, seed=request.context_seed)
    opened.ours.set_context(drawn.texts, request.context_seed)
    return drawn.provenance


def _write_encoder(opened: Opened, folder: Path, texts: Sequence[str]) -> None:
    """Store the query encoder for numpy if it reproduces the model's vectors. Store the context for torch in any case."""
    target = folder / ENCODER_FOLDER
    ahead_PD = _ahead(opened)
    if isinstance(opened.model, ContextualModel):
        np.save(folder / "context.npy", opened.model.given_context().detach().cpu().numpy())
    described = _describe_field(opened)
    if described is None:
        return
    settings, weights, words_VD = described
    target.mkdir()
    save_encoder(target, settings, weights, words_VD)
    if isinstance(opened.model, StockEncoder):
        opened.model.theirs.tokenizer.backend_tokenizer.save(str(target / TOKENIZER_FILE))
    else:
        write_tokenizer(opened.ours.config.tokenizer, target)
    if ahead_PD is not None:
        np.save(folder / AHEAD_FILE, ahead_PD)
    # Short beginnings of documents resemble queries. One difference disables the numpy encoder.
    compared = [" ".join(text.split()[:12]) for text in texts[:NUM_COMPARED]] or ["a question"]
    ours = QueryEncoder(target, ahead_PD)
    found_ND = np.stack([ours.encode(text) for text in compared])
    theirs_ND = opened.model.encode(compared, "query")
    # Models that rank by the inner product may have long vectors, so the tolerance scales with them.
    scale = max(1.0, float(np.abs(theirs_ND).max()))
    if not np.allclose(found_ND, theirs_ND, rtol=0, atol=LARGEST_DIFFERENCE * scale):
        shutil.rmtree(target)
        (folder / AHEAD_FILE).unlink(missing_ok=True)


def _ahead(opened: Opened) -> np.ndarray | None:
    """Return context vectors and soft prompts, which precede each text, (P, D). None for a model without context."""
    model = opened.model
    if not isinstance(model, ContextualModel):
        return None
    with torch.no_grad():
        contexts_CD = model.context_vectors()[: model.config.num_context_vectors]
        return torch.cat([contexts_CD, model.second_stage_model.soft_prompts()]).cpu().numpy()


def _describe_field(opened: Opened) -> tuple[dict[str, Any], dict[str, np.ndarray], np.ndarray] | None:
    """Return settings, weights and word vectors of the query encoder. None if numpy does not support the model."""
    model = opened.model
    if isinstance(model, StockEncoder):
        return _stock(model)
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
    transformer = _transformer(backbone.model, backbone.kind)
    if transformer is None or backbone.text_normalised_twice:
        return None
    settings, weights, words_VD = transformer
    head = [one for one in layers if isinstance(one, torch.nn.Linear)]
    activations = [HEAD_NAMES[type(layers[1]).__name__], "identity"]
    for number, linear in enumerate(head):
        weights |= _linear(f"head.{number}", linear)
    # Only the second stage of a contextual model has the skip connection.
    settings |= {"head": activations, "pooling": "mean", "residual": config.residual and num_contexts > 0}
    settings |= {"normalize": True, "prompt": get_prompt(config.prompts, "query"), "max_tokens": config.max_tokens}
    return settings | {"num_contexts": num_contexts}, weights, words_VD


def _stock(model: StockEncoder) -> tuple[dict[str, Any], dict[str, np.ndarray], np.ndarray] | None:
    """Return the same for sentence-transformers: a BERT, mean or first-token pooling, dense layers, normalisation."""
    first, *others = list(model.theirs)
    inner = getattr(first, "auto_model", None)
    kind = {"BertModel": "bert", "NomicBertModel": "nomic"}.get(type(inner).__name__)
    transformer = None if inner is None or kind is None else _transformer(inner, kind)
    if transformer is None or not hasattr(model.theirs.tokenizer, "backend_tokenizer") or not model.longest:
        return None
    settings, weights, words_VD = transformer
    head: list[str] = []
    pooling = None
    for module in others:
        kind_of_module = type(module).__name__
        if kind_of_module == "Pooling" and pooling is None:
            pooling = str(getattr(module, "pooling_mode", None) or getattr(module, "get_pooling_mode_str", str)())
        elif kind_of_module == "Dense" and type(module.activation_function).__name__ in HEAD_NAMES:
            weights |= _linear(f"head.{len(head)}", module.linear)
            head.append(HEAD_NAMES[type(module.activation_function).__name__])
        elif kind_of_module == "Normalize":
            # `repro adapt` puts the whitening layer after it, so that its place matters
            head.append(NORMALIZE)
        else:
            return None
    if pooling not in ("mean", "cls") or model.theirs.truncate_dim is not None:
        return None
    settings |= {"head": head, "pooling": pooling, "residual": False, "normalize": not model.keeps_lengths}
    settings |= {"prompt": model.role_prompts["query"], "max_tokens": model.longest, "num_contexts": 0}
    return settings, weights, words_VD


def _transformer(model: Any, kind: str) -> tuple[dict[str, Any], dict[str, np.ndarray], np.ndarray] | None:
    """Return sizes, weights and word vectors of a BERT or NomicBERT of transformers. None for another backbone."""
    config = model.config
    activation = str(getattr(config, "hidden_act", ""))
    if kind not in ("bert", "nomic") or activation not in ("gelu", "relu", "silu"):
        return None
    embeddings = model.embeddings
    weights = _norm("norm", embeddings.LayerNorm)
    weights["type"] = _array(embeddings.token_type_embeddings.weight[0])
    if kind == "bert":
        weights["positions"] = _array(embeddings.position_embeddings.weight)
        for number, layer in enumerate(model.encoder.layer):
            own, name = layer.attention.self, f"layer.{number}"
            parts = {"query": own.query, "key": own.key, "value": own.value, "out": layer.attention.output.dense}
            parts |= {"up": layer.intermediate.dense, "down": layer.output.dense}
            for part, linear in parts.items():
                weights |= _linear(f"{name}.{part}", linear)
            weights |= _norm(f"{name}.norm1", layer.attention.output.LayerNorm)
            weights |= _norm(f"{name}.norm2", layer.output.LayerNorm)
    else:
        weights["frequencies"] = _array(model.rotary_emb.inv_freq)
        for number, layer in enumerate(model.layers):
            own, name = layer.self_attn, f"layer.{number}"
            parts = {"query": own.q_proj, "key": own.k_proj, "value": own.v_proj, "out": own.o_proj}
            parts |= {"gate": layer.mlp.gate_proj, "up": layer.mlp.up_proj, "down": layer.mlp.down_proj}
            for part, linear in parts.items():
                weights |= _linear(f"{name}.{part}", linear)
            weights |= _norm(f"{name}.norm1", layer.post_attention_layernorm)
            weights |= _norm(f"{name}.norm2", layer.post_mlp_layernorm)
    settings = {
        "kind": kind,
        "num_layers": config.num_hidden_layers,
        "num_heads": config.num_attention_heads,
        "eps": config.layer_norm_eps,
        "activation": activation,
    }
    return settings, weights, _array(model.get_input_embeddings().weight)


def _linear(name: str, linear: Any) -> dict[str, np.ndarray]:
    found = {f"{name}.weight": _array(linear.weight)}
    return found if linear.bias is None else found | {f"{name}.bias": _array(linear.bias)}


def _norm(name: str, norm: Any) -> dict[str, np.ndarray]:
    return {f"{name}.weight": _array(norm.weight), f"{name}.bias": _array(norm.bias)}


def _array(tensor: torch.Tensor) -> np.ndarray:
    return tensor.detach().float().cpu().numpy()
