"""`redline bench train`: whole trainings beside the machine's limit, and beside other libraries at the same work.

Every contender trains in a process of its own, warmed up once. In each round each has its turn while the others rest,
in an order that alternates, and so has the limit. Each round gives one ratio: what slows the machine slows both.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import psutil

from redline.bench.env_speed import EnvBench, Stepping
from redline.bench.host_result import result_head
from redline.bench.limit import Limit, Sgemm, count_work
from redline.bench.measuring import Rate, Told, rate_of
from redline.bench.other_work import MAX_BUSY_PERCENT, busy_words
from redline.bench.time_left import in_words
from redline.bench.training.reading import read_rounds
from redline.bench.training.redline_worker import make_job
from redline.bench.training.settings import OnPolicySetting, Setting
from redline.bench.training.workers import OURS, TRAINING_PEERS, TrainingPeer, Worker, environ_with
from redline.envs.catalog import env_spec
from redline.envs.config import EnvConfig
from redline.errors import unknown_name

ENV_SECONDS = 1.0  # that the bare emulators step in each round
TRIALS, TRIAL_SECONDS = 3, 2.0  # of each of a peer's vector envs, to find the faster
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
        with ExitStack() as stack:
            limits = LimitRounds(self.setting)
            stack.callback(limits.close)
            workers, tried = self._start(peers, stack, told)
            rows = self._run_rounds(workers, limits, told)
        return {
            **result_head([TRAINING_PEERS[name].package for name in self.against]),
            "config": {
                **asdict(self.setting),
                "rounds": self.rounds,
                "peer_vec_env_tried_steps_per_s": tried,
                "redline_omp": dict(self.own_environ),
                "peer_omp": dict(self.peer_environ),
                "low_high": "90 % of the rounds",
            },
            **read_rounds(
                rows,
                self.setting,
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

    def _start(
        self, peers: Mapping[str, TrainingPeer], stack: ExitStack, told: Told
    ) -> tuple[dict[str, Worker], dict[str, Any]]:
        """Warm up all contenders, one after the other; a peer on its fastest vector env, with what each reached."""
        told(f"warming up {REDLINE}")
        workers = {REDLINE: stack.enter_context(self._worker(OURS, self.setting))}
        tried: dict[str, Any] = {}
        for name, peer in peers.items():
            kinds = peer.vec_envs if self.peer_vec_env == "auto" else (self.peer_vec_env,)
            on_kinds: dict[str, tuple[Worker, ExitStack]] = {}
            for kind in kinds:
                told(f"warming up {name} on the {kind} vector env")
                own = stack.enter_context(ExitStack())
                worker = own.enter_context(self._worker(peer.worker, replace(self.setting, peer_vec_env=kind)))
                on_kinds[kind] = worker, own
            rates = self._try_out({kind: worker for kind, (worker, _) in on_kinds.items()}, told)
            fastest = max(on_kinds, key=lambda kind: rates[kind].median)
            for kind, (worker, own) in on_kinds.items():
                if kind == fastest:
                    workers[name] = worker
                else:
                    own.close()
            tried[name] = {kind: rate.as_dict() for kind, rate in rates.items()}
        return workers, tried

    def _try_out(self, workers: Mapping[str, Worker], told: Told) -> dict[str, Rate]:
        """Return the steps/s of each in a few short turns."""
        speeds: dict[str, list[float]] = {kind: [] for kind in workers}
        for number in range(TRIALS):
            told(f"trying the vector envs of the peer, {number + 1} of {TRIALS}")
            for kind in list(workers)[:: 1 if number % 2 == 0 else -1]:
                speeds[kind].append(workers[kind].take_turn(TRIAL_SECONDS)["steps_per_s"])
        return {kind: rate_of(values) for kind, values in speeds.items()}

    def _run_rounds(self, workers: Mapping[str, Worker], limits: LimitRounds, told: Told) -> list[Row]:
        begun_s, rows = time.perf_counter(), []
        for number in range(self.rounds):
            spent_s = time.perf_counter() - begun_s
            left = f", {in_words(spent_s / number * (self.rounds - number))} left" if number else ""
            told(f"round {number + 1} of {self.rounds}{left}")
            row: Row = dict(limits.measure())
            order = list(workers) if number % 2 == 0 else list(workers)[::-1]
            for name in order:
                row[name] = workers[name].take_turn(self.setting.seconds)
                told(f"  {name}: {row[name]['steps_per_s']:.1f} steps/s{busy_words(row[name]['others_percent'])}")
            rows.append({**row, "order": order})
        limits.measure()
        return rows

    def _worker(self, module: str, setting: Setting) -> Worker:
        settings = self.own_environ if module == OURS else self.peer_environ
        known = {**self.own_environ, **self.peer_environ}
        return Worker(module, setting, environ=environ_with(settings, known=known))


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


def with_window(setting: Setting, *, seconds: float, warmup_steps: int | None) -> Setting:
    """Return the setting with a window of that length, which opens after the warm-up."""
    setting = replace(setting, seconds=seconds)
    if warmup_steps is None:
        return setting
    if isinstance(setting, OnPolicySetting):
        return replace(setting, opens_at_steps=warmup_steps)
    return replace(setting, warmup_steps=warmup_steps, epsilon_over_steps=warmup_steps)
