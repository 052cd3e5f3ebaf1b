"""Trackers of runs: TensorBoard wherever it is installed, Weights & Biases, Trackio and those of other packages."""

import hashlib
import os
import re
import socket
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import redirect_stdout
from importlib import import_module
from importlib.metadata import entry_points
from importlib.util import find_spec
from typing import Any

from redline.errors import UserError, unknown_name
from redline.records import Row
from redline.runtime.sinks import EVENTS, METRICS, OpenSink, RunStart, Sink, Sinks

ENTRY_POINTS = "redline.sinks"  # group: each names a function that takes a RunStart and returns a sink
TENSORBOARD, WANDB, TRACKIO = "tensorboard", "wandb", "trackio"
HOW_TO_GET_IT = "no TensorBoard curves: pip install 'redline[tensorboard]' adds them"
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


def open_sinks(names: Sequence[str], start: RunStart, own: Sequence[Sink] = ()) -> Sinks:
    """Return the sinks of a run: TensorBoard if it is there, trackers by name, and those that a script brings."""
    openers: dict[str, OpenSink] = {TENSORBOARD: TensorBoard} if has_tensorboard() else {}
    openers |= {name: find_tracker(name) for name in names if name != TENSORBOARD}
    for sink in own:
        openers[f"sink {type(sink).__name__} {len(openers)}"] = _always(sink)
    return Sinks(openers, start)


def check_trackers(names: Sequence[str]) -> None:
    """Refuse trackers that are unknown, or whose package is not here."""
    for name in names:
        find_tracker(name)


def _always(sink: Sink) -> OpenSink:
    return lambda _: sink


def has_tensorboard() -> bool:
    """Return whether TensorBoard is installed."""
    return find_spec("tensorboard") is not None


def find_tracker(name: str) -> OpenSink:
    """Return what opens the tracker of that name; UserError where it is unknown, or its package is not here."""
    if name in (WANDB, TRACKIO, TENSORBOARD):
        if find_spec(name) is None:
            raise UserError(f"--track {name} needs a package that is not here: pip install 'redline[{name}]'")
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
    """Return the numbers of a row that a tracker draws against steps, by tag."""
    if kind == METRICS:
        return {tag: row[name] for tag, name in TAGS.items() if row.get(name) is not None}
    if kind == EVENTS and row["event"] == "evaluation":
        return {GREEDY_TAG: row["mean_return"]}
    return {}


def steps_of(row: Row) -> int:
    """Return the steps to which the numbers of a row belong: for an evaluation those of its weights."""
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
        folder.mkdir(exist_ok=True)
        name = f"events.out.tfevents.{time.time_ns() // 10**9}.{socket.gethostname()}.{os.getpid()}"
        self._file: Any = records.RecordWriter((folder / f"{name}.{start.steps}").open("wb"))
        self._add(file_version="brain.Event:2", wall_time=time.time())
        if start.steps > 0:  # hide what an earlier invocation wrote beyond its checkpoint
            begin = events.SessionLog(status=events.SessionLog.START)
            self._add(session_log=begin, step=start.steps + 1, wall_time=time.time())
        self._file.flush()

    def write(self, kind: str, row: Row) -> None:
        """Add one point to every curve that the row tells of."""
        if points := points_of(kind, row):
            values = [self._summary.Value(tag=tag, simple_value=value) for tag, value in points.items()]
            self._add(summary=self._summary(value=values), step=steps_of(row), wall_time=row["unix_s"])
            self._file.flush()

    def close(self) -> None:
        """Close the file."""
        self._file.close()

    def _add(self, **fields: Any) -> None:
        self._file.write(self._event(**fields).SerializeToString())


class WeightsAndBiases:
    """A run at Weights & Biases; without an account it is kept offline, in the run directory."""

    def __init__(self, start: RunStart) -> None:
        wandb = import_module(WANDB)
        is_asked = "WANDB_MODE" in os.environ  # by the user, who then knows best
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
        """Finish the run."""
        self._run.finish()


class Trackio:
    """A run in Trackio's local database."""

    def __init__(self, start: RunStart) -> None:
        self._trackio = import_module(TRACKIO)
        config = dict(start.facts.get("config", {}))
        with redirect_stdout(sys.stderr):  # it greets, and stdout may be for one object alone
            self._trackio.init(project=PROJECT, name=_identity(start), config=config, resume="allow", embed=False)

    def write(self, kind: str, row: Row) -> None:
        """Log the numbers of a row."""
        if points := points_of(kind, row):
            self._trackio.log(points, step=steps_of(row))

    def close(self) -> None:
        """Finish the run."""
        with redirect_stdout(sys.stderr):
            self._trackio.finish()


def _identity(start: RunStart) -> str:
    """Return what tells a run from all others, on this machine and on others, and stays over its resumes."""
    created = f"{start.path.name} {start.facts.get('created_unix_s')} {start.facts.get('host')}"
    digest = hashlib.sha256(created.encode()).hexdigest()[:8]
    return f"{re.sub('[^a-z0-9]+', '-', _label(start.facts).lower())}-{start.path.name}-{digest}"


def _label(facts: Mapping[str, Any]) -> str:
    env = facts.get("config", {}).get("env", {})
    return f"{env.get('id', 'env')} {facts.get('algorithm', '')}".strip()
