"""`redline profile`: where the time of a training goes, found by leaving out one part at a time."""

from __future__ import annotations

import shutil
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch.profiler import ProfilerActivity, record_function

from redline.bench.knockout.advice import advise, can_overlap, remarks, what_runs_beside_what
from redline.bench.knockout.costs import PARTS, WHOLE_LEARNER, Rounds, bottleneck, cost_of, low_high, median_of, overlap
from redline.bench.knockout.subject import Subject, prepare, replaced
from redline.bench.knockout.variants import FULL, VARIANTS, Variant
from redline.bench.measuring import Contender, Progress, alternate, silent
from redline.bench.recorded_training import recorded
from redline.bench.results import OtherWork, busy_facts, result_head
from redline.errors import UserError
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
    """What is profiled, and for how long."""

    job: Job
    algorithm: str  # its name
    rounds: int = 12
    turn_s: float = 0.5  # of each variant in each round; a whole rollout if that takes longer
    trace: Path | None = None

    def __post_init__(self) -> None:
        if not 1 <= self.rounds <= MOST_ROUNDS:
            raise UserError(f"rounds is {self.rounds}: use 1 to {MOST_ROUNDS}")
        if not 0.0 < self.turn_s <= 600.0:
            raise UserError(f"turn-seconds is {self.turn_s:g}: use more than 0 and at most 600")
        if self.trace is not None and not self.trace.name.endswith(TRACE_SUFFIXES):
            raise UserError(f"trace {self.trace} is no name for a trace: let it end in {' or '.join(TRACE_SUFFIXES)}")

    def run(self, progress: Progress = silent) -> dict[str, Any]:
        """Measure every variant by turns and return the result as one plain object."""
        begin_s = time.perf_counter()
        job, adjustments = profiled_job(self.job)
        settled = resolve_job(job)
        prepare_process(settled)
        notes = [f"requested → effective: {item}" for item in (*adjustments, *settled.adjustments)]
        with ExitStack() as stack:
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="redline-profile-")))
            trainer = build_trainer(settled, env_seed=settled.job.seed)
            stack.callback(trainer.close)
            training = stack.enter_context(recorded(trainer, folder, algorithm=self.algorithm, note=notes.append))
            for note in notes:
                progress(note)
            progress("playing the warm-up" if trainer.source.memory is not None else "playing the first rollout")
            subject = prepare(training)
            others = OtherWork()
            rates = self._measure(subject, progress)
            others_percent = others.percent()
            trace = None if self.trace is None else _trace(subject, self.trace, folder)
        return {
            **result_head(),
            "config": {
                "algorithm": self.algorithm,
                **to_settings(settled.job),
                "device": str(settled.device),
                "rounds": self.rounds,
                "turn_s": self.turn_s,
                "low_high": low_high(self.rounds),
            },
            "notes": notes,
            **attribute(subject, rates, asked=self.job),
            "trace": trace,
            **busy_facts(others_percent),
            "duration_s": time.perf_counter() - begin_s,
        }

    def _measure(self, subject: Subject, progress: Progress) -> dict[str, list[float]]:
        """Return the periods per second of each variant, round by round."""
        progress(f"warming up {len(VARIANTS)} variants")
        contenders = {name: _contender(variant, subject) for name, variant in VARIANTS.items()}
        return alternate(contenders, rounds=self.rounds, turn_s=self.turn_s, progress=progress)


def profiled_job(job: Job) -> tuple[Job, list[Adjustment]]:
    """Return the job as it is profiled: in one process, and with a short warm-up."""
    check_topology(job)
    adjustments = []
    if job.topology != "inline":
        why = "parts are left out in one process; there other things run at the same time"
        adjustments.append(Adjustment("topology", job.topology, "inline", why))
        job, left = carry_over(job, replace(job, topology="inline"))
        adjustments += left
    if job.algorithm.warmup_steps > MOST_WARMUP_STEPS:
        why = "for the profile only: enough to sample from"
        asked, steps = f"{job.algorithm.warmup_steps:,}", f"{MOST_WARMUP_STEPS:,}"
        adjustments.append(Adjustment("warmup-steps", asked, steps, why))
        job = from_settings(job, {"warmup_steps": MOST_WARMUP_STEPS})
    return job, adjustments


def attribute(subject: Subject, rates: Rounds, *, asked: Job) -> dict[str, Any]:
    """Turn periods per second into rates, costs, a verdict, and advice for the job that the user `asked` for."""
    job = subject.trainer.job
    steps_per_period = subject.period_steps * job.num_envs
    per_s = {name: [rate * steps_per_period for rate in rounds] for name, rounds in rates.items()}
    step_ms = {name: [1e3 / (rate * subject.period_steps) for rate in rounds] for name, rounds in rates.items()}
    found = bottleneck(step_ms, can_overlap=can_overlap(job))
    updates_per_s = [rate * subject.updates_per_period for rate in rates[FULL]]
    return {
        "full": {
            "steps_per_s": median_of(per_s[FULL]).as_dict(),
            "updates_per_s": median_of(updates_per_s).as_dict(),
            "ms_per_vector_step": median_of(step_ms[FULL]).as_dict(),
        },
        "variants": {name: {"steps_per_s": median_of(rounds).as_dict()} for name, rounds in per_s.items()},
        "parts": {name: cost_of(step_ms, part) for name, part in PARTS.items()},
        "learner": cost_of(step_ms, WHOLE_LEARNER),
        "overlap": {
            "beside": what_runs_beside_what(job),
            **overlap(step_ms, can_overlap=can_overlap(job)),
        },
        "remarks": remarks(job, keeps_features=subject.trainer.source.keeps_features),
        "bottleneck": found,
        "advice": advise(job, found["part"], found["then"], asked=asked),
    }


def _contender(variant: Variant, subject: Subject) -> Contender:
    def train(periods: int) -> None:
        with variant(subject):
            subject.play(periods * subject.period_steps)

    return train


def _trace(subject: Subject, path: Path, folder: Path) -> dict[str, Any]:
    """Write the timeline, first to our own folder; a file that can't be written does not lose the measurement."""
    steps, error = 0, None
    try:
        steps = write_trace(subject, folder / path.name)
        shutil.copyfile(folder / path.name, path)
    except OSError as problem:
        error = (problem.strerror or str(problem)).lower()
    return {"path": str(path), "steps": steps, "error": error}


def write_trace(subject: Subject, path: Path) -> int:
    """Write a Chrome trace of a few vector steps that hold updates, with the phases marked; return how many."""
    trainer, period = subject.trainer, subject.period_steps
    steps = TRACED_STEPS if trainer.source.memory is None else max(TRACED_STEPS, period)
    if trainer.source.memory is None and period > TRACED_STEPS:
        subject.play(period - TRACED_STEPS)
    marks: list[tuple[object, str, Callable[..., Any]]] = [
        (trainer.world, "start_step", _marked("act", trainer.world.start_step)),
        (trainer.source, "batches_due", _marked_batches(trainer.source.batches_due)),
        (trainer.learner, "precompute_targets", _marked("learn", trainer.learner.precompute_targets)),
        (trainer.learner, "update", _marked("learn", trainer.learner.update)),
        (trainer.world, "finish_step", _marked("keep", trainer.world.finish_step)),
    ]
    activities = [ProfilerActivity.CPU]
    if trainer.learner.device.type == "cuda":
        activities.append(ProfilerActivity.CUDA)
    with ExitStack() as stack:
        stack.enter_context(warnings.catch_warnings())
        warnings.simplefilter("ignore")  # about what the profiler can't do on this machine
        for owner, name, marked in marks:
            stack.enter_context(replaced(owner, name, marked))
        with torch.profiler.profile(activities=activities) as profiler:
            subject.play(steps)
    profiler.export_chrome_trace(str(path))
    return steps


def _marked(phase: str, method: Callable[..., Any]) -> Callable[..., Any]:
    def call(*args: Any, **kwargs: Any) -> Any:
        with record_function(phase):
            return method(*args, **kwargs)

    return call


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
