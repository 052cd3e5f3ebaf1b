"""The trials of a study: in Optuna's journal, JSON lines in a file, and while they train; successive halving."""

import json
import math
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
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

from redline.errors import ForeignFileError, UserError
from redline.files import explain
from redline.jsonl import RecordWriter, measured, plain_text
from redline.tune.goals import Curve, RunResult
from redline.tune.space import Choices, Dimension, Space
from redline.tune.study import JOURNAL, StudyFolder, StudySettings
from redline.tune.training import Launch, Training, stop_all

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
    except ForeignFileError:
        raise
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
    """Successive halving of one trial: it ends at a rung if it is in the worse half of the trials there."""

    def __init__(self, study: optuna.Study, asked: StudySettings, trial: optuna.Trial) -> None:
        self._study = study
        self._asked = asked
        self._trial = trial
        self._rungs = deque(RUNGS.items())

    def _whole_run_steps(self) -> int | None:
        """Return the steps of a whole run: those of the goal, or of the first run that ended; None before."""
        first_run_steps = int(measured(self._study.user_attrs.get(WHOLE_RUN_STEPS)) or 0)
        return self._asked.aim.max_steps or (first_run_steps if first_run_steps > 0 else None)

    def note_run(self, training: Training) -> None:
        """Take a run that has ended: the first shows the steps of a whole one; report rungs that it passed unseen."""
        if training.curve.steps > 0 and self._whole_run_steps() is None:
            self._study.set_user_attr(WHOLE_RUN_STEPS, training.curve.steps)
        self.is_behind_in(training, share=math.inf)

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

    def is_behind_in(self, training: Training, *, share: float) -> bool:
        """Compare a first run with other trials at each rung up to this share of it."""
        is_behind = False
        while self._rungs and share >= self._rungs[0][1]:
            step, at = self._rungs.popleft()
            is_behind |= self.is_behind(step, self.mean_at(training.curve, at))
        return is_behind

    def is_behind(self, step: int, value: float | None) -> bool:
        """Report a value to Optuna; return whether the trial should end, with enough others to compare."""
        if value is None or not math.isfinite(value):
            return False
        self._trial.report(value, step)
        if not self._trial.should_prune() or self._asked.pruning == "off":
            return False
        trials = self._study.get_trials(deepcopy=False)
        # without the interrupted ones
        reached = [step in other.intermediate_values for other in trials if other.state != TrialState.FAIL]
        return sum(reached) > FREE_TRIALS


def train_trial(
    trial: optuna.Trial, settings: Mapping[str, Any], folder: StudyFolder, launch: Launch, study: optuna.Study
) -> Iterator[Training]:
    """Train the seeds of a trial one after the other, and tell Optuna what came of it.

    Yields the run that trains, so that the caller can follow several trials.
    """
    asked, halving, results = folder.settings, Halving(study, folder.settings, trial), list[RunResult]()
    home, minutes = folder.trial_folder(trial.number), asked.minutes_per_trial

    def keep(result: RunResult) -> None:
        results.append(result)
        trial.set_user_attr(RESULTS, [found.row() for found in results])

    def end(state: TrialState, why: str = "", *, kind: str = "") -> None:
        trial.set_user_attr(OUTCOME, {"state": kind, "why": why})
        study.tell(trial.number, asked.aim.score(results) if state == TrialState.COMPLETE else None, state=state)

    for place in range(asked.seeds_per_trial):
        seed = asked.search_seed(trial.number, place)
        training = Training(folder, launch, home=home, varied=settings, seed=seed, minutes=minutes)
        while not training.has_ended():
            curve = training.curve
            may_prune = place == 0 and curve.reached is None and curve.mean is not None  # a first episode may be long
            if may_prune and halving.is_behind_in(training, share=halving.share_of(training)):
                stop_all([training])
                keep(training.result())
                return end(TrialState.PRUNED, f"behind at {curve.steps:,} steps, {training.share:.0%} of its run")
            yield training
        keep(training.result())
        if failure := results[-1].failure:  # for the sampler the worst there is
            return end(TrialState.PRUNED, failure, kind=FAILED)
        halving.note_run(training)
        is_behind = halving.is_behind(FIRST_RUN_STEP * 2**place, asked.aim.score(results))
        if is_behind and place + 1 < asked.seeds_per_trial:
            return end(TrialState.PRUNED, f"behind after {place + 1} of {asked.seeds_per_trial} seeds")
    return end(TrialState.COMPLETE) if math.isfinite(asked.aim.score(results)) else end(TrialState.PRUNED, "no score")
