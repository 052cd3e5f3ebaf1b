"""Episodes of foreign code: one row each, with the means of the hardware's readings meanwhile."""

from __future__ import annotations

import time
import warnings
import weakref
from collections import deque
from itertools import takewhile
from pathlib import Path

from redline.jsonl import RecordTail, RecordWriter, Row
from redline.monitor.attaching import AttachedRecording, new_folder, record
from redline.monitor.hardware import HARDWARE, flat, means
from redline.monitor.sampling import DEFAULT_HZ

EPISODES = "episodes.jsonl"
MAX_SAMPLES = 4_096  # of the running episodes; beyond, pairs are merged
MAX_ROWS_PER_SAMPLE = 10  # that repeat its means: hundreds of short episodes a second would fill a disk with copies
Out = Path | str | AttachedRecording


class SampleWindow:
    """The newest samples of a running recording, read on demand and no more often than they come."""

    def __init__(self, path: Path, *, hz: float) -> None:
        # skip the rows of an earlier recording
        self._tail = RecordTail(path, last_bytes=0 if path.exists() else None)
        self._tail.new_rows()
        self.period_s = 1 / hz
        self._next_look_s = 0.0
        self._samples: deque[Row] = deque()
        self._newest_means: dict[str, float] = {}
        self.seen = 0  # samples so far

    def means(self, begin_unix_s: float, end_unix_s: float) -> dict[str, float]:
        """Return the means over a span; of the newest sample if none covers it, and {} before the first."""
        self._look()
        if not self._samples or begin_unix_s >= _begin_unix_s(self._samples[-1]):
            return dict(self._newest_means)
        covering = takewhile(lambda row: row["unix_s"] > begin_unix_s, reversed(self._samples))
        found = means(covering, begin_unix_s=begin_unix_s, end_unix_s=end_unix_s)
        return found or dict(self._newest_means)

    def forget_before(self, unix_s: float) -> None:
        """Drop old samples; the newest stays."""
        while len(self._samples) > 1 and self._samples[0]["unix_s"] <= unix_s:
            self._samples.popleft()

    def _look(self) -> None:
        now_s = time.monotonic()
        if now_s < self._next_look_s:
            return
        self._next_look_s = now_s + self.period_s / 2
        new = [numbers for row in self._tail.new_rows() if {"unix_s", "interval_s"} <= (numbers := flat(row)).keys()]
        if not new:
            return
        self._samples.extend(new)
        self.seen += len(new)
        self._newest_means = means(new[-1:], begin_unix_s=_begin_unix_s(new[-1]), end_unix_s=new[-1]["unix_s"])
        while len(self._samples) > MAX_SAMPLES:
            self._samples = _halved(self._samples)


def _begin_unix_s(sample: Row) -> float:
    return float(sample["unix_s"] - sample["interval_s"])


def _halved(samples: deque[Row]) -> deque[Row]:
    """Merge each two samples into one; means over both stay the same."""
    merged: deque[Row] = deque()
    while len(samples) > 1:
        two = [samples.popleft(), samples.popleft()]
        begin_unix_s, end_unix_s = _begin_unix_s(two[0]), two[1]["unix_s"]
        span = {"unix_s": end_unix_s, "interval_s": end_unix_s - begin_unix_s}
        merged.append({**means(two, begin_unix_s=begin_unix_s, end_unix_s=end_unix_s), **span})
    merged.extend(samples)
    return merged


class EpisodeLog:
    """Writes episodes.jsonl beside the hardware.jsonl of a recording, which it starts unless one is given."""

    def __init__(self, out: Out | None, *, hz: float = DEFAULT_HZ) -> None:
        self._is_owner = not isinstance(out, AttachedRecording)
        self.recording = (
            out if isinstance(out, AttachedRecording) else record(new_folder() if out is None else out, hz=hz)
        )
        try:
            self._writer = RecordWriter(self.path / EPISODES)
        except OSError:
            self._end_recording()
            raise
        self._close_writer = weakref.finalize(self, self._writer.close)
        self.samples = SampleWindow(self.path / HARDWARE, hz=self.recording.hz)
        self._began_unix_s = time.time() - time.monotonic()
        self._repeats = (-1, 0)  # the sample that rows were written with, and how many
        self._is_refused = False

    @property
    def path(self) -> Path:
        """Folder that is written to."""
        return self.recording.path

    def now(self) -> float:
        """Return the wall clock at the start plus monotonic time since: it never jumps."""
        return self._began_unix_s + time.monotonic()

    def add(
        self,
        *,
        begun_unix_s: float,
        total_reward: float,
        length_steps: int,
        steps: int,
        lane: int = 0,
        is_truncated: bool = False,
    ) -> dict[str, float]:
        """Write an episode that ends now, and return the hardware's means meanwhile; after `close`, {}."""
        if not self._close_writer.alive:
            return {}
        now = self.now()
        hardware = self.samples.means(begun_unix_s, now)
        row: dict[str, object] = {
            "unix_s": now,
            "begun_unix_s": begun_unix_s,
            "steps": steps,
            "role": "actor",
            "return": total_reward,
            "length_steps": length_steps,
            "lane": lane,
            "truncated": is_truncated,  # cut off by a limit: the game was not over
        }
        sample, rows = self._repeats
        rows = rows + 1 if sample == self.samples.seen else 1
        self._repeats = self.samples.seen, rows
        self._write(row if rows > MAX_ROWS_PER_SAMPLE else {**row, "hardware": hardware})
        return hardware

    def close(self) -> None:
        """End the recording, unless it was given; closing twice is harmless."""
        self._close_writer()
        self._end_recording()

    def _end_recording(self) -> None:
        if self._is_owner:
            self.recording.close()

    def _write(self, row: dict[str, object]) -> None:
        try:
            self._writer.write(row)
        except OSError as error:  # a full disk must not end the training
            if not self._is_refused:
                self._is_refused = True
                message = f"{self.path / EPISODES} can't be written: {error.strerror}; episodes are missing in it"
                warnings.warn(message, RuntimeWarning, stacklevel=3)
