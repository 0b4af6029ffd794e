"""Is the judge of claims right? Simulated records with a known truth, judged as real ones are; not in the paper."""

from typing import Any

from repro.spec import Column, Experiment, Figure, Row, Run, Table, base, grid, pick

# Nothing of the corpus is read: the smallest one is named so that nothing has to be built.
SIMULATED: dict[str, Any] = {
    "measure": "calibration",
    "architecture": "none",
    "corpus": "planted-tiny",
    "num_pairs": None,
    "suite": "planted",
}
LOOKED_AGAIN: dict[str, Any] = SIMULATED | {"measure": "looks"}
KINDS = (
    *("order", "interaction", "inside", "trend", "correlation", "equivalence"),
    *("varies", "uneven", "all", "family", "unpooled"),
)
KINDS_IN_WORDS = (
    "Order: one setting above another; interaction: a larger gain in one case; inside: than on one dataset; "
    "trend: along an axis; correlation: with a measure; equivalence: within a point; varies: the best differs by "
    "dataset, uneven: it only seems to. Together: three comparisons (all), three claims (family), seven without "
    "published records (unpooled)."
)
WITH_INTERVAL = tuple(kind for kind in KINDS if kind not in ("varies", "uneven"))
"""Of a claim that something varies no interval is counted: which of the leads is printed depends on the records."""
NOISES = {0: "seeds add no noise", 1: "seed noise as queries'", 5: "five times queries'"}
SEEDS = (1, 3, 5, 8)
DRAWS = (9, 10)
"""Draws that had not been looked at when the judge was last changed: 0 to 8 had, and do not judge it again."""
MOST_BY_CHANCE = 8
"""Per cent: of a judge at 5 %, one cell of a calibration in a hundred would have more of 1000 trials."""
AT_MOST = f"at most 5, or {MOST_BY_CHANCE} by chance in one of so many cells"
AT_LEAST = "of a judge at 95, at least 93 in every cell"
TRUTHS = {"none": "no effect", "one-point": "one point"}


FIRST_SEEDS = (3, 5)


def runs(scale: str) -> tuple[Run, ...]:
    """Two draws of all cells at the scale of our own machines: 1000 trials a cell, and 2000 a cell of looks. One at
    smoke.
    """
    at = "smoke" if scale == "smoke" else "desk"
    each = base(at, **SIMULATED), base(at, **LOOKED_AGAIN)
    return each if scale == "smoke" else tuple(run for one in each for run in grid(one, seed=DRAWS))


def columns(name: str) -> tuple[Column, ...]:
    """One column for each number of seeds."""
    return tuple(
        Column(
            label=f"{seeds} seeds" if seeds > 1 else "1 seed", value=f"calibration/{{part}}/{seeds}/{name}", factor=100
        )
        for seeds in SEEDS
    )


def table(name: str, caption: str, value: str, kinds: tuple[str, ...] = KINDS) -> Table:
    """A row for each kind of claim, truth and noise."""
    rows = tuple(
        Row(label=f"{kind}, {TRUTHS[truth]}, {words}", of=pick(**SIMULATED), part=f"{kind}/{truth}/{noise}")
        for kind in kinds
        for truth in TRUTHS
        for noise, words in NOISES.items()
    )
    return Table(name=name, caption=caption, columns=columns(value), rows=rows)


LOOKS_TABLE = Table(
    name="calibration_looks",
    caption=(
        "Claims that are UNDECIDED are looked at again, up to three times, with as many seeds more each time: "
        f"per cent of trials whose last verdict is false ({AT_MOST}), whose last interval covers the truth, and that "
        "HOLD; and looks made, on average."
    ),
    columns=tuple(
        Column(label=f"{words}, {seeds} a look", value=f"looks/{{part}}/{seeds}/{name}", factor=factor)
        for name, words, factor in (
            ("false", "false", 100),
            ("covered", "covered", 100),
            ("decided", "holds", 100),
            ("looks", "looks", 1),
        )
        for seeds in FIRST_SEEDS
    ),
    rows=tuple(
        Row(label=f"{TRUTHS[truth]}, {words}", of=pick(**LOOKED_AGAIN), part=f"{truth}/{noise}")
        for truth in TRUTHS
        for noise, words in NOISES.items()
    ),
)

STYLES = {1: ("o", "#440154"), 3: ("s", "#31688e"), 5: ("^", "#35b779"), 8: ("D", "#b5a000")}


def draw_false(frame: Any, axes: Any) -> None:
    """A dot for each truth and noise of a kind of claim: its share of false verdicts over all draws."""
    shares = frame.groupby(["part1", "part2", "part3", "part4"])["value"].mean().reset_index()
    for number, (seeds, (marker, colour)) in enumerate(STYLES.items()):
        rows = shares[shares["part4"].astype(int) == seeds]
        at = [KINDS.index(kind) + 0.2 * (number - 1.5) for kind in rows["part1"]]
        label = f"{seeds} seed{'s' * (seeds > 1)}"
        axes.plot(at, rows["value"], marker, color=colour, markersize=4, alpha=0.7, label=label)
    axes.axhline(5, color="grey", linewidth=0.8, linestyle="--", label="level of the judge")
    axes.set_xticks(range(len(KINDS)), KINDS, rotation=20, ha="right")
    axes.legend(frameon=False, fontsize="small", loc="lower left", bbox_to_anchor=(0.0, 1.0), ncols=3)


FIGURE = Figure(
    name="calibration",
    title="How often the judge is wrong, on simulated records",
    caption=(
        "False verdicts of the judge on simulated records, by kind of claim; a dot is one truth and one level of seed "
        "noise, over two draws of 500 trials. Claims are judged at 5 %; 1000 trials miss a share of 5 % by up to 1.4. "
        f"{KINDS_IN_WORDS}"
    ),
    kind="own",
    points="calibration/*/*/*/*/false",
    parts=("kind of claim", "truth", "noise", "seeds judged"),
    x="part1",
    y="value",
    x_label="kind of claim",
    y_label="false verdicts (%)",
    factor=100,
    series=(Row(label="simulated", of=pick(**SIMULATED)),),
    draw=draw_false,
)
SHOWS = (
    FIGURE,
    table("calibration_false", f"False verdicts, per cent of trials; {AT_MOST}.", "false"),
    table(
        "calibration_covered",
        f"Intervals that cover the truth, per cent of trials; {AT_LEAST}.",
        "covered",
        WITH_INTERVAL,
    ),
    table("calibration_power", "Claims that HOLD, per cent of trials: power where they should.", "decided"),
    LOOKS_TABLE,
)

EXPERIMENT = Experiment(number=22, title="Is the judge right?", runs=runs, shows=SHOWS)
