"""A study from its beginning, or from where it stopped: search, check of the winner on unused seeds, report.

Only the check counts: winner and defaults are trained with seeds that the search never used.
"""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Protocol

import msgspec
import optuna

from redline.errors import UserError
from redline.files import explained, replace_file
from redline.tune.goals import RunResult, Verdict, describe_run
from redline.tune.space import Space, describe_settings
from redline.tune.study import FINAL_SEEDS, REPORT, StudyFolder
from redline.tune.study_page import build_page, measure_importance
from redline.tune.training import Launch, Training, stop_all
from redline.tune.trials import (
    FAILED,
    TrialRecord,
    best_of,
    draw,
    open_trials,
    read_trials,
    set_back,
    to_drawn,
    to_settings,
    train_trial,
)

POLL_S = 0.2
SHOW_S = 1.0
SAVE_S = 5.0  # between two writes of the time spent
SLACK_S = 0.1  # a trial begins a moment after the search
MOST_FAILURES = 5  # in a row: then the space or the machine is to blame
WINNER, DEFAULT = "winner", "default"

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

    def show(self, view: SearchView) -> None:
        """Show the state of the search."""


class Phase(Protocol):
    """A part of a study: jobs that train side by side."""

    def next_job(self, running: int) -> tuple[Any, Iterator[Training]] | None:
        """Begin another job beside so many: its key, and its runs while they train; None if none may begin now."""

    def view(self, running: Mapping[Any, Training]) -> SearchView:
        """Return the state of the phase, given the run that trains for each job."""


class SearchFailedError(UserError):
    """Too many trials in a row failed."""


def run_phase(phase: Phase, side_by_side: int, display: Display, stop: Stop) -> str | None:
    """Train until nothing is left to do; return why it was stopped before, or None."""
    jobs: dict[Any, Iterator[Training]] = {}
    running: dict[Any, Training] = {}
    next_show_s = 0.0
    try:
        while (reason := stop()) is None:
            while len(jobs) < side_by_side and (begun := phase.next_job(len(jobs))) is not None:
                key, runs = begun
                jobs[key] = runs
            if not jobs:
                return None
            for key, runs in list(jobs.items()):
                if (training := next(runs, None)) is not None:
                    running[key] = training
                else:
                    del jobs[key]
                    running.pop(key, None)
            if time.monotonic() >= next_show_s:
                next_show_s = time.monotonic() + SHOW_S
                display.show(phase.view(running))
            time.sleep(POLL_S)
        return reason
    finally:
        stop_all(running.values())


class Search:
    """Draws settings, trains them, and keeps the results in the study's folder."""

    def __init__(
        self, folder: StudyFolder, study: optuna.Study, space: Space, launch: Launch, display: Display
    ) -> None:
        self._folder = folder
        self._asked = folder.settings
        self._study = study
        self._space = space
        self._launch = launch
        self._display = display
        self._ended = 0
        self._failed: list[str] = []  # in a row
        self._noted_s = time.monotonic()

    def run(self, defaults: Mapping[str, Any], stop: Stop) -> str | None:
        """Search until time or trials are used up; return why it was stopped before, or None.

        The first trial has the default settings, as far as they are in the space.
        """
        again = set_back(self._study, self._space)
        if again:
            self._display.note(f"trials {', '.join(map(str, again))} were running at the end: they start again")
        self._ended = sum(record.state in ("done", "pruned", FAILED) for record in self._records())
        if not self._study.get_trials(deepcopy=False):
            self._study.enqueue_trial(to_drawn(self._space, defaults))
        self._noted_s = time.monotonic()
        try:
            reason = run_phase(self, self._asked.side_by_side, self._display, lambda: stop() or self._should_stop())
        finally:
            self._save_time()
        # not in `finally`: after a failed write, one more would turn a torn last line into a damaged one
        set_back(self._study, self._space)
        if (failure := self._hopeless()) is not None:
            raise SearchFailedError(failure)
        return reason

    def _records(self) -> list[TrialRecord]:
        return read_trials(self._study, self._space)

    def _hopeless(self) -> str | None:
        """Return why no more trials are tried, if so many failed."""
        last = self._failed[-1] if len(self._failed) >= MOST_FAILURES else None
        return None if last is None else f"{MOST_FAILURES} trials in a row failed, the last: {last}"

    def _should_stop(self) -> str | None:
        """Save the time that was spent, and return why no more trials are tried, if so many failed."""
        if time.monotonic() - self._noted_s >= SAVE_S:
            self._save_time()
        return self._hopeless()

    def next_job(self, running: int) -> tuple[int, Iterator[Training]] | None:
        """Begin a trial if there is time for all its seeds."""
        left_s = self._left_s()
        is_last = self._asked.trials is not None and self._ended + running >= self._asked.trials
        if is_last or (left_s is not None and self._asked.trial_minutes * 60 > left_s + SLACK_S):
            return None
        trial = draw(self._study, self._space, self._folder.path)
        settings = to_settings(self._space, trial.params)
        self._display.note(f"trial {trial.number}: {describe_settings(settings)}")
        return trial.number, self._train(trial, settings)

    def _train(self, trial: optuna.Trial, settings: Mapping[str, Any]) -> Iterator[Training]:
        yield from train_trial(trial, settings, self._folder, self._launch, self._study)
        self._ended += 1
        self._tell(trial.number)

    def _tell(self, number: int) -> None:
        records = self._records()
        (record,) = (found for found in records if found.number == number)
        best = best_of(records)
        is_best = best is not None and best.number == number
        told = f"{record.state}: {self._told(record)}".removesuffix(": ")
        self._display.note(f"trial {number} {told}{', the best so far' if is_best else ''}")
        self._failed = [*self._failed, record.why] if record.state == FAILED else []

    def _told(self, record: TrialRecord) -> str:
        return self._asked.aim.describe(record.results) if record.state == "done" else record.why

    def _left_s(self) -> float | None:
        """Return the rest of the time, if the search has a limit."""
        limit, spent_s = self._asked.search_minutes, self._folder.spent_s + time.monotonic() - self._noted_s
        return None if limit is None else limit * 60 - spent_s

    def _save_time(self) -> None:
        now_s = time.monotonic()
        seconds, self._noted_s = now_s - self._noted_s, now_s
        self._folder.spend(seconds)

    def view(self, running: Mapping[int, Training]) -> SearchView:
        """Return the state of the search."""
        asked, records, left_s = self._asked, self._records(), self._left_s()
        best, shares = best_of(records), [0.0]
        if asked.search_minutes is not None and left_s is not None:
            shares.append(1.0 - left_s / (asked.search_minutes * 60))
        if asked.trials is not None:
            shares.append(self._ended / asked.trials)

        def told(record: TrialRecord) -> str:
            if (training := running.get(record.number)) is None:
                return self._told(record)
            seed = f"seed {len(record.results) + 1} of {asked.seeds_per_trial}, " if asked.seeds_per_trial > 1 else ""
            return seed + training.describe()

        return SearchView(
            phase=f"search, {self._ended} trials ended",
            trials=[TrialView(record.number, record.state, record.settings, told(record)) for record in records],
            best=None if best is None else best.number,
            share=min(1.0, max(shares)),
            left_s=None if left_s is None else max(0.0, left_s),
        )


class Check:
    """Trains winner and defaults by turns, so that other load on the machine meets both."""

    def __init__(
        self, folder: StudyFolder, launch: Launch, winner: TrialRecord, defaults: Mapping[str, Any], display: Display
    ) -> None:
        self._folder = folder
        self._launch = launch
        self._winner = winner
        self._display = display
        self._varied: dict[str, Mapping[str, Any]] = {WINNER: winner.settings, DEFAULT: {}}
        if all(defaults.get(key) == value for key, value in winner.settings.items()):
            del self._varied[WINNER]  # the defaults won: one check is enough
        before = list(self._earlier_results())
        self._results = {(who, result.seed): result for who, result in before if not result.failure}
        self._repeated = tuple(
            f"{who} with seed {result.seed}: {result.failure}" for who, result in before if result.failure
        )
        self._seeds = FINAL_SEEDS[: folder.settings.final_seeds]
        self._all = [(who, seed) for seed in self._seeds for who in self._varied]
        self._waiting = [run for run in self._all if run not in self._results]

    def _earlier_results(self) -> Iterator[tuple[str, RunResult]]:
        """Yield what earlier invocations found, without the results of a former winner and damaged rows."""
        for row in self._folder.checks():
            if row.get("who") == DEFAULT or (row.get("who"), row.get("trial")) == (WINNER, self._winner.number):
                with suppress(msgspec.ValidationError):
                    yield str(row["who"]), RunResult.from_row(row.get("result"))

    def run(self, stop: Stop) -> str | None:
        """Train the missing runs; return why the check was stopped before its end, or None."""
        if self._waiting:
            self._display.note(
                f"trial {self._winner.number} is the best; it and the defaults now train with unused seeds"
            )
        return run_phase(self, self._folder.settings.side_by_side, self._display, stop)

    def verdict(self) -> Verdict:
        """Return the results, seed by seed."""
        found = {who: tuple(self._results[who, seed] for seed in self._seeds) for who in self._varied}
        default = found[DEFAULT]
        return Verdict(
            trial=self._winner.number,
            settings=self._winner.settings,
            winner=found.get(WINNER, default),
            default=default,
            is_default=WINNER not in found,
            repeated=self._repeated,
        )

    def next_job(self, running: int) -> tuple[tuple[str, int], Iterator[Training]] | None:
        """Begin the next run."""
        if not self._waiting:
            return None
        who, seed = self._waiting.pop(0)
        return (who, seed), self._train(who, seed)

    def _train(self, who: str, seed: int) -> Iterator[Training]:
        """Train with a seed, and write the result."""
        asked, trial = self._folder.settings, self._winner.number if who == WINNER else None
        home = self._folder.path / "check" / (who if trial is None else f"{who}-{trial:04d}")
        varied, minutes = self._varied[who], asked.check_minutes
        training = Training(self._folder, self._launch, home=home, varied=varied, seed=seed, minutes=minutes)
        while not training.has_ended():
            yield training
        result = self._results[who, seed] = training.result()
        self._folder.add_check({"who": who, "trial": trial, "result": result.row()})
        self._display.note(f"check: {who} with seed {seed}: {describe_run(asked.aim, result)}")

    def view(self, running: Mapping[tuple[str, int], Training]) -> SearchView:
        """Return the state of the check."""
        asked, views = self._folder.settings, []
        for place, run in enumerate(self._all):
            told, state = "", "waiting"
            if run in self._results:
                told, state = describe_run(asked.aim, self._results[run]), "done"
            elif run in running:
                told, state = running[run].describe(), "running"
            views.append(TrialView(number=place, state=state, settings={"of": run[0], "seed": run[1]}, told=told))
        turns = -(-(len(running) + len(self._waiting)) // asked.side_by_side)
        return SearchView(
            phase="check on unused seeds",
            trials=views,
            best=None,
            share=len(self._results) / len(self._all),
            left_s=turns * asked.check_minutes * 60,
        )


@dataclass(frozen=True)
class Found:
    """The results of a study so far."""

    trials: Sequence[TrialRecord]
    best: TrialRecord | None
    verdict: Verdict | None  # None until the check is complete
    stopped: str | None  # why it stopped before its end

    @property
    def why(self) -> str:
        """Why no trial is done, if none is."""
        return next((trial.why for trial in reversed(self.trials) if trial.why), "there was no time for one")


def tune(
    folder: StudyFolder, space: Space, launch: Launch, *, defaults: Mapping[str, Any], display: Display, stop: Stop
) -> Found:
    """Search, check the winner, and write the report, even if the search fails."""
    verdict = None
    with explained(UserError, folder.path):  # such as a full disk, or no room for one more process
        study = open_trials(folder.path, seed=folder.settings.seed)
        try:
            stopped = Search(folder, study, space, launch, display).run(defaults, stop)
            best = best_of(read_trials(study, space))
            if stopped is None and best is not None:
                check = Check(folder, launch, best, defaults, display)
                stopped = check.run(stop)
                verdict = check.verdict() if stopped is None else None
        except SearchFailedError:
            _write_page(folder, space, study, None)
            raise
        trials = _write_page(folder, space, study, verdict)
    return Found(trials=trials, best=best, verdict=verdict, stopped=stopped)


def _write_page(folder: StudyFolder, space: Space, study: optuna.Study, verdict: Verdict | None) -> list[TrialRecord]:
    """Write the page of all trials so far, and return them."""
    trials = read_trials(study, space)
    page = build_page(folder, space, trials, measure_importance(study, trials), verdict, unix_s=time.time())
    replace_file(folder.path / REPORT, [page.encode()])
    return trials
