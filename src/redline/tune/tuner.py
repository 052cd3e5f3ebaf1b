"""A study from its beginning, or from where it stopped, to its report: search, check of the winner, page."""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import optuna

from redline.errors import UserError
from redline.files import explain, replace_file
from redline.tune.checking import Check, Verdict, has_default_settings
from redline.tune.search import Search, SearchFailedError, Stop
from redline.tune.space import Space
from redline.tune.study import REPORT, StudyFolder
from redline.tune.study_page import build_page, measure_importance
from redline.tune.training import Launch
from redline.tune.trials import TrialRecord, best_of, open_trials, read_trials
from redline.tune.watching import Display


@dataclass(frozen=True)
class Found:
    """What a study has found so far."""

    trials: Sequence[TrialRecord]
    best: TrialRecord | None
    verdict: Verdict | None  # None until the check is whole
    is_default: bool  # the best trial has the default settings
    stopped: str | None  # why it did not come to its end

    @property
    def why(self) -> str:
        """Why no trial is done, where none is."""
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
    """Search, check the winner, and write the report, whatever stops it."""
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
    except OSError as error:  # a full disk, a machine without room for one more process
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
