"""The dataclass `Run`: one training run and its evaluation as plain values. Import it from `repro.spec`."""

from __future__ import annotations

import reprlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from functools import cache
from itertools import product
from types import MappingProxyType
from typing import Any, TypeVar

from repro.spec.measures import MEASURES, NUM_SCORED_PARTS, TRAINED
from repro.spec.scales import get_scale, values_at
from repro.spec.start import resolve_encoders
from repro.spec.validation import check_warmup, list_standard_widths, validate_value, widths_in
from repro.text import format_suggestion, shorten

Implementation = TypeVar("Implementation")

CHOICES: dict[str, tuple[str, ...]] = {
    "domain_column": ("source", "domain"),
    "sampler": ("random", "domain", "cluster"),
    "packing": ("random", "greedy"),
    "filter": ("none", "surrogate", "random"),
    "mined_negatives": ("below", "any", "given"),
    "known_positives": ("ignore", "mask"),
    "architecture": ("biencoder", "contextual", "bm25", "surrogate", "none"),
    "heads": ("random", "identity", "both-identity"),
    "backbone": ("nomic", "bert", "modernbert"),
    "pooling": ("mean", "frequency"),
    "prompts": ("none", "task"),
    "loss": ("infonce", "icl"),
    "kept_weights": ("last", "best"),
    "protocol": ("full", "rerank", "rerank-bm25"),
    "measure": tuple(MEASURES),
}
"""The choices of each field. A new one also needs its function: the recipes of CONTRIBUTING.md say where."""

MTEB_SUITES: Mapping[str, str | None] = MappingProxyType({"mteb": None, "mteb-retrieval": "Retrieval"})
"""Suites of tasks from the library mteb, which downloads their data: all 56 tasks of MTEB, or one category."""

CONTEXTS = ("own", "wrong", "random", "null")
"""Contexts for scoring a contextual model: documents of the searched corpus, of another corpus, of the training pairs,
or none."""
NULL_MEASURES = ("retrieval", "steps", "widths", "mteb")
"""Analyses that score a contextual model under each of its `test_contexts`."""
BLIND_MEASURES = ("retrieval", "curve")
"""Analyses that accept a context-blind model, which sees no document in training or evaluation."""


@dataclass(frozen=True, kw_only=True)
class Run:
    """One training run and its evaluation, as plain values. Every field can change a result.

    Build it with `base(scale, **changes)`, which fills the other fields from `repro.spec.scales`.
    """

    scale: str
    seed: int = 0  # seed of the weights, the batches and every other random draw
    # data
    corpus: str  # name of the training pairs
    sources: str | None  # sources of the corpus, joined as "a+b"; None: all
    num_pairs: int | None  # number of pairs, shares of domains grow with the square root of their size; None: all
    domain_column: str  # the domains of batches: whole sources, or their finest division
    # batches (§4.1)
    sampler: str  # a batch is drawn from all pairs, from one domain, or from neighbouring clusters
    mixing_alpha: float | None  # one domain per batch with p ∝ size^α (GTE eq. 4); None: each pair once per epoch
    batch_size: int  # pairs per batch
    cluster_size: int | None  # mean number of pairs per cluster; only for sampler "cluster"
    cluster_dimensions: int | None  # K-means sees each half of a pair on this many principal directions; None: whole
    packing: str  # order of the clusters before they are cut into batches
    surrogate: str  # the fixed encoder for clusters, filter and difficulty: a name, a hub id or a folder
    filter: str  # false-negative filter, eq. 4, or as many random negatives as it would mask (a control, ours)
    filter_model: str | None  # the encoder f of the filter, or the id of a run that trains it; None: the surrogate
    filter_margin: float  # added to f(q, d) before the comparison of eq. 4
    num_hard_negatives: int  # hard negatives per query
    mined_negatives: str  # mined at ranks below the positive, mined at any rank, or given with the pairs
    known_positives: str  # documents of an equal query, and its own text: masked and never mined, or negatives
    # model (§4.2)
    architecture: str  # contextual and biencoder are trained, bm25 and surrogate are references, none: only data
    backbone: str  # kind of transformer
    start: str  # random, words (word vectors only), minilm, NAME@DIGEST of a local encoder, or a hub id
    num_layers: int  # transformer layers, of the second stage if the model is contextual
    num_first_stage_layers: int  # transformer layers of the first stage of a contextual model
    hidden_size: int  # dimensions of the hidden states and of an embedding
    num_contexts: int  # number of context documents
    tokens_per_document: int  # vectors per context document
    num_soft_prompts: int  # learned vectors between the context and the text
    first_position: int | None  # BERT: learned position of the first text token; None: after the context and prompts
    sequence_dropout: float  # share of context vectors replaced by null in training; 1: context-blind
    pooling: str  # second stage: mean over text tokens, or weighted by frequency in the context (ours)
    residual: bool  # whether the pooled vector is added to the output of the head
    prompts: str  # prefixes of queries and documents: none, or by task as in the paper
    max_tokens: int  # longest text in tokens, longer texts are cut
    heads: str  # initial output heads: random (as in the official code), or identity
    # training (§5)
    loss: str  # InfoNCE (eq. 1), or the improved contrastive loss of GTE with four directions
    nested_sizes: str | None  # the loss is summed over prefixes of these widths, "8+16+32"
    batches_a_step: int  # batches per step, each with its own negatives, contexts and loss; gradients are averaged
    num_steps: int | None  # 0: the untrained model; exactly one of num_steps and num_epochs
    num_epochs: int | None  # passes over the training pairs, instead of num_steps
    learning_rate: float  # peak learning rate
    first_stage_rate: float  # multiplies the learning rate of the first stage of a contextual model
    num_warmup_steps: int  # steps of learning rate warmup
    weight_decay: float  # weight decay of AdamW
    temperature: float  # temperature of the contrastive loss
    max_grad_norm: float  # norm to which gradients are clipped
    kept_weights: str  # of the last step, or of the lowest loss on pairs set apart, which can end training early
    pretraining_corpus: str | None  # corpus of a first phase without hard negatives; None: one phase
    num_pretraining_steps: int | None  # steps of the first phase, instead of num_pretraining_epochs
    num_pretraining_epochs: int | None  # passes of the first phase over its corpus
    pretraining_batch_size: int | None  # batch size of the first phase; None: that of the second phase
    pretraining_cluster_size: int | None  # cluster size of the first phase; None: that of the second phase
    # evaluation
    suite: str  # collections on which the model is evaluated
    protocol: str  # search all documents, or rerank the candidates of the surrogate or of BM25
    rerank_depth: int | None  # candidates per query; only for protocols that rerank
    context_seed: int  # seed for drawing the context documents of an evaluation
    num_test_contexts: int | None  # context documents in evaluation, filled with nulls; None: as in training, repeated
    test_contexts: str  # contexts in evaluation, joined by +: own, wrong, random, null
    measure: str  # analysis to compute after training

    def __post_init__(self) -> None:
        """Validate all fields. Raises ValueError for an invalid value or an impossible combination."""
        for name, declared in self.__annotations__.items():
            value = getattr(self, name)
            checked = validate_value(name, value, declared)
            # a frozen dataclass blocks normal assignment
            if checked is not value:
                object.__setattr__(self, name, checked)
        get_scale(self.scale)
        for name in CHOICES:
            check_field_value(name, getattr(self, name))
        if self.nested_sizes is not None:
            widths_in(self.nested_sizes, self.hidden_size)
        for names, remedy in self._find_conflicts():
            given = " with ".join(f"{name}={shorten(repr(getattr(self, name)))}" for name in names.split())
            raise ValueError(f"{given}: {remedy}")

    def _find_conflicts(self) -> Iterator[tuple[str, str]]:
        """Yield the names of fields whose values exclude each other, and what is allowed."""
        contexts = self.test_contexts.split("+")
        if len(set(contexts)) < len(contexts) or set(contexts) - set(CONTEXTS):
            yield "test_contexts", f"join some of {list(CONTEXTS)} by +"
        if (self.cluster_size is None) == (self.sampler == "cluster"):
            yield "sampler cluster_size", "give both or neither"
        if self.mixing_alpha is not None and self.sampler != "domain":
            yield "mixing_alpha sampler", "sources are mixed by sampler='domain'"
        if (self.num_steps is None) == (self.num_epochs is None):
            yield "num_steps num_epochs", "give exactly one of them"
        if self.filter == "random" and self.loss != "infonce":
            yield "filter loss", "it masks documents of queries only, loss='infonce'"
        if self.pooling != "mean" and self.architecture != "contextual":
            yield "pooling architecture", "it needs a context"
        yield from self._find_phase_conflicts()
        yield from self._find_context_conflicts(contexts)
        yield from self._find_measure_conflicts(contexts)

    def _find_phase_conflicts(self) -> Iterator[tuple[str, str]]:
        if self.num_steps == 0 and self.pretraining_corpus is not None:
            yield "num_steps pretraining_corpus", "an untrained model has no first phase: give its first phase as a run"
        num_lengths = sum(value is not None for value in (self.num_pretraining_steps, self.num_pretraining_epochs))
        if num_lengths != (self.pretraining_corpus is not None):
            yield (
                "pretraining_corpus num_pretraining_steps num_pretraining_epochs",
                "give a corpus and one length, or none of them",
            )
        for name in ("pretraining_batch_size", "pretraining_cluster_size"):
            if getattr(self, name) is not None and self.pretraining_corpus is None:
                yield f"{name} pretraining_corpus", "give a corpus, too"
        if self.pretraining_cluster_size is not None and self.mixing_alpha is not None:
            yield (
                "pretraining_cluster_size mixing_alpha",
                "a first phase draws from clusters or mixes sources: give one",
            )

    def _find_context_conflicts(self, contexts: Sequence[str]) -> Iterator[tuple[str, str]]:
        has_null = self.architecture != "contextual" or self.sequence_dropout > 0
        if not has_null and self.measure in NULL_MEASURES and "null" in contexts:
            yield "sequence_dropout test_contexts", "such a model learns no null vector: leave out null"
        if self.num_test_contexts is not None and self.architecture == "contextual":
            if self.num_test_contexts > self.num_contexts:
                yield "num_test_contexts num_contexts", "give at most as many as the model has"
            if not has_null:
                yield "num_test_contexts sequence_dropout", "slots without a document need a null vector: leave it None"
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
                yield f"sequence_dropout {name}", f"a model that never sees a document needs {name} in {list(allowed)}"

    def _find_measure_conflicts(self, contexts: Sequence[str]) -> Iterator[tuple[str, str]]:
        analysis = MEASURES[self.measure]
        if (self.rerank_depth is None) != (self.protocol == "full"):
            yield "protocol rerank_depth", "give a depth if and only if candidates are reranked"
        if self.protocol != "full" and analysis.searches_in_full:
            yield "protocol measure", "it searches all documents: set protocol='full' and rerank_depth=None"
        if self.architecture not in (analysis.architectures or CHOICES["architecture"]):
            yield "measure architecture", f"it takes {list(analysis.architectures or ())}"
        if self.suite in MTEB_SUITES and self.measure != "mteb":
            yield "suite measure", "its tasks need measure='mteb'"
        if self.measure == "mteb" and "random" in contexts:
            yield "test_contexts measure", "its 'wrong' context already is random training text: leave out random"
        if self.measure == "steps" and self.kept_weights == "best":
            yield "measure kept_weights", "training may end early: set kept_weights='last'"
        if self.measure == "steps" and self.num_steps is not None and self.num_steps < NUM_SCORED_PARTS:
            yield "measure num_steps", f"it needs at least {NUM_SCORED_PARTS} steps"
        if self.measure == "steps" and self.architecture == "contextual" and "own" not in contexts:
            yield "measure test_contexts", "it scores the own context: add own"
        if analysis.needs_full_width and (widths := nested_widths(self)) and widths[-1] < self.hidden_size:
            yield "nested_sizes measure", f"it compares with the whole vector: add {self.hidden_size}"
        if self.num_test_contexts is not None and not analysis.sets_num_contexts:
            allowed = [measure for measure in MEASURES if MEASURES[measure].sets_num_contexts]
            yield (
                "num_test_contexts measure",
                f"it has as many as in training: leave it None, or measure one of {allowed}",
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
"""Fields that do not affect training. Runs that differ only in these share a training run."""
CONTEXT_FIELDS = (
    "num_first_stage_layers",
    "first_stage_rate",
    "num_contexts",
    "tokens_per_document",
    "num_soft_prompts",
    "sequence_dropout",
    "pooling",
    "residual",
)
"""Fields that affect the training of contextual models only."""


def is_blind(run: Run) -> bool:
    """Return whether a run is context-blind: every context slot always holds the null vector."""
    return run.sequence_dropout == 1


def draws_within_domains(run: Run) -> bool:
    """Return whether the pairs of a batch come from one domain."""
    return run.sampler != "random"


def depends_on_seed(run: Run) -> bool:
    """Return whether a run's numbers depend on its seed."""
    return run.architecture in TRAINED or MEASURES[run.measure].samples_pairs


def nested_widths(run: Run) -> tuple[int, ...]:
    """Return the prefix widths in the loss of a run. Empty if the loss uses whole vectors only."""
    return () if run.nested_sizes is None else widths_in(run.nested_sizes, run.hidden_size)


def list_scored_widths(run: Run) -> tuple[int, ...]:
    """Return the widths at which vectors are compared: those of the loss, or the standard ones of whole vectors."""
    return nested_widths(run) or list_standard_widths(run.hidden_size)


@cache
def get_training_run(run: Run) -> Run:
    """Return the run with the evaluation fields of its scale, which identifies its training run.

    A context-blind run is evaluated under the null context, and one without a null vector under its own context.
    """
    defaults = get_scale(run.scale).fields
    evaluation = {name: defaults[name] for name in EVALUATION_FIELDS}
    if is_blind(run):
        evaluation["test_contexts"] = "null"
    elif run.architecture == "contextual" and run.sequence_dropout == 0:
        evaluation["test_contexts"] = "own"
    return replace(run, **evaluation)


def get_training_values(run: Run) -> dict[str, Any]:
    """Return the values of the fields that a training run depends on."""
    return {name: value for name, value in vars(run).items() if name not in EVALUATION_FIELDS}


PHASE_FIELDS = (
    "num_pairs",
    "sources",
    "num_hard_negatives",
    "mined_negatives",
    "learning_rate",
    "num_warmup_steps",
    "kept_weights",
)
"""Fields of the second phase only. The first phase uses the values of the scale."""


def list_phases(run: Run) -> tuple[Run, ...]:
    """Return the run, then its first phase if it has one."""
    first = get_first_phase(run)
    return (run,) if first is None else (run, first)


def get_first_phase(run: Run) -> Run | None:
    """Return the run of the first phase, or None if `run` has one phase.

    It has the `PHASE_FIELDS` of the scale, and the corpus and length that `run` specifies. It uses the batches of `run`
    unless `run` sets their size, or sets clusters, which are then those of the scale's domains. Runs with different
    second-phase batches can therefore share a first phase.
    """
    if run.pretraining_corpus is None:
        return None
    defaults = get_scale(run.scale).fields
    changes: dict[str, Any] = {name: defaults[name] for name in PHASE_FIELDS}
    # None for all pretraining fields: the first phase has no phase before it
    changes |= dict.fromkeys(name for name in FIELDS if "pretraining" in name)
    if run.pretraining_batch_size is not None:
        changes["batch_size"] = run.pretraining_batch_size
    if run.pretraining_cluster_size is not None:
        changes |= {"sampler": "cluster", "cluster_size": run.pretraining_cluster_size}
        changes["domain_column"] = defaults["domain_column"]
    if run.num_pretraining_steps is not None:
        # a short phase has a shorter warm-up
        changes["num_warmup_steps"] = min(defaults["num_warmup_steps"], run.num_pretraining_steps - 1)
    changes |= {
        "corpus": run.pretraining_corpus,
        "num_steps": run.num_pretraining_steps,
        "num_epochs": run.num_pretraining_epochs,
    }
    return get_training_run(replace(run, **changes))


def needs_surrogate(run: Run) -> bool:
    """Return whether the batches of a run depend on the surrogate's embeddings."""
    if MEASURES[run.measure].samples_pairs:
        return True
    mines = run.num_hard_negatives > 0 and run.mined_negatives != "given"
    return run.architecture in TRAINED and (run.sampler == "cluster" or run.filter != "none" or mines)


def check_field_value(name: str, value: Any) -> None:
    """Raise ValueError if a value is not among the choices of its field. A field without choices accepts all."""
    if name in CHOICES and value not in CHOICES[name]:
        raise ValueError(
            f"{name}={shorten(reprlib.repr(value))} is unknown; choose one of {list(CHOICES[name])} (CHOICES in {__name__})"
        )


def find_implementation(
    name: str, value: str, implementations: Mapping[str, Implementation], where: str
) -> Implementation:
    """Return the function of a choice of a field. Raises ValueError with the missing step if it has none."""
    if value not in implementations:
        raise ValueError(f"{name}={value!r} is a choice without a function: add it to {where}")
    return implementations[value]


def check_run_warmup(run: Run) -> None:
    """Raise ValueError if the warm-up of a run is as long as its training. The trainer raises it only after all stages."""
    if run.architecture in TRAINED and run.num_steps:
        check_warmup(run.num_warmup_steps, run.num_steps)


def check_fields(names: Iterable[str], caller: str) -> None:
    """Raise ValueError if a name is not a field of `Run`. `caller` is for the message."""
    unknown = [name for name in names if name not in FIELDS]
    if unknown:
        hint = format_suggestion(unknown[0], FIELDS)
        raise ValueError(f"unknown field {unknown[0]!r} in {caller}{hint or ';'} `repro fields` lists all")


def base(scale: str, /, **changes: Any) -> Run:
    """Return the default run of a scale, with `changes`.

    `start`, `surrogate` and `filter_model` may be the folder of an encoder. If `start` is a folder or "minilm", the model
    sizes are set unless they are given.

    Raises:
        ValueError: for an unknown scale or field, or if the folder is not a valid encoder.
    """
    check_fields(changes, "base()")
    return Run(**{"scale": scale, **values_at(scale, FIELDS), **resolve_encoders(changes)})


def run_from_fields(fields: Mapping[str, Any]) -> Run:
    """Return the run that was stored as plain values. A field that did not exist yet gets the value of the scale.

    Raises ValueError for an unknown scale or field.
    """
    return base(fields["scale"], **fields)


def grid(run: Run, /, **axes: Any) -> tuple[Run, ...]:
    """Return `run` with every combination of the axes. A value that is not a tuple applies to all of them."""
    check_fields(axes, "grid()")
    values = [value if isinstance(value, tuple) else (value,) for value in axes.values()]
    return tuple(replace(run, **dict(zip(axes, combination, strict=True))) for combination in product(*values))
