"""Figure 1: the two stages, drawn from the configuration of Table 1's contextual model, with its actual sizes."""

from typing import Any

from repro.spec import Experiment, Figure, Row, Run, base, pick

SHAPE = {"measure": "shape", "architecture": "none"}
FIRST, SECOND, DATA = "#dbe9f4", "#f4e3cf", "#f2f2f2"
INK = "#262626"


def runs(scale: str) -> tuple[Run, ...]:
    """Return one run, of which only the sizes are read."""
    return (base(scale, **SHAPE),)


ARROWS = (((21, 46), (33, 46)), ((53, 46), (71, 46)), ((21, 16), (33, 16)), ((72, 16), (85, 16)), ((80, 41), (66, 24)))


def draw_overview(frame: Any, axes: Any) -> None:
    """Draw the path of documents and text through both stages. `frame` has a row (part1, value) for each size."""
    size = {name: int(value) for name, value in zip(frame["part1"], frame["value"], strict=True)}
    axes.figure.set_size_inches(8.4, 4.6)
    axes.set(xlim=(0, 100), ylim=(0, 60), xlabel="", ylabel="")
    axes.axis("off")
    for x, y, colour, lines in _list_boxes(size):
        box = {"boxstyle": "square,pad=0.8", "facecolor": colour, "edgecolor": INK}
        style = {"ha": "center", "va": "center", "color": INK, "size": "small", "linespacing": 1.5}
        axes.text(x, y, "\n".join(lines), bbox=box, **style)
    for start, end in ARROWS:
        axes.annotate("", xy=end, xytext=start, arrowprops={"arrowstyle": "-|>", "color": INK, "lw": 1.4})


def _list_boxes(size: dict[str, int]) -> tuple[tuple[int, int, str, tuple[str, ...]], ...]:
    """Return centre, colour and lines of text of each box."""
    contexts, width, heads, tokens = (size[name] for name in ("num_contexts", "hidden_size", "num_heads", "max_tokens"))
    vectors, prompts = contexts * size["tokens_per_document"], size["num_soft_prompts"]
    weights = {
        stage: f"{_format_millions(size[f'num_{stage}_stage_weights'])} weights" for stage in ("first", "second")
    }
    first_lines = ("first stage M₁", _format_layers(size["num_first_stage_layers"], width, heads), weights["first"])
    second_lines = (
        "second stage M₂",
        f"reads [ {vectors} contexts | {prompts} soft prompts | ≤ {tokens} tokens ]",
        _format_layers(size["num_layers"], width, heads),
        weights["second"],
        "mean over the text's tokens only",
    )
    return (
        (11, 46, DATA, (f"{contexts} context documents", "of the corpus D", f"≤ {tokens} tokens each")),
        (11, 16, DATA, ("one text", "(query or document)", f"≤ {tokens} tokens")),
        (43, 46, FIRST, (*first_lines, "mean over tokens")),
        (82, 46, DATA, (f"{vectors} context vectors × {width}", "one set for a batch,", "no position of their own")),
        (52, 16, SECOND, second_lines),
        (90, 16, DATA, ("φ(d; D) or", "ψ(q; D)", f"1 × {width}")),
    )


def _format_layers(count: int, width: int, heads: int) -> str:
    return f"{count} layer{'s' * (count > 1)} × {width}, {heads} head{'s' * (heads > 1)}"


def _format_millions(count: int) -> str:
    return f"{count / 1e6:.1f} M" if count >= 1e5 else f"{count:,}"


FIGURE = Figure(
    name="figure1",
    caption=(
        "The contextual model of this scale. The first stage embeds documents of the corpus. The second stage reads "
        "their vectors before the tokens of a text. Coloured boxes have weights."
    ),
    kind="diagram",
    title="The two stages of the contextual model, with the sizes of this scale",
    points="shape/*",
    x="part1",
    y="value",
    x_label="",
    y_label="",
    series=(Row(label="sizes", runs=pick(**SHAPE)),),
    draw=draw_overview,
)

EXPERIMENT = Experiment(title="The model", runs=runs, artefacts=(FIGURE,))
