"""Colours and fonts of every picture with words in it, so that all look alike."""

from __future__ import annotations

from functools import cache

from PIL import ImageFont

BACKGROUND = (17, 19, 24)
TILE = (30, 33, 41)
LINE = (72, 78, 92)
TEXT = (236, 238, 242)
DIM = (148, 155, 170)
RED = (240, 84, 84)
GREEN = (92, 205, 128)
AMBER = (245, 180, 70)

Font = ImageFont.FreeTypeFont | ImageFont.ImageFont
Colour = tuple[int, int, int]


@cache
def font(points: int) -> Font:
    """Return Pillow's own font: nothing on the machine decides how a picture looks."""
    return ImageFont.load_default(size=points)


def fitting(text: str, style: Font, width: int) -> str:
    """Return the text, or as much of its beginning as fits into so many pixels."""
    if style.getlength(text) <= width:
        return text
    while text and style.getlength(f"{text}...") > width:
        text = text[:-1]
    return f"{text}..."
