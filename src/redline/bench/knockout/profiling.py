"""`redline profile`: where the time of a training goes, by leaving out one part at a time."""

from __future__ import annotations

import shutil
import tempfile
import time
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from redline.bench.host_result import result_head
from redline.bench.knockout.advice import advise
from redline.bench.knockout.costs import PARTS, WHOLE_LEARNER, Rounds, bottleneck, cost_of, low_high, median_of, overlap
from redline.bench.knockout.record_keeping import keeping_records
from redline.bench.knockout.remarks import can_overlap, remarks, what_runs_beside_what
from redline.bench.knockout.subject import Subject, prepare
from redline.bench.knockout.tracing import SUFFIXES, write_trace
from redline.bench.knockout.variants import FULL, VARIANTS, Variant
from redline.bench.ladder.progress import Kind, TimeLeft
from redline.bench.measuring import Contender, Told, alternate
from redline.bench.other_work import OtherWork, busy_facts
from redline.errors import UserError
from redline.runtime.building import build_trainer, prepare_process
from redline.runtime.config import Job, from_settings, to_settings
from redline.runtime.resolve import carry_over, check_topology, resolve_job
from redline.types import Adjustment

MOST_ROUNDS = 1_000
MOST_WARMUP_STEPS = 5_000  # enough to draw from


@dataclass(frozen=True)
class Profile:
    """What is profiled, and for how long."""

    job: Job
    algorithm: str  # its name
    rounds: int = 12
    turn_s: float = 0.5  # that each variant trains in each round, or a whole rollout if that takes longer
    trace: Path | None = None

    def __post_init__(self) -> None:
        if not 1 <= self.rounds <= MOST_ROUNDS:
            raise UserError(f"rounds is {self.rounds}: use 1 to {MOST_ROUNDS}")
        if not 0.0 < self.turn_s <= 600.0:
            raise UserError(f"turn-seconds is {self.turn_s:g}: use more than 0 and at most 600")
        if self.trace is not None and not self.trace.name.endswith(SUFFIXES):
            raise UserError(f"trace {self.trace} is no name for a trace: let it end in {' or '.join(SUFFIXES)}")

    def run(self, told: Told = lambda _: None) -> dict[str, Any]:
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
            records = stack.enter_context(keeping_records(trainer, folder, algorithm=self.algorithm, note=notes.append))
            for note in notes:
                told(note)
            told("playing the warm-up" if trainer.source.memory is not None else "playing the first rollout")
            subject = prepare(trainer, records)
            others = OtherWork()
            rates = self._measure(subject, told)
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

    def _measure(self, subject: Subject, told: Told) -> dict[str, list[float]]:
        """Return the periods per second of each variant, round by round."""
        told(f"warming up {len(VARIANTS)} variants")
        contenders = {name: _contender(variant, subject) for name, variant in VARIANTS.items()}
        progress = TimeLeft(told, {"round": Kind(self.rounds, guess_s=self.turn_s * len(contenders))})
        return alternate(
            contenders, rounds=self.rounds, turn_s=self.turn_s, told=lambda text: progress.begin("round", text)
        )


def profiled_job(job: Job) -> tuple[Job, list[Adjustment]]:
    """Return the job as it is profiled: in one process, and with a short warm-up."""
    check_topology(job)
    adjustments = []
    if job.topology != "inline":
        why = "parts are left out in one process; what runs beside what is otherwise there"
        adjustments.append(Adjustment("topology", job.topology, "inline", why))
        job, left = carry_over(job, replace(job, topology="inline"))
        adjustments += left
    if job.algorithm.warmup_steps > MOST_WARMUP_STEPS:
        why = "for the profile only: enough to draw from"
        asked, steps = f"{job.algorithm.warmup_steps:,}", f"{MOST_WARMUP_STEPS:,}"
        adjustments.append(Adjustment("warmup-steps", asked, steps, why))
        job = from_settings(job, {"warmup_steps": MOST_WARMUP_STEPS})
    return job, adjustments


def attribute(subject: Subject, rates: Rounds, *, asked: Job) -> dict[str, Any]:
    """Turn periods per second into rates, costs, a verdict, and advice for the job that was `asked` for."""
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
    """Write the timeline, first to our own folder: what can't be written is no reason to lose what was measured."""
    steps, error = 0, None
    try:
        steps = write_trace(subject, folder / path.name)
        shutil.copyfile(folder / path.name, path)
    except OSError as problem:
        error = (problem.strerror or str(problem)).lower()
    return {"path": str(path), "steps": steps, "error": error}
