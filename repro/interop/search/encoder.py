"""Encode a query in numpy alone: BERT and NomicBERT, with or without contexts before the text, and the output head.

Loading torch and transformers takes seconds, and a query takes milliseconds. So the index of a corpus stores the query
encoder as plain arrays. `repro.interop.search.build` writes them, and compares the vectors of some queries with those
of the model itself. It drops the arrays if they differ or if the architecture is not supported.

Shapes: S tokens, P vectors before the text, L = P + S, D hidden size, H heads, E size of a head.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from tokenizers import Tokenizer

from repro.evaluate.adaptation import normalize
from repro.storage.files import json_object

SETTINGS_FILE, WORDS_FILE, WEIGHTS_FILE, TOKENIZER_FILE = "encoder.json", "words.npy", "weights.npz", "tokenizer.json"
# a step of the head without weights; every other step is the activation of a linear layer
NORMALIZE = "normalize"
Array = np.ndarray


def gelu(values: Array) -> Array:
    """Return GELU. The error function is approximated within 2e-7 (Abramowitz and Stegun, 7.1.26)."""
    scaled = np.abs(values) / np.float32(np.sqrt(2.0))
    # numpy has no error function, and scipy takes longer to load than a query takes to encode.
    step = 1 / (1 + 0.3275911 * scaled)
    series = ((((1.061405429 * step - 1.453152027) * step + 1.421413741) * step - 0.284496736) * step) + 0.254829592
    error = np.sign(values) * (1 - series * step * np.exp(-scaled * scaled))
    return values * (1 + error) / 2


ACTIVATIONS: Mapping[str, Callable[[Array], Array]] = {
    "gelu": gelu,
    "relu": lambda values: np.maximum(values, 0),
    "silu": lambda values: values / (1 + np.exp(-values)),
    "tanh": np.tanh,
    "identity": lambda values: values,
}


@dataclass(frozen=True)
class QueryEncoder:
    """The query encoder in a folder. `prefix_PD` are the vectors before the text, which belong to an index."""

    folder: Path
    prefix_PD: Array | None = None

    @cached_property
    def settings(self) -> dict[str, Any]:
        """Its kind and sizes, prompt, pooling and head."""
        return json_object(self.folder / SETTINGS_FILE)

    @cached_property
    def weights(self) -> dict[str, Array]:
        """Its arrays except the word vectors, which are read from the file row by row."""
        with np.load(self.folder / WEIGHTS_FILE, allow_pickle=False) as arrays:
            return dict(arrays)

    @cached_property
    def tokenizer(self) -> Tokenizer:
        """Its tokenizer, which truncates at the model's maximal length."""
        tokenizer = Tokenizer.from_file(str(self.folder / TOKENIZER_FILE))
        tokenizer.no_padding()
        tokenizer.enable_truncation(max_length=int(self.settings["max_tokens"]))
        return tokenizer

    def encode(self, text: str) -> Array:
        """Return the vector of a query, float32 (D,). It is normalised unless the model ranks by the dot product."""
        settings = self.settings
        # Mapped, so that only the rows of the query's tokens are read.
        words_VD = np.load(self.folder / WORDS_FILE, mmap_mode="r", allow_pickle=False)
        ids_S = self.tokenizer.encode(settings["prompt"] + text).ids
        states_SD = self._compute_states(np.asarray(words_VD[ids_S], np.float32))
        pooled_D = states_SD[0] if settings["pooling"] == "cls" else states_SD.mean(0)
        vector_D = pooled_D
        for index, step in enumerate(settings["head"]):
            if step == NORMALIZE:
                vector_D = normalize(vector_D[None])[0]
                continue
            vector_D = self.weights[f"head.{index}.weight"] @ vector_D + self.weights.get(f"head.{index}.bias", 0)
            vector_D = ACTIVATIONS[step](vector_D)
        if settings["residual"]:
            vector_D = vector_D + pooled_D
        if settings["normalize"]:
            vector_D = normalize(vector_D[None])[0]
        return np.asarray(vector_D, np.float32)

    def _compute_states(self, words_SD: Array) -> Array:
        """Return the states of the text's tokens in the last layer, (S, D)."""
        settings, weights = self.settings, self.weights
        text_SD = words_SD + weights["type"]
        # an empty prefix and no contexts for a model without a context
        prefix_PD, num_contexts = text_SD[:0], 0
        if self.prefix_PD is not None:
            prefix_PD, num_contexts = self.prefix_PD, int(settings["num_contexts"])
        states_LD = np.concatenate([prefix_PD, text_SD])
        positions_L = np.arange(len(states_LD))
        # As in `repro.model.backbone`: contexts have no position, soft prompts and text count from there on.
        positions_L[:num_contexts] = 0
        if "positions" in weights:
            states_LD[num_contexts:] += weights["positions"][positions_L[num_contexts:]]
        states_LD = self._norm("norm", states_LD)
        rotation = self._compute_rotation(positions_L) if "frequencies" in weights else None
        for layer in range(int(settings["num_layers"])):
            states_LD = self._apply_layer(f"layer.{layer}", states_LD, rotation)
        return states_LD[len(prefix_PD) :]

    def _apply_layer(self, name: str, states_LD: Array, rotation: tuple[Array, Array] | None) -> Array:
        num_heads = int(self.settings["num_heads"])
        query, key, value = (
            self._linear(f"{name}.{part}", states_LD).reshape(len(states_LD), num_heads, -1).transpose(1, 0, 2)
            for part in ("query", "key", "value")
        )
        if rotation is not None:
            query, key = _rotate_halves(query, *rotation), _rotate_halves(key, *rotation)
        scores_HLL = query @ key.transpose(0, 2, 1) / np.float32(np.sqrt(query.shape[-1]))
        # softmax, shifted by the maximum so that exp cannot overflow
        attention_HLL = np.exp(scores_HLL - scores_HLL.max(-1, keepdims=True))
        attention_HLL /= attention_HLL.sum(-1, keepdims=True)
        attended_LD = (attention_HLL @ value).transpose(1, 0, 2).reshape(len(states_LD), -1)
        states_LD = self._norm(f"{name}.norm1", self._linear(f"{name}.out", attended_LD) + states_LD)
        inner = self._linear(f"{name}.up", states_LD)
        activation = ACTIVATIONS[self.settings["activation"]]
        if f"{name}.gate.weight" in self.weights:
            inner = activation(self._linear(f"{name}.gate", states_LD)) * inner
        else:
            inner = activation(inner)
        return self._norm(f"{name}.norm2", self._linear(f"{name}.down", inner) + states_LD)

    def _linear(self, name: str, rows: Array) -> Array:
        return rows @ self.weights[f"{name}.weight"].T + self.weights.get(f"{name}.bias", np.float32(0))

    def _norm(self, name: str, rows: Array) -> Array:
        centred = rows - rows.mean(-1, keepdims=True)
        scale = np.sqrt((centred * centred).mean(-1, keepdims=True) + np.float32(self.settings["eps"]))
        return centred / scale * self.weights[f"{name}.weight"] + self.weights[f"{name}.bias"]

    def _compute_rotation(self, positions_L: Array) -> tuple[Array, Array]:
        angles = positions_L[:, None].astype(np.float32) * self.weights["frequencies"][None]
        # both halves of a head rotate by the same angles
        angles = np.concatenate([angles, angles], axis=1)
        return np.cos(angles), np.sin(angles)


def _rotate_halves(rows_HLE: Array, cos_LE: Array, sin_LE: Array) -> Array:
    """Apply rotary position embeddings to each head, in the half-split layout."""
    first, second = np.split(rows_HLE, 2, axis=-1)
    return rows_HLE * cos_LE + np.concatenate([-second, first], axis=-1) * sin_LE


def save_encoder(folder: Path, settings: Mapping[str, Any], weights: Mapping[str, Array], words_VD: Array) -> None:
    """Write a query encoder without its tokenizer."""
    np.save(folder / WORDS_FILE, np.ascontiguousarray(words_VD, np.float32))
    arrays: dict[str, Any] = {name: np.ascontiguousarray(weight, np.float32) for name, weight in weights.items()}
    np.savez(folder / WEIGHTS_FILE, **arrays)
    (folder / SETTINGS_FILE).write_text(json.dumps(settings, indent=1) + "\n", encoding="utf-8")
