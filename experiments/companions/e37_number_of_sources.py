"""GTE figure 3a: the number of sources in pre-training and in fine-tuning, at an equal number of pairs and steps."""

from typing import Any

from experiments.companions.e33_improved_loss import SEEDS
from experiments.companions.e34_mixing import make_mixed_run
from experiments.companions.e36_stages import BOTH_PHASES, PRETRAINED, make_fine_tuning
from experiments.fresh import COMPANION, MINED_TWICE
from experiments.shared import A_POINT_IS_SMALL, NDCG, SCORE, by_group, get_size_at
from repro.spec import Claim, Experiment, Figure, Row, Run, grid, pick, term

LARGEST = "reddit_title_body+paq+amazon_reviews+s2orc_title_abstract+wikianswers"
OTHERS = "gooaq+codesearch+agnews+ccnews+npr+cnn+eli5+quora+squad+altlex"
FOUR = "services+modules+packages+commands"
SOURCES = by_group(("planted", None), ("services", FOUR, None), (LARGEST, f"{LARGEST}+{OTHERS}", None))
"""At the paper's scales its five largest sources, then ten more, which it draws at random and does not name.

At desk and lab one source, then four. None: all.
"""
NUM_ALL = by_group(1, 9, 29)
FEWEST, MORE = ({"sources": get_size_at(SOURCES, index)} for index in (0, -2))
ALL = {"sources": None}
OF_E5 = "msmarco+nq+nli"
TUNING_SOURCES = by_group(
    ("planted", None), ("services", "services+modules", None), (OF_E5, f"{OF_E5}+hotpot+fever", None)
)
"""The largest source, or at the paper's scales those of E5, then more. The first phase always has all sources."""
NUM_ALL_TUNING = by_group(1, 3, 10)
ALPHA = 0.5
"""Mixing exponent of the sources, as in the paper (§3.4). The smoke corpus has one source."""


def runs(scale: str) -> tuple[Run, ...]:
    """Return both of GTE's phases on growing numbers of sources. Runs on all sources are those of tables 10 and 9."""
    alpha = ALPHA if scale != "smoke" else None
    second_phase, _ = make_fine_tuning(scale)
    return (
        *grid(make_mixed_run(scale), mixing_alpha=alpha, sources=SOURCES[scale], seed=SEEDS),
        *grid(second_phase, sources=TUNING_SOURCES[scale], seed=SEEDS),
    )


def draw_sources(frame: Any, axes: Any) -> None:
    """Draw a dot per seed at its number of sources, and the means, for each phase: a line, or dashes for two."""
    ticks: set[int] = set()
    for (phase, rows), color in zip(frame.groupby("series", sort=False), ("#440154", "#21918c"), strict=False):
        num_all = NUM_ALL if phase == PRE_TRAINING else NUM_ALL_TUNING
        counts = [
            sources.count("+") + 1 if isinstance(sources, str) else num_all[scale]
            for sources, scale in zip(rows["sources"], rows["scale"], strict=True)
        ]
        axes.plot(counts, rows["value"], "o", color=color, alpha=0.4)
        means = rows.assign(number=counts).groupby("number")["value"].mean()
        label = f"{phase}, mean (n = {rows['seed'].nunique()})"
        style = "-" if len(means) > 2 else "_"  # two points show no trend
        axes.plot(means.index, means, style, color=color, linewidth=2, label=label)
        ticks |= set(counts)
    axes.set_xticks(sorted(ticks))
    axes.legend(frameon=False, fontsize="small", loc="lower right")


PRE_TRAINING, FINE_TUNING = "pre-training", "fine-tuning"
FIGURE = Figure(
    name="gte_figure3a",
    title="Score by the number of sources",
    caption=(
        "NDCG@10 after pre-training or fine-tuning on some of the sources, including the largest, and on all of them. "
        "Steps and pairs are equal in number. Pre-training is on a wider corpus, mixed with α = 0.5. Fine-tuning "
        "follows pre-training on all sources of another corpus. A dot is a seed, a line or dash is the mean over seeds. "
        "The paper has MTEB scores and 5, 15 and 33 datasets in pre-training."
    ),
    kind="own",
    points=NDCG,
    hue="scale",
    x="sources",
    x_label="number of training sources",
    series=(Row(label=PRE_TRAINING, runs=pick(**PRETRAINED)), Row(label=FINE_TUNING, runs=pick(**BOTH_PHASES))),
    draw=draw_sources,
    **SCORE | {"y": "value"},
)

FEWEST_TUNED, MORE_TUNED = (get_size_at(TUNING_SOURCES, index) for index in (0, -2))
CLAIMS = (
    Claim.order(
        "GF3.a",
        "more sources are better: from the fewest to an intermediate number, and from there to all",
        pairs=[
            (term(NDCG, **PRETRAINED, **more), term(NDCG, **PRETRAINED, **fewer))
            for fewer, more in ((FEWEST, MORE), (MORE, ALL))
        ],
        source="§5.1 and Figure 3a",
        **A_POINT_IS_SMALL | COMPANION,
    ),
    Claim.order(
        "GF3.f",
        "more sources are better in fine-tuning too: from the fewest to an intermediate number, and from there to all",
        pairs=[
            (term(NDCG, **BOTH_PHASES, sources=more), term(NDCG, **BOTH_PHASES, sources=fewer))
            for fewer, more in ((FEWEST_TUNED, MORE_TUNED), (MORE_TUNED, None))
        ],
        source="§5.1 and Figure 3a",
        **A_POINT_IS_SMALL | COMPANION | {"stated": "2026-11-27", "caveat": MINED_TWICE},
    ),
)

EXPERIMENT = Experiment(title="Number of sources", runs=runs, artefacts=(FIGURE,), claims=CLAIMS, paper="GTE")
