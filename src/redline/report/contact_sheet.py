"""A contact sheet: drawn transitions side by side, as the learner sees them, for a person to look at."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil

import numpy as np
from PIL import Image, ImageDraw

from redline.recordings.drawing import AMBER, BACKGROUND, DIM, GREEN, LINE, RED, TEXT, TILE, Colour, Font, font
from redline.report.drawn_transitions import DrawnTransition
from redline.types import Array

MARGIN = 28
GAP = 8
PANEL = 250  # pixels between state and next frame, for the words
HEADER = 96
COLUMN_TITLE = 30
ROW_GAP = 18
COLUMN_GAP = 44
TARGET_TILE = 168  # pixels: small frames are enlarged to about this, by whole numbers
VECTOR_ROW = 22
MIN_VECTOR_TILE = 124  # room for all the words
MAX_VECTOR_TILE = 336
MAX_ROWS_PER_COLUMN = 6
MAX_COLUMNS = 2


@dataclass(frozen=True)
class Geometry:
    """Where everything lies, in pixels."""

    tile_width: int
    tile_height: int
    stack: int
    num_samples: int

    @property
    def columns(self) -> int:
        """Samples side by side."""
        return min(max(ceil(self.num_samples / MAX_ROWS_PER_COLUMN), 1), MAX_COLUMNS)

    @property
    def rows(self) -> int:
        """Samples below each other."""
        return max(ceil(self.num_samples / self.columns), 1)

    @property
    def sample_width(self) -> int:
        """The state, the words, the frame that follows."""
        return (self.stack + 1) * self.tile_width + (self.stack - 1) * GAP + PANEL

    @property
    def size(self) -> tuple[int, int]:
        """Width and height of the sheet."""
        width = 2 * MARGIN + self.columns * self.sample_width + (self.columns - 1) * COLUMN_GAP
        height = HEADER + COLUMN_TITLE + self.rows * (self.tile_height + ROW_GAP) + MARGIN - ROW_GAP
        return width, height

    def corner(self, sample: int) -> tuple[int, int]:
        """Return the upper left corner of a sample; the first column is filled first."""
        column, row = divmod(sample, self.rows)
        left = MARGIN + column * (self.sample_width + COLUMN_GAP)
        return left, HEADER + COLUMN_TITLE + row * (self.tile_height + ROW_GAP)

    def tile_left(self, place: int) -> int:
        """Return how far right of the corner a frame lies: 0 … K − 1 are the state, K is the one that follows."""
        left = place * (self.tile_width + GAP)
        return left if place < self.stack else left - GAP + PANEL


@dataclass(frozen=True)
class SheetStyle:
    """The fonts of a sheet."""

    title: Font
    text: Font
    small: Font

    @classmethod
    def load(cls) -> SheetStyle:
        """Return Pillow's own fonts: nothing on the machine decides how a sheet looks."""
        return cls(*(font(points) for points in (27, 19, 15)))


def contact_sheet(
    samples: Sequence[DrawnTransition], *, title: str, subtitle: str, action_names: Sequence[str]
) -> Image.Image:
    """Draw all samples; frames are [H, W], [C, H, W] or vectors, one kind in all of them."""
    geometry = plan_sheet(samples)
    style = SheetStyle.load()
    width, height = geometry.size
    words = max(style.title.getlength(title), style.text.getlength(subtitle))
    width = max(width, ceil(words) + 2 * MARGIN)
    sheet = Image.new("RGB", (width, height), BACKGROUND)
    pen = ImageDraw.Draw(sheet)
    pen.text((MARGIN, 20), title, font=style.title, fill=TEXT)
    pen.text((MARGIN, 58), subtitle, font=style.text, fill=DIM)
    pen.rectangle((0, 0, width, 5), fill=RED)
    if not samples:
        pen.text((MARGIN, HEADER + 20), "no transition can be drawn yet", font=style.text, fill=AMBER)
        return sheet
    largest = _largest_values(samples)
    for column in range(geometry.columns):
        _draw_titles(pen, geometry, style, column)
    for index, sample in enumerate(samples):
        left, top = geometry.corner(index)
        for place, frame in enumerate(sample.frames):
            at = (left + geometry.tile_left(place), top)
            tile = draw_tile(frame, geometry, style, largest) if sample.is_seen[place] else _padding(geometry, style)
            sheet.paste(tile, at)
            edge = LINE if place < geometry.stack else RED if sample.ending else TEXT
            pen.rectangle(
                (at[0] - 1, at[1] - 1, at[0] + geometry.tile_width, at[1] + geometry.tile_height), outline=edge
            )
        panel = (left + geometry.tile_left(geometry.stack) - PANEL, top)
        _draw_words(pen, panel, geometry=geometry, style=style, sample=sample, action_names=action_names)
    return sheet


def plan_sheet(samples: Sequence[DrawnTransition]) -> Geometry:
    """Return the geometry that suits the samples' frames."""
    if not samples:
        return Geometry(TARGET_TILE, TARGET_TILE, stack=4, num_samples=0)
    frames = samples[0].frames
    shape = frames.shape[1:]
    if len(shape) == 1:
        height = min(max(shape[0] * VECTOR_ROW, MIN_VECTOR_TILE), MAX_VECTOR_TILE)
        width = TARGET_TILE
    else:
        scale = max(round(TARGET_TILE / max(shape[-2:])), 1)
        height, width = (scale * side for side in shape[-2:])
    return Geometry(width, max(height, 1), stack=len(frames) - 1, num_samples=len(samples))


def draw_tile(frame: Array, geometry: Geometry, style: SheetStyle, largest: Array) -> Image.Image:
    """Draw one frame: a picture pixel for pixel, a vector as bars from its middle."""
    if frame.ndim == 1:
        return _bars(frame, geometry, style, largest)
    size = (geometry.tile_width, geometry.tile_height)
    return _as_picture(frame).resize(size, Image.Resampling.NEAREST).convert("RGB")


def _as_picture(frame: Array) -> Image.Image:
    if frame.ndim == 2:
        return Image.fromarray(frame)
    if len(frame) == 3:
        return Image.fromarray(np.ascontiguousarray(np.moveaxis(frame, 0, -1)))
    return Image.fromarray(frame[0] if len(frame) == 1 else frame.mean(axis=0).astype(np.uint8))


def _bars(frame: Array, geometry: Geometry, style: SheetStyle, largest: Array) -> Image.Image:
    tile = Image.new("RGB", (geometry.tile_width, geometry.tile_height), TILE)
    pen = ImageDraw.Draw(tile)
    middle = geometry.tile_width // 2
    step = geometry.tile_height / len(frame)
    for row, (value, most) in enumerate(zip(frame.tolist(), largest.tolist(), strict=True)):
        top = round(row * step) + 1
        bottom = max(round((row + 1) * step) - 2, top)
        end = middle + round(value / most * (middle - 4)) if most and np.isfinite(value) else middle
        pen.rectangle((min(middle, end), top, max(middle, end), bottom), fill=GREEN if value >= 0 else RED)
        if step >= VECTOR_ROW - 6:
            x, anchor = (5, "lm") if value >= 0 else (geometry.tile_width - 5, "rm")
            pen.text((x, (top + bottom) // 2), f"{value:.3g}", font=style.small, fill=TEXT, anchor=anchor)
    pen.line((middle, 0, middle, geometry.tile_height), fill=DIM)
    return tile


def _padding(geometry: Geometry, style: SheetStyle) -> Image.Image:
    tile = Image.new("RGB", (geometry.tile_width, geometry.tile_height), BACKGROUND)
    middle = (geometry.tile_width // 2, geometry.tile_height // 2)
    ImageDraw.Draw(tile).text(middle, "before the\nepisode", font=style.small, fill=DIM, anchor="mm", align="center")
    return tile


def _draw_titles(pen: ImageDraw.ImageDraw, geometry: Geometry, style: SheetStyle, column: int) -> None:
    left, top = geometry.corner(column * geometry.rows)
    for place in range(geometry.stack + 1):
        age = place - geometry.stack + 1
        name = "next frame" if age == 1 else "now" if age == 0 else f"{age} step{'s' if age < -1 else ''}"
        middle = left + geometry.tile_left(place) + geometry.tile_width // 2
        pen.text((middle, top - 12), name, font=style.small, fill=DIM, anchor="ms")


def _draw_words(
    pen: ImageDraw.ImageDraw,
    corner: tuple[int, int],
    *,
    geometry: Geometry,
    style: SheetStyle,
    sample: DrawnTransition,
    action_names: Sequence[str],
) -> None:
    name = action_names[sample.action] if sample.action < len(action_names) else ""
    action = f"action {sample.action}" + (f"  {name}" if name not in ("", str(sample.action)) else "")
    paint = GREEN if sample.reward > 0 else RED if sample.reward < 0 else DIM
    lines: list[tuple[str, Font, Colour]] = [
        (action, style.text, TEXT),
        (f"reward {sample.reward:+g}" if sample.reward else "reward 0", style.text, paint),
    ]
    if sample.ending:
        lines.append((sample.ending, style.text, AMBER))
    lines += [
        (f"step {sample.step:,} of its episode", style.small, DIM),
        (f"lane {sample.lane}, number {sample.number:,}", style.small, DIM),
    ]
    heights = [26 if face is style.text else 20 for _, face, _ in lines]
    x = corner[0] + PANEL // 2
    y = corner[1] + (geometry.tile_height - sum(heights)) // 2
    for (text, face, paint), height in zip(lines, heights, strict=True):
        pen.text((x, y), text, font=face, fill=paint, anchor="mt")
        y += height


def _largest_values(samples: Sequence[DrawnTransition]) -> Array:
    """Return the largest size [D] that each value of a vector has on the sheet, so that all bars compare."""
    if samples[0].frames.ndim > 2:
        return np.zeros(0)
    seen = np.concatenate([sample.frames for sample in samples])
    largest: Array = np.abs(np.where(np.isfinite(seen), seen, 0.0)).max(axis=0)
    return largest
