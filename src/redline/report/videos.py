"""The recorded episodes of a run, and the videos that were made of them.

A small video is embedded, so that the page stays one file; a larger one is linked from where it lies.
"""

from __future__ import annotations

import base64
import math
import os
import re
import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

from redline.episodes.episode import EPISODE
from redline.errors import UserError
from redline.files import reason_of
from redline.report.amounts import DASH, amount, size
from redline.report.parts import Cell, Table, Video
from redline.runs.blocks import Block, iterate_blocks
from redline.runs.directory import RECORDINGS

VIDEOS = "videos"
SHOWS = {"best": "the best so far", "checkpoint": "the agent at a checkpoint"}
PLAYED = {
    "best": "Best episode so far",
    "checkpoint": "Newest checkpoint",
}  # kinds that play in the page, the newest each
TYPES = {".mp4": "video/mp4", ".gif": "image/gif", ".webp": "image/webp"}
MAX_EMBEDDED_BYTES = 500_000
MAX_VIDEOS = 100  # in the table, the newest
NUMBER = r"-?[0-9]{1,15}(?:\.[0-9]{1,12})?(?![0-9a-z.+])"
# as `redline play` names them: best_step1200_return-3_episode17.mp4
NAME = re.compile(
    rf"(?:(?P<kind>[a-z]{{1,20}})[0-9]{{0,18}}_)?step(?P<steps>[0-9]{{1,18}})_return(?P<value>{NUMBER})"
    r"(?:_episode(?P<id>p?[0-9]{1,18}))?",
    re.ASCII,
)


@dataclass(frozen=True)
class VideoFile:
    """A file that shows an episode, and what its name tells of it."""

    path: Path
    kind: str  # "best" so far, at a "checkpoint", or "" for any other
    episode: str | None  # its id
    steps: int | None
    value: float | None  # the return


@dataclass(frozen=True)
class Recorded:
    """What is recorded of a run."""

    num_episodes: int
    num_bytes: int
    problem: str | None  # why there may be more


@dataclass(frozen=True)
class Seen:
    """What a page shows of recorded episodes and videos."""

    run: str  # its path, as a shell takes it
    recorded: Recorded
    players: list[Video]
    num_videos: int
    videos: Table  # the newest


def find_seen(run: Path, page_folder: Path | None) -> Seen | None:
    """Return the videos of a run and how to watch the rest; None where nothing is recorded and nothing was made."""
    recorded, videos = find_recordings(run), find_videos(run)
    if not recorded.num_episodes and recorded.problem is None and not videos:
        return None
    newest = {video.kind: video for video in reversed(videos)}
    players = [_player(newest[kind], words, page_folder) for kind, words in PLAYED.items() if kind in newest]
    table = _video_table(videos[:MAX_VIDEOS], page_folder)
    return Seen(shlex.quote(str(run)), recorded, players, len(videos), table)


def find_recordings(run: Path) -> Recorded:
    """Count the episodes that a run has recorded, and those that were played afterwards."""
    count = num_bytes = 0
    problems = []
    for path in _files((run / RECORDINGS).parent, ".rec"):
        if path.stem.endswith(".lost"):  # of a past that a resume has undone
            continue
        try:
            num_bytes += path.stat().st_size
            count += sum(isinstance(found, Block) and found.kind == EPISODE for found in iterate_blocks(path))
        except UserError as error:
            problems.append(str(error))
        except OSError as error:
            problems.append(f"{path.name}: {reason_of(error)}")
    return Recorded(count, num_bytes, "; ".join(problems) or None)


def find_videos(run: Path) -> list[VideoFile]:
    """Return the videos in a run's folder of them, those of the newest steps first."""
    found = [_describe(path) for path in _files(run / VIDEOS, *TYPES)]
    return sorted(found, key=lambda video: (-1 if video.steps is None else video.steps, video.path.name), reverse=True)


def _files(folder: Path, *suffixes: str) -> list[Path]:
    """Return the plain files in a folder; a link may lead anywhere."""
    try:
        return sorted(
            path for path in folder.iterdir() if path.suffix in suffixes and path.is_file() and not path.is_symlink()
        )
    except OSError:  # there is none, or it may not be read
        return []


def _describe(path: Path) -> VideoFile:
    found = NAME.match(path.stem)
    if found is None:
        return VideoFile(path, kind="", episode=None, steps=None, value=None)
    kind = found["kind"] if found["kind"] in SHOWS else ""
    return VideoFile(path, kind=kind, episode=found["id"], steps=int(found["steps"]), value=float(found["value"]))


def _video_table(videos: Sequence[VideoFile], page_folder: Path | None) -> Table:
    rows = [
        (
            SHOWS.get(video.kind, DASH),
            video.episode or DASH,
            amount(video.steps),
            amount(video.value),
            size(_size_bytes(video.path)),
            Cell(video.path.name, href=_address(video.path, page_folder)),
        )
        for video in videos
    ]
    head = ("shows", "episode", "steps", "return", "size", "file")
    return Table("Videos", head, rows, numeric=(1, 2, 3, 4), css="card long")


def _player(video: VideoFile, words: str, page_folder: Path | None) -> Video:
    caption = f"{words}: return {amount(video.value)}" + (
        f" at step {video.steps:,}" if video.steps is not None else ""
    )
    address = _address(video.path, page_folder)
    if (_size_bytes(video.path) or math.inf) <= MAX_EMBEDDED_BYTES:
        data = base64.b64encode(video.path.read_bytes()).decode()
        address = f"data:{TYPES[video.path.suffix]};base64,{data}"
    return Video(address, caption, is_picture=video.path.suffix != ".mp4")


def _address(path: Path, page_folder: Path | None) -> str:
    """Return where a file is, seen from the page; quoted, so that no name can be taken for anything else."""
    relative = os.path.relpath(path.resolve(), (page_folder or Path()).resolve())
    return quote(f"./{relative}" if not relative.startswith("..") else relative)


def _size_bytes(path: Path) -> float | None:
    try:
        return float(path.stat().st_size)
    except OSError:  # it is gone
        return None
