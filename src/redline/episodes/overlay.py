"""The panel and captions beside the pictures of an episode, never over the game; colours and fonts of all pictures.

The picture keeps its own pixels, enlarged by a whole number. A panel on its right tells return, step, action and what
the agent thought; in a grid of several episodes each has a caption below.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import dataclass
from functools import cache, partial
from math import ceil, sqrt

import numpy as np
from PIL import Image, ImageDraw, ImageFont

from redline.episodes.library import Entry, Library
from redline.episodes.replaying import Picture
from redline.jsonl import plain_text
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
    """Return Pillow's own font, which is the same on every machine."""
    return ImageFont.load_default(size=points)


def fitting(text: str, style: Font, width: int) -> str:
    """Return the text, cut to fit into `width` pixels."""
    if style.getlength(text) <= width:
        return text
    while text and style.getlength(f"{text}...") > width:
        text = text[:-1]
    return f"{text}..."


def usual_scale(height: int, *, target: int) -> int:
    """Return the whole factor that enlarges a picture to about the target height."""
    return min(max(round(target / height), 1), MAX_SCALE)


def enlarge(image: Array, scale: int) -> Array:
    """Return a picture [H, W, 3] with each pixel as a square of `scale` × `scale`."""
    return image if scale == 1 else image.repeat(scale, axis=0).repeat(scale, axis=1)


@dataclass(frozen=True)
class Tiles:
    """The layout of equal tiles on a page, in pixels."""

    count: int
    columns: int
    width: int  # of a tile
    height: int
    caption: int  # from the lower edge of a tile to the next row
    gap: int  # between columns
    margin: int  # left and right
    top: int = 0
    bottom: int = 0
    fills_columns: bool = False  # column by column instead of row by row

    @property
    def rows(self) -> int:
        """The number of rows."""
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


Drawer = Callable[[Picture], Array]
Film = Generator[Picture, None, None]

TARGET_HEIGHT = 560  # pixels: a picture beside a panel is enlarged to about this
TARGET_TILE_HEIGHT = 400  # the same in a grid
MAX_ROWS = 24  # actions that are listed one by one
MAX_NAME_CHARS = 16

MARGIN = 16
ROW = 20
BAR = 110
NUMBER = 58
MARKER = 14
HEAD = 208  # from the top of the panel to its list of actions
NARROWEST = 232
CAPTION = 46
GAP = 8
DIMMED = 0.35  # brightness of an episode that has ended

BLUE = (86, 122, 190)
CHOSEN = (48, 53, 66)  # behind the action that was taken


@dataclass(frozen=True)
class About:
    """The constant facts of an episode."""

    title: str  # "episode 12 · greedy"
    subtitle: str
    length_steps: int
    action_names: tuple[str, ...]
    values: str | None  # "q", "logits" or None
    value_range: tuple[float, float]  # of the whole episode and 0

    def name_of(self, action: int | None) -> str:
        """Return the name of an action."""
        if action is None:
            return "-"
        return self.action_names[action] if action < len(self.action_names) else str(action)


def about_episode(library: Library, entry: Entry, *, name: str) -> About:
    """Return the constant facts of an episode. Its names come from a file that anybody may have written."""
    setting = library.setting_of(entry)
    values = library.load(entry).values if entry.header.values_per_step else None
    kind = None if values is None else "logits" if setting.values == "logits" else "q"
    told = setting.action_names
    finite = np.zeros(1) if values is None else values[np.isfinite(values)].astype(np.float64)
    low, high = float(finite.min(initial=0.0)), float(finite.max(initial=0.0))
    return About(
        title=f"{name} · {plain_text(entry.played.role)}",
        subtitle=f"at step {entry.steps:,} of the run",
        length_steps=entry.header.length_steps,
        action_names=tuple(
            plain_text(told[action])[:MAX_NAME_CHARS] if action < len(told) else str(action)
            for action in range(min(setting.num_actions, MAX_ROWS))
        ),
        values=kind,
        value_range=(0.0, 1.0) if kind == "logits" else (low, high),
    )


def enlarged(picture: Picture, *, scale: int | None, target: int) -> Array:
    """Return the enlarged picture; without a scale, at about the target height."""
    return enlarge(picture.image, scale or usual_scale(len(picture.image), target=target))


def even(length: int) -> int:
    """Return the next even number: video formats halve both sides."""
    return length + length % 2


class Overlay:
    """Draws a panel on the right of every picture of one episode."""

    def __init__(self, about: About, *, scale: int | None, target: int = TARGET_HEIGHT) -> None:
        self._about = about
        self._enlarged = partial(enlarged, scale=scale, target=target)
        self._rows = len(about.action_names) if len(about.action_names) < MAX_ROWS else 0
        self._label = max((ceil(font(14).getlength(name)) for name in about.action_names), default=0) + 10
        words = max(font(16).getlength(about.title), font(13).getlength(about.subtitle))
        inside = max(self._label + MARKER + (BAR + NUMBER if about.values else 0), ceil(words), NARROWEST)
        self._width = even(inside + 2 * MARGIN)
        self._height = HEAD + (self._rows * ROW if self._rows else 0) + MARGIN
        self._still: Image.Image | None = None  # the constant part of the panel
        self._empty: Array | None = None  # the background

    def draw(self, picture: Picture) -> Array:
        """Return the enlarged picture with the panel beside it."""
        image = self._enlarged(picture)
        height, width = even(max(len(image), self._height)), even(image.shape[1])
        if self._still is None or self._empty is None or self._still.height != height:
            self._still = self._draw_still(height)
            self._empty = np.full((height, width + self._width, 3), BACKGROUND, np.uint8)
        canvas = self._empty.copy()
        canvas[: len(image), : image.shape[1]] = image
        panel = self._still.copy()
        self._draw_state(ImageDraw.Draw(panel), picture)
        canvas[:, width:] = np.asarray(panel)
        return canvas

    def _draw_still(self, height: int) -> Image.Image:
        """Draw the constant part of the panel."""
        panel = Image.new("RGB", (self._width, height), BACKGROUND)
        pen = ImageDraw.Draw(panel)
        pen.text((MARGIN, 14), self._about.title, font=font(16), fill=TEXT)
        pen.text((MARGIN, 36), self._about.subtitle, font=font(13), fill=DIM)
        pen.text((MARGIN, 66), "return", font=font(13), fill=DIM)
        if self._rows:
            units = {"logits": "policy and ", "q": "Q-values and "}
            heading = f"{units.get(self._about.values or '', '')}actions"
            pen.text((MARGIN, HEAD - 24), heading, font=font(13), fill=DIM)
        return panel

    def _draw_state(self, pen: ImageDraw.ImageDraw, picture: Picture) -> None:
        about, right = self._about, self._width - MARGIN
        pen.text((MARGIN, 82), signed(picture.total_reward), font=font(40), fill=TEXT)
        if picture.reward:
            paint = GREEN if picture.reward > 0 else RED
            pen.text((right, 96), f"{picture.reward:+g}", font=font(24), fill=paint, anchor="ra")
        step = f"step {picture.step:,} of {about.length_steps:,}"
        pen.text((MARGIN, 136), step, font=font(14), fill=TEXT)
        pen.rectangle((MARGIN, 158, right, 161), fill=TILE)
        done = round((right - MARGIN) * picture.step / max(about.length_steps, 1))
        pen.rectangle((MARGIN, 158, MARGIN + done, 161), fill=DIM)
        if not self._rows:
            pen.text((MARGIN, HEAD - 24), f"action {about.name_of(picture.action)}", font=font(16), fill=AMBER)
            return
        values = None if picture.values is None else shown_values(picture.values, about.values)
        if values is not None and len(values) != self._rows:
            values = None
        for action in range(self._rows):
            self._draw_row(pen, action, picture=picture, values=values)
        if about.values and values is None and picture.action is not None:
            middle = (MARGIN + MARKER + self._label + (BAR + NUMBER) // 2, HEAD + self._rows * ROW // 2)
            pen.text(middle, "no values recorded", font=font(13), fill=DIM, anchor="mm")

    def _draw_row(self, pen: ImageDraw.ImageDraw, action: int, *, picture: Picture, values: Array | None) -> None:
        top, middle = HEAD + action * ROW, HEAD + action * ROW + ROW // 2
        is_chosen = action == picture.action
        is_highest = values is not None and action == int(values.argmax())
        if is_chosen:
            pen.rectangle((MARGIN - 6, top, self._width - MARGIN + 6, top + ROW - 1), fill=CHOSEN)
            corners = [(MARGIN - 1, middle - 5), (MARGIN - 1, middle + 5), (MARGIN + 7, middle)]
            pen.polygon(corners, fill=AMBER)
        paint: Colour = AMBER if is_chosen else GREEN if is_highest else DIM
        name = self._about.action_names[action]
        pen.text((MARGIN + MARKER, middle), name, font=font(14), fill=paint, anchor="lm")
        if values is None:
            return
        left = MARGIN + MARKER + self._label
        low, high = self._about.value_range
        zero, end = (left + _place(value, low, high) for value in (0.0, float(values[action])))
        paint = GREEN if is_highest else BLUE
        pen.rectangle((min(zero, end), top + 4, max(zero, end), top + ROW - 5), fill=paint)
        pen.line((zero, top + 2, zero, top + ROW - 3), fill=LINE)
        text = f"{values[action]:.1%}" if self._about.values == "logits" else _short(float(values[action]))
        paint = GREEN if is_highest else DIM
        pen.text((self._width - MARGIN, middle), text, font=font(13), fill=paint, anchor="rm")


def shown_values(values: Array, kind: str | None) -> Array:
    """Return Q-values as they are, logits as probabilities."""
    if kind != "logits":
        return values
    weights = np.exp(values - values.max())
    shares: Array = weights / weights.sum()
    return shares


def signed(value: float) -> str:
    """Return a score for people."""
    return f"{value:,.0f}" if value == int(value) else f"{value:,.2f}"


def _short(value: float) -> str:
    return f"{value:.3f}" if abs(value) < 10 else f"{value:.2f}" if abs(value) < 1_000 else f"{value:.3g}"


def _place(value: float, low: float, high: float) -> int:
    return round(BAR * (value - low) / (high - low)) if high > low else 0


def plan_grid(pictures: Sequence[Array]) -> Tiles:
    """Return the layout of several episodes' pictures with captions below."""
    return Tiles(
        count=len(pictures),
        columns=ceil(sqrt(len(pictures))),
        width=max(picture.shape[1] for picture in pictures),
        height=max(len(picture) for picture in pictures),
        caption=CAPTION + GAP,
        gap=GAP,
        margin=GAP,
        top=GAP,
    )


def iterate_grid(abouts: Sequence[About], films: Sequence[Film], drawers: Sequence[Drawer]) -> Iterator[Array]:
    """Yield one picture of all episodes per step until the longest ends; ended ones are dimmed."""
    try:
        pictures = [next(film) for film in films]
        drawn = [draw(picture) for draw, picture in zip(drawers, pictures, strict=True)]
        tiles = plan_grid(drawn)
        ended = [False] * len(films)
        while not all(ended):
            yield _draw_grid(tiles, abouts, drawn, pictures, ended)
            for place, film in enumerate(films):
                picture = None if ended[place] else next(film, None)
                if picture is not None:
                    pictures[place], drawn[place] = picture, drawers[place](picture)
                elif not ended[place]:
                    ended[place] = True
                    drawn[place] = (drawn[place] * DIMMED).astype(np.uint8)
    finally:
        for film in films:
            film.close()


def _draw_grid(
    tiles: Tiles, abouts: Sequence[About], drawn: Sequence[Array], pictures: Sequence[Picture], ended: Sequence[bool]
) -> Array:
    """Return one picture of all episodes, with even sides."""
    width, height = tiles.size
    canvas = np.full((even(height), even(width), 3), BACKGROUND, np.uint8)
    for place, image in enumerate(drawn):
        left, top = tiles.corner(place)
        canvas[top : top + len(image), left : left + image.shape[1]] = image
    sheet = Image.fromarray(canvas)
    pen = ImageDraw.Draw(sheet)
    for place, (about, picture) in enumerate(zip(abouts, pictures, strict=True)):
        left, top = tiles.corner(place)
        top += tiles.height + 5
        pen.text((left, top), fitting(about.title, font(14), tiles.width), font=font(14), fill=TEXT)
        told = f"return {signed(picture.total_reward)} · step {picture.step:,} of {about.length_steps:,}"
        if ended[place]:
            told = f"ended: return {signed(picture.total_reward)} · {picture.step:,} steps"
        paint = AMBER if ended[place] else DIM
        pen.text((left, top + 19), fitting(told, font(13), tiles.width), font=font(13), fill=paint)
    return np.asarray(sheet)
