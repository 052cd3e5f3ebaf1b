"""The search: trials side by side until the time is over, each ended early where others did better by then."""

import math
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import optuna
from optuna.trial import TrialState

from redline.errors import UserError
from redline.tune.goals import RunResult
from redline.tune.halving import FIRST_RUN_STEP, RUNGS, Halving
from redline.tune.space import Space
from redline.tune.study import StudyFolder
from redline.tune.training import Launch, Training
from redline.tune.trials import (
    FAILED,
    OUTCOME,
    RESULTS,
    TrialRecord,
    best_of,
    draw,
    read_trials,
    set_back,
    to_drawn,
    to_settings,
)
from redline.tune.watching import Display, SearchView, TrialView, describe_settings

POLL_S = 0.2
SHOW_S = 1.0
SAVE_S = 5.0  # between two notes of the time spent
SLACK_S = 0.1  # a trial that takes the whole time begins a moment after the search
MOST_FAILURES = 5  # one after the other, after which the space or the machine is to blame

Stop = Callable[[], str | None]


class SearchFailedError(UserError):
    """Trial after trial failed: going on would find nothing."""


class Attempt:
    """A trial under way: its seeds are trained one after the other."""

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
        """Follow the run; begin the next, or finish the trial, where it is over."""
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
        if result.failure:  # for the sampler, what can't be trained is the worst there is
            return self._end(TrialState.PRUNED, result.failure, state=FAILED)
        return self._after_run()

    def _after_run(self) -> bool:
        asked = self._search.folder.settings
        self._search.halving.note_run(self.results[-1].steps)
        while self._rungs:  # nobody knew yet how long a run is, or it ended before a look: others need its means
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
        """Tell whether others had more to show after as many minutes of their first run, or as many steps."""
        if self.training.curve.mean is None:
            return False  # a long first episode is no bad one
        is_behind, share = False, self._search.halving.share_of(self.training)
        while self._rungs and share >= self._rungs[0][1] and not is_behind:
            is_behind = self._is_behind_at_rung()
        return is_behind

    def _is_behind_at_rung(self) -> bool:
        """Compare the mean at the next rung, however far the run is by now."""
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
        """Return how the trial stands."""
        curve, asked = self.training.curve, self._search.folder.settings
        place = f"seed {len(self.results) + 1} of {asked.seeds_per_trial}, " if asked.seeds_per_trial > 1 else ""
        mean = "no episode yet" if curve.mean is None else f"mean {curve.mean:.1f}".replace("-", "−")
        told = f"{place}{self.training.share:.0%}, {curve.steps:,} steps, {mean}"
        return TrialView(number=self.number, state="running", settings=self.settings, told=told, score=None)


class Search:
    """Draws settings, trains them, and keeps what was found in the study's folder."""

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
        self._failed: list[str] = []  # one after the other
        self._noted_s = time.monotonic()
        self._shown_s = -math.inf

    def run(self, defaults: Mapping[str, Any], stop: Stop) -> str | None:
        """Search until time or trials are used up; return why it was stopped before, if it was.

        The first trial has the default settings, as far as the space holds them.
        """
        again = set_back(self.study, self.space)
        if again:
            self._display.note(f"trials {', '.join(map(str, again))} were under way when the search ended: again")
        records = read_trials(self.study, self.space)
        self._ended = sum(record.state in ("done", "pruned", FAILED) for record in records)
        if not self.study.get_trials(deepcopy=False):
            self.study.enqueue_trial(to_drawn(self.space, defaults))
        self._noted_s = time.monotonic()
        try:
            reason = self._train(stop)
        finally:
            self._stop_runs()
        # only now: after a failed write, one more would make the half line that it left a damaged one
        set_back(self.study, self.space)
        if self._is_hopeless():
            raise SearchFailedError(f"{MOST_FAILURES} trials failed one after the other, the last: {self._failed[-1]}")
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
        """Tell whether all seeds of a trial still fit into the search's time; a trial that has begun has them all."""
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
        """Say how a trial ended."""
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
        for attempt in self._running:
            attempt.training.stop()
        for attempt in self._running:
            attempt.training.wait()
        self._running.clear()
        self._save_time()

    def view(self) -> SearchView:
        """Return how everything stands."""
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
        return TrialView(
            number=record.number, state=record.state, settings=record.settings, told=told, score=record.score
        )
