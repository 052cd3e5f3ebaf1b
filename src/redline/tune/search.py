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
from redline.tune.space import Space
from redline.tune.study import StudyFolder
from redline.tune.training import Launch, Training
from redline.tune.trials import (
    FAILED,
    OUTCOME,
    RESULTS,
    TrialRecord,
    best_of,
    distributions,
    read_trials,
    set_back,
    to_drawn,
    to_settings,
)
from redline.tune.watching import SearchView, TrialView, Watcher, describe_settings

POLL_S = 0.2
SHOW_S = 1.0
SAVE_S = 5.0  # between two notes of the time spent
RUNGS = {1: 0.25, 2: 0.5}  # Optuna's step → share of the first run's minutes, or of a whole run's steps
WHOLE_RUN_STEPS = "whole_run_steps"
FIRST_RUN_STEP = 4  # doubles with every further seed
FREE_TRIALS = 4  # at a rung, before anybody is pruned there
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
        self._search.note_whole_run(self.results[-1].steps)
        while self._rungs:  # an early end: the others are to be compared with where it ended
            self._report(self._rungs.popleft()[0], self.training.curve.mean)
        score = asked.aim.score(self.results)
        step = FIRST_RUN_STEP * 2 ** (len(self.results) - 1)
        is_behind = self._report(step, score)
        if len(self.results) == asked.seeds_per_trial:
            return (
                self._end(TrialState.COMPLETE, "") if math.isfinite(score) else self._end(TrialState.PRUNED, "no score")
            )
        runs = f"{len(self.results)} of {asked.seeds_per_trial} seeds"
        if is_behind:
            return self._end(TrialState.PRUNED, f"behind after {runs}")
        if not self._search.has_time_for_a_run():
            return self._end(TrialState.PRUNED, f"the time was over after {runs}")
        self.training = self._start()
        return False

    def _is_behind(self) -> bool:
        """Tell whether others had more to show after as many minutes of their first run, or as many steps."""
        is_behind = False
        whole = self._search.whole_run_steps
        share = self.training.share
        if self._search.folder.settings.aim.counts_steps:  # who learns more from each step is not behind for being slow
            share = 0.0 if whole is None else self.training.curve.steps / whole
        while self._rungs and share >= self._rungs[0][1] and not is_behind:
            is_behind = self._report(self._rungs.popleft()[0], self.training.curve.mean)
        return is_behind

    def _report(self, step: int, value: float | None) -> bool:
        """Tell Optuna a value; return whether it would end the trial here, and enough others were there to say so."""
        if value is None or not math.isfinite(value):
            return False
        self._trial.report(value, step)
        would_end = self._trial.should_prune()
        if self._search.folder.settings.pruning == "off":
            return False
        return would_end and self._search.count_at(step) >= FREE_TRIALS

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
        self, folder: StudyFolder, study: optuna.Study, space: Space, launch: Launch, watcher: Watcher
    ) -> None:
        self.folder = folder
        self.study = study
        self.space = space
        self.launch = launch
        self._watcher = watcher
        self._running: list[Attempt] = []
        self._distributions = distributions(space)
        self._ended = 0
        self._failed: list[str] = []  # one after the other
        self._noted_s = time.monotonic()
        self._shown_s = -math.inf
        self._whole_run_steps: int | None = study.user_attrs.get(WHOLE_RUN_STEPS)

    def run(self, defaults: Mapping[str, Any], stop: Stop) -> str | None:
        """Search until time or trials are used up; return why it was stopped before, if it was.

        The first trial has the default settings, as far as the space holds them.
        """
        again = set_back(self.study)
        if again:
            self._watcher.note(f"trials {', '.join(map(str, again))} were under way when the search ended: again")
        records = read_trials(self.study, self.space)
        self._ended = sum(record.state in ("done", "pruned", FAILED) for record in records)
        if not self.study.get_trials(deepcopy=False):
            self.study.enqueue_trial(to_drawn(self.space, defaults))
        self._noted_s = time.monotonic()
        try:
            while (reason := stop()) is None:
                self._start_trials()
                if not self._running:
                    return None
                self._follow()
                if time.monotonic() >= self._shown_s + SHOW_S:
                    self._shown_s = time.monotonic()
                    self._watcher.show(self.view())
                time.sleep(POLL_S)
            return reason
        finally:
            self._leave()

    def _start_trials(self) -> None:
        asked = self.folder.settings
        while len(self._running) < asked.side_by_side and self.has_time_for_a_run() and self._may_begin():
            attempt = Attempt(self, self.study.ask(self._distributions))
            self._running.append(attempt)
            self._watcher.note(f"trial {attempt.number}: {describe_settings(attempt.settings)}")

    def _may_begin(self) -> bool:
        most = self.folder.settings.trials
        return most is None or self._ended + len(self._running) < most

    def has_time_for_a_run(self) -> bool:
        """Tell whether a whole run still fits into the search's time."""
        asked = self.folder.settings
        if asked.search_minutes is None:
            return True
        return self._spent_s() + asked.minutes_per_trial * 60 <= asked.search_minutes * 60

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
        self._watcher.note(f"trial {number} {self.told(record)}{', the best so far' if is_best else ''}")
        self._failed = [*self._failed, record.why] if record.state == FAILED else []
        if len(self._failed) >= MOST_FAILURES:
            raise SearchFailedError(
                f"{len(self._failed)} trials failed one after the other, the last: {self._failed[-1]}"
            )

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

    def _leave(self) -> None:
        """Stop what is under way; it is queued again, for whoever goes on."""
        for attempt in self._running:
            attempt.training.stop()
        for attempt in self._running:
            attempt.training.wait()
        self._running.clear()
        set_back(self.study)
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

    @property
    def whole_run_steps(self) -> int | None:
        """Steps that count as a whole run: those of the goal, or of the first run that ended; None before."""
        return self.folder.settings.aim.max_steps or self._whole_run_steps

    def note_whole_run(self, steps: int) -> None:
        """Take in the steps of a run that ended; the first one decides."""
        if self._whole_run_steps is None and steps > 0:
            self._whole_run_steps = steps
            self.study.set_user_attr(WHOLE_RUN_STEPS, steps)

    def count_at(self, step: int) -> int:
        """Return how many trials have come to a rung."""
        return sum(step in trial.intermediate_values for trial in self.study.get_trials(deepcopy=False))
