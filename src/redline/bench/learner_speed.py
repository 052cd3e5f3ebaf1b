"""`redline bench learner`: updates per second, beside the arithmetic that this machine can do."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import cycle, islice
from typing import Any

from redline.algorithms.catalog import canonical_name, find_algorithm
from redline.algorithms.on_policy import OnPolicy
from redline.algorithms.q_learning import QLearning
from redline.bench.limit import Limit, Sgemm, count_work, example_batches
from redline.bench.measuring import Contender, Measuring, Progress, alternate, goal, rate_of, silent, why_not_judged
from redline.envs.catalog import env_spec
from redline.envs.config import EnvConfig
from redline.learner import Learner
from redline.runtime.building import prepare_process
from redline.runtime.config import Job, LearnerConfig
from redline.runtime.counters import Purpose, stream
from redline.runtime.resolve import ResolvedJob, resolve_job
from redline.runtime.sources import RolloutSource, largest_group
from redline.types import AnyBatch, EnvSpec

GOAL_FRACTION = 0.60  # of the limit, for DQN at batch 32
GOAL_BATCH_SIZE = 32
SLICES = 5  # of a turn


@dataclass(frozen=True)
class LearnerBench:
    """What is measured, and for how long."""

    algo: str = "dqn"
    batch_size: int | None = None  # None: the algorithm's own
    threads: int = 0  # 0: as a training chooses
    rounds: int = 7
    turn_s: float = 2.0  # of each contender in each round
    seed: int = 1

    def run(self, progress: Progress = silent) -> dict[str, Any]:
        """Measure and return all figures as one plain object."""
        measuring, resolved = Measuring(), self.resolve()
        prepare_process(resolved)
        job, algorithm, spec = resolved.job, resolved.job.algorithm, env_spec(resolved.job.env)
        sgemm = Sgemm([job.learner.threads])
        learning = Learning(resolved, spec, example_batches(algorithm, spec, seed=self.seed), seed=self.seed)

        def multiply(count: int) -> None:
            for _ in range(count):
                sgemm.measure()  # only the best rate counts

        turns: dict[str, Contender] = {"redline": learning, "sgemm": multiply}
        measured = alternate(turns, rounds=self.rounds, turn_s=self.turn_s, slices=SLICES, progress=progress)
        updates, others_percent = measured["redline"], measuring.others_percent()
        limit = Limit(sgemm.best_gflops, count_work(algorithm, spec))
        fraction = rate_of([value / limit.updates_per_s for value in updates])
        why_not = why_not_judged(rounds=self.rounds, others_percent=others_percent)
        if (canonical_name(self.algo), algorithm.batch_size) != ("dqn", GOAL_BATCH_SIZE):
            why_not = f"the goal is for dqn with batches of {GOAL_BATCH_SIZE}"
        steps_per_update = algorithm.batch_size / algorithm.samples_per_step
        found = {
            "config": self._config(job, learning),
            "updates_per_s": rate_of(updates),
            "steps_per_s": rate_of([value * steps_per_update for value in updates]),
            "limit_fraction": fraction,
            "limit": {**limit.figures(), "updates_per_s": limit.updates_per_s},
            "goals": {"limit_fraction": goal(fraction, GOAL_FRACTION, why_not=why_not)},
            "rounds": [{"redline": value} for value in updates],
        }
        return measuring.result(found, others_percent=others_percent)

    def _config(self, job: Job, learning: Learning) -> dict[str, Any]:
        algorithm = job.algorithm
        return {
            "algo": canonical_name(self.algo),
            "env": "pong",
            "batch_size": algorithm.batch_size,
            "samples_per_step": algorithm.samples_per_step,
            "threads": job.learner.threads,
            "batches_in_turn": learning.num_batches,
            "batches_at_once": batches_at_once(job),
            "includes_forward_of_acting": learning.includes_forward_of_acting,
            "rounds": self.rounds,
            "turn_s": self.turn_s,
            "seed": self.seed,
            "low_high": "90 % of the rounds",
        }

    def resolve(self) -> ResolvedJob:
        """Return the job whose updates are measured."""
        preset = find_algorithm(self.algo).atari
        algorithm = preset.algorithm
        if self.batch_size is not None:
            algorithm = replace(algorithm, batch_size=self.batch_size)
        if isinstance(algorithm, QLearning):  # no memory is made, so no frames are played to see how they compress
            algorithm = replace(algorithm, replay=replace(algorithm.replay, codec="raw"))
        job = Job(
            env=EnvConfig(id="pong", stack=preset.stack),
            algorithm=algorithm,
            num_envs=preset.num_envs,
            learner=LearnerConfig(threads=self.threads),
            seed=self.seed,
            device="cpu",
        )
        return resolve_job(job)


class Learning:
    """The learner of a training, which gets batches in the same groups; called with a number of updates.

    Where a training reuses the forward pass of acting, the update here computes its own.
    """

    def __init__(self, resolved: ResolvedJob, spec: EnvSpec, batches: Sequence[AnyBatch], *, seed: int) -> None:
        algorithm, num_envs = resolved.job.algorithm, resolved.job.num_envs
        self._seed = seed
        self.learner = Learner(algorithm, spec, seed=seed, device=resolved.device)
        self.includes_forward_of_acting = (
            isinstance(algorithm, OnPolicy)
            and RolloutSource(algorithm, spec, num_envs=num_envs, seed=seed, learner=self.learner).keeps_features
        )
        self._group = batches_at_once(resolved.job)
        self.num_batches = len(batches)
        self._batches = cycle(batches)

    def __call__(self, count: int) -> None:
        """Do `count` updates, in groups as they fall due in a training."""
        while count > 0:
            group = list(islice(self._batches, min(count, self._group)))
            for batch, precomputed in zip(group, self.learner.precompute_targets(group), strict=True):
                rng = stream(self._seed, Purpose.LEARN, self.learner.updates)
                self.learner.update(batch, steps=0, rng=rng, precomputed=precomputed)
            count -= len(group)


def batches_at_once(job: Job) -> int:
    """Return how many updates fall due with a vector step and don't depend on each other."""
    algorithm = job.algorithm
    if isinstance(algorithm, OnPolicy):
        return 1
    due = round(job.num_envs * algorithm.samples_per_step / algorithm.batch_size)
    return max(1, min(due, largest_group(algorithm)))
