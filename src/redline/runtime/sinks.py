"""Sinks receive the rows of a run, each on a thread of its own: one that fails or hangs never holds up training.

Trackers are sinks by name: TensorBoard if it is installed, Weights & Biases, Trackio, and those of other packages.
"""

import hashlib
import os
import re
import socket
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import redirect_stdout, suppress
from dataclasses import dataclass
from importlib import import_module
from importlib.metadata import entry_points
from importlib.util import find_spec
from pathlib import Path
from queue import SimpleQueue
from typing import Any, Protocol

from redline.errors import UserError, unknown_name
from redline.files import make_own_folder, open_own
from redline.jsonl import Row

METRICS, EPISODES, EVENTS = "metrics", "episodes", "events"  # kinds of rows, named like the files of a run
MOST_WAITING = 10_000  # rows that may wait for a slow sink
CLOSING_S = 10.0  # for all sinks of a run to finish

ENTRY_POINTS = "redline.sinks"  # group: each names a function that takes a RunStart and returns a sink
TENSORBOARD, WANDB, TRACKIO = "tensorboard", "wandb", "trackio"
HOW_TO_GET_IT = "no TensorBoard curves: pip install tensorboard adds them"
PROJECT = "redline"  # at a tracker

GROUPS = {
    "learning": (
        *("mean_return_100", "best_return", "mean_length_100_steps", "loss", "epsilon", "policy_entropy_nats"),
        *("learning_rate", "gradient_norm", "mean_q", "largest_q", "td_error"),
        *("approximate_kl_nats", "clip_fraction", "explained_variance"),
    ),
    "speed": ("steps_per_s", "updates_per_s", "samples_per_step"),
    "machine": ("cpu_percent", "rss_bytes"),
    "replay": ("replay_transitions",),
}
TAGS = {f"{group}/{name}": name for group, names in GROUPS.items() for name in names}
GREEDY_TAG = "learning/greedy_return"


class Sink(Protocol):
    """Receives the rows of a run: `metrics`, `episodes` and `events`, as docs/run-directory.md lists them."""

    def write(self, kind: str, row: Row) -> None:
        """Receive a row."""

    def close(self) -> None:
        """Finish: the run has ended."""


@dataclass(frozen=True)
class RunStart:
    """What a sink knows when a run begins or goes on."""

    path: Path  # the run directory
    facts: Mapping[str, Any]  # run.json
    steps: int  # where it goes on; 0 for a new run


OpenSink = Callable[[RunStart], Sink]


class Sinks:
    """The sinks of a run, by name."""

    def __init__(self, openers: Mapping[str, OpenSink], start: RunStart) -> None:
        self._outlets = [_Outlet(name, open_sink, start) for name, open_sink in openers.items()]
        self._is_open = False

    def begin(self) -> None:
        """Open every sink. Rows wait until then, so a run that is refused at its start reaches no sink."""
        self._is_open = True
        for outlet in self._outlets:
            outlet.thread.start()

    def write(self, kind: str, row: Row) -> None:
        """Hand a row to every sink without waiting."""
        for outlet in self._outlets:
            outlet.put(kind, dict(row))

    def take_troubles(self) -> list[str]:
        """Return the failures since the last call, one line each."""
        return [outlet.troubles.popleft() for outlet in self._outlets for _ in range(len(outlet.troubles))]

    def close(self) -> None:
        """Let every sink finish, once; one that takes too long ends with the process."""
        if not self._is_open:
            return
        self._is_open = False
        for outlet in self._outlets:
            outlet.rows.put(None)
        end_s = time.monotonic() + CLOSING_S
        for outlet in self._outlets:
            outlet.thread.join(max(0.0, end_s - time.monotonic()))
            if outlet.thread.is_alive():
                waiting = max(0, outlet.rows.qsize() - 1)  # without the end
                outlet.complain(f"did not finish within {CLOSING_S:g} s: {waiting:,} rows are not written")


class _Outlet:
    """A sink, its thread, and the rows that wait for it."""

    def __init__(self, name: str, open_sink: OpenSink, start: RunStart) -> None:
        self._name = name
        self.rows: SimpleQueue[tuple[str, Row] | None] = SimpleQueue()  # None is the end
        self.troubles: deque[str] = deque()
        self._is_behind = False
        self._has_failed = False
        self.thread = threading.Thread(target=self._run, args=(open_sink, start), name=f"redline-{name}", daemon=True)

    def complain(self, what: str) -> None:
        self.troubles.append(f"{self._name} {what}")

    def put(self, kind: str, row: Row) -> None:
        if self._has_failed:
            return
        if self.rows.qsize() < MOST_WAITING:
            self.rows.put((kind, row))
        elif not self._is_behind:
            self._is_behind = True
            self.complain("does not keep up, rows are left out; training goes on")

    def _run(self, open_sink: OpenSink, start: RunStart) -> None:
        sink: Sink | None = None
        try:
            sink = open_sink(start)
            while (item := self.rows.get()) is not None:
                sink.write(*item)
            closing, sink = sink, None
            closing.close()
        except BaseException as error:  # foreign code may raise anything: it ends only its own thread
            self._has_failed = True
            self.rows = SimpleQueue()
            self.complain(f"failed: {error!r}; training goes on without it")
            if sink is not None:
                with suppress(BaseException):
                    sink.close()


def open_sinks(names: Sequence[str], start: RunStart, own: Sequence[Sink] = ()) -> Sinks:
    """Return the sinks of a run: TensorBoard if it is installed, trackers by name, and the sinks of a script."""
    openers: dict[str, OpenSink] = {TENSORBOARD: TensorBoard} if has_tensorboard() else {}
    openers |= {name: find_tracker(name) for name in names if name != TENSORBOARD}
    for sink in own:
        openers[f"sink {type(sink).__name__} {len(openers)}"] = _always(sink)
    return Sinks(openers, start)


def check_trackers(names: Sequence[str]) -> None:
    """Refuse trackers that are unknown or not installed."""
    for name in names:
        find_tracker(name)


def _always(sink: Sink) -> OpenSink:
    return lambda _: sink


def has_tensorboard() -> bool:
    return find_spec("tensorboard") is not None


def find_tracker(name: str) -> OpenSink:
    """Return the function that opens a tracker; UserError if it is unknown or not installed."""
    if name in (WANDB, TRACKIO, TENSORBOARD):
        if find_spec(name) is None:
            raise UserError(f"--track {name} needs a package that is not here: pip install {name}")
        own: dict[str, OpenSink] = {WANDB: WeightsAndBiases, TRACKIO: Trackio, TENSORBOARD: TensorBoard}
        return own[name]
    points = {point.name: point for point in entry_points(group=ENTRY_POINTS)}
    if name not in points:
        raise unknown_name("tracker", name, [TENSORBOARD, WANDB, TRACKIO, *points])
    try:
        opener: OpenSink = points[name].load()
    except Exception as error:  # of foreign code
        raise UserError(f"--track {name} can't be loaded from {points[name].value}: {error!r}") from error
    return opener


def points_of(kind: str, row: Row) -> dict[str, float]:
    """Return the numbers of a row that a tracker plots against steps, by tag."""
    if kind == METRICS:
        return {tag: row[name] for tag, name in TAGS.items() if row.get(name) is not None}
    if kind == EVENTS and row["event"] == "evaluation":
        return {GREEDY_TAG: row["mean_return"]}
    return {}


def steps_of(row: Row) -> int:
    """Return the steps at which a row is plotted: for an evaluation those of its weights."""
    return int(row["weights_steps"] if "weights_steps" in row else row["steps"])


class TensorBoard:
    """Writes an event file into the run directory, against steps.

    torch's SummaryWriter would write on one more thread, and print a traceback when the disk is full.
    """

    def __init__(self, start: RunStart) -> None:
        events = import_module("tensorboard.compat.proto.event_pb2")
        records = import_module("tensorboard.summary.writer.record_writer")
        self._event, self._summary = events.Event, import_module("tensorboard.compat.proto.summary_pb2").Summary
        folder = start.path / "tensorboard"
        make_own_folder(folder)
        name = f"events.out.tfevents.{time.time_ns() // 10**9}.{socket.gethostname()}.{os.getpid()}"
        descriptor = open_own(folder / f"{name}.{start.steps}", os.O_WRONLY | os.O_CREAT)
        self._file: Any = records.RecordWriter(os.fdopen(descriptor, "wb"))
        try:
            self._add(file_version="brain.Event:2", wall_time=time.time())
            if start.steps > 0:  # hide points of an earlier invocation after its checkpoint
                begin = events.SessionLog(status=events.SessionLog.START)
                self._add(session_log=begin, step=start.steps + 1, wall_time=time.time())
            self._file.flush()
        except OSError:
            with suppress(OSError):
                self._file.close()
            raise

    def write(self, kind: str, row: Row) -> None:
        """Add one point to every curve of the row."""
        if points := points_of(kind, row):
            values = [self._summary.Value(tag=tag, simple_value=value) for tag, value in points.items()]
            self._add(summary=self._summary(value=values), step=steps_of(row), wall_time=row["unix_s"])
            self._file.flush()

    def close(self) -> None:
        self._file.close()

    def _add(self, **fields: Any) -> None:
        self._file.write(self._event(**fields).SerializeToString())


class WeightsAndBiases:
    """A run at Weights & Biases; without an account it is kept offline, in the run directory."""

    def __init__(self, start: RunStart) -> None:
        wandb = import_module(WANDB)
        is_asked = "WANDB_MODE" in os.environ  # by the user, whose choice stands
        self._run = wandb.init(
            project=PROJECT,
            id=_identity(start),
            name=start.path.name,
            group=_label(start.facts),
            config=dict(start.facts.get("config", {})),
            dir=str(start.path),
            resume="allow",
            mode=None if is_asked or wandb.login(prompt=False) else "offline",
            settings=wandb.Settings(silent=True, console="off", x_disable_stats=True),
        )
        self._run.define_metric("*", step_metric="steps")

    def write(self, kind: str, row: Row) -> None:
        """Log the numbers of a row."""
        if points := points_of(kind, row):
            self._run.log({"steps": steps_of(row), **points})

    def close(self) -> None:
        self._run.finish()


class Trackio:
    """A run in Trackio's local database."""

    def __init__(self, start: RunStart) -> None:
        self._trackio = import_module(TRACKIO)
        config = dict(start.facts.get("config", {}))
        with redirect_stdout(sys.stderr):  # it prints a greeting, and stdout may be reserved for one JSON object
            self._trackio.init(project=PROJECT, name=_identity(start), config=config, resume="allow", embed=False)

    def write(self, kind: str, row: Row) -> None:
        """Log the numbers of a row."""
        if points := points_of(kind, row):
            self._trackio.log(points, step=steps_of(row))

    def close(self) -> None:
        with redirect_stdout(sys.stderr):
            self._trackio.finish()


def _identity(start: RunStart) -> str:
    """Return an identity that is unique over all machines and the same over all resumes."""
    created = f"{start.path.name} {start.facts.get('created_unix_s')} {start.facts.get('host')}"
    digest = hashlib.sha256(created.encode()).hexdigest()[:8]
    return f"{re.sub('[^a-z0-9]+', '-', _label(start.facts).lower())}-{start.path.name}-{digest}"


def _label(facts: Mapping[str, Any]) -> str:
    env = facts.get("config", {}).get("env", {})
    return f"{env.get('id', 'env')} {facts.get('algorithm', '')}".strip()
