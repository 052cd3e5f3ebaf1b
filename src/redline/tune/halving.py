"""Successive halving: at a few points, a trial that is not in the better half of those that came so far ends."""

import math

import optuna
from optuna.trial import TrialState

from redline.records import measured
from redline.tune.goals import Curve
from redline.tune.study import StudySettings
from redline.tune.training import Training

RUNGS = {1: 0.25, 2: 0.5}  # Optuna's step → share of the first run's minutes, or of a whole run's steps
FIRST_RUN_STEP = 4  # doubles with every further seed
FREE_TRIALS = 4  # at a rung, before anybody is pruned there
WHOLE_RUN_STEPS = "whole_run_steps"


class Halving:
    """Knows how far others were at each point of a trial."""

    def __init__(self, study: optuna.Study, asked: StudySettings) -> None:
        self._study = study
        self._asked = asked
        steps = measured(study.user_attrs.get(WHOLE_RUN_STEPS))
        self._first_run_steps = int(steps) if steps is not None and steps >= 1 else None

    @property
    def _whole_run_steps(self) -> int | None:
        """Steps that count as a whole run: those of the goal, or of the first run that ended; None before."""
        return self._asked.aim.max_steps or self._first_run_steps

    def note_run(self, steps: int) -> None:
        """Take in the steps of a run that ended; the first one decides."""
        if self._first_run_steps is None and steps > 0:
            self._first_run_steps = steps
            self._study.set_user_attr(WHOLE_RUN_STEPS, steps)

    def share_of(self, training: Training) -> float:
        """Return how far a run is: in steps where these count, for who learns more from each is not behind if slow."""
        if not self._asked.aim.counts_steps:
            return training.share
        whole = self._whole_run_steps
        return 0.0 if whole is None else training.curve.steps / whole

    def mean_at(self, curve: Curve, share: float) -> float | None:
        """Return the mean return of a run when it was that far."""
        if self._asked.aim.counts_steps:
            return curve.mean_at(steps=share * (self._whole_run_steps or math.inf))
        return curve.mean_at(time_s=share * self._asked.minutes_per_trial * 60)

    def is_behind(self, trial: optuna.Trial, step: int, value: float | None) -> bool:
        """Tell Optuna a value; return whether it would end the trial here, and enough others were there to say so."""
        if value is None or not math.isfinite(value):
            return False
        trial.report(value, step)
        would_end = trial.should_prune()
        if self._asked.pruning == "off":
            return False
        return would_end and self._count_at(step) > FREE_TRIALS

    def _count_at(self, step: int) -> int:
        """Return how many trials have come to a rung, without those that were interrupted and are tried again."""
        trials = self._study.get_trials(deepcopy=False)
        return sum(step in trial.intermediate_values for trial in trials if trial.state != TrialState.FAIL)
