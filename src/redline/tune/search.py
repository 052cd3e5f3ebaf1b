"""The search: trials side by side until the time is over, each ended early if others do better; and its display."""

import math
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import optuna
from optuna.trial import TrialState

from redline.errors import UserError
from redline.tune.goals import RunResult
from redline.tune.space import Space
from redline.tune.study import StudyFolder
from redline.tune.training import Launch, Training, stop_all
from redline.tune.trials import (
    FAILED,
    FIRST_RUN_STEP,
    OUTCOME,
    RESULTS,
    RUNGS,
    Halving,
    TrialRecord,
    best_of,
    draw,
    read_trials,
    set_back,
    to_drawn,
    to_settings,
)

POLL_S = 0.2
SHOW_S = 1.0
SAVE_S = 5.0  # between two writes of the time spent
SLACK_S = 0.1  # a trial begins a moment after the search
MOST_FAILURES = 5  # in a row: then the space or the machine is to blame

Stop = Callable[[], str | None]


@dataclass(frozen=True)
class TrialView:
    """The state of one trial."""

    number: int
    state: str  # running, done, pruned, failed or interrupted
    settings: Mapping[str, Any]  # those that vary
    told: str  # its value, or how far it is


@dataclass(frozen=True)
class SearchView:
    """The state of a whole search."""

    phase: str
    trials: Sequence[TrialView]
    best: int | None  # number of the best trial so far
    share: float  # of the phase, 0 … 1
    left_s: float | None  # until the phase ends, at most; None if unknown


class Display(Protocol):
    """Shows a search."""

    def note(self, text: str) -> None:
        """Show a line."""
        ...

    def show(self, view: SearchView) -> None:
        """Show the state of the search."""
        ...


def describe_settings(settings: Mapping[str, Any]) -> str:
    """Return settings in one line."""
    return ", ".join(f"{key} {describe_value(value)}" for key, value in settings.items())


def describe_value(value: Any) -> str:
    """Return a setting's value in short."""
    return f"{value:.3g}" if isinstance(value, float) else str(value)


class SearchFailedError(UserError):
    """Too many trials in a row failed."""


class Attempt:
    """A running trial, which trains its seeds one after the other."""

    def __init__(self, search: "Search", trial: optuna.Trial) -> None:
        self._search = search
        self._trial = trial
        self.number = trial.number
        self.settings = to_settings(search.space, trial.params)
        self.results: list[RunResult] = []
        self._rungs = deque(RUNGS.items())
        self.training = self._start()

    def _start(self) -> Training:
        folder = self._search.folder
        return Training(
            folder,
            self._search.launch,
            home=folder.trial_folder(self.number),
            varied=self.settings,
            seed=folder.settings.search_seed(self.number, len(self.results)),
            minutes=folder.settings.minutes_per_trial,
        )

    def has_ended(self) -> bool:
        """Follow the run; at its end begin the next one, or finish the trial."""
        is_over = self.training.has_ended()
        if not is_over:
            if not self.results and self.training.curve.reached_s is None and self._is_behind():
                self.training.stop()
                self.training.wait()
                steps, share = self.training.curve.steps, self.training.share
                return self._end(TrialState.PRUNED, f"behind at {steps:,} steps, {share:.0%} of its minutes")
            return False
        result = self.training.result()
        self.results.append(result)
        self._trial.set_user_attr(RESULTS, [found.row() for found in self.results])
        if result.failure:  # for the sampler the worst there is
            return self._end(TrialState.PRUNED, result.failure, state=FAILED)
        return self._after_run()

    def _after_run(self) -> bool:
        asked = self._search.folder.settings
        self._search.halving.note_run(self.results[-1].steps)
        while self._rungs:  # rungs that it passed unseen: other trials are compared with its means there
            self._is_behind_at_rung()
        score = asked.aim.score(self.results)
        step = FIRST_RUN_STEP * 2 ** (len(self.results) - 1)
        is_behind = self._search.halving.is_behind(self._trial, step, score)
        if len(self.results) == asked.seeds_per_trial:
            return (
                self._end(TrialState.COMPLETE, "") if math.isfinite(score) else self._end(TrialState.PRUNED, "no score")
            )
        if is_behind:
            runs = f"{len(self.results)} of {asked.seeds_per_trial} seeds"
            return self._end(TrialState.PRUNED, f"behind after {runs}")
        self.training = self._start()
        return False

    def _is_behind(self) -> bool:
        """Tell whether other trials were better at the same point of their first run."""
        if self.training.curve.mean is None:
            return False  # a long first episode is not a bad one
        is_behind, share = False, self._search.halving.share_of(self.training)
        while self._rungs and share >= self._rungs[0][1] and not is_behind:
            is_behind = self._is_behind_at_rung()
        return is_behind

    def _is_behind_at_rung(self) -> bool:
        """Compare the mean at the next rung with other trials."""
        step, share = self._rungs.popleft()
        halving = self._search.halving
        return halving.is_behind(self._trial, step, halving.mean_at(self.training.curve, share))

    def _end(self, ended: TrialState, why: str, *, state: str = "") -> bool:
        self._trial.set_user_attr(OUTCOME, {"state": state, "why": why})
        if not self.results:
            now = self.training.result()
            self._trial.set_user_attr(RESULTS, [now.row()])
        score = self._search.folder.settings.aim.score(self.results) if ended == TrialState.COMPLETE else None
        self._search.study.tell(self.number, score, state=ended)
        return True

    def view(self) -> TrialView:
        """Return the state of the trial."""
        asked = self._search.folder.settings
        place = f"seed {len(self.results) + 1} of {asked.seeds_per_trial}, " if asked.seeds_per_trial > 1 else ""
        told = f"{place}{self.training.describe()}"
        return TrialView(number=self.number, state="running", settings=self.settings, told=told)


class Search:
    """Draws settings, trains them, and keeps the results in the study's folder."""

    def __init__(
        self, folder: StudyFolder, study: optuna.Study, space: Space, launch: Launch, display: Display
    ) -> None:
        self.folder = folder
        self.study = study
        self.space = space
        self.launch = launch
        self.halving = Halving(study, folder.settings)
        self._display = display
        self._running: list[Attempt] = []
        self._ended = 0
        self._failed: list[str] = []  # in a row
        self._noted_s = time.monotonic()
        self._shown_s = -math.inf

    def run(self, defaults: Mapping[str, Any], stop: Stop) -> str | None:
        """Search until time or trials are used up; return why it was stopped before, or None.

        The first trial has the default settings, as far as they are in the space.
        """
        again = set_back(self.study, self.space)
        if again:
            self._display.note(f"trials {', '.join(map(str, again))} were running at the end: they start again")
        records = read_trials(self.study, self.space)
        self._ended = sum(record.state in ("done", "pruned", FAILED) for record in records)
        if not self.study.get_trials(deepcopy=False):
            self.study.enqueue_trial(to_drawn(self.space, defaults))
        self._noted_s = time.monotonic()
        try:
            reason = self._train(stop)
        finally:
            self._stop_runs()
        # not in `finally`: after a failed write, one more would turn a torn last line into a damaged one
        set_back(self.study, self.space)
        if self._is_hopeless():
            raise SearchFailedError(f"{MOST_FAILURES} trials in a row failed, the last: {self._failed[-1]}")
        return reason

    def _train(self, stop: Stop) -> str | None:
        while (reason := stop()) is None and not self._is_hopeless():
            self._start_trials()
            if not self._running:
                return None
            self._follow()
            if time.monotonic() >= self._shown_s + SHOW_S:
                self._shown_s = time.monotonic()
                self._display.show(self.view())
            time.sleep(POLL_S)
        return reason

    def _is_hopeless(self) -> bool:
        return len(self._failed) >= MOST_FAILURES

    def _start_trials(self) -> None:
        if not self._has_time_for_a_trial():
            return
        while len(self._running) < self.folder.settings.side_by_side and self._may_begin():
            attempt = Attempt(self, draw(self.study, self.space, self.folder.path))
            self._running.append(attempt)
            self._display.note(f"trial {attempt.number}: {describe_settings(attempt.settings)}")

    def _may_begin(self) -> bool:
        most = self.folder.settings.trials
        return most is None or self._ended + len(self._running) < most

    def _has_time_for_a_trial(self) -> bool:
        """Tell whether a new trial with all its seeds fits into the rest of the time."""
        asked = self.folder.settings
        if asked.search_minutes is None:
            return True
        return self._spent_s() + asked.trial_minutes * 60 <= asked.search_minutes * 60 + SLACK_S

    def _follow(self) -> None:
        for attempt in list(self._running):
            if attempt.has_ended():
                self._running.remove(attempt)
                self._ended += 1
                self._tell(attempt.number)
        if time.monotonic() - self._noted_s >= SAVE_S:
            self._save_time()

    def _tell(self, number: int) -> None:
        records = read_trials(self.study, self.space)
        (record,) = (found for found in records if found.number == number)
        best = best_of(records)
        is_best = best is not None and best.number == number
        self._display.note(f"trial {number} {self.told(record)}{', the best so far' if is_best else ''}")
        self._failed = [*self._failed, record.why] if record.state == FAILED else []

    def told(self, record: TrialRecord) -> str:
        """Describe how a trial ended."""
        if record.state == "done":
            return f"done: {self.folder.settings.aim.describe(record.results)}"
        return f"{record.state}: {record.why}" if record.why else record.state

    def _spent_s(self) -> float:
        return self.folder.spent_s + time.monotonic() - self._noted_s

    def _save_time(self) -> None:
        now_s = time.monotonic()
        seconds, self._noted_s = now_s - self._noted_s, now_s
        self.folder.spend(seconds)

    def _stop_runs(self) -> None:
        stop_all([attempt.training for attempt in self._running])
        self._running.clear()
        self._save_time()

    def view(self) -> SearchView:
        """Return the state of the search."""
        asked, records = self.folder.settings, read_trials(self.study, self.space)
        best, running = best_of(records), {attempt.number: attempt for attempt in self._running}
        shares = list(self._shares())
        left_s = None if asked.search_minutes is None else max(0.0, asked.search_minutes * 60 - self._spent_s())
        return SearchView(
            phase=f"search, {self._ended} trials ended",
            trials=[
                running[record.number].view() if record.number in running else self._past(record) for record in records
            ],
            best=None if best is None else best.number,
            share=max(shares, default=0.0),
            left_s=left_s,
        )

    def _shares(self) -> Iterator[float]:
        asked = self.folder.settings
        if asked.search_minutes is not None:
            yield min(1.0, self._spent_s() / (asked.search_minutes * 60))
        if asked.trials is not None:
            yield min(1.0, self._ended / asked.trials)

    def _past(self, record: TrialRecord) -> TrialView:
        told = self.told(record).partition(": ")[2]
        return TrialView(number=record.number, state=record.state, settings=record.settings, told=told)
