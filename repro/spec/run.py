"""A run: one training and its evaluation as plain values, and what follows from them; `repro.spec` offers it on."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields, replace
from functools import cache
from itertools import product
from types import MappingProxyType
from typing import Any

from repro.spec.measures import DRAWS, MEASURED_OF, MEASURES, SEARCHES_IN_FULL, SETS_NUM_CONTEXTS, TRAINED
from repro.spec.scales import get_scale, values_at
from repro.spec.start import resolve_start
from repro.spec.values import checked_value, suggestion
from repro.spec.widths import widths_in
from repro.storage.json_files import short

CHOICES: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "domain_column": ("source", "domain"),
        "sampler": ("random", "domain", "cluster"),
        "packing": ("random", "greedy"),
        "filter": ("none", "surrogate"),
        "mined_negatives": ("below", "any"),
        "known_positives": ("ignore", "mask"),
        "architecture": ("biencoder", "contextual", "bm25", "surrogate", "none"),
        "heads": ("random", "identity", "both-identity"),
        "backbone": ("nomic", "bert", "modernbert"),
        "pooling": ("mean", "frequency"),
        "prompts": ("none", "task"),
        "loss": ("infonce", "icl"),
        "protocol": ("full", "rerank", "rerank-bm25"),
        "measure": tuple(MEASURES),
    }
)

MTEB_SUITES: Mapping[str, str | None] = MappingProxyType({"mteb": None, "mteb-retrieval": "Retrieval"})
"""Suites that are tasks of the library mteb, which gets their data itself: all 56 of MTEB, or those of one category."""

CONTEXTS = ("own", "wrong", "random", "null")
"""Contexts that a contextual model is scored under: documents of the searched corpus, of another one, of the training
pairs, and none."""
BLIND_MEASURES = ("retrieval", "curve")
"""Measures of a model that never sees a document, neither in training nor when it is scored."""


@dataclass(frozen=True, kw_only=True)
class Run:
    """One training and its evaluation, as plain values; nothing in it that cannot change a result.

    Build it with `base(scale, **changes)`, which fills every field from `repro.spec.scales`.
    """

    scale: str
    seed: int = 0
    # data
    corpus: str  # which training pairs
    sources: str | None  # only of these sources of the corpus, "a+b"; None: all
    num_pairs: int | None  # how many of them, drawn fairly over domains; None: all
    domain_column: str  # what counts as a domain when batches are cut: a whole source, or its finest division
    # batches (§4.1)
    sampler: str  # where the pairs of a batch come from: anywhere, one domain, one neighbourhood of clusters
    mixing_alpha: float | None  # one source a batch, drawn with p ∝ size^α (GTE eq. 4); None: each pair once an epoch
    batch_size: int
    cluster_size: int | None  # pairs a cluster, on average; only for sampler "cluster"
    packing: str  # how clusters are put in a row before the row is cut into batches
    surrogate: str  # the fixed encoder behind clusters, filter and difficulty
    filter: str  # false-negative filter, eq. 4
    filter_model: str | None  # the fixed encoder f of the filter; None: the surrogate
    filter_margin: float  # added to f(q, d) before the comparison of eq. 4
    num_hard_negatives: int
    mined_negatives: str  # which documents may be: those that the surrogate puts below the query's own, or any
    known_positives: str  # the documents of pairs of an equal query: masked and never mined, or treated as any other
    # model (§4.2)
    architecture: str
    backbone: str
    start: str  # random, words (word vectors only), minilm, NAME@DIGEST of a local encoder, or a hub id
    num_layers: int
    num_first_stage_layers: int
    hidden_size: int
    num_contexts: int  # context documents
    tokens_per_document: int  # vectors each context document gives
    num_soft_prompts: int
    sequence_dropout: float  # 1: context-blind, the model never sees a document
    pooling: str  # of the second stage: the mean over a text's tokens, or weighted by frequency in the context (ours)
    residual: bool
    prompts: str
    max_tokens: int
    heads: str  # how output heads start: random (as the official code), or letting the pooled states through
    # training (§5)
    loss: str  # InfoNCE (eq. 1), or GTE's improved contrastive loss, which contrasts in four directions at once
    nested_sizes: str | None  # the loss is summed over prefixes of the vectors of these widths, "8+16+32"
    batches_a_step: int  # each with negatives, contexts and a loss of its own; their gradients are averaged
    num_steps: int | None  # exactly one of num_steps and num_epochs
    num_epochs: int | None
    learning_rate: float
    first_stage_rate: float  # of the learning rate: how fast the first stage of a contextual model learns
    num_warmup_steps: int
    weight_decay: float
    temperature: float
    max_grad_norm: float
    pretraining_corpus: str | None  # a first phase on this corpus, without hard negatives; None: one phase
    num_pretraining_steps: int | None  # exactly one of these two, where there is a first phase
    num_pretraining_epochs: int | None
    pretraining_batch_size: int | None  # None: batches as large as this phase has
    pretraining_cluster_size: int | None  # its batches are clusters of that size; None: cut as this phase's are
    # evaluation
    suite: str
    protocol: str  # search all documents, or rank what a first stage found: the surrogate, or BM25
    rerank_depth: int | None  # candidates a query; only for a protocol that reranks
    context_seed: int
    num_test_contexts: int | None  # context documents when scored; None: as many as in training
    test_contexts: str  # which contexts a contextual model is scored under, joined by +: own, wrong, random, null
    measure: str

    def __post_init__(self) -> None:
        """ValueError for a value outside its choices or a combination that means nothing."""
        for name, declared in self.__annotations__.items():
            value = getattr(self, name)
            checked = checked_value(name, value, declared)
            if checked is not value:
                object.__setattr__(self, name, checked)
        get_scale(self.scale)
        for name, valid in CHOICES.items():
            if getattr(self, name) not in valid:
                raise ValueError(f"{name}={short(repr(getattr(self, name)))} is unknown; choose one of {list(valid)}")
        kinds = self.test_contexts.split("+")
        if len(set(kinds)) < len(kinds) or set(kinds) - set(CONTEXTS):
            raise ValueError(f"test_contexts={short(repr(self.test_contexts))}: join some of {list(CONTEXTS)} by +")
        if (self.cluster_size is None) == (self.sampler == "cluster"):
            raise ValueError(f"sampler={self.sampler!r} with cluster_size={self.cluster_size}: give both or neither")
        if self.mixing_alpha is not None and self.sampler != "domain":
            raise ValueError(f'mixing_alpha={self.mixing_alpha} with sampler={self.sampler!r}: it needs "domain"')
        if (self.num_steps is None) == (self.num_epochs is None):
            raise ValueError(f"num_steps={self.num_steps}, num_epochs={self.num_epochs}: give exactly one of them")
        self._check_first_phase()
        if self.suite in MTEB_SUITES and self.measure != "mteb":
            raise ValueError(f"suite={self.suite!r} with measure={self.measure!r}: its tasks need measure='mteb'")
        if self.nested_sizes is not None:
            widths_in(self.nested_sizes, self.hidden_size, "nested_sizes")
        if self.pooling != "mean" and self.architecture != "contextual":
            raise ValueError(f"pooling={self.pooling!r} with architecture={self.architecture!r}: it needs a context")
        self._check_contexts()
        self._check_evaluation()

    def _check_contexts(self) -> None:
        if self.measure == "mteb" and "random" in self.test_contexts.split("+"):
            raise ValueError(
                f"test_contexts={self.test_contexts!r} with measure='mteb', whose 'wrong' context already is random "
                "training text: use 'wrong' instead of 'random'"
            )
        if not is_blind(self):
            return
        required = {
            "architecture": ("contextual",),
            "test_contexts": ("null",),
            "measure": BLIND_MEASURES,
            "pooling": ("mean",),
            "num_test_contexts": (None,),
        }
        for name, allowed in required.items():
            if getattr(self, name) not in allowed:
                raise ValueError(
                    f"sequence_dropout=1.0 with {name}={getattr(self, name)!r}: a model that never sees a document "
                    f"needs {name} to be {' or '.join(map(repr, allowed))}"
                )

    def _check_evaluation(self) -> None:
        if (self.rerank_depth is None) != (self.protocol == "full"):
            raise ValueError(f"protocol={self.protocol!r} with rerank_depth={self.rerank_depth}: give both or neither")
        if self.protocol != "full" and self.measure in SEARCHES_IN_FULL:
            raise ValueError(
                f"protocol={self.protocol!r} with measure={self.measure!r}, which searches all documents: say "
                "protocol='full' and rerank_depth=None"
            )
        taken = MEASURED_OF.get(self.measure, CHOICES["architecture"])
        if self.architecture not in taken:
            raise ValueError(
                f"measure={self.measure!r} with architecture={self.architecture!r}: it takes {list(taken)}; choose one "
                "of these, or another measure"
            )
        if self.num_test_contexts is not None and self.measure not in SETS_NUM_CONTEXTS:
            raise ValueError(
                f"num_test_contexts={self.num_test_contexts} with measure={self.measure!r}, which has as many as in "
                f"training: leave it None, or measure one of {list(SETS_NUM_CONTEXTS)}"
            )

    def _check_first_phase(self) -> None:
        lengths = {name: getattr(self, name) for name in ("num_pretraining_steps", "num_pretraining_epochs")}
        told = ", ".join(f"{name}={value}" for name, value in lengths.items())
        given = sum(value is not None for value in lengths.values())
        if given != (self.pretraining_corpus is not None):
            wanted = "give exactly one of the latter" if self.pretraining_corpus else "give neither without the corpus"
            raise ValueError(f"pretraining_corpus={self.pretraining_corpus!r} with {told}: {wanted}")
        for name in ("pretraining_batch_size", "pretraining_cluster_size"):
            if getattr(self, name) is not None and self.pretraining_corpus is None:
                raise ValueError(f"{name}={getattr(self, name)} without a pretraining_corpus")
        if self.pretraining_cluster_size is not None and self.mixing_alpha is not None:
            raise ValueError(
                f"pretraining_cluster_size={self.pretraining_cluster_size} with mixing_alpha={self.mixing_alpha}: a "
                "first phase draws its batches from clusters or mixes sources; give one of the two"
            )


FIELDS: tuple[str, ...] = tuple(f.name for f in fields(Run))
EVALUATION_FIELDS = (
    "suite",
    "protocol",
    "rerank_depth",
    "context_seed",
    "num_test_contexts",
    "test_contexts",
    "measure",
)
"""Fields that cannot change a training: runs that differ in nothing else share theirs."""
BATCH_FIELDS = (
    *("corpus", "sources", "num_pairs", "domain_column"),
    *("sampler", "mixing_alpha", "batch_size", "cluster_size", "packing"),
    *("surrogate", "filter", "filter_model", "filter_margin", "num_hard_negatives", "mined_negatives"),
    "known_positives",
    *("max_tokens", "batches_a_step", "num_steps", "num_epochs"),  # the surrogate reads as many tokens as the model
)
"""Fields that can change a batch: runs of one seed that agree in them see the same pairs at each step."""


def is_blind(run: Run) -> bool:
    """Return whether a run's model never sees a document: every context slot always holds the null vector."""
    return run.sequence_dropout == 1


def is_random(run: Run) -> bool:
    """Return whether a run's numbers depend on its seed."""
    return run.architecture in TRAINED or run.measure in DRAWS


def nested_widths(run: Run) -> tuple[int, ...]:
    """Return the widths of the prefixes that a run's loss is summed over; none for a loss of whole vectors."""
    return () if run.nested_sizes is None else widths_in(run.nested_sizes, run.hidden_size, "nested_sizes")


@cache
def get_training_run(run: Run) -> Run:
    """Return the run whose training `run` uses: the same with its scale's own evaluation, null if it is blind."""
    fixed = get_scale(run.scale).fields
    evaluation = {name: fixed[name] for name in EVALUATION_FIELDS}
    if is_blind(run):
        evaluation["test_contexts"] = "null"
    return replace(run, **evaluation)


@cache
def get_batch_key(run: Run) -> tuple[object, ...]:
    """Return what decides the batches of a run but for its seed, as values that can be compared."""
    return tuple(getattr(run, name) for name in BATCH_FIELDS)


PHASE_FIELDS = (
    "num_pairs",
    "sources",
    "num_hard_negatives",
    "mined_negatives",
    "learning_rate",
    "num_warmup_steps",
)
"""Fields that speak of a run's own phase: the phase before it has its scale's own values."""


def get_first_phase(run: Run) -> Run | None:
    """Return the training that a two-phase run starts from: the same run at the scale's own `PHASE_FIELDS`, as long and
    on the corpus that `run` says; None for a run of one phase.

    Its batches are those of `run`, unless it says their size, or clusters of the scale's own domains: runs that differ
    in their second batches can so share a first phase.
    """
    if run.pretraining_corpus is None:
        return None
    fixed = get_scale(run.scale).fields
    one_phase: dict[str, Any] = {name: fixed[name] for name in PHASE_FIELDS}
    one_phase |= dict.fromkeys(name for name in FIELDS if "pretraining" in name)
    if run.pretraining_batch_size is not None:
        one_phase["batch_size"] = run.pretraining_batch_size
    if run.pretraining_cluster_size is not None:
        one_phase |= {"sampler": "cluster", "cluster_size": run.pretraining_cluster_size}
        one_phase["domain_column"] = fixed["domain_column"]
    steps: dict[str, Any] = {
        "corpus": run.pretraining_corpus,
        "num_steps": run.num_pretraining_steps,
        "num_epochs": run.num_pretraining_epochs,
    }
    return get_training_run(replace(run, **one_phase, **steps))


def check_fields(names: Iterable[str], where: str) -> None:
    """ValueError when a name is not a field of Run; lists the valid ones."""
    unknown = [name for name in names if name not in FIELDS]
    if unknown:
        near = suggestion(unknown[0], FIELDS)
        raise ValueError(f"unknown axis {unknown} in {where}{near or ';'} a Run has {list(FIELDS)}")


def base(scale: str, /, **changes: Any) -> Run:
    """Return the run that a scale fixes, with `changes`.

    `start` may be the folder of an encoder. Then, and for "minilm", the fields that follow from its sizes are set
    unless they are given. ValueError names an unknown scale or field, or what is wrong with the folder.
    """
    check_fields(changes, "base()")
    changes = resolve_start(changes, is_stored=len(changes) >= len(FIELDS))
    return Run(**{"scale": scale, **values_at(scale, FIELDS), **changes})


def run_of_fields(fields: Mapping[str, Any]) -> Run:
    """Return the run that was written down as plain values; a field that it did not have yet takes its scale's value.

    ValueError names an unknown scale or field.
    """
    return base(fields["scale"], **fields)


def grid(run: Run, /, **axes: Any) -> tuple[Run, ...]:
    """Return `run` with every combination of the axes; a value that is no tuple holds for all."""
    check_fields(axes, "grid()")
    values = [value if isinstance(value, tuple) else (value,) for value in axes.values()]
    return tuple(replace(run, **dict(zip(axes, combination, strict=True))) for combination in product(*values))
