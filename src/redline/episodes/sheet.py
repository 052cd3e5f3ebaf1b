"""Contact sheets: evenly spaced pictures of one episode, or transitions of a replay memory."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from math import ceil

import numpy as np
from PIL import Image, ImageDraw

from redline.episodes.overlay import (
    AMBER,
    BACKGROUND,
    DIM,
    GREEN,
    LINE,
    RED,
    TEXT,
    TILE,
    About,
    Colour,
    Tiles,
    enlarge,
    fitting,
    font,
    signed,
    usual_scale,
)
from redline.episodes.replaying import Picture
from redline.types import Array, BoolArray

MARGIN = 28
HEADER = 96
# of an episode
COLUMNS = 6
NUM_PICTURES = 24
GAP = 14
LABEL = 52  # pixels below each picture, for its words
TARGET_TILE_HEIGHT = 300
# of transitions
FRAME_GAP = 8
PANEL = 250  # pixels between state and next frame, for the words
COLUMN_TITLE = 30
ROW_GAP = 18
COLUMN_GAP = 44
TARGET_FRAME = 168  # pixels: small frames are enlarged to about this, by whole numbers
VECTOR_ROW = 22
MIN_VECTOR_HEIGHT = 124  # room for all the words
MAX_VECTOR_HEIGHT = 336
MAX_ROWS_PER_COLUMN = 6
MAX_COLUMNS = 2


def blank_sheet(size: tuple[int, int], title: str, subtitle: str) -> tuple[Image.Image, ImageDraw.ImageDraw]:
    """Return a sheet with its heading, and a pen for it."""
    width = max(size[0], ceil(max(font(27).getlength(title), font(19).getlength(subtitle))) + 2 * MARGIN)
    sheet = Image.new("RGB", (width, size[1]), BACKGROUND)
    pen = ImageDraw.Draw(sheet)
    pen.rectangle((0, 0, width, 5), fill=RED)
    pen.text((MARGIN, 20), title, font=font(27), fill=TEXT)
    pen.text((MARGIN, 58), subtitle, font=font(19), fill=DIM)
    return sheet, pen


def evenly_spaced(last: int, count: int = NUM_PICTURES) -> list[int]:
    """Return places from 0 to `last`, evenly spaced, without repeats."""
    if last < count:
        return list(range(last + 1))
    return [round(place * last / (count - 1)) for place in range(count)]


@dataclass
class Collected:
    """Keeps the pictures of a sheet while an episode passes, for instance into a video."""

    steps: Sequence[int]
    pictures: list[Picture] = field(default_factory=list)

    def passing(self, pictures: Iterable[Picture]) -> Iterator[Picture]:
        """Yield all pictures and keep those of the sheet."""
        wanted = set(self.steps)
        for picture in pictures:
            if picture.step in wanted:
                self.pictures.append(picture)
            yield picture


def plan_sheet(pictures: Sequence[Picture], scale: int) -> Tiles:
    """Return the layout of a sheet."""
    height, width = pictures[0].image.shape[:2]
    return Tiles(
        count=len(pictures),
        columns=min(len(pictures), COLUMNS),
        width=width * scale,
        height=height * scale,
        caption=LABEL,
        gap=GAP,
        margin=MARGIN,
        top=HEADER,
        bottom=MARGIN - GAP,
    )


def draw_sheet(
    pictures: Sequence[Picture], about: About, *, title: str, subtitle: str, scale: int | None = None
) -> Image.Image:
    """Draw all pictures, each with its step and the return so far; the last is marked as the end."""
    chosen = scale or usual_scale(len(pictures[0].image), target=TARGET_TILE_HEIGHT)
    tiles = plan_sheet(pictures, chosen)
    sheet, pen = blank_sheet(tiles.size, title, subtitle)
    for place, picture in enumerate(pictures):
        left, top = tiles.corner(place)
        edge = (left - 1, top - 1, left + tiles.width, top + tiles.height)
        pen.rectangle(edge, outline=AMBER if picture.action is None else LINE)
        sheet.paste(Image.fromarray(enlarge(picture.image, chosen)), (left, top))
        _draw_label(pen, (left, top + tiles.height + 3), picture, about=about, width=tiles.width)
    return sheet


def _draw_label(
    pen: ImageDraw.ImageDraw, corner: tuple[int, int], picture: Picture, *, about: About, width: int
) -> None:
    left, top = corner
    action = "the end" if picture.action is None else about.name_of(picture.action)
    lines = (
        (f"step {picture.step:,}", TEXT, "la", left),
        (f"return {signed(picture.total_reward)}", TEXT, "ra", left + width),
    )
    if sum(font(14).getlength(text) for text, *_ in lines) + 8 <= width:
        for text, paint, anchor, x in lines:
            pen.text((x, top), text, font=font(14), fill=paint, anchor=anchor)
    else:  # a narrow picture
        pen.text(
            (left, top), fitting(f"{picture.step:,}: {signed(picture.total_reward)}", font(13), width), font=font(13)
        )
    paint = AMBER if picture.action is None else DIM
    pen.text((left, top + 18), fitting(action, font(13), width), font=font(13), fill=paint)


@dataclass(frozen=True)
class DrawnTransition:
    """One transition of a replay memory."""

    lane: int
    number: int
    step: int  # in its episode
    frames: Array  # [K + 1, *frame] the state and the next frame
    is_seen: BoolArray  # [K + 1] false before an episode's first frame
    action: int
    reward: float  # unclipped
    ending: str  # terminated, truncated, life lost, or nothing


@dataclass(frozen=True)
class Strip:
    """The layout of one transition, in pixels: the frames of its state, the words, the next frame."""

    frame_width: int
    frame_height: int
    stack: int

    def left(self, place: int) -> int:
        """Return the left edge of a frame: 0 … K − 1 are the state, K is the next frame."""
        left = place * (self.frame_width + FRAME_GAP)
        return left if place < self.stack else left - FRAME_GAP + PANEL


def plan_transition_sheet(samples: Sequence[DrawnTransition]) -> tuple[Strip, Tiles]:
    """Return the layout of each transition and of the sheet."""
    shape: tuple[int, ...] = samples[0].frames.shape[1:] if samples else (TARGET_FRAME, TARGET_FRAME)
    if len(shape) == 1:
        width, height = TARGET_FRAME, min(max(shape[0] * VECTOR_ROW, MIN_VECTOR_HEIGHT), MAX_VECTOR_HEIGHT)
    else:
        scale = max(round(TARGET_FRAME / max(shape[-2:])), 1)
        height, width = (scale * side for side in shape[-2:])
    strip = Strip(width, max(height, 1), stack=len(samples[0].frames) - 1 if samples else 4)
    count = max(len(samples), 1)
    tiles = Tiles(
        count=count,
        columns=min(ceil(count / MAX_ROWS_PER_COLUMN), MAX_COLUMNS),
        width=strip.left(strip.stack) + strip.frame_width,
        height=strip.frame_height,
        caption=ROW_GAP,
        gap=COLUMN_GAP,
        margin=MARGIN,
        top=HEADER + COLUMN_TITLE,
        bottom=MARGIN - ROW_GAP,
        fills_columns=True,
    )
    return strip, tiles


def draw_transition_sheet(
    samples: Sequence[DrawnTransition], *, title: str, subtitle: str, action_names: Sequence[str]
) -> Image.Image:
    """Draw all samples; their frames are all [H, W], all [C, H, W] or all vectors."""
    strip, tiles = plan_transition_sheet(samples)
    sheet, pen = blank_sheet(tiles.size, title, subtitle)
    if not samples:
        pen.text((MARGIN, HEADER + 20), "no transition can be drawn yet", font=font(19), fill=AMBER)
        return sheet
    largest = _largest_values(samples)
    for index, sample in enumerate(samples):
        left, top = tiles.corner(index)
        if index % tiles.rows == 0:
            _draw_titles(pen, (left, top - 12), strip)
        for place, frame in enumerate(sample.frames):
            x = left + strip.left(place)
            sheet.paste(draw_frame(frame, strip, largest) if sample.is_seen[place] else _padding(strip), (x, top))
            edge = LINE if place < strip.stack else RED if sample.ending else TEXT
            pen.rectangle((x - 1, top - 1, x + strip.frame_width, top + strip.frame_height), outline=edge)
        middle = (left + strip.left(strip.stack) - PANEL // 2, top + strip.frame_height // 2)
        _draw_words(pen, middle, sample, action_names)
    return sheet


def draw_frame(frame: Array, strip: Strip, largest: Array) -> Image.Image:
    """Draw one frame: a picture pixel by pixel, a vector as bars from the middle."""
    if frame.ndim == 1:
        return _bars(frame, strip, largest)
    if frame.ndim == 3:
        frame = np.moveaxis(frame, 0, -1) if len(frame) == 3 else frame.mean(axis=0).astype(np.uint8)
    picture = Image.fromarray(np.ascontiguousarray(frame))
    return picture.resize((strip.frame_width, strip.frame_height), Image.Resampling.NEAREST).convert("RGB")


def _bars(frame: Array, strip: Strip, largest: Array) -> Image.Image:
    bars = Image.new("RGB", (strip.frame_width, strip.frame_height), TILE)
    pen = ImageDraw.Draw(bars)
    middle = strip.frame_width // 2
    step = strip.frame_height / len(frame)
    for row, (value, most) in enumerate(zip(frame.tolist(), largest.tolist(), strict=True)):
        top = round(row * step) + 1
        bottom = max(round((row + 1) * step) - 2, top)
        end = middle + round(value / most * (middle - 4)) if most and np.isfinite(value) else middle
        pen.rectangle((min(middle, end), top, max(middle, end), bottom), fill=GREEN if value >= 0 else RED)
        if step >= VECTOR_ROW - 6:
            x, anchor = (5, "lm") if value >= 0 else (strip.frame_width - 5, "rm")
            pen.text((x, (top + bottom) // 2), f"{value:.3g}", font=font(15), fill=TEXT, anchor=anchor)
    pen.line((middle, 0, middle, strip.frame_height), fill=DIM)
    return bars


def _padding(strip: Strip) -> Image.Image:
    padding = Image.new("RGB", (strip.frame_width, strip.frame_height), BACKGROUND)
    middle = (strip.frame_width // 2, strip.frame_height // 2)
    ImageDraw.Draw(padding).text(middle, "before the\nepisode", font=font(15), fill=DIM, anchor="mm", align="center")
    return padding


def _draw_titles(pen: ImageDraw.ImageDraw, corner: tuple[int, int], strip: Strip) -> None:
    for place in range(strip.stack + 1):
        age = place - strip.stack + 1
        name = "next frame" if age == 1 else "now" if age == 0 else f"{age} step{'s' if age < -1 else ''}"
        middle = corner[0] + strip.left(place) + strip.frame_width // 2
        pen.text((middle, corner[1]), name, font=font(15), fill=DIM, anchor="ms")


def _draw_words(
    pen: ImageDraw.ImageDraw, middle: tuple[int, int], sample: DrawnTransition, action_names: Sequence[str]
) -> None:
    name = action_names[sample.action] if sample.action < len(action_names) else ""
    action = f"action {sample.action}" + (f"  {name}" if name not in ("", str(sample.action)) else "")
    paint = GREEN if sample.reward > 0 else RED if sample.reward < 0 else DIM
    lines: list[tuple[str, int, Colour]] = [
        (action, 19, TEXT),
        (f"reward {sample.reward:+g}" if sample.reward else "reward 0", 19, paint),
        *([(sample.ending, 19, AMBER)] if sample.ending else []),
        (f"step {sample.step:,} of its episode", 15, DIM),
        (f"lane {sample.lane}, number {sample.number:,}", 15, DIM),
    ]
    heights = [26 if points == 19 else 20 for _, points, _ in lines]
    x, y = middle[0], middle[1] - sum(heights) // 2
    for (text, points, paint), height in zip(lines, heights, strict=True):
        pen.text((x, y), text, font=font(points), fill=paint, anchor="mt")
        y += height


def _largest_values(samples: Sequence[DrawnTransition]) -> Array:
    """Return the largest magnitude [D] of each value on the sheet, which scales its bars."""
    if samples[0].frames.ndim > 2:
        return np.zeros(0)
    seen = np.concatenate([sample.frames for sample in samples])
    largest: Array = np.abs(np.where(np.isfinite(seen), seen, 0.0)).max(axis=0)
    return largest
