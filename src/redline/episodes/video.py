"""Writes pictures as a video: .mp4 by PyAV, which is an extra, or .gif by Pillow; whole or not at all."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from fractions import Fraction
from importlib import import_module
from itertools import chain, pairwise
from pathlib import Path
from types import ModuleType

import numpy as np
from PIL import Image

from redline.errors import UserError
from redline.files import check_replaceable, explained, remove_temporary, replacing
from redline.types import Array

MP4, GIF = ".mp4", ".gif"
SUFFIXES = (MP4, GIF)

ABANDONED_S = 86_400.0  # a video that is being written grows every few seconds
MAX_GIF_PIXELS = 1_000_000_000  # one byte each, all held in memory
CODEC_OPTIONS = {
    "crf": "12",  # close to the game's own screen
    "preset": "veryfast",
    # players would guess the standard from the size and show wrong colours for large pictures
    "x264-params": "colorprim=smpte170m:transfer=smpte170m:colormatrix=smpte170m:log-level=error",
}


@dataclass(frozen=True)
class Video:
    """What was written."""

    path: Path
    pictures: int
    width: int
    height: int
    pictures_per_s: Fraction
    size_bytes: int


def check_target(path: Path) -> None:
    """Refuse a path that can't become a video, before an episode is played."""
    if path.suffix.lower() not in SUFFIXES:
        raise UserError(f"{path} is not a video format that can be written: end its name with {' or '.join(SUFFIXES)}")
    if path.is_dir():
        raise UserError(f"{path} is a folder: name a file in it, such as {path / 'episode.mp4'}")
    check_replaceable(path)
    if not path.parent.is_dir():
        raise UserError(f"there is no folder {path.parent}: make it first, or use another --out")
    if path.suffix.lower() == MP4:
        find_encoder()


def find_encoder() -> ModuleType:
    """Return PyAV, or raise UserError with the command that installs it."""
    try:
        return import_module("av")
    except ImportError as error:
        raise UserError(
            f"an .mp4 needs PyAV, which is not here ({error}): pip install av, in the repository "
            f"make setup EXTRAS=video; a .gif needs nothing more"
        ) from None


def write_video(path: Path, pictures: Iterable[Array], *, pictures_per_s: Fraction, count: int) -> Video:
    """Write pictures [H, W, 3] of one size; `count` are expected."""
    check_target(path)
    with suppress(OSError):
        remove_temporary(path.parent, idle_s=ABANDONED_S)
    with explained(UserError, path, before="cannot write ", after=": use another --out"), replacing(path) as temporary:
        if path.suffix.lower() == MP4:
            written, width, height = _write_mp4(temporary, pictures, pictures_per_s)
        else:
            written, width, height = _write_gif(temporary, pictures, pictures_per_s, count=count, name=path.stem)
        with temporary.open("rb") as file:
            os.fsync(file.fileno())
    return Video(path, written, width, height, pictures_per_s, path.stat().st_size)


def _write_mp4(path: Path, pictures: Iterable[Array], pictures_per_s: Fraction) -> tuple[int, int, int]:
    av = find_encoder()
    written = width = height = 0
    with av.open(str(path), "w", format="mp4", options={"movflags": "+faststart"}) as container:
        stream = container.add_stream("libx264", rate=pictures_per_s, options=dict(CODEC_OPTIONS))
        stream.pix_fmt = "yuv420p"
        for picture in map(padded, pictures):
            if not written:
                height, width = picture.shape[:2]
                stream.width, stream.height = width, height
            container.mux(stream.encode(av.VideoFrame.from_ndarray(picture, format="rgb24")))
            written += 1
        container.mux(stream.encode(None))
    return written, width, height


def padded(picture: Array) -> Array:
    """Return a picture with even sides, as video formats need, by adding a black line."""
    height, width = picture.shape[:2]
    if height % 2 or width % 2:
        picture = np.pad(picture, ((0, height % 2), (0, width % 2), (0, 0)))
    return np.ascontiguousarray(picture)


def _write_gif(
    path: Path, pictures: Iterable[Array], pictures_per_s: Fraction, *, count: int, name: str
) -> tuple[int, int, int]:
    remaining = iter(pictures)
    first = next(remaining)
    height, width = first.shape[:2]
    if count * height * width > MAX_GIF_PIXELS:
        raise UserError(
            f"a .gif of {count:,} pictures of {width} × {height} is too large to be made in memory: "
            f"use --out {name}{MP4}, or a smaller --scale"
        )
    written = 0

    def frames() -> Iterator[Image.Image]:
        nonlocal written
        for picture in chain([first], remaining):
            written += 1
            yield Image.fromarray(picture).quantize(256, dither=Image.Dither.NONE)

    images = frames()
    with path.open("wb") as file:  # Pillow would leave its own file open after Ctrl-C
        next(images).save(
            file,
            "GIF",
            save_all=True,
            append_images=images,
            duration=durations_ms(pictures_per_s, count),
            loop=0,
            optimize=False,
        )
    return written, width, height


def durations_ms(pictures_per_s: Fraction, count: int) -> list[int]:
    """Return how long each picture is shown; the format allows whole hundredths of a second."""
    ends = [round(100 * number / pictures_per_s) for number in range(count + 1)]
    return [10 * (end - begin) for begin, end in pairwise(ends)]
