"""Surrogate encoders against sentence-transformers and explicit sums, and how vectors of a corpus are stored."""

import json
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from safetensors.torch import load_file, save_file
from sentence_transformers import SentenceTransformer

from repro.batches import sentence_encoder
from repro.batches import surrogate as module
from repro.batches.fixed_encoder import FixedEncoder
from repro.batches.surrogate import MiniLM, embed_texts, load_surrogate
from repro.data.tokens import get_minilm_folder
from tests.model.test_pretrained_start import write_encoder

TEXTS = [
    "list buckets",
    "Returns a list of all buckets owned by the authenticated sender of the request.",
    "Bone marrow",
    "list buckets",
    "x",
    "Deletes the policy of a queue. " * 30,
]


class Listed:
    """Texts in a list with the interface of stored texts."""

    def __init__(self, texts: Sequence[str]) -> None:
        self._texts = list(texts)

    def __len__(self) -> int:
        return len(self._texts)

    def texts(self, rows: np.ndarray) -> list[str]:
        return [self._texts[row] for row in rows]

    def release_pages(self) -> None:
        pass


@pytest.fixture(scope="module")
def minilm() -> MiniLM:
    return load_surrogate("minilm")


def test_minilm_is_that_of_sentence_transformers(minilm: MiniLM, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "CPU_TOKENS_PER_BATCH", 50)
    reference = SentenceTransformer(str(get_minilm_folder()), device="cpu")
    reference.max_seq_length = 32
    expected = reference.encode(TEXTS, normalize_embeddings=True)
    np.testing.assert_allclose(minilm.embed(TEXTS, 32), expected, atol=2e-3 if minilm._device.type == "cuda" else 2e-6)


def test_long_texts_fit_the_encoder(minilm: MiniLM) -> None:
    """A run may train on longer texts than its surrogate can read."""
    text = ["pump valve " * 500]
    folder = load_surrogate(str(get_minilm_folder()))
    for encoder in (minilm, folder):
        np.testing.assert_array_equal(encoder.embed(text, 600), encoder.embed(text, 512))
        assert (encoder.embed(text, 512) != encoder.embed(text, 256)).any(), "not the default length of the folder"
    np.testing.assert_allclose(folder.embed(text, 512), minilm.embed(text, 512), atol=2e-3)


def test_other_models_are_refused(tmp_path: Path) -> None:
    """A cross-encoder has no vectors. Missing weights are drawn at random, so clusters and masks would not repeat."""
    folder = write_encoder(tmp_path / "encoder", "nomic")
    load_surrogate(str(folder))
    settings = folder / "config_sentence_transformers.json"
    settings.write_text('{"model_type": "CrossEncoder"}')
    with pytest.raises(ValueError, match="CrossEncoder"):
        load_surrogate(str(folder))
    settings.unlink()
    weights = load_file(folder / "model.safetensors")
    del weights[next(name for name in weights if ".0." in name and name.endswith("weight"))]
    save_file(weights, folder / "model.safetensors", {"format": "pt"})
    with pytest.raises(ValueError, match=r"lacks \d weights"):
        load_surrogate(str(folder))


@pytest.mark.parametrize("name", ["nomic-ai/nomic-embed-text-v1", "nomic-embed-text-v1.5@0123456789ab"])
def test_paper_filter_has_prompts(name: str) -> None:
    """From the hub and from a folder."""
    assert FixedEncoder(name, 40).prompts == "task"
    assert FixedEncoder("minilm", 40).prompts == "none"


def test_stored_prompts_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its clusters and masks would come from texts that the model never reads in this form."""
    model = SentenceTransformer(str(write_encoder(tmp_path / "bare", "nomic")), prompts={"query": "query: "})
    model.save(str(tmp_path / "arctic"))
    encoder = FixedEncoder(str(tmp_path / "arctic"), 16)
    with pytest.raises(ValueError, match=r"arctic stores prompts \['query: '\], but a surrogate gets texts without"):
        encoder.encode(["river bank"])
    with pytest.raises(ValueError, match="e5-small needs prompts"):
        FixedEncoder(str((tmp_path / "bare").rename(tmp_path / "e5-small")), 16).load()
    monkeypatch.setattr("repro.batches.fixed_encoder.PROMPTED_ENCODERS", ("arctic",))
    assert encoder.encode(["river bank"]).shape == (1, 24)


def test_gpu_batches_keep_vectors(monkeypatch: pytest.MonkeyPatch) -> None:
    """Batches of a GPU in half precision, computed on a CPU."""
    encoder = load_surrogate(str(get_minilm_folder()))
    expected = encoder.embed(TEXTS, 32)
    monkeypatch.setattr(sentence_encoder, "GPU_TOKENS_PER_BATCH", 96)
    encoder._is_narrow = True
    encoder._model.bfloat16()
    vectors = encoder.embed(TEXTS, 32)
    np.testing.assert_allclose(vectors, expected, atol=2e-2)
    np.testing.assert_allclose(np.linalg.norm(vectors, axis=1), 1, atol=1e-6)
    assert vectors.dtype == np.float32 and not np.array_equal(vectors, expected)


def test_threads_give_same_vectors(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """On a GPU, two blocks are tokenised and embedded at a time. Their order stays."""
    monkeypatch.setattr(module, "TEXTS_PER_BLOCK", 2)
    encoder, texts = (
        load_surrogate(str(get_minilm_folder())),
        Listed([f"{text} {n}" for n in range(8) for text in TEXTS]),
    )
    encoder._is_narrow = True
    encoder._model.bfloat16()
    stored = []
    for num_threads in (1, 3):
        encoder.num_threads, path = num_threads, tmp_path / f"{num_threads}.npy"
        stored.append(embed_texts(encoder, texts, path, max_tokens=16))
    alone, together = stored
    np.testing.assert_array_equal(together, alone)


class PositionEncoder:
    """An encoder whose vectors are the number of the call, the position of the text and the number of texts."""

    num_dimensions, depends_on_batch, num_threads = 3, True, 1

    def __init__(self) -> None:
        self.num_calls = 0

    def embed(self, texts: Sequence[str], max_tokens: int) -> np.ndarray:
        assert max_tokens == 7
        self.num_calls += 1
        return np.array([[self.num_calls, position, len(texts)] for position in range(len(texts))], dtype=np.float32)


@pytest.mark.parametrize("window", [28, 10**6])
def test_blocks_match_one_sort(window: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """If vectors depend on the batch, blocks are those of the sorted window. A repeated text is embedded once per block."""
    monkeypatch.setattr(module, "TEXTS_PER_BLOCK", 7)
    monkeypatch.setattr(module, "TEXTS_PER_WINDOW", window)
    rng = np.random.default_rng(0)
    texts = ["é" * int(rng.integers(0, 5)) + "ab"[rng.integers(2)] for _ in range(200)]
    expected, call = np.empty((200, 3)), 0
    for first in range(0, 200, window):
        order = sorted(range(200)[first : first + window], key=lambda row: (len(texts[row]), texts[row]), reverse=True)
        for start in range(0, len(order), 7):
            rows, call = order[start : start + 7], call + 1
            distinct = list(dict.fromkeys(texts[row] for row in rows))
            for row in rows:
                expected[row] = call, distinct.index(texts[row]), len(distinct)
    vectors = embed_texts(PositionEncoder(), Listed(texts), tmp_path / "x.npy", max_tokens=7)
    assert vectors.tolist() == expected.tolist()


def test_word_vectors_are_independent(tmp_path: Path) -> None:
    surrogate = load_surrogate("minilm-words")
    assert not surrogate.depends_on_batch
    texts = [f"{'kidney liver bone queue bucket policy '[: n % 37]} {n % 50}" for n in range(300)]
    together, separate = surrogate.embed(texts, 16), [surrogate.embed([text], 16)[0] for text in texts]
    np.testing.assert_array_equal(together, separate)
    stored = embed_texts(surrogate, Listed(texts), tmp_path / "x.npy", max_tokens=16)
    np.testing.assert_array_equal(stored, together.astype(np.float16))


def test_word_vectors_have_fixed_signs(monkeypatch: pytest.MonkeyPatch) -> None:
    """The signs of eigenvectors differ between processors, whose vectors may be joined."""
    expected = load_surrogate("minilm-words").embed(TEXTS, 32)
    decompose = np.linalg.eigh
    monkeypatch.setattr(np.linalg, "eigh", lambda matrix: SimpleNamespace(eigenvectors=-decompose(matrix).eigenvectors))
    np.testing.assert_array_equal(module.MiniLMWords().embed(TEXTS, 32), expected)


def test_frequent_words_weigh_less() -> None:
    surrogate = load_surrogate("minilm-words")
    vectors = surrogate.embed(["the kidney", "kidney", "the", "liver kidney kidney", ""], 16)
    np.testing.assert_allclose(np.linalg.norm(vectors[:4], axis=1), 1, atol=1e-5)
    assert not vectors[4].any()
    assert vectors[0] @ vectors[1] > 0.99 > 0.5 > vectors[0] @ vectors[2]
    liver, kidney = (surrogate._weighted_VD[surrogate._tokenizer.token_to_id(word)] for word in ("liver", "kidney"))
    mixed = liver + 2 * kidney
    np.testing.assert_allclose(vectors[3], mixed / np.linalg.norm(mixed), atol=1e-5)


def test_no_remote_code_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A folder named like a hub model is refused, and code in a folder is never run."""
    name, marker = "nomic-ai/nomic-embed-text-v1", tmp_path / "ran"
    folder = write_encoder(tmp_path / name, "nomic")
    values = json.loads((folder / "config.json").read_text())
    values["auto_map"] = {"AutoConfig": "remote.Remote", "AutoModel": "remote.Remote"}
    (folder / "config.json").write_text(json.dumps(values))
    (folder / "remote.py").write_text(f"open({str(marker)!r}, 'w')\nclass Remote: pass\n")
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ValueError, match="is the id of a hub model"):
        load_surrogate(name)
    assert load_surrogate(f"./{name}").embed(["river bank"], 8).shape == (1, 24)
    assert not marker.exists()
