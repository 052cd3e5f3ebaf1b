"""One run of a search: `redline train` in its own process, followed through the files that it writes."""

import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from redline.fleet.engines.local import LocalProcess
from redline.jsonl import RecordTail, plain_text
from redline.recipes import write_settings
from redline.tune.goals import Curve, RunResult
from redline.tune.study import StudyFolder
from redline.units import number

SETTINGS_TOML = "settings.toml"
START_AND_STOP_S = 300.0  # to load, build and save, on a busy machine
STOP_S = 30.0  # to write a last checkpoint
LOG_TAIL_BYTES = 8_000
DONE, STOPPED = 0, 75


@dataclass(frozen=True)
class Launch:
    """How runs are started: the program, and the settings that all runs share."""

    program: tuple[str, ...]  # followed by the arguments of `redline`
    settings: Mapping[str, Any]  # algorithm, env, and the fixed settings of the space


class Training:
    """A running training; it ends by itself, at its goal, or when it is stopped."""

    def __init__(
        self,
        folder: StudyFolder,
        launch: Launch,
        *,
        home: Path,
        varied: Mapping[str, Any],
        seed: int,
        minutes: float,
    ) -> None:
        self.seed = seed
        self.curve = Curve(folder.settings.window, folder.settings.aim.target_return)
        self._minutes = minutes
        self._study = folder
        self._home = home
        self._before = set(self._run_folders())
        self._run: Path | None = None
        self._tails: list[RecordTail] = []  # of episodes and of metrics
        self._log = home / f"s{seed}.log"
        self._stopped = self._is_late = False
        self._limit_s = time.monotonic() + minutes * 60 + START_AND_STOP_S
        write_settings(home / SETTINGS_TOML, {**launch.settings, **varied})
        self._process = LocalProcess([*launch.program, *self._arguments()], self._log)

    def _arguments(self) -> Sequence[str]:
        asked = self._study.settings
        limit = () if asked.aim.max_steps is None else ("--max-steps", str(asked.aim.max_steps))
        typed = ("--env", asked.env) if ":" in asked.env else ()  # the search was allowed to import the module
        return (
            *("train", "--config", str(self._home / SETTINGS_TOML), "--log-dir", str(self._home)),
            *("--seed", str(self.seed), "--max-minutes", repr(self._minutes), *limit),
            *("--learner.threads", str(asked.threads), "--actor.threads", str(asked.threads), "--plain", *typed),
        )

    @property
    def share(self) -> float:
        """Share of its minutes, or of the goal's steps, that the run has done."""
        most_steps = self._study.settings.aim.max_steps
        by_steps = 0.0 if most_steps is None else self.curve.steps / most_steps
        return min(max(self.curve.time_s / (self._minutes * 60), by_steps), 1.0)

    def describe(self) -> str:
        """Describe how far the run is."""
        mean = "no episode yet" if self.curve.mean is None else f"mean {number(self.curve.mean, 1)}"
        return f"{self.share:.0%}, {self.curve.steps:,} steps, {mean}"

    def has_ended(self) -> bool:
        """Read new rows, stop the run once it has reached the goal, and tell whether it is over."""
        is_over = self._process.exit_code is not None  # asked before the files are read: all rows are there then
        self._read()
        if not is_over and self.curve.reached is not None:
            self.stop()
        if not is_over and time.monotonic() > self._limit_s:
            self._is_late = True
            self.kill()
        return is_over

    def stop(self) -> None:
        """Ask the run to save a checkpoint and end; after half a minute it is killed."""
        if not self._stopped:
            self._stopped = True
            self._limit_s = time.monotonic() + STOP_S
            self._process.stop()

    def kill(self) -> None:
        """End the run at once."""
        self._process.kill()

    def wait(self) -> None:
        """Wait until the run is over; kill it at its time limit."""
        self._process.wait(self._limit_s - time.monotonic())

    def result(self) -> RunResult:
        """Return the result of the run."""
        run = "" if self._run is None else str(self._run.relative_to(self._study.path))
        return self.curve.result(seed=self.seed, run=run, failure=self._failure())

    def _failure(self) -> str:
        code, has_reached = self._process.exit_code, self.curve.reached is not None
        if code == DONE or (code == STOPPED and self._stopped):
            is_empty = self.curve.mean is None and not self._stopped
            return "no episode ended: give it more --minutes-per-trial" if is_empty else ""
        if self._stopped and has_reached:
            return ""  # it reached the goal, and was only slow to save
        if code is not None and code < 0:
            return "it did not end in time" if self._is_late else f"killed by signal {-code}"
        return _last_words(self._log) or f"exit code {code}"

    def _read(self) -> None:
        if self._run is None:
            self._run = next((run for run in self._run_folders() if run not in self._before), None)
            if self._run is None:
                return
            self._tails = [RecordTail(self._run / f"{name}.jsonl") for name in ("episodes", "metrics")]
        for tail, add in zip(self._tails, (self.curve.add_episode, self.curve.add_reading), strict=True):
            for row in tail.new_rows():
                add(row)

    def _run_folders(self) -> list[Path]:
        return sorted(self._home.glob(f"*/*/*-s{self.seed}*"))


def stop_all(trainings: Collection[Training]) -> None:
    """Stop all trainings at once, and wait until they are over."""
    for training in trainings:
        training.stop()
    for training in trainings:
        training.wait()


def _last_words(log: Path) -> str:
    """Return the last error message in a run's log."""
    try:
        lines = log.read_bytes()[-LOG_TAIL_BYTES:].decode(errors="replace").splitlines()
    except OSError:
        return ""
    words = [line.removeprefix("redline: ") for line in lines if line.startswith("redline: ")]
    return plain_text((words or [line for line in lines if line.strip()] or [""])[-1])
