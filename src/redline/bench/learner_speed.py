"""`redline bench learner`: updates per second, beside the arithmetic that this machine can do and beside peers."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import cycle, islice
from typing import Any

from redline.algorithms.catalog import canonical_name, find_algorithm
from redline.algorithms.on_policy import OnPolicy
from redline.algorithms.q_learning import QLearning
from redline.bench.example_batches import example_batches
from redline.bench.goals import goal, why_not_judged
from redline.bench.host_result import result_head
from redline.bench.learner_peers import LEARNER_PEERS
from redline.bench.limit import Limit, Sgemm, count_work
from redline.bench.measuring import Contender, Told, alternate, rate_of
from redline.bench.other_work import OtherWork, busy_facts
from redline.bench.time_left import with_time_left
from redline.envs.catalog import env_spec
from redline.envs.config import EnvConfig
from redline.errors import UserError, unknown_name
from redline.learner import Learner
from redline.runtime.building import Settled, prepare_process, settle
from redline.runtime.job import Job
from redline.runtime.randomness import Purpose, stream
from redline.runtime.replay_source import largest_group
from redline.runtime.roles import LearnerConfig
from redline.runtime.rollout_source import RolloutSource
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
        batches = example_batches(algorithm, spec, seed=self.seed)
        ours = Learning(settled, spec, batches, seed=self.seed)
        contenders: dict[str, Contender] = {"redline": ours}
        contenders |= {name: LEARNER_PEERS[name].build(algorithm, spec, batches) for name in present}
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
            "config": self._config(settled.job, ours),
            **self._read(
                measured,
                algorithm,
                Limit(sgemm.best_gflops, count_work(algorithm, spec)),
                others_percent=others_percent,
            ),
            "missing": missing,
            "rounds": [{name: values[i] for name, values in measured.items()} for i in range(self.rounds)],
            **busy_facts(others_percent),
            "duration_s": time.perf_counter() - begun_s,
        }

    def _read(
        self,
        measured: Mapping[str, list[float]],
        algorithm: QLearning | OnPolicy,
        limit: Limit,
        *,
        others_percent: float,
    ) -> dict[str, Any]:
        """Return what the rounds show; updates count for the steps that a training plays between them."""
        steps_per_update = algorithm.batch_size / algorithm.samples_per_step
        steps = {name: [value * steps_per_update for value in values] for name, values in measured.items()}
        ours = steps.pop("redline")
        why_not = why_not_judged(rounds=self.rounds, others_percent=others_percent)
        if (self.name, algorithm.batch_size) != ("dqn", GOAL_BATCH_SIZE):
            why_not = f"the goal is for dqn with batches of {GOAL_BATCH_SIZE}"
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
            "peer_updates_per_s": {name: rate_of(measured[name]).as_dict() for name in steps},
            "ratio": {
                name: rate_of([a / b for a, b in zip(ours, theirs, strict=True)]).as_dict()
                for name, theirs in steps.items()
            },
            "goals": {"limit_fraction": goal(fraction, GOAL_FRACTION, why_not=why_not)},
        }

    def _settle(self) -> Settled:
        preset = find_algorithm(self.algo).atari
        algorithm = preset.algorithm
        if self.batch_size is not None:
            algorithm = replace(algorithm, batch_size=self.batch_size)
        if isinstance(
            algorithm, QLearning
        ):  # no memory is made, so nobody needs to play to see how small frames become
            algorithm = replace(algorithm, replay=replace(algorithm.replay, codec="raw"))
        job = Job(
            env=EnvConfig(id="pong", stack=preset.stack),
            algorithm=algorithm,
            num_envs=preset.num_envs,
            learner=LearnerConfig(threads=self.threads),
            seed=self.seed,
            device="cpu",
        )
        return settle(job)

    def _config(self, job: Job, ours: Learning) -> dict[str, Any]:
        algorithm = job.algorithm
        return {
            "algo": self.name,
            "env": "pong",
            "batch_size": algorithm.batch_size,
            "samples_per_step": algorithm.samples_per_step,
            "threads": job.learner.threads,
            "batches_in_turn": ours.num_batches,
            "batches_at_once": batches_at_once(job),
            "includes_forward_of_acting": ours.includes_forward_of_acting,
            "peers": {name: LEARNER_PEERS[name].how for name in self.against},
            "rounds": self.rounds,
            "turn_s": self.turn_s,
            "seed": self.seed,
            "low_high": "90 % of the rounds",
        }


class Learning:
    """The learner of a training, fed in groups as a training feeds it; called with a number of updates.

    Where a training learns from what acting computed, the update here computes it itself.
    """

    def __init__(self, settled: Settled, spec: EnvSpec, batches: Sequence[AnyBatch], *, seed: int) -> None:
        algorithm, num_envs = settled.job.algorithm, settled.job.num_envs
        self._seed = seed
        self.learner = Learner(algorithm, spec, seed=seed, device=settled.device)
        self.includes_forward_of_acting = (
            isinstance(algorithm, OnPolicy)
            and RolloutSource(algorithm, spec, num_envs=num_envs, seed=seed, learner=self.learner).keeps_features
        )
        self._group = batches_at_once(settled.job)
        self.num_batches = len(batches)
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
    if isinstance(algorithm, OnPolicy):
        return 1
    due = round(job.num_envs * algorithm.samples_per_step / algorithm.batch_size)
    return max(1, min(due, largest_group(algorithm)))


def _multiplying(sgemm: Sgemm) -> Contender:
    """Return the matrix products as a contender whose turns raise the best rate; how often it was tried says little."""

    def multiply(count: int) -> None:
        for _ in range(count):
            sgemm.measure()

    return multiply
