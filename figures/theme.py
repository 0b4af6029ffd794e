"""Recolour an SVG picture for light or dark pages, on a transparent background."""

from __future__ import annotations

import colorsys
import re

ON_COLOUR = "#010101"
"""Ink on a coloured area, such as a cell of a heat map. It stays dark on dark pages, as the area keeps its colour."""
# The cells of a heat map are kept whole, because their colours are a scale.
CELLS_OR_COLOUR = re.compile(r'<g id="QuadMesh_\d+">.*?</g>|#[0-9a-fA-F]{6}\b', re.DOTALL)
# The backgrounds of the picture and of each panel. Legends have an opacity too, and stay.
WHITE_PATCH = re.compile(r'(<g id="patch_\d+">\s*<path[^>]*?style="fill: )#ffffff(?=")')
LIGHTEST_INK, DARKEST_ON_DARK = 0.45, 0.62
"""Lightness (HLS) below which a colour vanishes on a dark page, and the lightness that replaces it."""
THEMES = ("light", "dark")


def recolour(svg: str, theme: str) -> str:
    """Return the picture without its white background and, for "dark", with dark colours lightened.

    Raises:
        ValueError: if the theme is unknown.
    """
    if theme not in THEMES:
        raise ValueError(f"theme {theme!r} is unknown; choose one of {list(THEMES)}")
    transparent = WHITE_PATCH.sub(r"\1none", svg)
    if theme == "light":
        return transparent
    # matplotlib omits black, the default of SVG
    inked = transparent.replace("<svg ", '<svg fill="#dddddd" ', 1)
    return CELLS_OR_COLOUR.sub(lambda match: match[0] if match[0].startswith("<") else lighten(match[0]), inked)


def lighten(colour: str) -> str:
    """Return a colour that is readable on a dark page, "#rrggbb". Dark colours become light and keep their hue."""
    if colour == ON_COLOUR:
        return colour
    red, green, blue = (int(colour[start : start + 2], 16) / 255 for start in (1, 3, 5))
    hue, lightness, saturation = colorsys.rgb_to_hls(red, green, blue)
    if lightness >= LIGHTEST_INK and saturation > 0.15:
        return colour
    if saturation > 0.15:
        lightness = DARKEST_ON_DARK
    elif lightness < 0.7:
        # Dark greys are inverted, because ink becomes paper.
        lightness = max(DARKEST_ON_DARK, 1 - lightness)
    rgb = colorsys.hls_to_rgb(hue, lightness, saturation)
    return "#" + "".join(f"{round(255 * channel):02x}" for channel in rgb)
