"""The check: the winner and the default settings with seeds that the search never used; only this counts."""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from redline.records import Row
from redline.tune.goals import Goal, RunResult
from redline.tune.search import POLL_S, Stop
from redline.tune.study import FINAL_SEEDS, StudyFolder
from redline.tune.training import Launch, Training
from redline.tune.trials import TrialRecord
from redline.tune.watching import Display, SearchView, TrialView

WINNER, DEFAULT = "winner", "default"


@dataclass(frozen=True)
class Verdict:
    """What winner and default came to on the same unused seeds."""

    winner: tuple[RunResult, ...]
    default: tuple[RunResult, ...]
    repeated: tuple[str, ...] = ()  # runs that failed when the study was open before, in words

    def is_better(self, goal: Goal) -> bool:
        """Tell whether the winner beats the default."""
        return goal.score(self.winner) > goal.score(self.default)


class Check:
    """Trains winner and default by turns, so that a load on the machine meets both."""

    def __init__(
        self, folder: StudyFolder, launch: Launch, winner: TrialRecord, defaults: Mapping[str, Any], display: Display
    ) -> None:
        self._folder = folder
        self._launch = launch
        self._winner = winner
        self._display = display
        self._varied: dict[str, Mapping[str, Any]] = {WINNER: winner.settings, DEFAULT: {}}
        if has_default_settings(winner, defaults):
            del self._varied[WINNER]  # the defaults won: one check is theirs and the winner's
        before = [(who, result) for who, result in map(self._read, folder.checks()) if who]
        self._results = {(who, result.seed): result for who, result in before if not result.failure}
        self._repeated = tuple(
            f"{who} with seed {result.seed}: {result.failure}" for who, result in before if result.failure
        )

    def _read(self, row: Row) -> tuple[str, RunResult]:
        """Return whose result a row holds; nobody's where it is of a former winner."""
        try:
            result = RunResult.from_row(row.get("result"))
        except ValueError:
            return "", RunResult(seed=0, run="")
        is_ours = row.get("who") == DEFAULT or (row.get("who"), row.get("trial")) == (WINNER, self._winner.number)
        return (str(row["who"]) if is_ours else ""), result

    def seeds(self) -> Sequence[int]:
        """Return the seeds of the check."""
        return FINAL_SEEDS[: self._folder.settings.final_seeds]

    def verdict(self) -> Verdict:
        """Return what was found, seed by seed."""
        found = {
            who: tuple(self._results[who, seed] for seed in self.seeds() if (who, seed) in self._results)
            for who in self._varied
        }
        return Verdict(winner=found.get(WINNER, found[DEFAULT]), default=found[DEFAULT], repeated=self._repeated)

    def run(self, stop: Stop) -> str | None:
        """Train what is missing; return why the check was stopped before its end, if it was."""
        waiting = [(who, seed) for seed in self.seeds() for who in self._varied if (who, seed) not in self._results]
        running: dict[tuple[str, int], Training] = {}
        if waiting:
            self._display.note(f"trial {self._winner.number} is the best; now it and the defaults with unused seeds")
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
            for training in running.values():
                training.stop()
            for training in running.values():
                training.wait()

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
                curve = running[who, seed].curve
                mean = "no episode yet" if curve.mean is None else f"mean {curve.mean:.1f}".replace("-", "−")
                told, state = f"{running[who, seed].share:.0%}, {curve.steps:,} steps, {mean}", "running"
            views.append(
                TrialView(number=place, state=state, settings={"of": who, "seed": seed}, told=told, score=None)
            )
        turns = -(-(waiting + len(running)) // asked.side_by_side)
        return SearchView(
            phase="check on unused seeds",
            trials=views,
            best=None,
            share=(total - waiting - len(running)) / total,
            left_s=turns * asked.check_minutes * 60,
        )


def has_default_settings(trial: TrialRecord, defaults: Mapping[str, Any]) -> bool:
    """Tell whether a trial is what one gets without a search."""
    return all(defaults.get(key) == value for key, value in trial.settings.items())


def describe_run(goal: Goal, result: RunResult) -> str:
    """Say what one run came to."""
    return f"failed: {result.failure}" if result.failure else goal.describe([result])
