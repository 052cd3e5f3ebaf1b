"""The fastest settings of a training on this machine: candidates start and race, and the best of them is chosen."""

import tempfile
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from redline.bench.measuring import Measuring, Progress, silent
from redline.errors import UserError
from redline.plan.candidate_pool import CandidatePool, Environ
from redline.plan.knobs import (
    KNOBS,
    LEARNS_LESS,
    NEARLY,
    Asked,
    Changes,
    changed,
    check_batch,
    measured_job,
    ways,
    why_impossible,
    why_no_room,
)
from redline.plan.speed import Choice, Race, combination
from redline.plan.window import CandidateLostError
from redline.replay import available_bytes
from redline.replay.layout import RESERVE_BYTES
from redline.runs.host import usable_cores
from redline.runtime.config import Job, flag_of
from redline.runtime.resolve import ResolvedJob, resolve_job

DEFAULT = "default"
LEAST_SECONDS, MOST_SECONDS = 10.0, 3_600.0
START_SHARE = 0.35  # of the time, in which candidates may start
CLOSING_S, CLOSING_SHARE = 1.0, 0.02  # of the time, to end the processes and to tell the result
SECONDS_EACH = 14.0  # of the budget for each candidate
LEAST_CANDIDATES = 2
CANDIDATE_BYTES = 700 * 1024**2  # of an inline one, measured 350 MB; one in processes takes twice that
WINDOWS_IN_BUDGET, LEAST_WINDOW_S, MOST_WINDOW_S = 100, 0.5, 5.0


@dataclass(frozen=True)
class SpeedPlan:
    """What was asked, measured and chosen."""

    asked: Asked
    seconds: float  # the budget
    before: ResolvedJob  # the training as requested, with everything filled in
    choice: Choice
    changes: Mapping[str, Changes]  # of each candidate that was started, by its name
    not_tried: Mapping[str, str]  # name → why
    measured: Mapping[str, Any]  # host, versions, and how long it took

    @property
    def chosen(self) -> Changes:
        """The knobs that are changed."""
        return self.changes[self.choice.name]

    @property
    def job(self) -> Job:
        """The requested job with the changes."""
        return changed(self.asked, self.chosen)

    @cached_property
    def after(self) -> ResolvedJob:
        """The chosen training with everything filled in."""
        return resolve_job(self.job) if self.chosen else self.before


@dataclass
class _Planning:
    """The work of one plan."""

    asked: Asked
    seconds: float
    pool: CandidatePool
    folder: Path
    progress: Progress
    before: ResolvedJob
    begun_s: float
    changes: dict[str, Changes] = field(default_factory=lambda: {DEFAULT: {}})
    not_tried: dict[str, str] = field(default_factory=dict)
    start_s: float = 0.0  # that one candidate takes

    @property
    def ends_s(self) -> float:
        return self.begun_s + (1.0 - CLOSING_SHARE) * self.seconds - CLOSING_S

    def find_ways(self) -> None:
        """Keep the ways that this machine can try, in time and in memory."""
        room = (available_bytes() - RESERVE_BYTES) // CANDIDATE_BYTES
        by_time = int(self.seconds // SECONDS_EACH)
        for changes in ways(self.asked, self.before):
            name, job = name_of(changes), changed(self.asked, changes)
            why = why_impossible(job, is_image=self.before.spec.is_image)
            if why is None and {"replay.codec", "num_envs"} & changes.keys():
                why = why_no_room(job)
            if why is None and len(self.changes) > max(LEAST_CANDIDATES, by_time):
                why = "no time: use more --seconds"
            room -= 2 if job.topology == "async" else 1
            if why is None and room < 1:
                why = "no memory for one more process"
            if why is None:
                self.changes[name] = changes
            else:
                self.not_tried[name] = why

    def start_all(self) -> None:
        """Start the candidates, as many at a time as there are cores, as long as the time for that lasts."""
        latest_s = self.begun_s + START_SHARE * self.seconds
        waiting, most = list(self.changes), usable_cores()
        while waiting or self.pool.num_starting:
            while waiting and self.pool.num_starting < most and time.monotonic() < latest_s:
                self.start(waiting.pop(0))
            # without the default and one other nothing can be compared, so these may take longer
            can_compare = DEFAULT in self.pool.ready and len(self.pool.ready) > 1
            until_s = latest_s if can_compare else self.ends_s
            if self.pool.ready_one(until_s) is None:
                break
            self.progress(f"{len(self.pool.ready)} of {len(self.changes)} candidates are ready")
            self.start_s = self.start_s or time.monotonic() - self.begun_s
        failed = self.pool.why_lost.get(DEFAULT)
        self.pool.end_unready("it was not ready in time: use more --seconds")
        for name in waiting:
            self.changes.pop(name)
            self.not_tried[name] = "no time was left to start it: use more --seconds"
        if failed is not None:
            raise UserError(f"the training as requested can't be measured: {failed}")

    def start(self, name: str) -> None:
        job = measured_job(changed(self.asked, self.changes[name]), self.before, self.folder)
        with suppress(CandidateLostError):  # the pool knows why
            self.pool.start(name, job, self.asked.algorithm)

    def race(self) -> Choice:
        """Let the candidates race, and one that has the changes of several."""
        window_s = min(max(self.seconds / WINDOWS_IN_BUDGET, LEAST_WINDOW_S), MOST_WINDOW_S)
        race = Race(
            DEFAULT,
            lambda name, until_s: self.pool.window(name, window_s, until_s),
            self.ends_s,
            progress=self.progress,
            why_lost=dict(self.pool.why_lost),
        )
        ready = [name for name in self.pool.ready if name != DEFAULT]
        shown = [name for name in ready if not may_be_chosen(self.changes[name])]
        finalists = race.halve([name for name in ready if name not in shown], shown=shown, then_s=self.start_s)
        for name in set(self.pool.ready) - {DEFAULT, *finalists}:
            self.pool.end(name)
        choosable = {name: self.changes[name] for name in ready if name not in shown}
        if (together := self._start_together(combination(choosable, race))) is not None:
            finalists.append(together)
        race.compare(finalists)
        return race.choose()

    def _start_together(self, changes: Changes) -> str | None:
        """Start a candidate with the changes that helped alone; return its name if it is ready."""
        name, job = name_of(changes), changed(self.asked, changes)
        if not changes or name in self.changes or why_impossible(job, is_image=self.before.spec.is_image):
            return None
        if {"replay.codec", "num_envs"} & changes.keys() and why_no_room(job) is not None:
            return None
        self.changes[name] = changes
        self.progress(f"together: {name}")
        self.start(name)
        with suppress(CandidateLostError, KeyError):
            self.pool.wait_ready(name, self.ends_s)
        return name if name in self.pool.ready else None


def plan_speed(asked: Asked, *, seconds: float, environ: Environ, progress: Progress = silent) -> SpeedPlan:
    """Measure for about so many seconds, never more, and choose."""
    begun_s, measuring = time.monotonic(), Measuring()
    check_batch(asked.job)
    before = resolve_job(asked.job)
    with (
        tempfile.TemporaryDirectory(prefix="redline-plan-", ignore_cleanup_errors=True) as folder,
        CandidatePool(Path(folder), environ) as pool,
    ):
        planning = _Planning(asked, seconds, pool, Path(folder), progress, before, begun_s)
        planning.find_ways()
        planning.start_all()
        choice = planning.race()
    facts = measuring.result({}, others_percent=choice.others_percent)
    return SpeedPlan(asked, seconds, before, choice, planning.changes, planning.not_tried, facts)


def name_of(changes: Changes) -> str:
    """Return the flags of some changes, in the order of the knobs."""
    return " ".join(f"{flag_of(key)} {changes[key]}" for key in KNOBS if key in changes) or DEFAULT


def may_be_chosen(changes: Changes) -> bool:
    """Tell whether a candidate learns from as many samples per step as the default."""
    return not any(key in changes for key in LEARNS_LESS)


def kind_of(changes: Changes) -> str:
    """Return what some changes do to learning, by the one that does most."""
    kinds = [KNOBS[key] for key in changes]
    return max(kinds, key=["exact", NEARLY, "learning"].index, default="exact")


def untried(plan: SpeedPlan, key: str) -> Sequence[str]:
    """Return why ways that change a knob were not tried, or lost."""
    lost = {name: found.why_lost for name, found in plan.choice.standings.items() if found.why_lost is not None}
    return [why for name, why in {**plan.not_tried, **lost}.items() if f"{flag_of(key)} " in f"{name} "]
