"""Videos of recorded episodes, made on demand from their actions: one at a time, by a process that takes idle time."""

from __future__ import annotations

import asyncio
import ctypes
import os
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Literal

import psutil

from redline.files import check_own
from redline.jsonl import measured, parse_row, plain_text
from redline.runs.directory import RECORDINGS

MAX_CACHE_BYTES = 300_000_000
MAX_VIDEOS = 100
MAX_WAITING = 6  # that are asked for and not made yet
LONGEST_S = 600.0  # that the making of one may take
MAX_OUTPUT_BYTES = 100_000
MAX_WHY_CHARACTERS = 300
NICE = 19
PR_SET_PDEATHSIG = 1
LIBRARY = ctypes.CDLL(None)
PREFIX = "redline-dashboard-"
EPISODES = "episodes.jsonl"
WORDS = ("last", "best")  # which episode they name changes while a run goes on
SUFFIX = ".mp4" if find_spec("av") is not None else ".gif"

State = Literal["waiting", "making", "made", "failed"]


@dataclass
class Video:
    """A video that somebody asked for."""

    path: Path
    state: State = "waiting"
    why: str = ""  # it failed
    about: dict[str, Any] = field(default_factory=dict)  # number, return and length of the episode
    number: int = 0  # of all that were asked for
    basis: object = None  # what "last" and "best" depended on
    used_s: float = 0.0
    size_bytes: int = 0


class Videos:
    """Makes videos and keeps the newest ones in a private folder until it is closed."""

    def __init__(self, command: Callable[[Path, str, Path], Sequence[str]] | None = None) -> None:
        """Make videos with `redline play`, or with another `command` of run, episode and target."""
        _remove_left()
        self._command = command or play_command
        self._folder = Path(tempfile.mkdtemp(prefix=f"{PREFIX}{os.getpid()}-"))
        self._count = 0
        self._videos: dict[tuple[str, str], Video] = {}
        self._turn = asyncio.Lock()
        self._tasks: set[asyncio.Task[None]] = set()
        self._process: asyncio.subprocess.Process | None = None

    def get(self, run_id: str, episode: str) -> Video | None:
        """Return a video that was asked for."""
        video = self._videos.get((run_id, episode))
        if video is not None:
            video.used_s = time.monotonic()
        return video

    def ask(self, run: Path, run_id: str, episode: str) -> Video | None:
        """Let a video be made; None if too many others wait."""
        basis = _size(run / EPISODES) if episode in WORDS else None
        known = self.get(run_id, episode)
        if known is not None and (
            known.state in ("waiting", "making") or (known.state, known.basis) == ("made", basis)
        ):
            return known
        if sum(video.state in ("waiting", "making") for video in self._videos.values()) >= MAX_WAITING:
            return None
        if known is not None:
            known.path.unlink(missing_ok=True)
        self._make_room()
        self._count += 1
        path = self._folder / f"{self._count}{SUFFIX}"
        video = Video(path, number=self._count, basis=basis, used_s=time.monotonic())
        self._videos[run_id, episode] = video
        task = asyncio.get_running_loop().create_task(self._make(video, run, episode))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return video

    def close(self) -> None:
        """End what is being made and remove all videos."""
        for task in self._tasks:
            task.cancel()
        if self._process is not None and self._process.returncode is None:
            with suppress(ProcessLookupError):
                self._process.kill()
        shutil.rmtree(self._folder, ignore_errors=True)

    async def _make(self, video: Video, run: Path, episode: str) -> None:
        async with self._turn:
            video.state = "making"
            try:
                check_own(run / RECORDINGS.parent, is_folder=True)  # a link may lead out of the run
                said = await self._run(self._command(run, episode, video.path))
            except Exception as error:  # whatever it was, the page says it
                video.state, video.why = "failed", plain_text(error) or type(error).__name__
                return
            with suppress(OSError):
                video.size_bytes = video.path.stat().st_size
            video.about, why = _read_answer(said)
            video.state, video.why = ("made", "") if video.size_bytes else ("failed", why)

    async def _run(self, command: Sequence[str]) -> bytes:
        self._process = await asyncio.create_subprocess_exec(
            *command,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.DEVNULL,
            preexec_fn=_take_idle_time,
            start_new_session=True,  # Ctrl-C is for the server, which then ends it
        )
        try:
            said, _ = await asyncio.wait_for(self._process.communicate(), LONGEST_S)
        except TimeoutError:
            raise TimeoutError(f"it took more than {LONGEST_S / 60:.0f} minutes") from None
        finally:
            if self._process.returncode is None:
                with suppress(ProcessLookupError):
                    self._process.kill()
        return said[-MAX_OUTPUT_BYTES:]

    def _make_room(self) -> None:
        """Remove the videos that were not looked at for longest."""
        made = sorted(
            (key for key, video in self._videos.items() if video.state in ("made", "failed")),
            key=lambda key: self._videos[key].used_s,
        )
        total = sum(video.size_bytes for video in self._videos.values())
        while made and (total > MAX_CACHE_BYTES or len(self._videos) >= MAX_VIDEOS):
            video = self._videos.pop(made.pop(0))
            total -= video.size_bytes
            with suppress(OSError):
                video.path.unlink(missing_ok=True)


def play_command(run: Path, episode: str, out: Path) -> list[str]:
    """Return the command that makes a video of an episode."""
    play = ["play", str(run), "--episode", episode, "--out", str(out), "--json"]
    return [sys.executable, "-m", "redline.cli.main", *play]


def _take_idle_time() -> None:
    """Leave the cores to the runs that somebody watches, and end with the server."""
    LIBRARY.prctl(PR_SET_PDEATHSIG, ctypes.c_ulong(signal.SIGKILL), 0, 0, 0)
    with suppress(OSError):
        os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))
    with suppress(OSError):
        os.nice(NICE)


def _read_answer(said: bytes) -> tuple[dict[str, Any], str]:
    """Return what `redline play --json` says of the episode, or why there is no video."""
    row = parse_row(said.strip()) or {}
    episodes = row.get("episodes")
    first = episodes[0] if isinstance(episodes, list) and episodes and isinstance(episodes[0], dict) else {}
    about = {
        "number": plain_text(first.get("id", "")) or None,
        "value": measured(first.get("return")),
        "length": measured(first.get("length_steps")),
    }
    return about, plain_text(row.get("error", "the video could not be made"), MAX_WHY_CHARACTERS)


def _size(path: Path) -> int:
    with suppress(OSError):
        return path.stat().st_size
    return -1


def _remove_left() -> None:
    """Remove the videos of servers that were killed."""
    for folder in Path(tempfile.gettempdir()).glob(f"{PREFIX}*"):
        pid = folder.name.removeprefix(PREFIX).partition("-")[0]
        with suppress(OSError):
            is_ours = folder.lstat().st_uid == os.getuid() and folder.is_dir() and not folder.is_symlink()
            if is_ours and pid.isdigit() and not psutil.pid_exists(int(pid)):
                shutil.rmtree(folder, ignore_errors=True)
