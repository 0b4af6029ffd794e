"""Draw the pictures of the results page, in the light and dark themes."""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from repro.cli.figures import describe_picture
from repro.report.gallery import LIGHT_ONLY, compute_digest, get_picture_path, is_current, iter_gallery_figures
from repro.spec import Figure
from repro.storage.paths import CHECKOUT


def make_gallery_pictures(folder: Path = CHECKOUT) -> dict[Path, str]:
    """Return the SVG text of every figure in both themes, by path. Current pictures are read, not drawn again."""
    texts: dict[Path, str] = {}
    for _, figure, scale, rows in iter_gallery_figures():
        digest = compute_digest(figure, rows, scale)
        paths = {theme: get_picture_path(figure.name, theme, folder) for theme in ("light", "dark")}
        if all(is_current(path, digest) for path in paths.values()):
            texts |= {path: path.read_text(encoding="utf-8") for path in paths.values()}
            continue
        svg = draw_svg(figure, scale, rows)
        texts |= {path: add_digest(recolour_svg(figure, svg, theme), digest) for theme, path in paths.items()}
    return texts


def recolour_svg(figure: Figure, svg: str, theme: str) -> str:
    """Return the picture in the light or dark theme."""
    from figures.theme import recolour

    return svg if figure.is_diagram or figure.kind in LIGHT_ONLY else recolour(svg, theme)


def add_digest(svg: str, digest: str) -> str:
    """Return the picture with the digest of its rows as its last line."""
    return "\n".join(line.rstrip() for line in svg.splitlines()) + f"\n<!-- rows {digest} -->\n"


def draw_svg(figure: Figure, scale: str, rows: Sequence[Mapping[str, Any]]) -> str:
    """Return a figure as SVG text. The same rows give the same text."""
    import matplotlib.pyplot as plt

    from figures.draw import Picture, plot

    picture = Picture(**describe_picture(figure, scale, "published", rows))
    drawing, _ = plot(rows, picture, name=figure.name)
    buffer = io.StringIO()
    drawing.savefig(buffer, format="svg", metadata={"Date": None})
    plt.close(drawing)
    return buffer.getvalue()
