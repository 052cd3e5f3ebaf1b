"""A training measured with 1, 2, 3 … cores: a pinned process for each count, in short windows by turns."""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from redline.bench.measuring import Progress, silent, told_rounds
from redline.errors import UserError
from redline.plan.candidate_pool import CandidatePool, Environ
from redline.plan.knobs import measured_job
from redline.plan.machines import CoresSpeed, Scaling, scaling_of
from redline.plan.speed import Race, RoleUse, Window, roles_of
from redline.runtime.config import Job
from redline.runtime.resolve import ResolvedJob, resolve_job

STARTING_S = 600.0  # for a slow machine: the usual is a few seconds
WINDOW_MARGIN_S = 60.0  # for each window: it ends with a whole rollout


@dataclass(frozen=True)
class Pinned:
    """What the windows of all counts of cores showed."""

    resolved: ResolvedJob  # the training with all of this process's cores
    windows: Mapping[int, Sequence[Window]]  # by cores, one for each round
    others_percent: float  # usual share of all cores that other processes used
    disturbed: int  # windows that count although others disturbed them

    @property
    def scaling(self) -> Scaling:
        """The speeds by the number of cores."""
        return scaling_of(
            {cores: [window.steps_per_s for window in windows] for cores, windows in self.windows.items()}
        )

    @property
    def speed(self) -> CoresSpeed:
        """The speed with the most cores."""
        return self.scaling.speed(max(self.windows))

    @property
    def roles(self) -> dict[str, RoleUse]:
        """What each process takes with the most cores: usual cores, most memory."""
        return roles_of(self.windows[max(self.windows)])

    @property
    def processes_bytes(self) -> int:
        """The memory of all processes together."""
        return sum(use.memory_bytes for use in self.roles.values())


def measure_pinned(
    job: Job,
    algorithm: str,
    *,
    counts: Sequence[int],
    rounds: int,
    window_s: float,
    environ: Environ,
    progress: Progress = silent,
) -> Pinned:
    """Train with each count of cores by turns, only one awake at a time; they warm up together, unmeasured."""
    resolved, usable = resolve_job(job), sorted(os.sched_getaffinity(0))
    names = {cores: f"{cores} of {len(usable)} cores" for cores in counts}
    with (
        tempfile.TemporaryDirectory(prefix="redline-plan-", ignore_cleanup_errors=True) as folder,
        CandidatePool(Path(folder), environ) as pool,
    ):
        progress(f"warming up with {', '.join(names.values())}")
        for cores, name in names.items():
            pool.start(name, measured_job(job, resolved, Path(folder)), algorithm, cores=usable[:cores])
        deadline_s = time.monotonic() + STARTING_S
        while pool.num_starting:
            if pool.ready_one(deadline_s) is None:
                pool.end_unready(f"it was not ready after {STARTING_S:g} s")
            _check(pool.why_lost)
        ends_s = time.monotonic() + rounds * len(counts) * (2 * window_s + WINDOW_MARGIN_S)
        first, *others = names.values()
        race = Race(first, lambda name, until_s: pool.window(name, window_s, until_s), ends_s, progress=progress)
        for _ in told_rounds(rounds, progress, guess_s=window_s * len(counts)):
            is_played = race.play_round(others)
            _check(race.why_lost)
            if not is_played:
                raise UserError("the training can't be measured: its windows take too long")
    windows = {cores: [found[name] for found in race.rounds] for cores, name in names.items()}
    return Pinned(resolved, windows, race.usual_percent, race.disturbed)


def _check(why_lost: Mapping[str, str]) -> None:
    for name, why in why_lost.items():
        raise UserError(f"the training can't be measured with {name}: {why}")
