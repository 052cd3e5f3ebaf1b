"""The trials of a study as Optuna's journal keeps them: JSON lines in a file, nothing pickled."""

import json
import math
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import optuna
from optuna.distributions import BaseDistribution, CategoricalDistribution, FloatDistribution, IntDistribution
from optuna.pruners import SuccessiveHalvingPruner
from optuna.samplers import TPESampler
from optuna.storages import JournalStorage
from optuna.storages.journal import JournalFileBackend
from optuna.trial import FrozenTrial, TrialState

from redline.errors import UserError
from redline.files import explain
from redline.records import RecordWriter, plain_text
from redline.tune.goals import RunResult
from redline.tune.space import Choices, Dimension, Space
from redline.tune.study import JOURNAL, MAX_JOURNAL_BYTES

NAME = "redline"
RESULTS, OUTCOME = "results", "outcome"
RANDOM_TRIALS = 6  # before the sampler guides: a search of an hour has few trials
REDUCTION = 2  # of the trials that come to a rung, one in so many goes on
STATES = {
    TrialState.RUNNING: "running",
    TrialState.WAITING: "waiting",
    TrialState.COMPLETE: "done",
    TrialState.PRUNED: "pruned",
    TrialState.FAIL: "interrupted",
}
FAILED = "failed"
# Optuna reads a journal without looking: any of these means that a line is not what it wrote
DAMAGE = (ValueError, KeyError, TypeError, AttributeError, AssertionError, RecursionError)


@dataclass(frozen=True)
class TrialRecord:
    """A trial as the journal has it."""

    number: int
    state: str
    settings: Mapping[str, Any]  # those that vary
    results: tuple[RunResult, ...]
    score: float | None  # of a trial that is done
    why: str  # it was pruned or failed


def open_trials(folder: Path, *, seed: int) -> optuna.Study:
    """Open the journal of a study, or begin one; nobody else has it open, the study's lock sees to that."""
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    path = folder / JOURNAL
    try:
        RecordWriter(path).close()  # removes what a killed writer left half written
        if path.stat().st_size > MAX_JOURNAL_BYTES:
            raise UserError(f"{path} is larger than {MAX_JOURNAL_BYTES:_} bytes: not written by Redline")
        with suppress(FileNotFoundError):
            path.with_name(f"{JOURNAL}.lock").unlink()  # of a killed writer: Optuna would wait half a minute for it
        study = optuna.create_study(
            storage=JournalStorage(JournalFileBackend(str(path))),
            pruner=SuccessiveHalvingPruner(min_resource=1, reduction_factor=REDUCTION, min_early_stopping_rate=0),
            study_name=NAME,
            direction="maximize",
            load_if_exists=True,
        )
        drawn = len(study.get_trials(deepcopy=False))  # with the bare seed, who goes on would draw all of them again
        study.sampler = TPESampler(seed=seed + drawn, n_startup_trials=RANDOM_TRIALS)
        return study
    except OSError as error:
        raise UserError(explain(error, path)) from error
    except DAMAGE as error:
        raise _damaged(path, error) from None


def draw(study: optuna.Study, space: Space, folder: Path) -> optuna.Trial:
    """Begin a trial: one that is queued, or one that the sampler draws."""
    try:
        return study.ask(distributions(space))
    except DAMAGE as error:  # a former trial was drawn from something else
        raise _damaged(folder / JOURNAL, error) from None


def _damaged(path: Path, error: Exception) -> UserError:
    return UserError(f"{path} is damaged: {plain_text(error) or type(error).__name__}")


def distributions(space: Space) -> dict[str, BaseDistribution]:
    """Return the space as Optuna draws from it."""
    return {key: _distribution(dimension) for key, dimension in space.dimensions.items()}


def _distribution(dimension: Dimension) -> BaseDistribution:
    if isinstance(dimension, Choices):
        return CategoricalDistribution(dimension.texts)
    if dimension.is_int:
        return IntDistribution(int(dimension.low), int(dimension.high), log=dimension.log)
    return FloatDistribution(float(dimension.low), float(dimension.high), log=dimension.log)


def to_settings(space: Space, drawn: Mapping[str, Any]) -> dict[str, Any]:
    """Return what Optuna drew as settings, without choices that the space does not have."""
    return {
        key: json.loads(drawn[key]) if isinstance(dimension, Choices) else drawn[key]
        for key, dimension in space.dimensions.items()
        if key in drawn and not (isinstance(dimension, Choices) and drawn[key] not in dimension.texts)
    }


def to_drawn(space: Space, settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return settings as Optuna draws them, without those that lie outside the space."""
    return {
        key: json.dumps(settings[key]) if isinstance(dimension, Choices) else settings[key]
        for key, dimension in space.dimensions.items()
        if key in settings and dimension.holds(settings[key])
    }


def set_back(study: optuna.Study, space: Space) -> list[int]:
    """Mark trials that somebody left under way as interrupted, and queue their settings again; return their numbers."""
    left = study.get_trials(deepcopy=False, states=(TrialState.RUNNING,))
    for trial in left:
        study.tell(trial.number, state=TrialState.FAIL)
        study.enqueue_trial(to_drawn(space, to_settings(space, trial.params)))
    return [trial.number for trial in left]


def read_trials(study: optuna.Study, space: Space) -> list[TrialRecord]:
    """Return all trials that were begun."""
    return [_record(trial, space) for trial in study.get_trials(deepcopy=False) if trial.state != TrialState.WAITING]


def _record(trial: FrozenTrial, space: Space) -> TrialRecord:
    results: list[RunResult] = []
    rows = trial.user_attrs.get(RESULTS)
    with suppress(ValueError):
        results = [RunResult.from_row(row) for row in rows] if isinstance(rows, list) else []
    outcome = trial.user_attrs.get(OUTCOME, {})
    outcome = outcome if isinstance(outcome, dict) else {}
    state = FAILED if outcome.get("state") == FAILED else STATES[trial.state]
    value = trial.value if trial.state == TrialState.COMPLETE else None
    return TrialRecord(
        number=trial.number,
        state=state,
        settings=to_settings(space, trial.params),
        results=tuple(results),
        score=value if value is not None and math.isfinite(value) else None,
        why=plain_text(outcome.get("why", "")),
    )


def best_of(trials: Sequence[TrialRecord]) -> TrialRecord | None:
    """Return the trial with the highest score, the first of several; None where none is done."""
    done = [trial for trial in trials if trial.score is not None]
    return max(done, key=lambda trial: (trial.score, -trial.number), default=None)
