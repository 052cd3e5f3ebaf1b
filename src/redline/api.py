"""Redline from Python: train, hold the loop, read a run, act with its agent. docs/python.md shows how."""

from __future__ import annotations

import atexit
import logging
import signal
import threading
import weakref
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from statistics import fmean
from typing import Any, Self

import numpy as np
import torch

from redline.algorithms.catalog import register_algorithm, register_part
from redline.cli.flags import train_defaults
from redline.cli.parsing import SHORT
from redline.cli.process import StopRequest
from redline.envs.catalog import Suite, allow_module, register_env
from redline.errors import UserError
from redline.jsonl import Row, read_records
from redline.recipes import find_recipe
from redline.runs.locating import locate_run
from redline.runs.manifest import NEWEST, find_checkpoint
from redline.runs.run_json import read_run_json
from redline.runtime.config import flatten, from_settings
from redline.runtime.gauges import Gauges
from redline.runtime.launch import AnySession, resume_run, start_run
from redline.runtime.playing import Agent, EvaluationConfig, evaluate
from redline.runtime.resolve import reopened, share_out
from redline.runtime.resuming import read_run
from redline.runtime.session import Outcome
from redline.runtime.sinks import RunStart, Sink
from redline.types import Array, FloatArray

Callback = Callable[[Row], object]  # called with every reading; a true result stops the run

WARNING = "warning: "  # prefix of a warning among the lines of a run

logger = logging.getLogger("redline")


def train(
    env_id: str | None = None,
    algorithm: str | None = None,
    *,
    recipe: str | None = None,
    seed: int | None = None,
    callbacks: Sequence[Callback] = (),
    sinks: Sequence[Sink] = (),
    sets_process: bool = True,
    **settings: Any,
) -> Run:
    """Train an agent to the end and return its run; on Pong with DQN if neither names nor a recipe say otherwise.

    `settings` are named as in a file for `--config`: `num_envs=16`, `optimizer={"lr": 1e-3}`, `env={"size": 60}`. With
    `sets_process=False` the run changes no setting of the process: PyTorch's threads, denormals, the allocator, TF32.
    """
    begun = training(env_id, algorithm, recipe=recipe, seed=seed, sinks=sinks, sets_process=sets_process, **settings)
    return begun.finish(callbacks)


def training(
    env_id: str | None = None,
    algorithm: str | None = None,
    *,
    recipe: str | None = None,
    seed: int | None = None,
    sinks: Sequence[Sink] = (),
    sets_process: bool = True,
    **settings: Any,
) -> Training:
    """Begin to train an agent, and return an iterator over the run's readings. Leaving the loop stops the run."""
    if env_id:
        allow_module(env_id)
    names = {"env": env_id, "algo": algorithm, "recipe": recipe}
    args = [word for name, value in names.items() if value is not None for word in (f"--{name}", str(value))]
    flags = train_defaults(args, _plain(settings if seed is None else {**settings, "seed": seed}))
    known = None if recipe is None else find_recipe(recipe)
    session = start_run(flags.job, flags.algo, _Log(), recipe=known, sinks=sinks, sets_process=sets_process)
    if sets_process and flags.job.topology == "inline":
        said = "in this process PyTorch has %d threads, denormals are 0 and freed memory is kept from now on"
        logger.info(said, torch.get_num_threads())
    return Training(session)


def load(run: str | Path, checkpoint: str | int = NEWEST) -> Agent:
    """Return the agent of a run, with the weights of its newest checkpoint, of the best one or of one by its steps."""
    return Run(run).agent(checkpoint)


class Training(Iterator[Row]):
    """A run under way: its readings as rows of metrics.jsonl, one about every second.

    A signal that comes while it trains takes effect when the run has saved a checkpoint.
    """

    def __init__(self, session: AnySession) -> None:
        self.path = session.run.path
        self._session = session
        self._stop = StopRequest()
        # it has no reference to this object, so it is closed as soon as the script drops the loop
        self._readings = _drive(session, self._stop)
        next(self._readings)  # enters the session, which is then closed in any case
        _open.add(self)

    @property
    def outcome(self) -> Outcome | None:
        """How the run ended, once it has."""
        return self._session.outcome

    @property
    def run(self) -> Run:
        """The run, as far as it is written."""
        return Run(self.path)

    def __next__(self) -> Row:
        with self._signals(), suppress(StopIteration):
            reading = next(self._readings)
            return {} if reading is None else reading.row()
        self._raise_signal()
        raise StopIteration

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Stop the run, unless it has ended: it saves a checkpoint and gives back what it holds."""
        with self._signals():
            self._readings.close()
        self._raise_signal()

    def _signals(self) -> AbstractContextManager[object]:
        """Python lets only the main thread handle signals."""
        return self._stop if threading.current_thread() is threading.main_thread() else nullcontext()

    def _raise_signal(self) -> None:
        """Raise a signal again that came while the run was at work."""
        number, self._stop.signal = self._stop.signal, None
        if number is not None:
            signal.raise_signal(number)

    def finish(self, callbacks: Sequence[Callback] = ()) -> Run:
        """Train to the end, or until a callback returns something true, and return the run."""
        with self:
            for reading in self:
                answers = [callback(reading) for callback in callbacks]  # all of them see every reading
                if any(answers):
                    break
        return self.run


_open: weakref.WeakSet[Training] = weakref.WeakSet()


@atexit.register
def _close_all() -> None:
    """Stop and save the runs that a script still holds when it ends: their processes would outlive it."""
    for training in list(_open):
        training.close()


def _drive(session: AnySession, stop: StopRequest) -> Generator[Gauges | None, None, None]:
    with session:
        yield None  # before the run
        yield from session.readings(stop.reason)


class Run:
    """A run on the disk: its settings, its rows, and what can be done with it."""

    def __init__(self, path: str | Path) -> None:
        """Take a run directory, the newest run of a folder, or `last`."""
        self.path = locate_run(str(path))
        self.facts: Mapping[str, Any] = read_run_json(self.path)

    def __repr__(self) -> str:
        return f"redline.Run({str(self.path)!r})"

    @property
    def metrics(self) -> Rows:
        """Readings every few seconds."""
        return self._rows("metrics.jsonl")

    @property
    def episodes(self) -> Rows:
        """Every episode, of training and of evaluations (`role`)."""
        return self._rows("episodes.jsonl")

    @property
    def hardware(self) -> Rows:
        """Samples of the hardware monitor."""
        return self._rows("hardware.jsonl")

    @property
    def events(self) -> Rows:
        """Events: start, checkpoints, evaluations, stop."""
        return self._rows("events.jsonl")

    def _rows(self, name: str) -> Rows:
        path = self.path / name
        return Rows(read_records(path) if path.exists() else [])

    def resume(
        self,
        callbacks: Sequence[Callback] = (),
        sinks: Sequence[Sink] = (),
        *,
        sets_process: bool = True,
        **settings: Any,
    ) -> Run:
        """Go on with the run to its end; `settings` are those that a resume may change (docs/resume.md)."""
        return self.resuming(sinks, sets_process=sets_process, **settings).finish(callbacks)

    def resuming(self, sinks: Sequence[Sink] = (), *, sets_process: bool = True, **settings: Any) -> Training:
        """Go on with the run, and return an iterator over its readings."""
        saved, plain = read_run(self.path), _plain(settings)
        given = {key.replace("_", "-"): str(value) for key, value in flatten(plain)}
        job = share_out(from_settings(reopened(saved.job, given), plain), given)
        return Training(resume_run(saved, job, _Log(), sinks=sinks, sets_process=sets_process))

    def evaluate(self, checkpoint: str | int = NEWEST, **settings: Any) -> Evaluated:
        """Play whole episodes without learning; `settings` are those of `redline eval`: episodes, seed, epsilon, …"""
        found = find_checkpoint(self.path, checkpoint, with_replay=False)
        try:
            config = EvaluationConfig(**_plain(settings))
        except TypeError as error:
            raise UserError(f"evaluate takes the settings of redline eval: {error}") from None
        episodes = evaluate(read_run(self.path).job, found, config, progress=lambda share: None).played
        return Evaluated([one.total_reward for one in episodes], [one.length_steps for one in episodes], found.steps)

    def agent(self, checkpoint: str | int = NEWEST) -> Agent:
        """Return the agent with the weights of a checkpoint: newest, best or its steps."""
        return Agent(read_run(self.path), checkpoint)


class Rows(list[Row]):
    """Rows of a file of a run, as dicts or as columns."""

    def columns(self) -> dict[str, Array]:
        """Return an array for each name; missing values are NaN among numbers, None elsewhere."""
        names = dict.fromkeys(name for row in self for name in row)
        return {name: _column([row.get(name) for row in self]) for name in names}

    def pandas(self) -> Any:
        """Return a data frame, if pandas is installed."""
        try:
            return import_module("pandas").DataFrame(self)
        except ModuleNotFoundError:
            raise UserError("pandas is not installed: pip install pandas, or use columns()") from None


@dataclass(frozen=True)
class Evaluated:
    """Returns of an agent in whole episodes."""

    returns: list[float]  # unclipped
    lengths_steps: list[int]
    weights_steps: int  # of the run when the weights were saved

    @property
    def mean_return(self) -> float:
        """Return the mean over the episodes."""
        return fmean(self.returns)


class _Log:
    """Hands the lines of a run to Python's logging."""

    def note(self, text: str) -> None:
        level = logging.WARNING if text.startswith(WARNING) else logging.INFO
        logger.log(level, text.removeprefix(WARNING))

    def show(self, gauges: Gauges) -> None:
        """Do nothing: the loop yields readings."""


def _plain(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return settings with Python's own numbers for NumPy's, and the short names of the command line spelled out."""
    plain = {name: _number(value) for name, value in settings.items()}
    for short, flag in SHORT.items():
        if (value := plain.pop(short.removeprefix("--"), None)) is not None:
            table, key = flag.removeprefix("--").split(".")
            plain[table] = {**plain.get(table, {}), key: value}
    return plain


def _number(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {name: _number(item) for name, item in value.items()}
    return value.item() if isinstance(value, np.generic) else value


def _column(values: list[Any]) -> Array:
    if any(isinstance(value, int | float) for value in values):
        with suppress(TypeError, ValueError):
            numbers: FloatArray = np.array([np.nan if value is None else value for value in values], dtype=np.float64)
            return numbers
    column: Array = np.empty(len(values), dtype=object)
    column[:] = values
    return column


__all__ = [
    "Agent",
    "Evaluated",
    "Rows",
    "Run",
    "RunStart",
    "Sink",
    "Suite",
    "Training",
    "UserError",
    "load",
    "register_algorithm",
    "register_env",
    "register_part",
    "train",
    "training",
]
