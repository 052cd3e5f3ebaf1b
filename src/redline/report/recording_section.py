"""The part of a page on what can be seen of a run: its recorded episodes, and the videos that were made of them.

The page stays one file: it only points at the videos, and says the same without them.
"""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

from redline.errors import UserError
from redline.recordings.episode import EPISODE
from redline.report.amounts import DASH, amount, size
from redline.report.html_parts import Content, Html, element, folded, join, section, table
from redline.report.shown_run import ShownRun
from redline.runs.blocks import Block, iterate_blocks
from redline.runs.directory import RECORDINGS

VIDEOS = "videos"
BEST = "best"
SHOWS = {BEST: "the best so far", "checkpoint": "the agent at a checkpoint"}
MAX_VIDEOS = 100  # in the table, the newest
NUMBER = r"-?[0-9]{1,15}(?:\.[0-9]{1,12})?(?![0-9a-z.+])"
# as `redline play` names them: best_step1200_return-3_episode17.mp4; or with dashes, where two dashes are a minus
NAMES = (
    re.compile(
        rf"(?:(?P<kind>[a-z]{{1,20}})[0-9]{{0,18}}_)?step(?P<steps>[0-9]{{1,18}})_return(?P<value>{NUMBER})"
        r"(?:_episode(?P<id>p?[0-9]{1,18}))?",
        re.ASCII,
    ),
    re.compile(
        rf"(?P<kind>[a-z]{{1,20}})-(?:step-(?P<steps>[0-9]{{1,18}})|(?P<id>p?[0-9]{{1,18}}))-return-(?P<value>{NUMBER})",
        re.ASCII,
    ),
)


@dataclass(frozen=True)
class Video:
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


def recording_section(run: ShownRun, *, level: int) -> Html | None:
    """Return a part with the videos and how to watch the rest; None where nothing is recorded and nothing was made."""
    recorded, videos = find_recordings(run.files.path), find_videos(run.files.path)
    if not recorded.num_episodes and recorded.problem is None and not videos:
        return None
    parts: list[Content] = [_recorded_line(recorded, run.files.path)]
    if videos:
        parts.append(_video_list(videos, run.page_folder))
    return section("Recorded episodes and videos", *parts, identity=f"{run.key}-recordings", level=level)


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
            problems.append(f"{path.name}: {(error.strerror or str(error)).lower()}")
    return Recorded(count, num_bytes, "; ".join(problems) or None)


def find_videos(run: Path) -> list[Video]:
    """Return the videos in a run's folder of them, those of the newest steps first."""
    found = [_describe(path) for path in _files(run / VIDEOS, ".mp4", ".gif")]
    return sorted(found, key=lambda video: (-1 if video.steps is None else video.steps, video.path.name), reverse=True)


def _files(folder: Path, *suffixes: str) -> list[Path]:
    """Return the plain files in a folder; a link may lead anywhere."""
    try:
        return sorted(
            path for path in folder.iterdir() if path.suffix in suffixes and path.is_file() and not path.is_symlink()
        )
    except OSError:  # there is none, or it may not be read
        return []


def _describe(path: Path) -> Video:
    found = next((match for name in NAMES if (match := name.match(path.stem))), None)
    if found is None:
        return Video(path, kind="", episode=None, steps=None, value=None)
    steps = None if found["steps"] is None else int(found["steps"])
    kind = found["kind"] if found["kind"] in SHOWS else ""
    return Video(path, kind=kind, episode=found["id"], steps=steps, value=float(found["value"]))


def _recorded_line(recorded: Recorded, run: Path) -> Html:
    name = shlex.quote(str(run))
    commands = [
        ("list them", f"redline episodes {name} --recorded"),
        ("watch one", f"redline play {name} --episode best --out best.mp4"),
        ("verify all", f"redline play {name} --verify"),
    ]
    told = "1 episode is" if recorded.num_episodes == 1 else f"{recorded.num_episodes:,} episodes are"
    words = f"{told} recorded in {size(recorded.num_bytes)}." if recorded.num_episodes else "No episode is recorded."
    if recorded.problem is not None:
        words += f" There may be more: {recorded.problem}."
    if not recorded.num_episodes:
        return element("p", words)
    rows = "".join(
        f"<div><dt>{verb}</dt><dd>{element('code', command).markup}</dd></div>" for verb, command in commands
    )
    return join([element("p", words), Html(f'<dl class="typed">{rows}</dl>')])


def _video_list(videos: Sequence[Video], page_folder: Path | None) -> Html:
    rows = [
        (
            SHOWS.get(video.kind, DASH),
            video.episode or DASH,
            amount(video.steps),
            amount(video.value),
            size(_size_bytes(video.path)),
            _link(video, page_folder),
        )
        for video in videos[:MAX_VIDEOS]
    ]
    head = ("shows", "episode", "steps", "return", "size", "file")
    listed = table("Videos", head, rows, numeric=(1, 2, 3, 4), css="card long")
    count = len(videos)
    words = f"The newest {len(rows)} of {count:,} videos" if count > len(rows) else f"{count} video{'s' * (count > 1)}"
    best = next((video for video in videos if video.kind == BEST and video.path.suffix == ".mp4"), None)
    player = [] if best is None else [_player(best, page_folder)]
    return join([*player, folded(words, listed, css="fold", is_open=count <= 10)])


def _player(video: Video, page_folder: Path | None) -> Html:
    caption = f"The best episode so far: return {amount(video.value)} at step {amount(video.steps)}"
    source = _address(video.path, page_folder)
    return Html(
        f'<figure class="card video"><video controls preload="none" width="320" src="{source}">'
        f"</video>{element('figcaption', caption).markup}</figure>"
    )


def _link(video: Video, page_folder: Path | None) -> Html:
    return Html(f'<a href="{_address(video.path, page_folder)}">{Html.of(video.path.name).markup}</a>')


def _address(path: Path, page_folder: Path | None) -> str:
    """Return where a file is, seen from the page; quoted, so that no name can be taken for anything else."""
    relative = os.path.relpath(path.resolve(), (page_folder or Path()).resolve())
    return Html.of(quote(f"./{relative}" if not relative.startswith("..") else relative)).markup


def _size_bytes(path: Path) -> float | None:
    try:
        return float(path.stat().st_size)
    except OSError:  # it is gone
        return None
