"""`redline profile`: where the time of a training goes, measured by leaving out one part at a time."""

from __future__ import annotations

import shutil
import tempfile
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any
from unittest.mock import patch

import torch
from torch.profiler import ProfilerActivity, record_function

from redline.bench.costs import (
    PARTS,
    WHOLE_LEARNER,
    Rounds,
    advise,
    bottleneck,
    can_overlap,
    cost_of,
    low_high,
    median_of,
    overlap,
    remarks,
    what_runs_beside_what,
)
from redline.bench.knockouts import FULL, VARIANTS, Subject, prepare, together
from redline.bench.measuring import Measuring, Progress, alternate, silent
from redline.bench.training_speed import recorded
from redline.errors import UserError, check_range
from redline.files import reason_of
from redline.runtime.building import build_trainer, prepare_process
from redline.runtime.config import Job, from_settings, to_settings
from redline.runtime.resolve import carry_over, check_topology, resolve_job
from redline.types import Adjustment, AnyBatch

MOST_ROUNDS = 1_000
MOST_WARMUP_STEPS = 5_000  # enough to sample from
TRACE_SUFFIXES = (".json", ".json.gz")
TRACED_STEPS = 8  # the learner uses a full rollout after the last of them
VIEWER = "https://ui.perfetto.dev"


@dataclass(frozen=True)
class Profile:
    """The options of the profile."""

    job: Job
    algorithm: str  # its name
    rounds: int = 12
    turn_s: float = 0.5  # of each variant in each round; at least a whole rollout
    trace: Path | None = None

    def __post_init__(self) -> None:
        check_range("rounds", self.rounds, 1, MOST_ROUNDS)
        if not 0.0 < self.turn_s <= 600.0:
            raise UserError(f"turn-seconds is {self.turn_s:g}: use more than 0 and at most 600")
        if self.trace is not None and not self.trace.name.endswith(TRACE_SUFFIXES):
            raise UserError(
                f"trace {self.trace} is not a name for a trace: let it end in {' or '.join(TRACE_SUFFIXES)}"
            )

    def run(self, progress: Progress = silent) -> dict[str, Any]:
        """Measure all variants in turn and return the result."""
        whole = Measuring()
        job, adjustments = profiled_job(self.job)
        resolved = resolve_job(job)
        prepare_process(resolved)
        notes = [f"requested → effective: {item}" for item in (*adjustments, *resolved.adjustments)]
        with ExitStack() as stack:
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="redline-profile-")))
            trainer = build_trainer(resolved, env_seed=resolved.job.seed)
            stack.callback(trainer.close)
            training = stack.enter_context(recorded(trainer, folder, algorithm=self.algorithm, note=notes.append))
            for note in notes:
                progress(note)
            progress("playing the warm-up" if trainer.source.memory is not None else "playing the first rollout")
            subject, measuring = prepare(training), Measuring()
            progress(f"warming up {len(VARIANTS)} variants")
            turns = {name: partial(_play_periods, subject, name) for name in VARIANTS}
            rates = alternate(turns, rounds=self.rounds, turn_s=self.turn_s, progress=progress)
            others_percent = measuring.others_percent()
            trace = None if self.trace is None else _trace(subject, self.trace, folder)
        found = {
            "config": {
                "algorithm": self.algorithm,
                **to_settings(resolved.job),
                "device": str(resolved.device),
                "rounds": self.rounds,
                "turn_s": self.turn_s,
                "low_high": low_high(self.rounds),
            },
            "notes": notes,
            **attribute(subject, rates, asked=self.job),
            "trace": trace,
        }
        return whole.result(found, others_percent=others_percent)


def _play_periods(subject: Subject, variant: str, periods: int) -> None:
    subject.play(periods * subject.period_steps, variant)


def profiled_job(job: Job) -> tuple[Job, list[Adjustment]]:
    """Return the job to be profiled: in one process, with a short warm-up."""
    check_topology(job)
    adjustments = []
    if job.topology != "inline":
        why = "parts are left out in one process; there other things run at the same time"
        adjustments.append(Adjustment("topology", job.topology, "inline", why))
        job, left = carry_over(job, replace(job, topology="inline"))
        adjustments += left
    if job.learner.cuda_graph:
        why = "no part can be left out of a graph"
        adjustments.append(Adjustment("learner.cuda-graph", "True", "False", why))
        job = replace(job, learner=replace(job.learner, cuda_graph=False))
    if job.algorithm.warmup_steps > MOST_WARMUP_STEPS:
        why = "for the profile only: enough to sample from"
        asked, steps = f"{job.algorithm.warmup_steps:,}", f"{MOST_WARMUP_STEPS:,}"
        adjustments.append(Adjustment("warmup-steps", asked, steps, why))
        job = from_settings(job, {"warmup_steps": MOST_WARMUP_STEPS})
    return job, adjustments


def attribute(subject: Subject, rates: Rounds, *, asked: Job) -> dict[str, Any]:
    """Derive rates, costs, a verdict and advice for the `asked` job from periods per second."""
    job = subject.trainer.job
    per_s = {
        name: median_of([rate * subject.period_steps * job.num_envs for rate in rounds])
        for name, rounds in rates.items()
    }
    step_ms = {name: [1e3 / (rate * subject.period_steps) for rate in rounds] for name, rounds in rates.items()}
    found = bottleneck(step_ms, can_overlap=can_overlap(job))
    return {
        "full": {
            "steps_per_s": per_s[FULL],
            "updates_per_s": median_of([rate * subject.updates_per_period for rate in rates[FULL]]),
            "ms_per_vector_step": median_of(step_ms[FULL]),
        },
        "variants": {name: {"steps_per_s": rate} for name, rate in per_s.items()},
        "parts": {name: cost_of(step_ms, part) for name, part in PARTS.items()},
        "learner": cost_of(step_ms, WHOLE_LEARNER),
        "overlap": {"beside": what_runs_beside_what(job), **overlap(step_ms, can_overlap=can_overlap(job))},
        "remarks": remarks(job, keeps_features=subject.trainer.source.keeps_features),
        "bottleneck": found,
        "advice": advise(job, found["part"], found["then"], asked=asked),
    }


def _trace(subject: Subject, path: Path, folder: Path) -> dict[str, Any]:
    """Write the timeline, first to our own folder: a failure to write must not lose the measurement."""
    steps, error = 0, None
    try:
        steps = write_trace(subject, folder / path.name)
        shutil.copyfile(folder / path.name, path)
    except OSError as problem:
        error = reason_of(problem)
    return {"path": str(path), "steps": steps, "error": error}


def write_trace(subject: Subject, path: Path) -> int:
    """Write a Chrome trace of a few vector steps with updates, phases marked; return the number of steps."""
    trainer, period = subject.trainer, subject.period_steps
    steps = TRACED_STEPS if trainer.source.memory is None else max(TRACED_STEPS, period)
    if trainer.source.memory is None and period > TRACED_STEPS:
        subject.play(period - TRACED_STEPS)
    activities = [ProfilerActivity.CPU]
    if trainer.learner.device.type == "cuda":
        activities.append(ProfilerActivity.CUDA)
    with (
        warnings.catch_warnings(action="ignore"),  # about what the profiler can't do on this machine
        together(
            _marked("act", trainer.world, "start_step"),
            patch.object(trainer.source, "batches_due", _marked_batches(trainer.source.batches_due)),
            _marked("learn", trainer.learner, "precompute_targets"),
            _marked("learn", trainer.learner, "update"),
            _marked("keep", trainer.world, "finish_step"),
        ),
        torch.profiler.profile(activities=activities) as profiler,
    ):
        subject.play(steps)
    profiler.export_chrome_trace(str(path))
    return steps


def _marked(phase: str, owner: object, name: str) -> Any:
    return patch.object(owner, name, record_function(phase)(getattr(owner, name)))


def _marked_batches(method: Callable[..., Iterator[Sequence[AnyBatch]]]) -> Callable[..., Iterator[Sequence[AnyBatch]]]:
    def batches(*args: Any) -> Iterator[Sequence[AnyBatch]]:
        iterator = method(*args)
        while True:
            with record_function("draw"):
                group = next(iterator, None)
            if group is None:
                return
            yield group

    return batches
