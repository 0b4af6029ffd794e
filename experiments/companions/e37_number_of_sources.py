"""GTE figure 3a: the number of sources of the pairs, at an equal number of pairs and steps."""

from typing import Any

from experiments.companions.e33_improved_loss import IMPROVED, SEEDS
from experiments.companions.e34_mixing import make_mixed_run
from experiments.fresh import COMPANION
from experiments.shared import A_POINT_IS_SMALL, NDCG, SCORE, get_size_at
from repro.spec import Claim, Experiment, Figure, Row, Run, grid, pick, term

LARGEST = "reddit_title_body+paq+amazon_reviews+s2orc_title_abstract+wikianswers"
OTHERS = "gooaq+codesearch+agnews+ccnews+npr+cnn+eli5+quora+squad+altlex"
SOURCES: dict[str, tuple[str | None, ...]] = {"smoke": ("planted", None)}
FOUR = "services+modules+packages+commands"
SOURCES |= dict.fromkeys(("desk", "lab"), ("services", FOUR, None))
SOURCES |= dict.fromkeys(("small", "large"), (LARGEST, f"{LARGEST}+{OTHERS}", None))
"""The largest source, as in the paper. Then ten more, which the paper draws at random and does not name. None: all."""
NUM_ALL = {"smoke": 1, "desk": 9, "lab": 9, "small": 29, "large": 29}
FEWEST, MORE = ({"sources": get_size_at(SOURCES, index)} for index in (0, -2))
ALL = {"sources": None}
ALPHA = 0.5
"""Mixing exponent of the sources, as in the paper (§3.4). The smoke corpus has one source."""


def runs(scale: str) -> tuple[Run, ...]:
    """Return GTE's first phase on growing numbers of sources. The run on all sources is table 10's."""
    alpha = ALPHA if scale != "smoke" else None
    return grid(make_mixed_run(scale), mixing_alpha=alpha, sources=SOURCES[scale], seed=SEEDS)


def count_sources(sources: str | None, scale: str) -> int:
    """Return the number of sources named in a run's field."""
    return NUM_ALL[scale] if sources is None else sources.count("+") + 1


def draw_sources(frame: Any, axes: Any) -> None:
    """Draw a dot per seed at its number of sources, and a line through the means."""
    counts = [
        count_sources(sources if isinstance(sources, str) else None, scale)
        for sources, scale in zip(frame["sources"], frame["scale"], strict=True)
    ]
    frame = frame.assign(number=counts)
    axes.plot(frame["number"], frame["value"], "o", color="#21918c", alpha=0.6)
    means = frame.groupby("number")["value"].mean()
    axes.plot(means.index, means, color="#440154", linewidth=2, label=f"mean (n = {frame['seed'].nunique()})")
    axes.set_xticks(sorted(set(counts)))
    axes.legend(frameon=False, fontsize="small", loc="lower right")


FIGURE = Figure(
    name="gte_figure3a",
    title="Score by the number of sources",
    caption=(
        "NDCG@10 after pre-training on some of the sources, including the largest, and on all of them, mixed with α = "
        "0.5. Steps and pairs are equal in number. A dot is a seed, the line is the mean over seeds. The paper has 5, "
        "15 and 33 datasets, MTEB scores, and results after fine-tuning."
    ),
    kind="own",
    points=NDCG,
    hue="scale",
    x="sources",
    x_label="number of training sources",
    series=(Row(label="pre-training", runs=pick(**IMPROVED)),),
    draw=draw_sources,
    **SCORE | {"y": "value"},
)

CLAIMS = (
    Claim.order(
        "GF3.a",
        "more sources are better: from the fewest to an intermediate number, and from there to all",
        pairs=[
            (term(NDCG, **IMPROVED, **more), term(NDCG, **IMPROVED, **fewer))
            for fewer, more in ((FEWEST, MORE), (MORE, ALL))
        ],
        source="§5.1 and Figure 3a",
        **A_POINT_IS_SMALL | COMPANION,
    ),
)

EXPERIMENT = Experiment(
    number=37, title="Number of sources", runs=runs, artefacts=(FIGURE,), claims=CLAIMS, paper="GTE"
)
