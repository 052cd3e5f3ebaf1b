"""A run that is read while it grows: what its files say so far, in bounded memory, ready to be drawn.

A file that was cut or replaced, as by a resume that takes rows back, is read anew from its beginning.
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from bisect import bisect_left
from collections import deque
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Literal

import numpy as np

from redline.jsonl import RecordTail, Row, tamed
from redline.report.columns import Columns, Numbers
from redline.report.rows import members, moment, usable_numbers
from redline.report.run_files import MAX_START_UP_S, MIN_PAUSE_S, RunClock
from redline.report.run_log import SHARES_OVER_S, ProcessShares, ShareTotals

Kind = Literal["metrics", "episodes", "events", "hardware"]
Place = Literal["steps", "minutes", "cpu_s"]
KINDS: tuple[Kind, ...] = ("metrics", "events", "episodes", "hardware")  # the quick ones first
SLICE_BYTES = 200_000  # read at once: some milliseconds
MAX_EVENTS = 2_000  # the newest
MAX_TURNS = 1_000  # resumes and new recordings
MAX_EVALUATIONS = 20_000
MAX_BOUNDARIES = 1_000  # readers that are farther behind get everything anew
RECENT_ROWS = 13  # of metrics.jsonl: the last minute
MEAN_EPISODES = 100
EXACT = ("unix_s", "time_s", "steps", "frames", "updates", "samples", "elapsed_s", "cpu_s", "number", "length_steps")


class _File(ABC):
    """One file of a run, and what was kept of its rows."""

    kind: Kind

    def __init__(self, folder: Path) -> None:
        self.tail = RecordTail(folder / f"{self.kind}.jsonl", follow_links=False)
        self.boundaries: deque[tuple[int, int]] = deque(maxlen=MAX_BOUNDARIES)  # bytes read, rows kept
        self._beginnings = 0
        self.clear()

    @abstractmethod
    def clear(self) -> None:
        """Forget all rows."""

    @abstractmethod
    def add(self, row: Row) -> None:
        """Keep what is needed of a row."""

    @abstractmethod
    def __len__(self) -> int:
        """Return how many rows are kept."""

    def read(self) -> bool:
        """Read a slice; return whether there was anything."""
        before_bytes = self.tail.read_bytes
        rows = self.tail.new_rows(most_bytes=SLICE_BYTES)
        if self.tail.beginnings != self._beginnings:
            self._beginnings = self.tail.beginnings
            self.boundaries.clear()
            self.clear()
            before_bytes = 0
        for row in rows:
            self.add(row)
        is_more = self.tail.read_bytes != before_bytes
        if is_more or not self.boundaries:
            self.boundaries.append((self.tail.read_bytes, len(self)))
        return is_more

    @property
    def folds(self) -> int:
        """How often rows were folded."""
        return 0

    @property
    def generation(self) -> tuple[int, int]:
        """What changes when rows that were given out are no longer those that are kept."""
        return self._beginnings, self.folds

    def rows_at(self, offset_bytes: int) -> int | None:
        """Return how many rows were kept when so many bytes had been read; None if that is unknown."""
        place = bisect_left(self.boundaries, (offset_bytes, 0))
        if place < len(self.boundaries) and self.boundaries[place][0] == offset_bytes:
            return self.boundaries[place][1]
        return None


class _ColumnFile(_File):
    columns: Columns

    def __len__(self) -> int:
        return len(self.columns)

    @property
    def folds(self) -> int:
        return self.columns.folds


class Metrics(_ColumnFile):
    """metrics.jsonl: its numbers, its newest row, and where the time of each process went."""

    kind = "metrics"

    def clear(self) -> None:
        self.columns = Columns(exact=EXACT)
        self.newest: Row = {}
        self.recent: deque[Row] = deque(maxlen=RECENT_ROWS)
        self._totals = ShareTotals()
        self._until_s = 0.0  # training time up to which the totals count

    def add(self, row: Row) -> None:
        numbers = usable_numbers(row, self.kind)
        if numbers is None:
            return
        self.columns.append(numbers)
        self.newest = row
        self.recent.append(row)
        if numbers["time_s"] - self._until_s >= SHARES_OVER_S and members(row, "roles"):
            self._totals.add(row, SHARES_OVER_S)  # its shares cover the last seconds, and none of those before
            self._until_s = numbers["time_s"]

    def shares(self) -> list[ProcessShares]:
        """Return where the time of each process went over the whole run."""
        return self._totals.shares()

    def recent_shares(self) -> list[ProcessShares]:
        """Return the same for the last minute."""
        totals = ShareTotals()
        for row in list(self.recent)[::-2]:  # rows overlap by half
            totals.add(row, SHARES_OVER_S)
        return totals.shares()


class Episodes(_ColumnFile):
    """episodes.jsonl: the training episodes with their numbers, and the means of the evaluations."""

    kind = "episodes"

    def clear(self) -> None:
        self.columns = Columns(exact=(*EXACT, "return"), means=False)
        self.evaluations: dict[object, list[float]] = {}  # number → unix_s, steps, sum of returns, episodes
        self._number = 0  # of the row, as `redline play --episode` counts

    def add(self, row: Row) -> None:
        self._number += 1
        numbers = usable_numbers(row, self.kind)
        role = row.get("role")
        if numbers is None or role not in (None, "actor", "greedy"):
            return
        kept = {name: numbers[name] for name in ("unix_s", "return", "steps", "length_steps") if name in numbers}
        if role != "greedy":
            self.columns.append(kept | {"number": self._number})
        elif len(self.evaluations) < MAX_EVALUATIONS:
            key = numbers.get("evaluation", ("alone", self._number))
            found = self.evaluations.setdefault(key, [0.0, 0.0, 0.0, 0.0])
            found[0] = kept["unix_s"]
            found[1] = numbers.get("weights_steps", kept.get("steps", np.nan))
            found[2] += kept["return"]
            found[3] += 1

    def means(self, begin: int = 0) -> Numbers:
        """Return the mean of the last 100 returns at each episode from one on."""
        first = max(begin - MEAN_EPISODES, 0)
        returns = self.columns.values("return", first)
        sums = np.concatenate([[0.0], np.cumsum(returns)])
        ends = np.arange(begin - first, len(returns)) + 1
        begins = np.maximum(ends - MEAN_EPISODES, 0)
        found: Numbers = (sums[ends] - sums[begins]) / (ends - begins)
        return found


class Events(_File):
    """events.jsonl: the newest events, and when the run began to go on."""

    kind = "events"

    def clear(self) -> None:
        self.newest: deque[Row] = deque(maxlen=MAX_EVENTS)
        self.turns: list[tuple[float, str]] = []
        self._count = 0

    def add(self, row: Row) -> None:
        if not isinstance(row.get("event"), str):
            return
        self._count += 1
        self.newest.append(tamed(row))
        unix_s = moment(row)
        if row["event"] in MIN_PAUSE_S and unix_s is not None and len(self.turns) < MAX_TURNS:
            self.turns.append((unix_s, row["event"]))

    def __len__(self) -> int:
        return self._count


class Hardware(_ColumnFile):
    """hardware.jsonl: every number by its dotted name."""

    kind = "hardware"

    def clear(self) -> None:
        self.columns = Columns(exact=EXACT)
        self.newest: Row = {}

    def add(self, row: Row) -> None:
        numbers = usable_numbers(row, self.kind)
        if numbers is not None:
            self.columns.append(numbers)
            self.newest = row


class GrowingRun:
    """All files of one run; `read` goes on where it stopped."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.metrics = Metrics(path)
        self.episodes = Episodes(path)
        self.events = Events(path)
        self.hardware = Hardware(path)
        self.files: Mapping[Kind, _File] = {kind: getattr(self, kind) for kind in KINDS}
        self._clock: tuple[object, RunClock] | None = None

    def read(self, *, budget_s: float, created_unix_s: float | None = None, kinds: Collection[Kind] = KINDS) -> bool:
        """Read on for about so long; return whether everything that is there was read."""
        end_s = time.monotonic() + budget_s
        for kind in KINDS:
            while kind in kinds and self.files[kind].read():
                if time.monotonic() > end_s:
                    return False
        self._set_clock(created_unix_s)
        return True

    def progress(self, kinds: Collection[Kind] = KINDS) -> float:
        """Return the share of the bytes that were read, 0 … 1."""
        sizes = {kind: _size(self.files[kind].tail.path) for kind in kinds}
        done = sum(min(self.files[kind].tail.read_bytes, size) for kind, size in sizes.items())
        return done / max(sum(sizes.values()), 1)

    @property
    def cells(self) -> int:
        """How much memory it takes, in numbers."""
        kept = (self.metrics.columns, self.episodes.columns, self.hardware.columns)
        return sum(len(columns) * len(columns.names) for columns in kept)

    # Where rows stand on an axis

    @property
    def clock(self) -> RunClock:
        """The clock of the run, pauses left out."""
        return self._clock[1] if self._clock is not None else RunClock(0.0, 0.0, ())

    def generation(self, kind: Kind, place: Place) -> tuple[object, ...]:
        """Return what changes when rows of a file that were given out are no longer right."""
        clock = self.clock
        others = (self.metrics, self.hardware) if place != "minutes" else ()
        return (*self.files[kind].generation, clock.begin_unix_s, len(clock.pauses), *(o.generation for o in others))

    def places(self, file: _ColumnFile, place: Place, begin: int = 0) -> Numbers:
        """Return where rows stand on an axis, never falling; NaN where that is unknown."""
        unix_s = file.columns.values("unix_s", begin)
        if place == "minutes":
            found = self.minutes(unix_s)
        elif place == "steps" and file is not self.hardware:
            found = file.columns.values("steps", begin)
        else:
            found = self.interpolated(unix_s, place)
        return np.fmax.accumulate(found) if len(found) else found

    def minutes(self, unix_s: Numbers) -> Numbers:
        """Return the minutes since the start, pauses left out."""
        clock = self.clock
        paused_s = np.zeros(len(unix_s))
        for begin_s, end_s in clock.pauses:
            paused_s += np.clip(unix_s - begin_s, 0.0, end_s - begin_s)
        return (unix_s - clock.begin_unix_s - paused_s) / 60.0

    def interpolated(self, unix_s: Numbers, place: Place) -> Numbers:
        """Return steps or CPU seconds at moments of the wall clock, by the rows around them."""
        source = self.metrics if place == "steps" else self.hardware
        if not len(source) or (place == "cpu_s" and "cpu_s" not in source.columns):
            return np.full(len(unix_s), np.nan)
        known_s = np.fmax.accumulate(source.columns.values("unix_s"))
        values = source.columns.values("steps") if place == "steps" else _spent(source.columns.values("cpu_s"))
        return np.interp(unix_s, known_s, values)

    def _set_clock(self, created_unix_s: float | None) -> None:
        known = ((*file.generation, len(file) > 0) for file in self.files.values())
        basis = (created_unix_s, len(self.events.turns), *known)
        if self._clock is not None and self._clock[0] == basis:
            return
        moments = self._moments()
        first_s = moments[0] if moments else 0.0
        if created_unix_s is not None and 0 <= first_s - created_unix_s <= MAX_START_UP_S:
            first_s = created_unix_s
        pauses: list[tuple[float, float]] = []
        for begin_s, event in sorted(self.events.turns):
            pause = (moments[max(bisect_left(moments, begin_s) - 1, 0)] if moments else begin_s, begin_s)
            is_apart = not pauses or pause[0] >= pauses[-1][1]
            if pause[1] - pause[0] > MIN_PAUSE_S[event] and is_apart:
                pauses.append(pause)
        self._clock = (basis, RunClock(first_s, max(moments, default=first_s), tuple(pauses)))

    def _moments(self) -> list[float]:
        """Return the times of all rows, in order."""
        columns = [file.columns.values("unix_s") for file in (self.metrics, self.episodes, self.hardware)]
        told = [unix_s for row in self.events.newest if (unix_s := moment(row)) is not None]
        begun = self.hardware.columns.values("unix_s")[:1] - self.hardware.columns.values("interval_s")[:1]
        found: list[float] = np.sort(np.concatenate([*columns, begun, told])).tolist()
        return found


def _spent(counter: Numbers) -> Numbers:
    """Return a sum over recordings, each of which counts from 0."""
    known = np.where(np.isnan(counter), np.fmax.accumulate(np.nan_to_num(counter)), counter)
    steps = np.diff(known, prepend=0.0)
    total: Numbers = np.cumsum(np.where(steps < 0, known, steps))
    return total


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0
