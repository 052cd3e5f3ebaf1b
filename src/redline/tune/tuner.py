"""A study from its beginning, or from where it stopped: search, check of the winner on unused seeds, report.

Only the check counts: winner and defaults are trained with seeds that the search never used.
"""

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import optuna

from redline.errors import UserError
from redline.files import explain, replace_file
from redline.tune.goals import RunResult, Verdict, describe_run
from redline.tune.search import POLL_S, Display, Search, SearchFailedError, SearchView, Stop, TrialView
from redline.tune.space import Space
from redline.tune.study import FINAL_SEEDS, REPORT, StudyFolder
from redline.tune.study_page import build_page, measure_importance
from redline.tune.training import Launch, Training, stop_all
from redline.tune.trials import TrialRecord, best_of, open_trials, read_trials

WINNER, DEFAULT = "winner", "default"


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
        if has_default_settings(winner, defaults):
            del self._varied[WINNER]  # the defaults won: one check is enough
        before = list(self._earlier_results())
        self._results = {(who, result.seed): result for who, result in before if not result.failure}
        self._repeated = tuple(
            f"{who} with seed {result.seed}: {result.failure}" for who, result in before if result.failure
        )

    def _earlier_results(self) -> Iterator[tuple[str, RunResult]]:
        """Yield what earlier invocations found, without the results of a former winner and damaged rows."""
        for row in self._folder.checks():
            if row.get("who") == DEFAULT or (row.get("who"), row.get("trial")) == (WINNER, self._winner.number):
                with suppress(ValueError):
                    yield str(row["who"]), RunResult.from_row(row.get("result"))

    def seeds(self) -> Sequence[int]:
        """Return the seeds of the check."""
        return FINAL_SEEDS[: self._folder.settings.final_seeds]

    def verdict(self) -> Verdict:
        """Return the results, seed by seed."""
        found = {
            who: tuple(self._results[who, seed] for seed in self.seeds() if (who, seed) in self._results)
            for who in self._varied
        }
        return Verdict(winner=found.get(WINNER, found[DEFAULT]), default=found[DEFAULT], repeated=self._repeated)

    def run(self, stop: Stop) -> str | None:
        """Train the missing runs; return why the check was stopped before its end, or None."""
        waiting = [(who, seed) for seed in self.seeds() for who in self._varied if (who, seed) not in self._results]
        running: dict[tuple[str, int], Training] = {}
        if waiting:
            self._display.note(
                f"trial {self._winner.number} is the best; it and the defaults now train with unused seeds"
            )
        try:
            while waiting or running:
                if (reason := stop()) is not None:
                    return reason
                while waiting and len(running) < self._folder.settings.side_by_side:
                    who, seed = waiting.pop(0)
                    running[who, seed] = self._start(who, seed)
                for (who, seed), training in list(running.items()):
                    if training.has_ended():
                        del running[who, seed]
                        self._keep(who, training.result())
                self._display.show(self._view(running, len(waiting)))
                time.sleep(POLL_S)
            return None
        finally:
            stop_all(running.values())

    def _start(self, who: str, seed: int) -> Training:
        home = self._folder.path / "check" / (f"winner-{self._winner.number:04d}" if who == WINNER else who)
        minutes = self._folder.settings.check_minutes
        return Training(self._folder, self._launch, home=home, varied=self._varied[who], seed=seed, minutes=minutes)

    def _keep(self, who: str, result: RunResult) -> None:
        trial = self._winner.number if who == WINNER else None
        self._folder.add_check({"who": who, "trial": trial, "result": result.row()})
        self._results[who, result.seed] = result
        self._display.note(f"check: {who} with seed {result.seed}: {describe_run(self._folder.settings.aim, result)}")

    def _view(self, running: Mapping[tuple[str, int], Training], waiting: int) -> SearchView:
        asked = self._folder.settings
        goal, total = asked.aim, len(self._varied) * asked.final_seeds
        views = []
        for place, (who, seed) in enumerate((who, seed) for seed in self.seeds() for who in self._varied):
            told, state = "", "waiting"
            if (who, seed) in self._results:
                told, state = describe_run(goal, self._results[who, seed]), "done"
            elif (who, seed) in running:
                told, state = running[who, seed].describe(), "running"
            views.append(TrialView(number=place, state=state, settings={"of": who, "seed": seed}, told=told))
        turns = -(-(waiting + len(running)) // asked.side_by_side)
        return SearchView(
            phase="check on unused seeds",
            trials=views,
            best=None,
            share=(total - waiting - len(running)) / total,
            left_s=turns * asked.check_minutes * 60,
        )


def has_default_settings(trial: TrialRecord, defaults: Mapping[str, Any]) -> bool:
    """Tell whether a trial has only default settings."""
    return all(defaults.get(key) == value for key, value in trial.settings.items())


@dataclass(frozen=True)
class Found:
    """The results of a study so far."""

    trials: Sequence[TrialRecord]
    best: TrialRecord | None
    verdict: Verdict | None  # None until the check is complete
    is_default: bool  # the best trial has the default settings
    stopped: str | None  # why it stopped before its end

    @property
    def why(self) -> str:
        """Why no trial is done, if none is."""
        return next((trial.why for trial in reversed(self.trials) if trial.why), "there was no time for one")


def tune(
    folder: StudyFolder,
    space: Space,
    launch: Launch,
    *,
    defaults: Mapping[str, Any],
    display: Display,
    stop: Stop,
) -> Found:
    """Search, check the winner, and write the report, even if the search fails."""
    try:
        study = open_trials(folder.path, seed=folder.settings.seed)
        try:
            stopped = Search(folder, study, space, launch, display).run(defaults, stop)
        except SearchFailedError:
            _write(folder, space, study, None)
            raise
        best = best_of(read_trials(study, space))
        verdict = None
        if stopped is None and best is not None:
            check = Check(folder, launch, best, defaults, display)
            stopped = check.run(stop)
            verdict = check.verdict() if stopped is None else None
        trials = _write(folder, space, study, verdict)
    except OSError as error:  # such as a full disk, or no room for one more process
        raise UserError(explain(error, folder.path)) from error
    is_default = best is not None and has_default_settings(best, defaults)
    return Found(trials=trials, best=best, verdict=verdict, is_default=is_default, stopped=stopped)


def _write(folder: StudyFolder, space: Space, study: optuna.Study, verdict: Verdict | None) -> list[TrialRecord]:
    """Write the page of all trials so far, and return them."""
    trials = read_trials(study, space)
    importance = measure_importance(study, trials)
    page = build_page(folder, space, trials, importance, verdict, unix_s=time.time())
    replace_file(folder.path / REPORT, [page.encode()])
    return trials
