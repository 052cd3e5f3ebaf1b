"""The fastest settings of a training on this machine: candidates start and race, and the best of them is chosen."""

import tempfile
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from redline.bench.measuring import Measuring, Progress, silent
from redline.errors import UserError
from redline.plan.candidate_pool import CandidatePool, Environ
from redline.plan.knobs import (
    Asked,
    Changes,
    changed,
    check_measurable,
    may_be_chosen,
    measured_job,
    name_of,
    ways,
    why_impossible,
    why_no_room,
)
from redline.plan.speed import CandidateLostError, Choice, Race, combination
from redline.replay import available_bytes
from redline.replay.layout import RESERVE_BYTES
from redline.runs.host import usable_cores
from redline.runtime.config import Job
from redline.runtime.resolve import ResolvedJob, resolve_job

DEFAULT = "default"
LEAST_SECONDS, MOST_SECONDS = 10.0, 3_600.0
LOOKING_SHARE = 0.1  # of the time, in which games may be played to find out whether candidates fit into the memory
START_SHARE = 0.35  # in which candidates may start
CLOSING_S, CLOSING_SHARE = 0.5, 0.02  # to end the processes and to tell the result
SECONDS_EACH = 14.0  # of the budget for each candidate
LEAST_CANDIDATES = 2
CANDIDATE_BYTES = 700 * 1024**2  # of an inline one, measured 350 MB; one in processes takes twice that
WINDOWS_IN_BUDGET, LEAST_WINDOW_S, MOST_WINDOW_S = 100, 0.5, 5.0
NO_TIME = "no time: use more --seconds"
FILLS_MEMORY = ("replay.codec", "num_envs")  # knobs that decide how much the replay memory takes


@dataclass(frozen=True)
class SpeedPlan:
    """What was asked, measured and chosen."""

    asked: Asked
    seconds: float  # the budget
    before: ResolvedJob  # the training as requested, with everything filled in
    after: ResolvedJob  # the chosen training, likewise
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
    resolve_s: float = 0.0  # that it takes to fill in one job: some games are played for that
    start_s: float = 0.0  # that a candidate took at most to become ready
    _why_no_room: dict[tuple[Any, ...], str | None] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.resolve_s = time.monotonic() - self.begun_s

    @property
    def ends_s(self) -> float:
        """When the last window must be over: then the processes end, and the chosen job is filled in."""
        return self.begun_s + (1.0 - CLOSING_SHARE) * self.seconds - CLOSING_S - self.resolve_s

    def find_ways(self) -> None:
        """Keep the ways that this machine can try, in time and in memory."""
        room = (available_bytes() - RESERVE_BYTES) // CANDIDATE_BYTES - _size_of(self.before.job)
        most = 1 + max(LEAST_CANDIDATES, int(self.seconds // SECONDS_EACH))
        until_s = self.begun_s + LOOKING_SHARE * self.seconds
        for changes in ways(self.asked, self.before):
            size = _size_of(changed(self.asked, changes))
            why = NO_TIME if len(self.changes) >= most else self.why_not(changes, until_s)
            if why is None and size > room:
                why = "no memory for one more process"
            if why is None:
                self.changes[name_of(changes)] = changes
                room -= size
            else:
                self.not_tried[name_of(changes)] = why

    def why_not(self, changes: Changes, until_s: float) -> str | None:
        """Say why a way can't be tried; a game may be played until then, to learn how much memory it takes."""
        job = changed(self.asked, changes)
        why, key = why_impossible(job, is_image=self.before.spec.is_image), tuple(map(changes.get, FILLS_MEMORY))
        if why is not None or not any(key):
            return why
        if key not in self._why_no_room:
            if time.monotonic() > until_s:
                return NO_TIME
            self._why_no_room[key] = why_no_room(job)
        return self._why_no_room[key]

    def start_all(self) -> None:
        """Start the candidates, as many at a time as there are cores, as long as the time for that lasts."""
        latest_s = self.begun_s + START_SHARE * self.seconds
        waiting, most, begun_s = list(self.changes), usable_cores(), dict[str, float]()
        while waiting or self.pool.num_starting:
            # without the default and one other nothing can be compared, so these may start late and take longer
            can_compare = DEFAULT in self.pool.ready and len(self.pool.ready) > 1
            is_late = time.monotonic() >= latest_s
            at_a_time = most if not is_late else 0 if can_compare else 1
            while waiting and self.pool.num_starting < at_a_time:
                begun_s[waiting[0]] = time.monotonic()
                self.start(waiting.pop(0))
            name = self.pool.ready_one(latest_s if can_compare else self.ends_s)
            if (failed := self.pool.why_lost.get(DEFAULT)) is not None:
                raise UserError(f"the training as requested can't be measured: {failed}")
            if name is None:
                break
            self.progress(f"{len(self.pool.ready)} of {len(self.changes)} candidates are ready")
            self.start_s = max(self.start_s, time.monotonic() - begun_s[name])
        self.pool.end_unready("it was not ready in time: use more --seconds")
        for name in waiting:
            self.changes.pop(name)
            self.not_tried[name] = "no time was left to start it: use more --seconds"

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
        ready = {name: self.changes[name] for name in self.pool.ready if name != DEFAULT}
        choosable = {name: changes for name, changes in ready.items() if may_be_chosen(changes)}
        shown = [name for name in ready if name not in choosable]
        finalists = race.halve(list(choosable), shown=shown, then_s=self.start_s + self.resolve_s)
        for name in set(self.pool.ready) - {DEFAULT, *finalists}:
            self.pool.end(name)
        finalists += self._start_together(combination(choosable, race), until_s=self.ends_s - race.final_s)
        race.compare(finalists)
        return race.choose()

    def _start_together(self, changes: Changes, *, until_s: float) -> list[str]:
        """Start a candidate with the changes that helped alone; return its name if it is ready by then."""
        name, looks_until_s = name_of(changes), until_s - self.start_s - self.resolve_s
        if not changes or name in self.changes or time.monotonic() > looks_until_s or self.why_not(changes, until_s):
            return []
        self.changes[name] = changes
        self.progress(f"together: {name}")
        self.start(name)
        with suppress(CandidateLostError):
            self.pool.wait_ready(name, until_s)
        return [name] if name in self.pool.ready else []


def _size_of(job: Job) -> int:
    """Return how many times the memory of an inline candidate one takes."""
    return 2 if job.topology == "async" else 1


def plan_speed(asked: Asked, *, seconds: float, environ: Environ, progress: Progress = silent) -> SpeedPlan:
    """Measure for about so many seconds, never more, and choose."""
    begun_s, measuring = time.monotonic(), Measuring()
    check_measurable(asked.job)
    before = resolve_job(asked.job)
    with (
        tempfile.TemporaryDirectory(prefix="redline-plan-", ignore_cleanup_errors=True) as folder,
        CandidatePool(Path(folder), environ) as pool,
    ):
        planning = _Planning(asked, seconds, pool, Path(folder), progress, before, begun_s)
        planning.find_ways()
        planning.start_all()
        choice = planning.race()
    chosen = planning.changes[choice.name]
    after = resolve_job(changed(asked, chosen)) if chosen else before
    facts = measuring.result({}, others_percent=choice.others_percent)
    return SpeedPlan(asked, seconds, before, after, choice, planning.changes, planning.not_tried, facts)
