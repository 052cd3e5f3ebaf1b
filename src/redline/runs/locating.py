"""Runs on the disk, seen from outside: which folders are runs, and whether a run still goes on."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from redline.errors import UserError
from redline.jsonl import RecordTail, Row, measured, tamed
from redline.runs.directory import LOCK_NAME, is_held
from redline.runs.manifest import RUN_JSON
from redline.runs.run_json import read_run_json

RUN_FILES = (RUN_JSON, LOCK_NAME, "metrics.jsonl")
RECORDING_FILES = ("hardware.jsonl", "events.jsonl", "episodes.jsonl")
LAST = "last"  # in place of a run: the newest one in RUNS
RUNS = Path("runs")  # where runs are kept by default
MAX_DEPTH = 5  # a fleet holds runs by slot, game and algorithm

State = Literal["running", "stopped", "killed"]
LAST_BYTES = 1_000_000  # of a file of which only the newest rows are needed
LAST_EVENTS_BYTES = 4_000_000  # the reason why a run ended is among the last, and a traceback is long
TURNS = ("start", "resume", "stop", "error")  # events that begin or end an invocation
MONITOR_TURNS = ("monitor-start", "monitor-stop")
SILENCE_S = 10.0  # after which a recording is taken for dead
SILENT_SAMPLES = 5.0
SILENCE_ELSEWHERE_S = 600.0  # of a run on another host: long evaluations write nothing


def is_run(folder: Path) -> bool:
    """Tell whether a folder holds a run of Redline."""
    return _holds(folder, RUN_FILES)


def is_recorded(folder: Path) -> bool:
    """Tell whether a folder holds a run of Redline or a recording of foreign code."""
    return _holds(folder, (*RUN_FILES, *RECORDING_FILES))


def find_recorded(folder: Path) -> list[Path]:
    """Return the folder itself if it is a run or a recording, else those inside it, by name."""
    if is_recorded(folder):
        return [folder]
    found = []
    links = []
    for root, folders, _ in os.walk(folder):
        here = Path(root)
        if here != folder and is_recorded(here):
            found.append(here)
            folders.clear()
        elif len(here.relative_to(folder).parts) >= MAX_DEPTH:
            folders.clear()
        # a link may lead in a circle, so it is looked at and not walked into
        links += [here / name for name in folders if (here / name).is_symlink() and is_recorded(here / name)]
    known = {path.resolve() for path in found}
    return sorted([*found, *(link for link in links if link.resolve() not in known)])


def locate_run(name: str, *, or_recording: bool = False) -> Path:
    """Return the run that a user means: a run directory, the newest in a folder of runs, or `last`.

    Runs come before recordings of foreign code, which only some commands can read, unless `or_recording`.
    A path that is neither is returned unchanged: its reader reports what is wrong with it.
    """
    if name == LAST and not Path(name).exists():
        if not RUNS.is_dir() or not find_recorded(RUNS):
            raise UserError(f"there is no run in {RUNS}: redline train starts one, or name a run directory")
        return locate_run(str(RUNS), or_recording=or_recording)
    folder = Path(name)
    found = find_recorded(folder) if folder.is_dir() else []
    runs = [run for run in found if (run / RUN_JSON).is_file() and not or_recording]
    return max(runs or found, key=_begun, default=folder)


def newest_recorded(folder: Path) -> Path:
    """Return the run or recording in a folder that was started or resumed last."""
    if not folder.is_dir():
        raise UserError(f"{folder} is no folder: give a run directory, or a folder that holds some")
    found = find_recorded(folder)
    if not found:
        raise UserError(f"{folder} holds no run and no recording: none of {', '.join((*RUN_FILES, *RECORDING_FILES))}")
    return max(found, key=_begun)


def _holds(folder: Path, names: tuple[str, ...]) -> bool:
    with suppress(OSError):  # a folder that may not be entered
        return any((folder / name).is_file() for name in names)
    return False


def _begun(run: Path) -> tuple[float, Path]:
    return _begun_unix_s(run), run


def _begun_unix_s(run: Path) -> float:
    # run.json is replaced by each resume; the names in a recording's folder change when it begins
    for path in (run / RUN_JSON, run):
        with suppress(OSError):
            return path.stat().st_mtime
    return 0.0


# A run that another process writes, followed by its files alone


@dataclass(frozen=True)
class Status:
    """Whether a run goes on; if not, how it ended and when it last wrote something."""

    state: State
    how: str  # empty while it runs
    unix_s: float | None  # None if it never wrote anything


class FollowedRun:
    """The newest rows of a run's records; nothing is written and no lock is taken."""

    def __init__(
        self,
        path: Path,
        *,
        last_bytes: int = LAST_BYTES,
        last_events_bytes: int = LAST_EVENTS_BYTES,
        follow_links: bool = True,
    ) -> None:
        self.path = path
        self.metrics: Row | None = None
        self.hardware: Row | None = None
        self.pss_bytes: float | None = None  # in some rows only
        self.status = Status("running", "", None)
        self._tails = {
            name: RecordTail(path / f"{name}.jsonl", last_bytes=last_bytes, follow_links=follow_links)
            for name in ("metrics", "hardware")
        }
        events = path / "events.jsonl"
        self._events = RecordTail(events, last_bytes=last_events_bytes, follow_links=follow_links)
        self._asked: Mapping[str, Any] = {}
        self._turn: Row = {}
        self._monitor_turn: Row = {}
        self._heard_unix_s: float | None = None

    @property
    def is_run(self) -> bool:
        """Whether this is a run of Redline, not a recording of foreign code."""
        return is_run(self.path)

    def run_json(self) -> Mapping[str, Any]:
        """Return run.json, or nothing while it can't be read."""
        if not self._asked:
            with suppress(UserError):
                self._asked = tamed(read_run_json(self.path))
        return self._asked

    def refresh(self) -> list[Row]:
        """Read what is new; return the new events."""
        held = is_held(self.path)  # before the events: when it is let go, all of them are written
        self.metrics = self._newest("metrics", self.metrics)
        self.hardware = self._newest("hardware", self.hardware)
        events = [tamed(row) for row in self._events.new_rows()]
        for row in events:
            self._hear(row)
            if row.get("event") in TURNS:
                self._turn = row
            elif row.get("event") in MONITOR_TURNS:
                self._monitor_turn = row
        self.status = self._run_status(held) if self.is_run else self._recording_status()
        return events

    def _newest(self, name: str, before: Row | None) -> Row | None:
        rows = self._tails[name].new_rows()
        for row in rows:
            self._hear(row)
            if (pss_bytes := measured(row.get("pss_bytes"))) is not None:
                self.pss_bytes = pss_bytes
        return tamed(rows[-1]) if rows else before

    def _hear(self, row: Row) -> None:
        if (unix_s := measured(row.get("unix_s"))) is not None:
            self._heard_unix_s = max(unix_s, self._heard_unix_s or unix_s)

    def _run_status(self, held: bool | None) -> Status:
        ended = self._turn.get("event") in ("stop", "error")
        if held or (held is None and not ended and self._silence_s() < SILENCE_ELSEWHERE_S):
            return Status("running", "", self._heard_unix_s)
        if not ended:
            return Status("killed", "no process holds its lock, and it wrote no stop event", self._heard_unix_s)
        reason = self._turn.get("reason") or f"error: {self._turn.get('message')}"
        return Status("stopped", str(reason), measured(self._turn.get("unix_s")))

    def _recording_status(self) -> Status:
        end = self._monitor_turn
        if end.get("event") == "monitor-stop":
            code = end.get("exit_code")
            how = str(end.get("reason")) if code is None else f"{end.get('reason')}, exit code {code}"
            return Status("stopped", how, measured(end.get("unix_s")))
        hz, interval_s = measured(end.get("hz")), measured((self.hardware or {}).get("interval_s"))
        period_s = 1 / hz if hz else interval_s or 1.0
        silence_s = self._silence_s()
        if silence_s < min(max(SILENCE_S, SILENT_SAMPLES * period_s), SILENCE_ELSEWHERE_S):
            return Status("running", "", self._heard_unix_s)
        return Status("killed", "the monitor writes nothing more, and wrote no stop event", self._heard_unix_s)

    def _silence_s(self) -> float:
        """Return the seconds since anything was written, by the clock of the file system."""
        written = [self._events.path, *(tail.path for tail in self._tails.values())]
        newest_unix_s = 0.0
        for path in written:
            with suppress(OSError):
                newest_unix_s = max(newest_unix_s, path.stat().st_mtime)
        return time.time() - newest_unix_s
