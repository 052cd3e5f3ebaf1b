"""The trials of a study: in Optuna's journal, JSON lines in a file, and while they train; successive halving."""

import json
import math
from collections import deque
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import optuna
from optuna.distributions import BaseDistribution, CategoricalDistribution, FloatDistribution, IntDistribution
from optuna.pruners import SuccessiveHalvingPruner
from optuna.samplers import TPESampler
from optuna.storages import JournalStorage
from optuna.storages.journal import JournalFileBackend
from optuna.trial import FrozenTrial, TrialState

from redline.errors import UserError
from redline.files import explain
from redline.jsonl import RecordWriter, measured, plain_text
from redline.tune.goals import Curve, RunResult
from redline.tune.space import Choices, Dimension, Space
from redline.tune.study import JOURNAL, StudyFolder, StudySettings
from redline.tune.training import Launch, Training

NAME = "redline"
MAX_JOURNAL_BYTES = 512_000_000
RESULTS, OUTCOME = "results", "outcome"
RANDOM_TRIALS = 6  # before the sampler guides: a search of an hour has few trials
REDUCTION = 2  # one of two trials at a rung continues
RUNGS = {1: 0.25, 2: 0.5}  # Optuna's step → share of the first run's minutes, or of a whole run's steps
FIRST_RUN_STEP = 4  # doubles with every further seed
FREE_TRIALS = 4  # at a rung, before any is pruned there
WHOLE_RUN_STEPS = "whole_run_steps"
STATES = {
    TrialState.RUNNING: "running",
    TrialState.WAITING: "waiting",
    TrialState.COMPLETE: "done",
    TrialState.PRUNED: "pruned",
    TrialState.FAIL: "interrupted",
}
FAILED = "failed"
# Optuna does not check the journal that it reads: any of these means that a line is damaged
DAMAGE = (ValueError, KeyError, TypeError, AttributeError, AssertionError, RecursionError)


@dataclass(frozen=True)
class TrialRecord:
    """A trial in the journal."""

    number: int
    state: str
    settings: Mapping[str, Any]  # those that vary
    results: tuple[RunResult, ...]
    score: float | None  # None unless the trial is done
    why: str  # the reason why it was pruned or failed


def open_trials(folder: Path, *, seed: int) -> optuna.Study:
    """Open the journal of a study, or begin one; the study's lock keeps other processes out."""
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    path = folder / JOURNAL
    try:
        RecordWriter(path).close()  # removes a torn last line
        if path.stat().st_size > MAX_JOURNAL_BYTES:
            raise UserError(f"{path} is larger than {MAX_JOURNAL_BYTES:_} bytes: not written by Redline")
        with suppress(FileNotFoundError):
            path.with_name(f"{JOURNAL}.lock").unlink()  # of a killed writer: Optuna would wait for it
        study = optuna.create_study(
            storage=JournalStorage(JournalFileBackend(str(path))),
            pruner=SuccessiveHalvingPruner(min_resource=1, reduction_factor=REDUCTION, min_early_stopping_rate=0),
            study_name=NAME,
            direction="maximize",
            load_if_exists=True,
        )
        drawn = len(study.get_trials(deepcopy=False))  # or a resumed search would draw the same again
        study.sampler = TPESampler(seed=seed + drawn, n_startup_trials=RANDOM_TRIALS)
        return study
    except OSError as error:
        raise UserError(explain(error, path)) from error
    except DAMAGE as error:
        raise _damaged(path, error) from None


def draw(study: optuna.Study, space: Space, folder: Path) -> optuna.Trial:
    """Begin a trial from the queue, or one that the sampler draws."""
    try:
        return study.ask(distributions(space))
    except DAMAGE as error:  # a former trial is of another space
        raise _damaged(folder / JOURNAL, error) from None


def _damaged(path: Path, error: Exception) -> UserError:
    return UserError(f"{path} is damaged: {plain_text(error) or type(error).__name__}")


def distributions(space: Space) -> dict[str, BaseDistribution]:
    """Return the space as Optuna's distributions."""

    def distribution(dimension: Dimension) -> BaseDistribution:
        if isinstance(dimension, Choices):
            return CategoricalDistribution(dimension.texts)
        if dimension.is_int:
            return IntDistribution(int(dimension.low), int(dimension.high), log=dimension.log)
        return FloatDistribution(dimension.low, dimension.high, log=dimension.log)

    return {key: distribution(dimension) for key, dimension in space.dimensions.items()}


def to_settings(space: Space, drawn: Mapping[str, Any]) -> dict[str, Any]:
    """Return Optuna's values as settings, without choices that are not in the space."""
    return {
        key: json.loads(drawn[key]) if isinstance(dimension, Choices) else drawn[key]
        for key, dimension in space.dimensions.items()
        if key in drawn and not (isinstance(dimension, Choices) and drawn[key] not in dimension.texts)
    }


def to_drawn(space: Space, settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return settings as Optuna's values, without those outside the space."""
    return {
        key: json.dumps(settings[key]) if isinstance(dimension, Choices) else settings[key]
        for key, dimension in space.dimensions.items()
        if key in settings and dimension.holds(settings[key])
    }


def set_back(study: optuna.Study, space: Space) -> list[int]:
    """Mark running trials as interrupted, queue their settings again, and return their numbers."""
    left = study.get_trials(deepcopy=False, states=(TrialState.RUNNING,))
    for trial in left:
        study.tell(trial.number, state=TrialState.FAIL)
        study.enqueue_trial(to_drawn(space, to_settings(space, trial.params)))
    return [trial.number for trial in left]


def read_trials(study: optuna.Study, space: Space) -> list[TrialRecord]:
    """Return all trials that have begun."""
    return [_record(trial, space) for trial in study.get_trials(deepcopy=False) if trial.state != TrialState.WAITING]


def _record(trial: FrozenTrial, space: Space) -> TrialRecord:
    results: list[RunResult] = []
    rows, outcome = trial.user_attrs.get(RESULTS), trial.user_attrs.get(OUTCOME)
    with suppress(msgspec.ValidationError):
        results = [RunResult.from_row(row) for row in rows] if isinstance(rows, list) else []
    outcome = outcome if isinstance(outcome, dict) else {}
    return TrialRecord(
        number=trial.number,
        state=FAILED if outcome.get("state") == FAILED else STATES[trial.state],
        settings=to_settings(space, trial.params),
        results=tuple(results),
        score=measured(trial.value) if trial.state == TrialState.COMPLETE else None,
        why=plain_text(outcome.get("why", "")),
    )


def best_of(trials: Sequence[TrialRecord]) -> TrialRecord | None:
    """Return the trial with the highest score, the first of equal ones; None if none is done."""
    done = [trial for trial in trials if trial.score is not None]
    return max(done, key=lambda trial: (trial.score, -trial.number), default=None)


class Halving:
    """Successive halving: a trial ends at a rung if it is in the worse half of the trials there."""

    def __init__(self, study: optuna.Study, asked: StudySettings) -> None:
        self._study = study
        self._asked = asked

    def _whole_run_steps(self) -> int | None:
        """Return the steps of a whole run: those of the goal, or of the first run that ended; None before."""
        first_run_steps = int(measured(self._study.user_attrs.get(WHOLE_RUN_STEPS)) or 0)
        return self._asked.aim.max_steps or (first_run_steps if first_run_steps > 0 else None)

    def note_run(self, steps: int) -> None:
        """Remember the steps of the first run that ends."""
        if steps > 0 and self._whole_run_steps() is None:
            self._study.set_user_attr(WHOLE_RUN_STEPS, steps)

    def share_of(self, training: Training) -> float:
        """Return how far a run is: by steps if they count, so that a slow run is not behind, else by minutes."""
        if not self._asked.aim.counts_steps:
            return training.share
        whole = self._whole_run_steps()
        return 0.0 if whole is None else training.curve.steps / whole

    def mean_at(self, curve: Curve, share: float) -> float | None:
        """Return the mean return of a run at that share."""
        if self._asked.aim.counts_steps:
            return curve.mean_at(steps=share * (self._whole_run_steps() or math.inf))
        return curve.mean_at(time_s=share * self._asked.minutes_per_trial * 60)

    def is_behind(self, trial: optuna.Trial, step: int, value: float | None) -> bool:
        """Report a value to Optuna; return whether the trial should end, with enough others to compare."""
        if value is None or not math.isfinite(value):
            return False
        trial.report(value, step)
        would_end = trial.should_prune()
        if not would_end or self._asked.pruning == "off":
            return False
        trials = self._study.get_trials(deepcopy=False)
        # without the interrupted ones
        reached = [step in other.intermediate_values for other in trials if other.state != TrialState.FAIL]
        return sum(reached) > FREE_TRIALS


class Attempt:
    """A running trial, which trains its seeds one after the other."""

    def __init__(self, folder: StudyFolder, launch: Launch, study: optuna.Study, space: Space) -> None:
        self._trial = draw(study, space, folder.path)
        self._folder, self._launch, self._study = folder, launch, study
        self._halving = Halving(study, folder.settings)
        self._rungs = deque(RUNGS.items())
        self._results: list[RunResult] = []
        self.number = self._trial.number
        self.settings = to_settings(space, self._trial.params)
        self.training = self._start()

    def _start(self) -> Training:
        asked = self._folder.settings
        return Training(
            self._folder,
            self._launch,
            home=self._folder.trial_folder(self.number),
            varied=self.settings,
            seed=asked.search_seed(self.number, len(self._results)),
            minutes=asked.minutes_per_trial,
        )

    def describe(self) -> str:
        """Describe how far the trial is."""
        seeds = self._folder.settings.seeds_per_trial
        place = f"seed {len(self._results) + 1} of {seeds}, " if seeds > 1 else ""
        return f"{place}{self.training.describe()}"

    def has_ended(self) -> bool:
        """Follow the run; at its end begin the next one, or finish the trial."""
        training = self.training
        if training.has_ended():
            return self._take_result(training.result())
        if not self._results and training.curve.reached is None and self._is_behind():
            training.stop()
            training.wait()
            self._results.append(training.result())
            why = f"behind at {training.curve.steps:,} steps, {training.share:.0%} of its minutes"
            return self._end(TrialState.PRUNED, why)
        return False

    def _take_result(self, result: RunResult) -> bool:
        self._results.append(result)
        if result.failure:  # for the sampler the worst there is
            return self._end(TrialState.PRUNED, result.failure, state=FAILED)
        self._halving.note_run(result.steps)
        while self._rungs:  # rungs that it passed unseen: other trials are compared with its means there
            self._is_behind_at_rung()
        asked = self._folder.settings
        score, step = asked.aim.score(self._results), FIRST_RUN_STEP * 2 ** (len(self._results) - 1)
        is_behind = self._halving.is_behind(self._trial, step, score)
        if len(self._results) == asked.seeds_per_trial:
            is_scored = math.isfinite(score)
            return self._end(TrialState.COMPLETE, "") if is_scored else self._end(TrialState.PRUNED, "no score")
        if is_behind:
            return self._end(TrialState.PRUNED, f"behind after {len(self._results)} of {asked.seeds_per_trial} seeds")
        self._note_results()
        self.training = self._start()
        return False

    def _is_behind(self) -> bool:
        """Tell whether other trials were better at the same point of their first run."""
        if self.training.curve.mean is None:
            return False  # a long first episode is not a bad one
        is_behind, share = False, self._halving.share_of(self.training)
        while self._rungs and share >= self._rungs[0][1] and not is_behind:
            is_behind = self._is_behind_at_rung()
        return is_behind

    def _is_behind_at_rung(self) -> bool:
        """Compare the mean at the next rung with other trials."""
        step, share = self._rungs.popleft()
        return self._halving.is_behind(self._trial, step, self._halving.mean_at(self.training.curve, share))

    def _note_results(self) -> None:
        self._trial.set_user_attr(RESULTS, [result.row() for result in self._results])

    def _end(self, ended: TrialState, why: str, *, state: str = "") -> bool:
        self._note_results()
        self._trial.set_user_attr(OUTCOME, {"state": state, "why": why})
        score = self._folder.settings.aim.score(self._results) if ended == TrialState.COMPLETE else None
        self._study.tell(self.number, score, state=ended)
        return True
