"""Embed all texts with a fixed encoder, for clustering, the filter and batch difficulty (§4.1, §5).

1. Texts are processed in blocks, and repeated texts are embedded once per block. If vectors depend
   on the batch, blocks go from the longest to the shortest texts of a window, so that little is padding. Windows follow
   the stored order, so that a large file is read once from start to end. Otherwise texts keep their order.
2. Four kinds of encoders produce unit vectors. `minilm` is all-MiniLM-L6-v2 with mean pooling. `minilm-words` averages
   MiniLM's word vectors and gives rare words more weight. It has no attention, is hundreds of times faster, and loses
   about three points of NDCG@10. The id of a run is its biencoder. Any other name is a sentence-transformers model.
3. Vectors are written to a memory-mapped .npy file, which is renamed when it is complete. A shard consists of complete
   blocks of the whole, so joined shards are identical to the whole, byte for byte.

Shapes: N texts, U distinct texts of a block, D dimensions, S tokens of a text, V vocabulary words, E dimensions of a
word vector.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

import numpy as np

from repro.batches.sentence_encoder import GPU_TOKENS_PER_BATCH, SentenceEncoder
from repro.data.pairs import TextColumn
from repro.data.tokens import compute_unknown_share, get_minilm_folder, iter_token_batches, load_tokenizer, tokenize
from repro.spec.identity import RUN_ID
from repro.spec.start import get_encoder_folder
from repro.storage.arrays import ArrayWriter, group_rows_by_code, iter_blocks, load_array, map_to_fill, release_pages
from repro.storage.files import atomic_file
from repro.storage.paths import run_folder
from repro.storage.stages import WHOLE, Part
from repro.text import count_noun, shorten

if TYPE_CHECKING:
    import torch

VECTORS_FILE, ROWS_FILE = "vectors.npy", "rows.npy"
"""Files of one shard: the vectors of its texts, and the row number of each text."""
TEXTS_PER_BLOCK = 4096
TEXTS_PER_WINDOW = 2**17
"""Number of texts that are sorted by length together, a multiple of `TEXTS_PER_BLOCK`."""
TEXTS_PER_SPAN = 65_536
"""Number of texts that are read together in stored order."""
CPU_TOKENS_PER_BATCH = 4096
MINILM_POSITIONS = 512
"""Number of tokens that MiniLM can read."""
NUM_SPECIAL_WORDS = 999
FIRST_RANKED_WORD = 1996
"""Layout of MiniLM's vocabulary: special and unused words, then characters, then words by falling frequency."""
HALF_WEIGHT_SHARE = 1e-3
"""A word with this share of all text has half the weight of the rarest words (a of Arora et al.)."""
SIGNS = 0x5C85B71604D45E27C99BC2B76676BA6B
"""A bit per principal direction: 1 if its largest component is positive. These are the signs of existing stages."""


class Surrogate(Protocol):
    """Interface of a fixed encoder."""

    num_dimensions: int
    depends_on_batch: bool
    """Whether rounding depends on the other texts of a call, as it does if texts are padded together."""
    num_threads: int
    """Number of calls of `embed` at a time. On a GPU two, so that texts are tokenised while it computes."""

    def embed(self, texts: Sequence[str], max_tokens: int) -> np.ndarray:
        """Return unit vectors, float32 (N, D), of texts cut to `max_tokens`."""
        ...


def load_surrogate(name: str) -> Surrogate:
    """Load a surrogate by name, the encoder of a run by its id, or a sentence-transformers model (a folder or hub id)."""
    if name == "minilm":
        return MiniLM()
    if name == "minilm-words":
        return MiniLMWords()
    if RUN_ID.fullmatch(name):
        return TrainedEncoder(name)
    return SentenceEncoder(str(get_encoder_folder(name) or name))


def embed_texts(surrogate: Surrogate, texts: TextColumn, path: Path, *, max_tokens: int) -> np.ndarray:
    """Embed `texts`, write the vectors to `path`, and return them memory-mapped, float16 (N, D)."""
    with atomic_file(path) as part:
        vectors_ND = map_to_fill(part, (len(texts), surrogate.num_dimensions), "float16")
        for rows, vectors in _iter_embeddings(surrogate, texts, max_tokens, WHOLE):
            vectors_ND[rows] = vectors
            release_pages(vectors_ND)
        vectors_ND.flush()
    return np.load(path, mmap_mode="r")


def embed_part(surrogate: Surrogate, texts: TextColumn, folder: Path, *, max_tokens: int, part: Part) -> None:
    """Write one shard: the embeddings of its texts, float16 (n, D), and their row numbers, int64 (n,)."""
    with (
        ArrayWriter(folder / VECTORS_FILE, "float16", (surrogate.num_dimensions,)) as vectors,
        ArrayWriter(folder / ROWS_FILE, "int64") as rows,
    ):
        for part_rows, embedded in _iter_embeddings(surrogate, texts, max_tokens, part):
            vectors.append(embedded)
            rows.append(part_rows)


def join_embeddings(path: Path, parts: Sequence[Path]) -> None:
    """Join all shards into the file that `embed_texts` would write. Memory holds one block.

    Raises ValueError if a text has no vector.
    """
    part_rows = [load_array(part / ROWS_FILE, kind="i", shape=(None,), mapped=True) for part in parts]
    num_texts = sum(map(len, part_rows))
    width = load_array(parts[0] / VECTORS_FILE, kind="f", shape=(None, None), mapped=True).shape[1]
    vectors_ND = map_to_fill(path, (num_texts, width), "float16")
    is_written_N = np.zeros(num_texts, dtype=bool)
    for part, rows_n in zip(parts, part_rows, strict=True):
        vectors_nD = load_array(part / VECTORS_FILE, kind="f", shape=(len(rows_n), width), mapped=True)
        for block in iter_blocks(len(rows_n), TEXTS_PER_SPAN):
            vectors_ND[rows_n[block]] = vectors_nD[block]
            is_written_N[rows_n[block]] = True
            release_pages(vectors_ND, vectors_nD)
    if not is_written_N.all():
        raise ValueError(f"the parts in {parts[0].parent} have no vector of text {int(np.argmin(is_written_N))}")
    vectors_ND.flush()


def _iter_embeddings(
    surrogate: Surrogate, texts: TextColumn, max_tokens: int, part: Part
) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Yield the rows and vectors of each block of a shard."""
    longest_first = surrogate.depends_on_batch
    # If rounding depends on the batch, a shard must contain complete blocks of the whole order. Otherwise its vectors
    # would differ from those of an unsharded run.
    span = part.span(len(texts), TEXTS_PER_BLOCK if longest_first else 1)
    iter_texts = _iter_longest_first if longest_first else _iter_in_order

    def embed(block_texts: list[str]) -> np.ndarray:
        # `dict.fromkeys` removes repeats and keeps the order of first appearance, unlike a set.
        distinct_texts = list(dict.fromkeys(block_texts))
        vectors_UD = surrogate.embed(distinct_texts, max_tokens)
        check_vectors(vectors_UD, distinct_texts)
        indices = {text: index for index, text in enumerate(distinct_texts)}
        return vectors_UD[[indices[text] for text in block_texts]]

    if surrogate.num_threads == 1:
        yield from ((rows, embed(block_texts)) for rows, block_texts in iter_texts(texts, span))
        return
    with ThreadPoolExecutor(surrogate.num_threads) as pool:
        pending: deque[tuple[np.ndarray, Future[np.ndarray]]] = deque()
        for rows, block_texts in iter_texts(texts, span):
            pending.append((rows, pool.submit(embed, block_texts)))
            # one more than the threads, which waits for the first free one
            if len(pending) > surrogate.num_threads:
                first_rows, vectors = pending.popleft()
                yield first_rows, vectors.result()
        for first_rows, vectors in pending:
            yield first_rows, vectors.result()


def check_vectors(vectors_ND: np.ndarray, texts: Sequence[str], model_name: str = "surrogate") -> None:
    """Raise ValueError if a vector contains NaN or infinity. The message names the first such text and the model."""
    is_finite_N = np.isfinite(vectors_ND).all(axis=1)
    if not is_finite_N.all():
        text = texts[int(np.argmin(is_finite_N))]
        raise ValueError(
            f"the {model_name} returns NaN or infinite values for {count_noun(int((~is_finite_N).sum()), 'text')}, "
            f"first {shorten(repr(text))}: remove or change the text, or choose another {model_name}"
        )


def _iter_in_order(texts: TextColumn, span: slice) -> Iterator[tuple[np.ndarray, list[str]]]:
    """Yield the rows and texts of each block in stored order."""
    for block in iter_blocks(span.stop - span.start, TEXTS_PER_SPAN):
        rows = np.arange(span.start + block.start, span.start + block.stop)
        yield rows, texts.texts(rows)
        texts.release_pages()


def _iter_longest_first(texts: TextColumn, span: slice) -> Iterator[tuple[np.ndarray, list[str]]]:
    """Yield the blocks of each window, ordered by falling (length, text). Memory holds one window.

    Equal texts are adjacent. The longest texts come first, so that a lack of memory shows immediately. `span` selects
    positions in the whole order, at boundaries of blocks.
    """
    for window in iter_blocks(len(texts), TEXTS_PER_WINDOW):
        start, stop = max(span.start, window.start), min(span.stop, window.stop)
        if start >= stop:
            # This window belongs to other shards, and its texts are not read.
            continue
        rows = np.arange(window.start, window.stop)
        window_texts = texts.texts(rows)
        texts.release_pages()
        # grouped by length first, which takes a third of the time of sorting by both
        _, groups = group_rows_by_code(np.fromiter(map(len, window_texts), np.int64))
        get_text = window_texts.__getitem__
        order = [row for group in reversed(groups) for row in sorted(group.tolist(), key=get_text, reverse=True)]
        order = order[start - window.start : stop - window.start]
        for block in iter_blocks(len(order), TEXTS_PER_BLOCK):
            yield rows[order[block]], [window_texts[row] for row in order[block]]


class MiniLM:
    """all-MiniLM-L6-v2 from its wheel, with mean pooling. It uses float32 on a CPU and bfloat16 on a GPU."""

    num_dimensions = 384
    depends_on_batch = True
    report: Callable[[int, int], None] = staticmethod(lambda num_done, num_texts: None)
    """Callback after each batch: report(number of embedded texts, number of all texts)."""

    def __init__(self) -> None:
        import torch

        self._device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
        self.num_threads = 2 if self._device.type == "cuda" else 1
        self._model = _load_minilm().to(self._device)
        self._tokenizer = load_tokenizer("minilm")

    def embed(self, texts: Sequence[str], max_tokens: int) -> np.ndarray:
        """Return unit vectors, float32 (N, D). A text with only unknown tokens has a zero vector."""
        tokens = tokenize(texts, self._tokenizer, min(max_tokens, MINILM_POSITIONS))
        budget = GPU_TOKENS_PER_BATCH if self._device.type == "cuda" else CPU_TOKENS_PER_BATCH
        vectors_ND = np.empty((len(texts), self.num_dimensions), dtype=np.float32)
        num_done = 0
        for rows in iter_token_batches(tokens.lengths, budget):
            vectors_ND[rows] = self._embed_batch(*tokens.pad(rows))
            num_done += len(rows)
            self.report(num_done, len(texts))
        # Zero vectors for texts of unknown tokens. Otherwise they would all share one direction and count as near
        # duplicates of each other.
        vectors_ND[compute_unknown_share(tokens, self._tokenizer)[1]] = 0
        return vectors_ND

    def _embed_batch(self, ids_NS: np.ndarray, mask_NS: np.ndarray) -> np.ndarray:
        import torch

        ids = torch.from_numpy(ids_NS).to(self._device)
        mask = torch.from_numpy(mask_NS).to(self._device)
        is_gpu = self._device.type == "cuda"
        with torch.inference_mode(), torch.autocast("cuda", torch.bfloat16, enabled=is_gpu):
            states_NSD = self._model(input_ids=ids, attention_mask=mask).last_hidden_state.float()
        # normalising the sum gives the same vector as normalising the mean
        sums_ND = (states_NSD * mask[..., None]).sum(1)
        return torch.nn.functional.normalize(sums_ND, dim=1).cpu().numpy()


class MiniLMWords:
    """Weighted mean of MiniLM's word vectors.

    Rare words have more weight: a / (a + p), where Zipf's law gives the frequency p. The weights follow Arora et al.,
    "A simple but tough-to-beat baseline for sentence embeddings" (ICLR 2017). Vectors are reduced to their first 128
    principal directions. This cuts the clustering time to a third and costs less than one point of ranking quality.
    """

    num_dimensions = 128
    depends_on_batch = False
    num_threads = 1

    def __init__(self) -> None:
        from safetensors.numpy import load_file

        words_VD = load_file(get_minilm_folder() / "model.safetensors")["embeddings.word_embeddings.weight"]
        ids_V = np.arange(len(words_VD))
        # Zipf's law: the frequency of a word is proportional to 1 / rank.
        # Single characters come before the ranked words. They get rank 1, the lowest weight of all.
        shares_V = 1 / (np.maximum(ids_V - FIRST_RANKED_WORD + 1, 1) * np.log(len(words_VD)))
        weights_V = np.where(ids_V < NUM_SPECIAL_WORDS, 0, HALF_WEIGHT_SHARE / (HALF_WEIGHT_SHARE + shares_V))
        # Without centring, the mean of all word vectors would make all texts similar.
        centred_VD = words_VD - words_VD[NUM_SPECIAL_WORDS:].mean(axis=0)
        # float64, because the Gram matrix squares the ratio of the largest to the smallest singular value.
        weighted_VE = (weights_V[:, None] * centred_VD).astype(np.float64)
        # `eigh` returns rising eigenvalues, so the principal directions are the last ones.
        directions_ED = np.linalg.eigh(weighted_VE.T @ weighted_VE).eigenvectors[:, ::-1][:, : self.num_dimensions]
        # Their signs differ between processors. Vectors from several machines are joined, so the signs are fixed.
        largest_D = directions_ED[np.abs(directions_ED).argmax(axis=0), np.arange(self.num_dimensions)]
        signs_D = [1 if bit == "1" else -1 for bit in f"{SIGNS:0{self.num_dimensions}b}"]
        self._weighted_VD = (weighted_VE @ (directions_ED * (np.sign(largest_D) * signs_D))).astype(np.float32)
        self._tokenizer = load_tokenizer("minilm")

    def embed(self, texts: Sequence[str], max_tokens: int) -> np.ndarray:
        """Return unit vectors, float32 (N, D). A text without known words has a zero vector."""
        from scipy.sparse import csr_array

        tokens = tokenize(texts, self._tokenizer, max_tokens)
        # One sparse product sums the word vectors of all texts. Repeated ids add up.
        counts_NV = csr_array(
            (np.ones(len(tokens.ids), np.float32), tokens.ids, tokens.offsets),
            shape=(len(texts), len(self._weighted_VD)),
        )
        sums_ND = counts_NV @ self._weighted_VD
        # The lower bound keeps a zero vector at zero instead of NaN.
        return sums_ND / np.maximum(np.linalg.norm(sums_ND, axis=1, keepdims=True), np.finfo(np.float32).tiny)


def get_trained_folder(run_id: str) -> Path:
    """Return the folder with the weights of a run that serves as a filter."""
    return run_folder(run_id) / "filter-model"


class TrainedEncoder:
    """Biencoder of a run, for a filter that was trained on the same text as the model (§5). It has no prompts.

    `repro.execute` trains the run and saves its weights.
    """

    depends_on_batch = True
    report: Callable[[int, int], None] = staticmethod(lambda num_done, num_texts: None)

    def __init__(self, run_id: str) -> None:
        import torch

        from repro.model.biencoder import Biencoder

        folder = get_trained_folder(run_id)
        if not folder.is_dir():
            raise ValueError(f"{run_id} is not trained here. As filter_model of a run it is trained before that run")
        self._model = Biencoder.from_pretrained(folder).to("cuda" if torch.cuda.is_available() else "cpu")
        self.num_dimensions = self._model.config.hidden_size
        self.num_threads = 2 if self._model.device.type == "cuda" else 1

    def embed(self, texts: Sequence[str], max_tokens: int) -> np.ndarray:
        """Return unit vectors, float32 (N, D), of texts cut to `max_tokens`."""
        config = self._model.config
        self._model.config = replace(config, max_tokens=min(max_tokens, config.max_tokens))
        self._model.report = self.report
        return self._model.encode(list(texts))


def _load_minilm() -> torch.nn.Module:
    """Load MiniLM's backbone in eval mode."""
    from safetensors.torch import load_file
    from transformers import BertConfig, BertModel

    config = BertConfig.from_pretrained(get_minilm_folder(), attn_implementation="sdpa")
    model = BertModel(config, add_pooling_layer=False)
    missing, unexpected = model.load_state_dict(load_file(get_minilm_folder() / "model.safetensors"), strict=False)
    assert not missing, f"weights missing for {missing}"
    assert all(name.startswith("pooler.") or name.endswith("position_ids") for name in unexpected), unexpected
    return model.eval()
