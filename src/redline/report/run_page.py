"""What a page shows of one run: figures, charts, tables and videos, which `run.html.j2` lays out.

A small video is embedded, so that the page stays one file; a larger one is linked from where it lies.
"""

from __future__ import annotations

import base64
import math
import os
import re
import shlex
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

from redline.episodes.episode import EPISODE
from redline.errors import UserError
from redline.files import reason_of
from redline.report.charts import Chart
from redline.report.parts import DASH, Cell, Table, Video, amount, moment, share, size, small, span
from redline.report.rows import number
from redline.report.run_charts import curve_charts, diagnostic_charts, hardware_charts, phase_charts, speed_charts
from redline.report.run_files import LEARNING, RECORDING, RunFiles
from redline.report.run_log import PhaseSplit, changes_of, event_table, phase_split, settings_of
from redline.report.run_summary import LAST_10_S, RunSummary
from redline.runs.blocks import Block, iterate_blocks
from redline.runs.directory import RECORDINGS
from redline.units import money

MAX_EVENTS = 300
# span of a summary's numbers → words
SPANS = {LEARNING: "while learning", RECORDING: "over the whole recording", LAST_10_S: "over the last 10 s"}
PROCESS_HEAD = ("pid", "role", "name", "cores used, mean", "resident memory, peak", "GPU memory, peak")


class ShownRun:
    """A run as the page shows it; charts have at most about `max_points` points."""

    def __init__(
        self, files: RunFiles, summary: RunSummary, key: str, *, page_folder: Path | None, max_points: int
    ) -> None:
        split = phase_split(files)
        self.files = files
        self.summary = summary
        self.key = key  # begins the identities of its parts
        self.name = files.path.resolve().name
        self.title = " on ".join(filter(None, (summary.algorithm, summary.env))) or files.label
        self.tiles = tiles_of(summary)
        self.learning = small(curve_charts(files, ("steps", "minutes")), max_points)
        self.diagnostics = small(diagnostic_charts(files), max_points)
        self.seen = find_seen(files.path, page_folder)
        self.speed = small([*speed_charts(files), *phase_charts(split)], max_points)
        self.phases = _phase_table(split)
        self.settings, self.changes = settings_of(files), changes_of(files)
        self.events = [
            (span(_seconds(line.minutes)), amount(line.steps), line.event, line.details or DASH)
            for line in event_table(files)[-MAX_EVENTS:]
        ]
        self.facts = _facts(files, summary)
        subjects = {
            "Return against CPU and GPU time": curve_charts(files, ("cpu_s", "gpu_s")),
            **hardware_charts(files),
        }
        self.hardware = {name: small(charts, max_points) for name, charts in subjects.items() if charts}
        self.processes, self.processes_lead = _process_table(files)

    @property
    def charts(self) -> list[Chart]:
        """All charts of the run."""
        return [
            *self.learning,
            *self.diagnostics,
            *self.speed,
            *(one for some in self.hardware.values() for one in some),
        ]

    @property
    def links(self) -> list[tuple[str, str]]:
        """The ids of its parts, each with its name."""
        absent = {"diagnostics": not self.diagnostics, "recordings": self.seen is None}
        names = ("learning", "diagnostics", "recordings", "speed", "settings", "events", "command", "hardware")
        return [(f"{self.key}-{name}", name) for name in names if not absent.get(name)]


def span_words(spans: Iterable[str | None]) -> str:
    """Say which span numbers cover; nothing where it is unknown."""
    known = {SPANS.get(name, name) for name in spans if name}
    return "over different spans" if len(known) > 1 else "".join(known)


def headline(summary: RunSummary) -> Cell:
    """Return the headline score of every page, table and panel, with its number of episodes."""
    over = f"n = {summary.final_return_episodes:,}" if summary.final_return is not None else ""
    return Cell(amount(summary.final_return), note=over, is_strong=summary.final_return is not None)


def newest_evaluation(summary: RunSummary) -> Cell:
    """Return the score of the newest evaluation, with its episodes and steps."""
    if summary.evaluation_return is None:
        return Cell(DASH)
    at = "" if summary.evaluation_steps is None else f", step {summary.evaluation_steps:,}"
    return Cell(amount(summary.evaluation_return), note=f"n = {summary.evaluation_episodes:,}{at}")


def tiles_of(summary: RunSummary) -> list[tuple[str, str, str]]:
    """Return the most important figures, without unknown ones."""
    evaluation, speed = newest_evaluation(summary), span_words([summary.speed_over])
    use, over = share(summary.cpu_share_of_machine), span_words([summary.use_over])
    facts = [
        ("return", amount(summary.final_return), f"mean of the last {summary.final_return_episodes:,} episodes"),
        ("newest evaluation", evaluation.text, evaluation.note),
        ("best episode", amount(summary.best_return), f"the best of {summary.episodes:,} training episodes"),
        ("steps", amount(summary.steps), _beside("in {}", span(_seconds(summary.minutes)))),
        ("steps per second", amount(summary.steps_per_s), speed),
        ("updates", amount(summary.updates), _beside("replay ratio {}", amount(summary.samples_per_step))),
        ("updates per second", amount(summary.updates_per_s), speed),
        ("CPU cores used", amount(summary.cpu_cores_used), f"{use} of its cores, {over}" if use != DASH else over),
        ("CPU time", span(summary.cpu_s), _beside("{} s per 1,000 steps", amount(summary.cpu_s_per_1000_steps))),
        (
            "GPU utilisation",
            amount(summary.gpu_utilisation_percent, "%"),
            _beside("{} GPU seconds", amount(summary.gpu_s)),
        ),
        ("GPU energy", amount(None if summary.energy_j is None else summary.energy_j / 1e3, "kJ"), ""),
        ("peak memory", size(summary.rss_peak_bytes), "resident, of all processes"),
        ("peak PSS", size(summary.pss_peak_bytes), "shared pages counted once"),
    ]
    return [fact for fact in facts if not fact[1].startswith(DASH)]


def _seconds(minutes: float | None) -> float | None:
    return None if minutes is None else minutes * 60


def _beside(words: str, value: str) -> str:
    return "" if value == DASH else words.format(value)


def _bill(files: RunFiles) -> str | None:
    """Return the cost of a run that has a price."""
    last = files.metrics[-1] if files.metrics else {}
    cost, price, elapsed_s = (number(last, name) for name in ("cost", "price_per_hour", "elapsed_s"))
    if cost is None or price is None or elapsed_s is None:
        return None
    return f"{money(cost)} for {span(elapsed_s)} at {money(price)} per hour"


def _facts(files: RunFiles, summary: RunSummary) -> list[tuple[str, str]]:
    """Return the command, the machine and the main settings."""
    recorded = files.run or {}
    created = recorded.get("created_unix_s")
    if not isinstance(created, int | float):
        created = files.events[0].get("unix_s") if files.events else None
    commit = recorded.get("commit")
    if isinstance(commit, str):  # shortened, with the mark of an edited source
        commit = re.sub(r"\b([0-9a-f]{10})[0-9a-f]{30}\b", r"\1", commit)
    command = recorded.get("command")
    known = {
        "directory": files.path,
        "bill": _bill(files),
        "started": moment(created),
        "command": " ".join(map(str, command)) if isinstance(command, list) else command,
        "machine": summary.host,
        "topology": summary.topology,
        "seed": summary.seed,
        "envs": summary.num_envs,
        "batch size": summary.batch_size,
        "learner threads": summary.learner_threads,
        "device": recorded.get("device"),
        "protocol": recorded.get("protocol"),
        "commit": commit,
        "monitor overhead": _beside("{} of the CPU time", share(summary.monitor_cpu_share)),
    }
    return [(name, str(value)) for name, value in known.items() if value not in (None, "", DASH)]


def _phase_table(split: PhaseSplit) -> Table | None:
    total_s = sum(split.phases_s.values())
    rows = [(name, span(seconds), share(seconds / total_s)) for name, seconds in split.phases_s.items()]
    rows += [(f"{name}, beside training", span(seconds), DASH) for name, seconds in split.beside_s.items()]
    return Table("Phases of the run", ("phase", "time", "share"), rows, numeric=(1, 2)) if rows else None


def _process_table(files: RunFiles) -> tuple[Table | None, str]:
    """Return a table of the largest processes and a lead sentence; None where no sample names any."""
    largest, count = files.processes.largest(), len(files.processes.found)
    if not largest:
        return None, ""
    rows = [
        (
            str(use.pid),
            use.role or "not watched",
            use.name or DASH,
            amount(use.cores if use.watched_s else None),
            size(use.rss_peak_bytes or None),
            size(use.gpu_peak_bytes or None),
        )
        for use in largest
    ]
    known = [place for place in range(len(PROCESS_HEAD)) if any(row[place] != DASH for row in rows)]
    head, cells = [PROCESS_HEAD[place] for place in known], [[row[place] for place in known] for row in rows]
    numeric = [place for place, column in enumerate(known) if column not in (1, 2)]
    lead = "Means cover the time for which each process was watched."
    if len(rows) < count:
        lead = f"{len(rows)} of {count:,} processes: those with most CPU, memory or GPU memory. {lead}"
    return Table("Largest processes", head, cells, numeric), lead


# Recorded episodes and videos

VIDEOS = "videos"
SHOWS = {"best": "the best so far", "checkpoint": "a checkpoint"}
PLAYED = {
    "best": "Best episode so far",
    "checkpoint": "Newest checkpoint",
}  # kinds whose newest video plays in the page
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
    """A video file and what its name says of the episode."""

    path: Path
    kind: str  # "best", "checkpoint", or "" for any other
    episode: str | None  # its id
    steps: int | None
    value: float | None  # the return


@dataclass(frozen=True)
class Recorded:
    """The recorded episodes of a run."""

    num_episodes: int
    num_bytes: int
    problem: str | None  # why some may not be counted


@dataclass(frozen=True)
class Seen:
    """The recorded episodes and videos on a page."""

    run: str  # its path, as a shell takes it
    recorded: Recorded
    players: list[Video]
    num_videos: int
    videos: Table  # the newest


def find_seen(run: Path, page_folder: Path | None) -> Seen | None:
    """Return the recordings and videos of a run; None where there are none."""
    recorded, videos = find_recordings(run), find_videos(run)
    if not recorded.num_episodes and recorded.problem is None and not videos:
        return None
    newest = {video.kind: video for video in reversed(videos)}
    players = [_player(newest[kind], words, page_folder) for kind, words in PLAYED.items() if kind in newest]
    others = [video for video in videos if video.value is not None]
    if not players and others:  # made one by one, as `redline play RUN` does
        best = max(others, key=lambda video: video.value or 0.0)
        players = [_player(best, "Best of these videos" if len(others) > 1 else "Episode", page_folder)]
    table = _video_table(videos[:MAX_VIDEOS], page_folder)
    return Seen(shlex.quote(str(run)), recorded, players, len(videos), table)


def find_recordings(run: Path) -> Recorded:
    """Count the recorded episodes of a run, including those played afterwards."""
    count = num_bytes = 0
    problems = []
    for path in _files((run / RECORDINGS).parent, ".rec"):
        if path.stem.endswith(".lost"):  # what a resume undid
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
    """Return the videos in a run's folder, the newest steps first."""
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
    """Return the path of a file relative to the page, quoted for a link."""
    relative = os.path.relpath(path.resolve(), (page_folder or Path()).resolve())
    return quote(f"./{relative}" if not relative.startswith("..") else relative)


def _size_bytes(path: Path) -> float | None:
    try:
        return float(path.stat().st_size)
    except OSError:  # it is gone
        return None
