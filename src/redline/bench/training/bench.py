"""`redline bench train`: whole trainings beside the machine's limit, and beside other libraries at the same work.

Each round measures every contender once, in an order that alternates, each in a process of its own with its warm-up
excluded; and the limit. Each round gives one ratio, so whatever else slows the machine slows both.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import psutil

from redline.bench.env_speed import EnvBench, Stepping
from redline.bench.host_result import result_head
from redline.bench.limit import Limit, Sgemm, count_work
from redline.bench.measuring import Told, rate_of
from redline.bench.other_work import MAX_BUSY_PERCENT, busy_words
from redline.bench.time_left import in_words
from redline.bench.training.reading import read_rounds
from redline.bench.training.redline_worker import make_job
from redline.bench.training.settings import DqnSetting, OnPolicySetting, Setting
from redline.bench.training.workers import OURS, TRAINING_PEERS, TrainingPeer, environ_with, run_worker
from redline.envs.config import EnvConfig
from redline.envs.factory import env_spec
from redline.errors import unknown_name

ENV_SECONDS = 1.0  # that the bare emulators step in each round
TRIALS, TRIAL_SECONDS = 3, 3.0  # of each of a peer's vector envs, to find the faster
REDLINE = "redline"

Row = dict[str, Any]


@dataclass(frozen=True)
class TrainBench:
    """What is measured, and for how long."""

    setting: Setting
    against: Sequence[str] = ()
    rounds: int = 5
    peer_vec_env: str = "auto"  # the fastest here
    own_environ: Mapping[str, str] = field(default_factory=dict)  # what Redline's command line sets before torch loads
    peer_environ: Mapping[str, str] = field(default_factory=dict)  # the same variables, for peers

    def __post_init__(self) -> None:
        for name in self.against:
            if name not in TRAINING_PEERS:
                raise unknown_name("peer", name, TRAINING_PEERS)

    def run(self, told: Told = lambda _: None) -> Row:
        """Measure everything and return it as one plain object."""
        begun_s = time.perf_counter()
        if (busy_percent := psutil.cpu_percent(interval=1.0)) > MAX_BUSY_PERCENT:
            told(f"others use {busy_percent:.0f} % of the CPU: ratios will say little")
        peers, missing = self._find_peers(told)
        setting, tried = self._choose_vec_env(peers, told)
        limits = LimitRounds(setting)
        try:
            rows = self._run_rounds(setting, peers, limits, told)
        finally:
            limits.close()
        return {
            **result_head([TRAINING_PEERS[name].package for name in self.against]),
            "config": {
                **asdict(setting),
                "seed": "the number of the round",
                "rounds": self.rounds,
                "peer_vec_env_tried_steps_per_s": tried,
                "redline_omp": dict(self.own_environ),
                "peer_omp": dict(self.peer_environ),
                "low_high": "90 % of the rounds",
            },
            **read_rounds(
                rows,
                setting,
                limits.limit,
                peers=list(peers),
                is_vec_env_forced=bool(peers) and self.peer_vec_env != "auto",
            ),
            "missing": missing,
            "rounds": rows,
            "duration_s": time.perf_counter() - begun_s,
        }

    def _find_peers(self, told: Told) -> tuple[dict[str, TrainingPeer], dict[str, str]]:
        missing = {name: reason for name in self.against if (reason := TRAINING_PEERS[name].missing)}
        for name, reason in missing.items():
            told(f"left out: {name}: {reason}")
        return {name: TRAINING_PEERS[name] for name in self.against if name not in missing}, missing

    def _choose_vec_env(self, peers: Mapping[str, TrainingPeer], told: Told) -> tuple[Setting, dict[str, Any]]:
        """Return the setting with the faster vector env of the peer that has several, and what each reached."""
        choosy = [peer for peer in peers.values() if peer.vec_envs]
        if not choosy or self.peer_vec_env != "auto":
            kind = self.setting.peer_vec_env if self.peer_vec_env == "auto" else self.peer_vec_env
            return replace(self.setting, peer_vec_env=kind), {}
        speeds: dict[str, list[float]] = {kind: [] for kind in choosy[0].vec_envs}
        for number in range(TRIALS):
            for kind in list(speeds)[:: 1 if number % 2 == 0 else -1]:
                told(f"trying the {kind} vector env of the peer, {number + 1} of {TRIALS}")
                row = self._train(choosy[0].worker, trial_of(replace(self.setting, peer_vec_env=kind)))
                speeds[kind].append(row["steps_per_s"])
        tried = {kind: rate_of(values) for kind, values in speeds.items()}
        fastest = max(tried, key=lambda kind: tried[kind].median)
        return replace(self.setting, peer_vec_env=fastest), {kind: rate.as_dict() for kind, rate in tried.items()}

    def _run_rounds(
        self, setting: Setting, peers: Mapping[str, TrainingPeer], limits: LimitRounds, told: Told
    ) -> list[Row]:
        workers = {REDLINE: OURS, **{name: peer.worker for name, peer in peers.items()}}
        begun_s, rows = time.perf_counter(), []
        for number in range(self.rounds):
            spent_s = time.perf_counter() - begun_s
            left = f", {in_words(spent_s / number * (self.rounds - number))} left" if number else ""
            told(f"round {number + 1} of {self.rounds}{left}")
            row: Row = {"seed": number + 1, **limits.measure()}
            order = list(workers) if number % 2 == 0 else list(workers)[::-1]
            for name in order:
                row[name] = self._train(workers[name], replace(setting, seed=number + 1))
                told(f"  {name}: {row[name]['steps_per_s']:.1f} steps/s{busy_words(row[name]['others_percent'])}")
            rows.append({**row, "order": order})
        limits.measure()
        return rows

    def _train(self, worker: str, setting: Setting) -> Row:
        settings = self.own_environ if worker == OURS else self.peer_environ
        known = {**self.own_environ, **self.peer_environ}
        return run_worker(worker, setting, environ=environ_with(settings, known=known))


class LimitRounds:
    """Measures the limit round by round, and keeps the best of matrix products and emulators."""

    def __init__(self, setting: Setting) -> None:
        env = EnvConfig(id=setting.env)
        self._work = count_work(make_job(setting, Path()).algorithm, env_spec(env))
        self._sgemm = Sgemm()
        self._bare: Stepping = EnvBench(env=env, num_envs=setting.num_envs).bare()
        self._env_s_per_step = float("inf")

    def measure(self) -> dict[str, float]:
        """Return what this round's matrix products and emulators reached."""
        gflops = self._sgemm.measure()
        env_steps_per_s = self._bare.steps_per_s(ENV_SECONDS)
        self._env_s_per_step = min(self._env_s_per_step, 1.0 / env_steps_per_s)
        return {"sgemm_gflops": gflops, "bare_env_steps_per_s": env_steps_per_s}

    @property
    def limit(self) -> Limit:
        """Return the limit by the best that was measured."""
        return Limit(self._sgemm.best_gflops, self._work, self._env_s_per_step)

    def close(self) -> None:
        """End the emulators."""
        self._bare.close()


def trial_of(setting: Setting) -> Setting:
    """Return the setting with a window that opens early and is short: enough to tell a slow vector env."""
    seconds = min(TRIAL_SECONDS, setting.seconds)
    if isinstance(setting, DqnSetting):
        warmup_steps = min(1_000, setting.warmup_steps)
        return replace(setting, seconds=seconds, warmup_steps=warmup_steps, epsilon_over_steps=warmup_steps)
    return replace(setting, seconds=seconds, opens_at_steps=min(2 * setting.window_every_steps, setting.opens_at_steps))


def with_window(setting: Setting, *, seconds: float, warmup_steps: int | None) -> Setting:
    """Return the setting with a window of that length, which opens after the warm-up."""
    setting = replace(setting, seconds=seconds)
    if warmup_steps is None:
        return setting
    if isinstance(setting, OnPolicySetting):
        return replace(setting, opens_at_steps=warmup_steps)
    return replace(setting, warmup_steps=warmup_steps, epsilon_over_steps=warmup_steps)
