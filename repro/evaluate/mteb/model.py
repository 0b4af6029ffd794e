"""Evaluate a biencoder, a contextual model or an untrained surrogate with mteb.

A contextual model draws its context as follows:

1. Retrieval and reranking: `index` draws the context from the corpus, title and text, with a seed. A wrapper that only
   calls `encode` hides the corpus. Then known documents serve as context, and queries raise ValueError.
2. Every other task: the context is drawn from `corpus[subset]`, the whole data of the task, if `corpus` is given.
   Otherwise it is drawn from the texts of the first call for the task and subset, since mteb passes no more.
3. Context documents carry the document prompt of the task. Queries and documents of a task share one context.

The kind of context, its seed and its size are `experiment_kwargs`, which mteb includes in the path of a result.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from mteb.models.abs_encoder import AbsEncoder
from mteb.models.model_meta import ModelMeta, ScoringFunction
from mteb.models.search_wrappers import SearchEncoderWrapper
from mteb.types import PromptType

from repro.batches.fixed_encoder import FixedEncoder
from repro.data.prompts import CLASSIFICATION, CLUSTERING, SEARCH
from repro.data.tokens import load_tokenizer, tokenize
from repro.evaluate.digests import compute_model_digest
from repro.evaluate.mteb.task import BOTH_SIDES
from repro.model.contextual import ContextualModel, Model
from repro.model.encoding import GPU
from repro.model.modeling_cde import as_texts, fill_context
from repro.seeds import make_rng
from repro.storage.digests import hash_json

if TYPE_CHECKING:
    from mteb.abstasks.task_metadata import TaskMetadata
    from mteb.types import Array, BatchedInput, CorpusDatasetType, QueryDatasetType, RetrievalOutputType
    from torch.utils.data import DataLoader

CONTEXTS = ("own", "fixed", "null")
STORED_NAMES = {"own": "corpus"}
"""Names of contexts in the paths of mteb's results, if they differ from ours."""
TYPES_WITH_ROLES = ("Retrieval", "InstructionRetrieval", "InstructionReranking")
TYPES_WITH_CORPUS = (*TYPES_WITH_ROLES, "Reranking")


class MtebModel(AbsEncoder):
    """A biencoder or a contextual model with the encoder and search protocols of mteb."""

    def __init__(
        self,
        model: Model,
        *,
        name: str = "cde-repro/model",
        context: str = "own",
        context_seed: int = 0,
        fixed_context: Sequence[str] = (),
        corpus: Mapping[str, Sequence[str]] | None = None,
    ) -> None:
        """Wrap a model. Wrap it again after its weights have changed, since results are cached by their digest.

        Args:
            model: A biencoder or a contextual model.
            name: Its name in mteb's results.
            context: "own" (drawn from the searched corpus, as in the paper), "fixed" (from `fixed_context`, of
                which each task draws its own sample if there are too many), or "null". Biencoders have none.
            context_seed: Seed of the draw.
            fixed_context: Documents for "fixed", for example of an unrelated corpus.
            corpus: The documents of the task by subset ("default"), for tasks that pass none.
        """
        self.model = model
        self.context = context if isinstance(model, ContextualModel) else "none"
        self.context_seed, self.fixed_context = context_seed, tuple(as_texts(fixed_context))
        self.find_corpus: Callable[[str], Sequence[str]] | None = corpus.__getitem__ if corpus else None
        self._corpus_digest = corpus and hash_json({name: list(texts) for name, texts in corpus.items()})[:12]
        self._check()
        config = model.config
        self.mteb_model_meta = ModelMeta.create_empty(
            {
                "name": name,
                # other weights are another model
                "revision": compute_model_digest(model),
                "languages": ["eng-Latn"],
                "n_parameters": sum(weight.numel() for weight in model.parameters()),
                "max_tokens": config.max_tokens,
                "embed_dim": config.hidden_size,
                "similarity_fn_name": ScoringFunction.COSINE,
                "use_instructions": config.prompts != "none",
                "experiment_kwargs": self._describe_context() or None,
            }
        )
        self._tokenizer = load_tokenizer(model.config.tokenizer)
        # implements mteb's encoder except its constructor, which takes a name
        as_encoder: Any = self
        self._search = SearchEncoderWrapper(as_encoder)
        self._context_of: tuple[str, ...] | None = None

    def index(
        self, corpus: CorpusDatasetType, *, task_metadata: TaskMetadata, hf_split: str, hf_subset: str, **options: Any
    ) -> None:
        """Draw the context from the corpus, then hand the corpus to the search wrapper."""
        self._context_of = None
        self._set_context(_collect_texts(corpus), task_metadata, (task_metadata.name, hf_subset, hf_split))
        self._search.index(corpus, task_metadata=task_metadata, hf_split=hf_split, hf_subset=hf_subset, **options)

    def search(self, queries: QueryDatasetType, **options: Any) -> RetrievalOutputType:
        """Return the best documents of each query by cosine, under the context drawn by `index`."""
        return self._search.search(queries, **options)

    def encode(
        self,
        inputs: DataLoader[BatchedInput],
        *,
        task_metadata: TaskMetadata,
        hf_split: str,
        hf_subset: str,
        prompt_type: PromptType | None = None,
        **options: Any,
    ) -> Array:
        """Return L2-normalised vectors, float32 (N, D)."""
        texts = [text for batch in inputs for text in batch["text"]]
        task = (task_metadata.name, hf_subset)
        if self._context_of is None or self._context_of[:2] != task:
            if self.find_corpus is not None:
                context_texts = self.find_corpus(hf_subset)
            else:
                if self.context == "own" and prompt_type != PromptType.document:
                    _check_needs_no_corpus(task_metadata)
                context_texts = texts
            self._set_context(context_texts, task_metadata, task)
        tokens = self._tokenize(texts, get_task_prompt(self.model.config.prompts, task_metadata, prompt_type))
        # on a GPU, batches are sized in tokens
        is_gpu = self.model.device.type == GPU
        return self.model.encode_tokens(tokens, batch_size=None if is_gpu else options.get("batch_size", 32))

    def _set_context(self, texts: Sequence[str], task_metadata: TaskMetadata, task: tuple[str, ...]) -> None:
        self._context_of = task
        if not isinstance(self.model, ContextualModel):
            return
        if self.context == "null":
            self.model.set_context(None)
            return
        config = self.model.config
        context = draw_context(self.fixed_context or texts, config.num_contexts, self.context_seed, *task)
        prompt = get_task_prompt(config.prompts, task_metadata, PromptType.document)
        self.model.set_context_tokens(self._tokenize(context, prompt))

    def _tokenize(self, texts: Sequence[str], prompt: str) -> Any:
        return tokenize([prompt + text for text in texts], self._tokenizer, self.model.config.max_tokens)

    def _check(self) -> None:
        if isinstance(self.model, ContextualModel) and self.context not in CONTEXTS:
            raise ValueError(f"context={self.context!r} is unknown; choose one of {list(CONTEXTS)}")
        if isinstance(self.model, ContextualModel) and self.model.config.is_blind and self.context != "null":
            raise ValueError(f"context={self.context!r}: this model was trained without documents, set context='null'")
        if (self.context == "fixed") != bool(self.fixed_context):
            raise ValueError(f"context={self.context!r}: texts are fixed for the context 'fixed' alone")

    def _describe_context(self) -> dict[str, Any]:
        if not isinstance(self.model, ContextualModel):
            return {}
        metadata: dict[str, Any] = {
            "context": STORED_NAMES.get(self.context, self.context),
            "num_contexts": self.model.config.num_contexts,
        }
        if self.context != "null":
            metadata["context_seed"] = self.context_seed
        if self.fixed_context:
            metadata["context_texts"] = hash_json(self.fixed_context)[:12]
        if self._corpus_digest:
            metadata["corpus"] = self._corpus_digest
        return metadata


class SurrogateForMteb(AbsEncoder):
    """A surrogate with the encoder protocol of mteb, with its own prompts and without context."""

    def __init__(self, encoder: FixedEncoder) -> None:
        self.model, self._encoder = encoder.name, encoder
        self.mteb_model_meta = ModelMeta.create_empty(
            {
                "name": f"surrogate/{encoder.name.rpartition('/')[2]}",
                "revision": "untrained",
                "max_tokens": encoder.max_tokens,
                "similarity_fn_name": ScoringFunction.COSINE,
            }
        )

    def encode(self, inputs: DataLoader[BatchedInput], *, task_metadata: TaskMetadata, **options: Any) -> Array:
        """Return L2-normalised vectors, float32 (N, D)."""
        prompt = get_task_prompt(self._encoder.prompts, task_metadata, options.get("prompt_type"))
        texts = [prompt + text for batch in inputs for text in batch["text"]]
        return self._encoder.embed(texts)


def _check_needs_no_corpus(task_metadata: TaskMetadata) -> None:
    """Raise ValueError if a retrieval task passes possible queries before its corpus."""
    if task_metadata.type in TYPES_WITH_CORPUS:
        raise ValueError(
            f"{task_metadata.name}: queries came before the corpus, and a context is never drawn from queries; "
            "evaluate MtebModel itself instead of a wrapper, or give it `corpus={'default': documents}`"
        )


def get_task_prompt(name: str, task_metadata: TaskMetadata, prompt_type: PromptType | None) -> str:
    """Return the prompt of a task for a model with the prompt set `name`, or "" if the set is "none"."""
    if name == "none":
        return ""
    if task_metadata.name in BOTH_SIDES:
        return SEARCH.query
    prompts = CLUSTERING if task_metadata.type == "Clustering" else CLASSIFICATION
    if task_metadata.type in TYPES_WITH_ROLES:
        prompts = SEARCH
    return prompts.query if prompt_type == PromptType.query else prompts.document


def draw_context(texts: Sequence[str], num_contexts: int, seed: int, *task: str) -> list[str]:
    """Return `num_contexts` texts, repeated only if there are too few. The draw depends on seed and task alone."""
    if not texts:
        raise ValueError(f"task {task}: there are no texts to draw a context from")
    order = make_rng(seed, "mteb context", *task).permutation(len(texts))[:num_contexts]
    return [texts[row] for row in order[fill_context(len(order), num_contexts, seed)]]


def _collect_texts(corpus: CorpusDatasetType) -> list[str]:
    texts = list(corpus["text"])
    titles = list(corpus["title"]) if "title" in corpus.column_names else [""] * len(texts)
    return [f"{title or ''} {text}".strip() for title, text in zip(titles, texts, strict=True)]
