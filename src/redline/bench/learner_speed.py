"""`redline bench learner`: updates per second, beside the arithmetic that this machine can do and beside peers."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import cycle, islice
from typing import Any

import numpy as np

from redline.algorithms.catalog import canonical_name, find_algorithm
from redline.algorithms.on_policy import OnPolicy
from redline.algorithms.q_learning import QLearning
from redline.algorithms.samplings import Uniform
from redline.bench.example_batches import example_batch
from redline.bench.goals import LEAST_ROUNDS, goal
from redline.bench.host_result import result_head
from redline.bench.learner_peers import LEARNER_PEERS
from redline.bench.limit import Limit, Sgemm, count_work
from redline.bench.measuring import Contender, Told, alternate, rate_of
from redline.bench.other_work import OtherWork, busy_facts
from redline.bench.time_left import with_time_left
from redline.envs.config import EnvConfig
from redline.envs.factory import env_spec
from redline.errors import UserError, unknown_name
from redline.learner import Learner
from redline.runtime.building import Settled, prepare_process, settle
from redline.runtime.job import Job
from redline.runtime.randomness import Purpose, stream
from redline.runtime.replay_source import ROWS_IN_A_PASS
from redline.runtime.roles import LearnerConfig
from redline.types import AnyBatch, EnvSpec

NUM_BATCHES = 16  # learnt from in turn: one alone would stay in the cache
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
    turn_s: float = 2.0  # that each contender works in each round
    seed: int = 1
    against: Sequence[str] = ()

    def __post_init__(self) -> None:
        for name in self.against:
            if name not in LEARNER_PEERS:
                raise unknown_name("peer", name, LEARNER_PEERS)
            if self.name not in LEARNER_PEERS[name].algorithms:
                known = ", ".join(LEARNER_PEERS[name].algorithms)
                raise UserError(f"{name} is compared at {known}, not at {self.name}: use --algo {known}")

    @property
    def name(self) -> str:
        """Return the algorithm's name as the catalog spells it."""
        return canonical_name(self.algo)

    def run(self, told: Told = lambda _: None) -> dict[str, Any]:
        """Measure and return all figures as one plain object."""
        begun_s, others = time.perf_counter(), OtherWork()
        settled = self._settle()
        prepare_process(settled)
        algorithm, spec = settled.job.algorithm, env_spec(settled.job.env)
        missing = {name: reason for name in self.against if (reason := LEARNER_PEERS[name].missing)}
        for name, reason in missing.items():
            told(f"left out: {name}: {reason}")
        present = [name for name in self.against if name not in missing]
        sgemm = Sgemm([settled.job.learner.threads])
        contenders: dict[str, Contender] = {"redline": Learning(settled, spec, seed=self.seed)}
        contenders |= {name: LEARNER_PEERS[name].build(algorithm, spec) for name in present}
        contenders["sgemm"] = _multiplying(sgemm)
        measured = alternate(
            contenders,
            rounds=self.rounds,
            turn_s=self.turn_s,
            slices=SLICES,
            told=with_time_left(told, rounds=self.rounds, round_s=self.turn_s * len(contenders)),
        )
        del measured["sgemm"]  # tries per second say nothing
        others_percent = others.percent()
        return {
            **result_head([LEARNER_PEERS[name].package for name in self.against]),
            "config": self._config(settled.job),
            **self._read(measured, algorithm, Limit(sgemm.best_gflops, count_work(algorithm, spec))),
            "missing": missing,
            "rounds": [{name: values[i] for name, values in measured.items()} for i in range(self.rounds)],
            **busy_facts(others_percent),
            "duration_s": time.perf_counter() - begun_s,
        }

    def _read(
        self, measured: Mapping[str, list[float]], algorithm: QLearning | OnPolicy, limit: Limit
    ) -> dict[str, Any]:
        """Return what the rounds show; updates count for the steps that a training plays between them."""
        steps_per_update = algorithm.batch_size / algorithm.samples_per_step
        steps = {name: [value * steps_per_update for value in values] for name, values in measured.items()}
        ours = steps.pop("redline")
        fraction = rate_of([value / limit.updates_per_s for value in measured["redline"]])
        return {
            "updates_per_s": rate_of(measured["redline"]).as_dict(),
            "steps_per_s": rate_of(ours).as_dict(),
            "limit_fraction": fraction.as_dict(),
            "limit": {
                **limit.work.as_dict(),
                "sgemm_gflops": limit.sgemm_gflops,
                "updates_per_s": limit.updates_per_s,
            },
            "peers": {name: rate_of(theirs).as_dict() for name, theirs in steps.items()},
            "ratio": {
                name: rate_of([a / b for a, b in zip(ours, theirs, strict=True)]).as_dict()
                for name, theirs in steps.items()
            },
            "goals": {"limit_fraction": goal(fraction, GOAL_FRACTION, judged=self._is_judged(algorithm))},
        }

    def _settle(self) -> Settled:
        preset = find_algorithm(self.algo).atari
        algorithm = preset.algorithm
        if self.batch_size is not None:
            algorithm = replace(algorithm, batch_size=self.batch_size)
        job = Job(
            env=EnvConfig(id="pong", stack=preset.stack),
            algorithm=algorithm,
            num_envs=preset.num_envs,
            learner=LearnerConfig(threads=self.threads),
            seed=self.seed,
            device="cpu",
        )
        return settle(job)

    def _is_judged(self, algorithm: QLearning | OnPolicy) -> bool:
        return self.name == "dqn" and algorithm.batch_size == GOAL_BATCH_SIZE and self.rounds >= LEAST_ROUNDS

    def _config(self, job: Job) -> dict[str, Any]:
        algorithm = job.algorithm
        return {
            "algo": self.name,
            "env": "pong",
            "batch_size": algorithm.batch_size,
            "samples_per_step": algorithm.samples_per_step,
            "threads": job.learner.threads,
            "batches_in_turn": NUM_BATCHES,
            "batches_at_once": batches_at_once(job),
            "rounds": self.rounds,
            "turn_s": self.turn_s,
            "seed": self.seed,
            "low_high": "90 % of the rounds",
        }


class Learning:
    """The learner of a training, fed as a training feeds it; called with a number of updates."""

    def __init__(self, settled: Settled, spec: EnvSpec, *, seed: int) -> None:
        algorithm, rng = settled.job.algorithm, np.random.default_rng(seed)
        self._seed = seed
        self.learner = Learner(algorithm, spec, seed=seed, device=settled.device)
        batches = [example_batch(algorithm, spec, rng) for _ in range(NUM_BATCHES)]
        self._group = batches_at_once(settled.job)
        self._batches = cycle(batches)

    def __call__(self, count: int) -> None:
        """Do so many updates, in groups as they fall due."""
        while count > 0:
            group = list(islice(self._batches, min(count, self._group)))
            self._learn(group)
            count -= len(group)

    def _learn(self, group: Sequence[AnyBatch]) -> None:
        """Learn from the batches that are due together, as a trainer does."""
        for batch, foreseen in zip(group, self.learner.foresee(group), strict=True):
            rng = stream(self._seed, Purpose.LEARN, self.learner.updates)
            self.learner.update(batch, steps=0, rng=rng, foreseen=foreseen)


def batches_at_once(job: Job) -> int:
    """Return how many updates fall due with a vector step and don't wait for what the others bring."""
    algorithm = job.algorithm
    if isinstance(algorithm, OnPolicy) or not isinstance(algorithm.sample, Uniform):
        return 1
    due = round(job.num_envs * algorithm.samples_per_step / algorithm.batch_size)
    return 1 if algorithm.core.sequence() else max(1, min(due, ROWS_IN_A_PASS // algorithm.batch_size))


def _multiplying(sgemm: Sgemm) -> Contender:
    """Return the matrix products as a contender whose turns raise the best rate; how often it was tried says little."""

    def multiply(count: int) -> None:
        for _ in range(count):
            sgemm.measure()

    return multiply
