"""Table 7: retrieval by dataset, after each of two phases, for a plain and a contextual system."""

from dataclasses import replace
from typing import Any

from experiments.e01_table1 import BOTH, CONTEXTUAL_BATCH, FAMILY_COLUMNS, NEITHER, get_sizes, seeds_at
from experiments.e05_epochs import PRETRAINING
from experiments.e06_hard_negatives import CORPUS, LENGTH
from experiments.fresh import CONTEXT_BLIND, FIRST_SEEDS, RESTATED, STATED
from experiments.shared import NDCG, ndcg
from repro.spec import Claim, Column, Experiment, Row, Run, Table, Term, base, grid, pick, term

PLAIN = NEITHER
CONTEXTUAL = BOTH


def runs(scale: str) -> tuple[Run, ...]:
    """Return the first phases, which are runs of Table 1 (two more plain seeds at desk), and their second phases."""
    all_runs: tuple[Run, ...] = ()
    for system in (PLAIN, CONTEXTUAL):
        fields = system | get_sizes(system, scale)
        first = base(scale, **fields)
        second = base(scale, **fields | second_phase(scale, first.batch_size))
        all_runs += grid(first, seed=seeds_at(scale)) + grid(second, seed=seeds_at(scale))
    if scale == "large":
        # the paper's 15 collections are tasks of MTEB
        return tuple(replace(run, suite="mteb-retrieval", measure="mteb", test_contexts="own") for run in all_runs)
    return all_runs


def second_phase(scale: str, batch_size: int) -> dict[str, Any]:
    """Return the changes that turn a run into a second phase. `batch_size` is that of its first phase.

    With batches of 16384, the paper's supervised data (1.8 M pairs) give fewer steps than the warm-up. So both systems
    use the size of contextual batches in this phase.
    """
    phase: dict[str, Any] = PRETRAINING[scale] | LENGTH[scale] | {"corpus": CORPUS[scale], "test_contexts": "own"}
    if batch_size != CONTEXTUAL_BATCH[scale]:
        phase |= {"batch_size": CONTEXTUAL_BATCH[scale], "pretraining_batch_size": batch_size}
    return phase | {"num_hard_negatives": 1}  # §6: the best model has one


DATASETS = (
    *("Arg", "CQA", "CFEVER", "DBP", "FEVER", "FiQA", "HPQA", "MSMRC"),
    *("NFC", "NQ", "QUORA", "SCID", "SCIF", "TREC", "TOUCHE"),
)
TASKS = (
    *("ArguAna", "CQADupstackRetrieval", "ClimateFEVER", "DBPedia", "FEVER", "FiQA2018", "HotpotQA", "MSMARCO"),
    *("NFCorpus", "NQ", "QuoraRetrieval", "SCIDOCS", "SciFact", "TRECCOVID", "Touche2020"),
)
PRINTED = {
    "unsupervised, plain": (
        (54.8, 41.4, 24.7, 40.2, 74.4, 39.9, 63.8, 35.0, 35.7, 48.6, 88.2, 20.2, 72.0, 62.2, 19.2),
        48.0,
    ),
    "unsupervised, contextual": (
        (54.9, 43.1, 24.4, 40.7, 79.6, 42.1, 68.8, 38.9, 36.5, 57.8, 88.9, 21.1, 72.8, 77.1, 21.9),
        51.2,
    ),
    "supervised, plain": (
        (49.3, 40.5, 38.3, 45.0, 85.0, 38.4, 73.6, 43.1, 35.0, 59.4, 87.7, 18.3, 70.5, 79.9, 28.2),
        52.8,
    ),
    "supervised, contextual": (
        (53.8, 41.2, 38.8, 43.3, 89.2, 40.1, 73.9, 42.2, 35.9, 61.6, 87.1, 20.1, 72.7, 82.6, 27.8),
        54.0,
    ),
}


def task_score(name: str) -> str:
    """Return the metric of a task of MTEB."""
    return f"{{suite}}/tasks/{name}/score"


PHASES = {
    "unsupervised": None,
    "supervised": tuple(sorted({str(e["pretraining_corpus"]) for e in PRETRAINING.values()})),
}


def printed(label: str) -> dict[str, float]:
    """Return the paper's numbers of one row."""
    scores, mean = PRINTED[label]
    return {**dict(zip(DATASETS, scores, strict=True)), "mean": mean}


TABLE = Table(
    name="table7",
    caption=(
        "Retrieval after each phase, NDCG@10. The paper uses the 15 retrieval datasets of MTEB. Desk and lab use the "
        "mined families, and mined hard negatives in the second phase."
    ),
    columns=(
        *(
            Column(label=label, value=task_score(name), factor=100, scales=("large",))
            for label, name in zip(DATASETS, TASKS, strict=True)
        ),
        *FAMILY_COLUMNS,
        Column(label="mean", value=NDCG, factor=100),
    ),
    rows=tuple(
        Row(label=f"{phase}, {kind}", runs=pick(**system, pretraining_corpus=of), paper=printed(f"{phase}, {kind}"))
        for phase, of in PHASES.items()
        for kind, system in (("plain", PLAIN), ("contextual", CONTEXTUAL))
    ),
)


def gain(metric: str, phase: object) -> tuple[Term, Term]:
    """Return the contextual and the plain system after a phase."""
    return term(metric, **CONTEXTUAL, pretraining_corpus=phase), term(metric, **PLAIN, pretraining_corpus=phase)


def printed_values(metrics: dict[str, str]) -> dict[Term, float]:
    """Return the paper's numbers of each system after each phase, for metrics by column of the table."""
    return {
        term(metric, **system, pretraining_corpus=pretraining): printed(f"{phase}, {system_name}")[label] / 100
        for phase, pretraining in PHASES.items()
        for system_name, system in (("plain", PLAIN), ("contextual", CONTEXTUAL))
        for label, metric in metrics.items()
    }


AT_LARGE = STATED | FIRST_SEEDS | {"scales": ("large",)}
CLAIMS = (
    Claim.order(
        "T7.a",
        "the contextual system beats the plain one in both phases",
        pairs=[gain(NDCG, of) for of in PHASES.values()],
        source="Table 7",
        because="any difference beyond chance; a plain batch is of one source, as in T1.b",
        blind=term(ndcg("null"), **CONTEXTUAL | CONTEXT_BLIND, pretraining_corpus=next(iter(PHASES.values()))),
        **RESTATED | FIRST_SEEDS,
    ),
    *(
        Claim.interaction(
            id,
            f"{word} improves more than the mean of Table 7, over both phases",
            of=(term(metric, **CONTEXTUAL), term(metric, **PLAIN)),
            above=(term(NDCG, **CONTEXTUAL), term(NDCG, **PLAIN)),
            source="§9.12",
            **AT_LARGE,
        )
        for id, word, metric in (
            ("T7.d", "ArguAna", task_score("ArguAna")),
            ("T7.e", "TREC-COVID", task_score("TRECCOVID")),
        )
    ),
    Claim.value(
        "T7.g",
        "the means of Table 7 are 48.0 and 51.2 after the first phase, 52.8 and 54.0 after the second",
        expected=printed_values({"mean": NDCG}),
        margin=0.005,
        source="Table 7",
        because="half a point: one training run, seeds not given",
        **AT_LARGE,
    ),
    Claim.value(
        "T7.h",
        "each dataset of Table 7 has the printed score",
        expected=printed_values({label: task_score(name) for label, name in zip(DATASETS, TASKS, strict=True)}),
        margin=0.02,
        source="Table 7",
        because="two points: one training run, seeds not given",
        **AT_LARGE,
    ),
)

EXPERIMENT = Experiment(title="Two phases", runs=runs, artefacts=(TABLE,), claims=CLAIMS)
