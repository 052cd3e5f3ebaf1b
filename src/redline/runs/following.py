"""A run that another process writes, followed by its files alone: what is newest, and whether it still goes on."""

from __future__ import annotations

import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from redline.errors import UserError
from redline.records import RecordTail, Row, measured, tamed
from redline.runs.directory import read_run_json
from redline.runs.locating import is_run
from redline.runs.lock import is_held

State = Literal["running", "stopped", "killed"]
LAST_BYTES = 1_000_000  # of a record that only its newest rows are wanted of
LAST_EVENTS_BYTES = 4_000_000  # how a run ended is among the last, and a trace is long
TURNS = ("start", "resume", "stop", "error")  # events between which a run goes on, or does not
MONITOR_TURNS = ("monitor-start", "monitor-stop")
SILENCE_S = 10.0  # after which a recording is taken for dead
SILENT_SAMPLES = 5.0
SILENCE_ELSEWHERE_S = 600.0  # of a run on another host: long evaluations write nothing


@dataclass(frozen=True)
class Status:
    """Whether a run goes on; if not, how it ended and when it was last heard of."""

    state: State
    how: str  # empty while it runs
    unix_s: float | None  # None if it was never heard of


class FollowedRun:
    """The newest rows of a run's records; nothing is written and no lock is taken."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.metrics: Row | None = None
        self.hardware: Row | None = None
        self.pss_bytes: float | None = None  # read more rarely than the rest
        self.status = Status("running", "", None)
        self._tails = {
            name: RecordTail(path / f"{name}.jsonl", last_bytes=LAST_BYTES) for name in ("metrics", "hardware")
        }
        self._events = RecordTail(path / "events.jsonl", last_bytes=LAST_EVENTS_BYTES)
        self._asked: Mapping[str, Any] = {}
        self._turn: Row = {}
        self._monitor_turn: Row = {}
        self._heard_unix_s: float | None = None

    @property
    def is_run(self) -> bool:
        """Tell a run of Redline from a recording of foreign code."""
        return is_run(self.path)

    def run_json(self) -> Mapping[str, Any]:
        """Return what the run was asked to do, as far as that can be read by now."""
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
            return Status("killed", "no process holds it, and it did not say that it stopped", self._heard_unix_s)
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
        return Status("killed", "the monitor writes no more, and did not say that it stopped", self._heard_unix_s)

    def _silence_s(self) -> float:
        """Return how long nothing was written, by the clock of the file system."""
        written = [self._events.path, *(tail.path for tail in self._tails.values())]
        newest_unix_s = 0.0
        for path in written:
            with suppress(OSError):
                newest_unix_s = max(newest_unix_s, path.stat().st_mtime)
        return time.time() - newest_unix_s
