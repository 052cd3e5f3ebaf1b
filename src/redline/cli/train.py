"""`redline train`: start a run and watch it."""

import json
import sys
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager

from redline.cli.displays import Lines, LivePanel
from redline.cli.flags import parse_train
from redline.cli.main import DONE, FAILED, RESUMABLE, refuse
from redline.cli.stopping import StopRequest
from redline.cli.wording import duration, number, rate, size
from redline.envs.vector import EnvError
from redline.experience import ReplayError
from redline.learner import NonFiniteError
from redline.runs.errors import CheckpointError
from redline.runtime.resuming import StoppedWhileResumingError
from redline.runtime.session import Outcome, Session
from redline.runtime.starting import start_run


def run(args: Sequence[str]) -> int:
    """Train as the flags say and return the exit code."""
    with StopRequest() as stop:
        flags = parse_train(args)
        title = f"redline · {flags.algo} on {flags.job.env.id} · seed {flags.job.seed}"
        with display(title, plain=flags.plain, as_json=flags.json) as watcher:
            return train(lambda: start_run(flags.job, flags.algo, watcher), watcher, stop, as_json=flags.json)


def display(title: str, *, plain: bool, as_json: bool) -> "AbstractContextManager[LivePanel | Lines]":
    """Return the live panel in a terminal, lines elsewhere; with --json nothing but the object goes to stdout."""
    if as_json:
        return Lines(sys.stderr)
    return Lines() if plain or not sys.stdout.isatty() else LivePanel(title)


def train(open_session: Callable[[], Session], watcher: LivePanel | Lines, stop: StopRequest, *, as_json: bool) -> int:
    """Open a session, train to its end, and tell how it ended."""
    try:
        session = open_session()
    except (EnvError, ReplayError) as error:
        return refuse(str(error), as_json=as_json, code=FAILED)
    except StoppedWhileResumingError as stopped:
        return refuse(
            f"{stopped} before the run was back; its checkpoint is as it was", as_json=as_json, code=RESUMABLE
        )
    with session:
        try:
            outcome = session.train(lambda: stop.reason() or ("output closed" if watcher.is_closed else None))
        except (NonFiniteError, CheckpointError, EnvError, ReplayError) as error:
            session.event("error", message=str(error))
            return refuse(str(error), as_json=as_json, code=FAILED)
    if as_json:
        print(json.dumps(summary(outcome)))
    else:
        watcher.finish()
        for line in _closing_lines(outcome):
            watcher.note(line)
    return RESUMABLE if outcome.reason in ("SIGTERM", "SIGHUP", "output closed") else DONE


def summary(outcome: Outcome) -> dict[str, object]:
    """Return the outcome as one plain object."""
    return {
        "schema": 1,
        "reason": outcome.reason,
        "run": str(outcome.run),
        "checkpoint": str(outcome.checkpoint),
        "learning_steps_per_s": outcome.learning_steps_per_s,
        **outcome.gauges.row(),
    }


def _closing_lines(outcome: Outcome) -> list[str]:
    last = outcome.gauges
    learning = outcome.learning_steps_per_s
    speed = "no updates yet" if learning is None else f"{rate(learning)} steps/s while learning"
    return [
        f"stopped: {outcome.reason}",
        f"{last.steps:,} steps, {last.frames:,} frames, {last.updates:,} updates, {last.episodes:,} episodes in "
        f"{duration(last.time_s)}: {speed}, {number(last.samples_per_step)} samples/step",
        f"mean-100 {number(last.mean_return_100)}, best {number(last.best_return, 1)}, memory {size(last.rss_bytes)}",
        f"run {outcome.run}",
        f"go on with: redline resume {outcome.run}",
    ]
