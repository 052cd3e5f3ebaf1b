"""Colours, fonts and sizes of every picture with words in it, so that all look alike."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from math import ceil

from PIL import ImageFont

from redline.types import Array

BACKGROUND = (17, 19, 24)
TILE = (30, 33, 41)
LINE = (72, 78, 92)
TEXT = (236, 238, 242)
DIM = (148, 155, 170)
RED = (240, 84, 84)
GREEN = (92, 205, 128)
AMBER = (245, 180, 70)

MAX_SCALE = 16

Font = ImageFont.FreeTypeFont | ImageFont.ImageFont
Colour = tuple[int, int, int]


@cache
def font(points: int) -> Font:
    """Return Pillow's own font: the machine does not change how a picture looks."""
    return ImageFont.load_default(size=points)


def fitting(text: str, style: Font, width: int) -> str:
    """Return the text, or as much of its beginning as fits into `width` pixels."""
    if style.getlength(text) <= width:
        return text
    while text and style.getlength(f"{text}...") > width:
        text = text[:-1]
    return f"{text}..."


def usual_scale(height: int, *, target: int) -> int:
    """Return the whole number that enlarges a picture to about the target height."""
    return min(max(round(target / height), 1), MAX_SCALE)


def enlarge(image: Array, scale: int) -> Array:
    """Return a picture [H, W, 3] with each pixel as a square of `scale` × `scale`."""
    return image if scale == 1 else image.repeat(scale, axis=0).repeat(scale, axis=1)


@dataclass(frozen=True)
class Tiles:
    """Where tiles of one size lie on a page, in pixels."""

    count: int
    columns: int
    width: int  # of a tile
    height: int
    caption: int  # from the lower edge of a tile to the next row
    gap: int  # between columns
    margin: int  # left and right
    top: int = 0
    bottom: int = 0
    fills_columns: bool = False  # one column after the other, instead of rows

    @property
    def rows(self) -> int:
        """Tiles below each other."""
        return ceil(self.count / self.columns)

    @property
    def size(self) -> tuple[int, int]:
        """Width and height of the page."""
        width = 2 * self.margin + self.columns * (self.width + self.gap) - self.gap
        return width, self.top + self.rows * (self.height + self.caption) + self.bottom

    def corner(self, place: int) -> tuple[int, int]:
        """Return left and top of a tile."""
        if self.fills_columns:
            column, row = divmod(place, self.rows)
        else:
            row, column = divmod(place, self.columns)
        return self.margin + column * (self.width + self.gap), self.top + row * (self.height + self.caption)
