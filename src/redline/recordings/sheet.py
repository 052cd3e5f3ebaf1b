"""A contact sheet of one episode: evenly spaced pictures from its first to its last, for a person to look at."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from math import ceil

from PIL import Image, ImageDraw

from redline.recordings.drawing import AMBER, BACKGROUND, DIM, LINE, RED, TEXT, fitting, font
from redline.recordings.overlay import About, enlarge, signed, usual_scale
from redline.recordings.pictures import Picture

COLUMNS = 6
NUM_PICTURES = 24
MARGIN = 28
GAP = 14
HEADER = 96
LABEL = 52  # pixels below each picture, for its words
TARGET_TILE_HEIGHT = 300


def evenly_spaced(length_steps: int, count: int = NUM_PICTURES) -> list[int]:
    """Return the steps of the pictures on a sheet: the first, the last and what lies between, none twice."""
    if length_steps < count:
        return list(range(length_steps + 1))
    return [round(place * length_steps / (count - 1)) for place in range(count)]


@dataclass
class Collected:
    """Keeps the pictures of a sheet while an episode passes by, so that a video can be made of it at the same time."""

    steps: Sequence[int]
    pictures: list[Picture] = field(default_factory=list)

    def passing(self, pictures: Iterable[Picture]) -> Iterator[Picture]:
        """Yield all pictures, and keep those of the sheet."""
        wanted = set(self.steps)
        for picture in pictures:
            if picture.step in wanted:
                self.pictures.append(picture)
            yield picture


@dataclass(frozen=True)
class SheetGeometry:
    """Where everything lies, in pixels."""

    tile_width: int
    tile_height: int
    num_pictures: int

    @property
    def columns(self) -> int:
        """Pictures side by side."""
        return min(self.num_pictures, COLUMNS)

    @property
    def size(self) -> tuple[int, int]:
        """Width and height of the sheet."""
        width = 2 * MARGIN + self.columns * (self.tile_width + GAP) - GAP
        rows = ceil(self.num_pictures / self.columns)
        return width, HEADER + rows * (self.tile_height + LABEL) + MARGIN - GAP

    def corner(self, place: int) -> tuple[int, int]:
        """Return left and top of a picture; rows are filled one after the other."""
        row, column = divmod(place, self.columns)
        return MARGIN + column * (self.tile_width + GAP), HEADER + row * (self.tile_height + LABEL)


def plan_sheet(pictures: Sequence[Picture], scale: int) -> SheetGeometry:
    """Return the geometry that suits the pictures."""
    height, width = pictures[0].image.shape[:2]
    return SheetGeometry(width * scale, height * scale, len(pictures))


def draw_sheet(
    pictures: Sequence[Picture], about: About, *, title: str, subtitle: str, scale: int | None = None
) -> Image.Image:
    """Draw all pictures, each with its step and the return so far; the last one is marked as the end."""
    chosen = scale or usual_scale(len(pictures[0].image), target=TARGET_TILE_HEIGHT)
    geometry = plan_sheet(pictures, chosen)
    words = max(font(27).getlength(title), font(19).getlength(subtitle))
    width, height = geometry.size
    width = max(width, ceil(words) + 2 * MARGIN)
    sheet = Image.new("RGB", (width, height), BACKGROUND)
    pen = ImageDraw.Draw(sheet)
    pen.rectangle((0, 0, width, 5), fill=RED)
    pen.text((MARGIN, 20), title, font=font(27), fill=TEXT)
    pen.text((MARGIN, 58), subtitle, font=font(19), fill=DIM)
    for place, picture in enumerate(pictures):
        left, top = geometry.corner(place)
        is_end = picture.action is None
        edge = (left - 1, top - 1, left + geometry.tile_width, top + geometry.tile_height)
        pen.rectangle(edge, outline=AMBER if is_end else LINE)
        sheet.paste(Image.fromarray(enlarge(picture.image, chosen)), (left, top))
        _draw_label(pen, (left, top + geometry.tile_height + 3), picture, about=about, width=geometry.tile_width)
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
