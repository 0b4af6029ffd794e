"""Figure 1: the two stages, drawn from the configuration of Table 1's contextual model, with its real sizes."""

from typing import Any

from repro.spec import Experiment, Figure, Row, Run, base, pick

SHAPE = {"measure": "shape", "architecture": "none"}
FIRST, SECOND, DATA = "#dbe9f4", "#f4e3cf", "#f2f2f2"
INK = "#262626"


def runs(scale: str) -> tuple[Run, ...]:
    """Only sizes are read."""
    return (base(scale, **SHAPE),)


def draw_overview(frame: Any, axes: Any) -> None:
    """Draws documents and text going through both stages; `frame` has a row for each size: part1, value."""
    size = {name: int(value) for name, value in zip(frame["part1"], frame["value"], strict=True)}
    contexts, width = size["num_contexts"], size["hidden_size"]
    num_vectors = contexts * size["tokens_per_document"]
    tokens = size["max_tokens"]
    axes.figure.set_size_inches(8.4, 4.6)
    axes.set(xlim=(0, 100), ylim=(0, 60), xlabel="", ylabel="")
    axes.axis("off")
    _box(axes, 1, 38, 20, 16, DATA, f"{contexts} context documents\nof the corpus D\n≤ {tokens} tokens each")
    _box(axes, 1, 8, 20, 16, DATA, f"one text\n(query or document)\n≤ {tokens} tokens")
    _box(
        axes,
        30,
        36,
        26,
        20,
        FIRST,
        f"first stage M₁\n{_layers(size['num_first_stage_layers'], width, size['num_heads'])}\n"
        f"{_millions(size['num_first_stage_weights'])} weights, word vectors too\nmean over tokens",
    )
    _box(
        axes,
        66,
        38,
        32,
        16,
        DATA,
        f"{num_vectors} context vectors × {width}\none set for a batch,\nno position of their own",
    )
    _box(
        axes,
        30,
        4,
        44,
        24,
        SECOND,
        f"second stage M₂\n"
        f"reads [ {num_vectors} contexts | {size['num_soft_prompts']} soft prompts | ≤ {tokens} tokens ]\n"
        f"{_layers(size['num_layers'], width, size['num_heads'])}\n"
        f"{_millions(size['num_second_stage_weights'])} weights, word vectors too\nmean over the text's tokens only",
    )
    _box(axes, 83, 10, 15, 12, DATA, f"φ(d; D) or\nψ(q; D)\n1 × {width}")
    for start, end in (((21, 46), (30, 46)), ((56, 46), (66, 46)), ((21, 16), (30, 16)), ((74, 16), (83, 16))):
        axes.annotate("", xy=end, xytext=start, arrowprops={"arrowstyle": "-|>", "color": INK, "lw": 1.4})
    axes.annotate("", xy=(66, 28), xytext=(80, 38), arrowprops={"arrowstyle": "-|>", "color": INK, "lw": 1.4})


def _box(axes: Any, x: float, y: float, width: float, height: float, colour: str, text: str) -> None:
    corners_x, corners_y = (x, x + width, x + width, x), (y, y, y + height, y + height)
    axes.fill(corners_x, corners_y, facecolor=colour, edgecolor=INK, linewidth=1.0)
    axes.text(x + width / 2, y + height / 2, text, ha="center", va="center", fontsize="small", linespacing=1.5)


def _layers(count: int, width: int, heads: int) -> str:
    return f"{count} layer{'s' * (count > 1)} × {width}, {heads} head{'s' * (heads > 1)}"


def _millions(count: int) -> str:
    return f"{count / 1e6:.1f} M" if count >= 1e5 else f"{count:,}"


FIGURE = Figure(
    name="figure1",
    caption="The contextual model of this scale: one stage embeds documents of the corpus, the other reads them.",
    kind="own",
    points="shape/*",
    x="part1",
    y="value",
    x_label="",
    y_label="",
    series=(Row(label="sizes", of=pick(**SHAPE)),),
    draw=draw_overview,
)

EXPERIMENT = Experiment(number=15, title="The model", runs=runs, shows=(FIGURE,))
