"""Sinks take in what a run tells, each on a thread of its own: one that fails or hangs never holds up training."""

import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from redline.records import Row

METRICS, EPISODES, EVENTS = "metrics", "episodes", "events"  # kinds of rows, as the files of a run are called
MOST_WAITING = 10_000  # rows for a sink that does not keep up
CLOSING_S = 10.0  # that all sinks of a run have to finish in


class Sink(Protocol):
    """Takes in the rows of a run: of `metrics`, of `episodes` and of `events`, as docs/run-directory.md lists them."""

    def write(self, kind: str, row: Row) -> None:
        """Take in a row of a kind."""
        ...

    def close(self) -> None:
        """Finish: the run has ended."""
        ...


@dataclass(frozen=True)
class RunStart:
    """What a sink is told when a run begins or goes on."""

    path: Path  # the run directory
    facts: Mapping[str, Any]  # run.json
    steps: int  # from which it goes on; 0 for a new run


OpenSink = Callable[[RunStart], Sink]


class Sinks:
    """The sinks of a run, by name."""

    def __init__(self, openers: Mapping[str, OpenSink], start: RunStart) -> None:
        self._outlets = [_Outlet(name, open_sink, start) for name, open_sink in openers.items()]
        self._is_open = False

    def begin(self) -> None:
        """Open every sink. Rows wait until then: a run that is refused at its start reaches no sink."""
        self._is_open = True
        for outlet in self._outlets:
            outlet.begin()

    def write(self, kind: str, row: Row) -> None:
        """Hand a row to every sink, and wait for none."""
        for outlet in self._outlets:
            outlet.put(kind, dict(row))

    def take_troubles(self) -> list[str]:
        """Return what went wrong since the last call, in one line each; the same is said only once."""
        return [trouble for outlet in self._outlets for trouble in outlet.take_troubles()]

    def close(self) -> None:
        """Let every sink finish, once; one that takes too long is left to the end of the process."""
        if not self._is_open:
            return
        self._is_open = False
        for outlet in self._outlets:
            outlet.end()
        end_s = time.monotonic() + CLOSING_S
        for outlet in self._outlets:
            outlet.join(max(0.0, end_s - time.monotonic()))


class _Outlet:
    """A sink, its thread, and the rows that wait for it."""

    def __init__(self, name: str, open_sink: OpenSink, start: RunStart) -> None:
        self._name = name
        self._rows: deque[tuple[str, Row] | None] = deque()  # None is the end
        self._has_row = threading.Semaphore(0)
        self._troubles: deque[str] = deque()
        self._is_behind = False
        self._has_failed = False
        self._thread = threading.Thread(target=self._run, args=(open_sink, start), name=f"redline-{name}", daemon=True)

    def begin(self) -> None:
        self._thread.start()

    def put(self, kind: str, row: Row) -> None:
        if self._has_failed:
            return
        if len(self._rows) >= MOST_WAITING:
            if not self._is_behind:
                self._is_behind = True
                self._troubles.append(f"{self._name} does not keep up, rows are left out; training goes on")
            return
        self._append((kind, row))

    def end(self) -> None:
        self._append(None)

    def join(self, timeout_s: float) -> None:
        self._thread.join(timeout_s)
        if self._thread.is_alive():
            waiting = sum(item is not None for item in tuple(self._rows))
            self._troubles.append(
                f"{self._name} did not finish within {CLOSING_S:g} s: {waiting:,} rows wait for it in vain"
            )

    def take_troubles(self) -> list[str]:
        found = []
        with suppress(IndexError):
            while True:
                found.append(self._troubles.popleft())
        return found

    def _append(self, item: tuple[str, Row] | None) -> None:
        self._rows.append(item)
        self._has_row.release()

    def _run(self, open_sink: OpenSink, start: RunStart) -> None:
        sink: Sink | None = None
        try:
            sink = open_sink(start)
            while (item := self._next()) is not None:
                sink.write(*item)
            closing, sink = sink, None
            closing.close()
        except BaseException as error:  # of foreign code, whatever it raises: it ends its own thread alone
            self._has_failed = True
            self._rows.clear()
            self._troubles.append(f"{self._name} failed: {error!r}; training goes on without it")
            if sink is not None:
                with suppress(BaseException):
                    sink.close()

    def _next(self) -> tuple[str, Row] | None:
        self._has_row.acquire()
        return self._rows.popleft()
