"""`redline bench env`: steps per second through Redline's env layer, beside the bare emulators with the same options.

A bench of the default length ends before the first seeded reset of any lane (see `redline.envs.atari`), so the ratio
excludes these resets. Their cost is measured separately, and `ratio_with_keys` includes it.
"""

from __future__ import annotations

import time
from contextlib import AbstractContextManager, ExitStack
from dataclasses import asdict, dataclass, field
from statistics import harmonic_mean
from typing import Any

import numpy as np
from ale_py.vector_env import AtariVectorEnv as Emulator

from redline.bench.measuring import Contender, Measuring, Progress, alternate, goal, rate_of, silent, why_not_judged
from redline.envs.atari import SEED_INTERVAL_STEPS, make_emulator
from redline.envs.atari_games import AtariGame
from redline.envs.catalog import make_vector_env, resolve
from redline.envs.config import EnvConfig
from redline.envs.vector import VectorEnv, reset_seed
from redline.errors import UserError, check_range
from redline.runs.host import usable_cores
from redline.types import IntArray

GOAL_RATIO = 0.95
SEEDED_RESETS = 3
SLICES = 20  # of a turn
DRAWN_STEPS = 4_096  # vector steps whose actions are drawn before the clock starts


@dataclass(frozen=True)
class EnvBench:
    """The options of the bench."""

    env: EnvConfig = field(default_factory=EnvConfig)
    num_envs: int = 8
    threads: int = 0  # 0: all cores, at most one per env
    rounds: int = 9
    turn_s: float = 1.0  # of each contender in each round
    seed: int = 1

    def __post_init__(self) -> None:
        if not isinstance(resolve(self.env.id), AtariGame):
            raise UserError(f"{self.env.id} has no bare emulators to compare with: use an Atari game, such as pong")
        check_range("num-envs", self.num_envs, 1, 1024)
        check_range("threads", self.threads, 0, 1024, use="1 to 1_024, or 0 for all cores")

    @property
    def effective_threads(self) -> int:
        """Return the threads that step the emulators."""
        return self.threads or min(usable_cores(), self.num_envs)

    def run(self, progress: Progress = silent) -> dict[str, Any]:
        """Step both in turn with the same actions and return all figures."""
        measuring = Measuring()
        with ExitStack() as stack:
            contenders: dict[str, Contender] = {
                "redline": stack.enter_context(self.layered()),
                "bare": stack.enter_context(self.bare()),
            }
            measured = alternate(contenders, rounds=self.rounds, turn_s=self.turn_s, slices=SLICES, progress=progress)
        others_percent, seeded_reset_s = measuring.others_percent(), self.time_seeded_reset()
        ours, bare = ([self.num_envs * value for value in measured[name]] for name in ("redline", "bare"))
        speed, ratios = rate_of(ours), [our / theirs for our, theirs in zip(ours, bare, strict=True)]
        key_share = share_of_keys(seeded_reset_s, steps_per_s=speed["median"])
        why_not = why_not_judged(rounds=self.rounds, others_percent=others_percent)
        found = {
            "config": {**asdict(self), "env": self.env.id, "threads": self.effective_threads},
            "steps_per_s": speed,
            "peers": {"bare": rate_of(bare)},
            "ratio": {"bare": rate_of(ratios)},
            # the speed over all turns, rare slow ones included: each has equally many steps
            "ratio_of_means": harmonic_mean(ours) / harmonic_mean(bare),
            "seeded_reset_s": seeded_reset_s,
            "key_share": key_share,
            "ratio_with_keys": {"bare": rate_of([value * (1.0 - key_share) for value in ratios])},
            "rounds": [{"redline": our, "bare": theirs} for our, theirs in zip(ours, bare, strict=True)],
            "goals": {"ratio": goal(rate_of(ratios), GOAL_RATIO, why_not=why_not)},
        }
        return measuring.result(found, others_percent=others_percent)

    def bare(self) -> Stepping:
        """Return the bare emulators, with the options that Redline sets."""
        emulator = self._make_emulator(self.num_envs)
        # the games that the layer begins with: some take longer to emulate
        emulator.reset(seed=np.array([reset_seed(self.seed, lane, 0) for lane in range(self.num_envs)]))
        return Stepping(emulator, self._actions(len(emulator.ale.get_action_set())))

    def layered(self) -> Stepping:
        """Return the same games through Redline's env layer."""
        env = make_vector_env(self.env, num_envs=self.num_envs, seed=self.seed, threads=self.effective_threads)
        env.reset()
        return Stepping(env, self._actions(env.spec.num_actions))

    def time_seeded_reset(self) -> float:
        """Return the seconds of one lane's seeded reset, in which the emulator reloads its game."""
        emulator, lane = self._make_emulator(num_envs=1), np.ones(1, np.bool_)
        emulator.reset(seed=np.array([self.seed]))
        begun_s = time.perf_counter()
        for number in range(SEEDED_RESETS):
            emulator.reset(seed=np.array([self.seed + number]), options={"reset_mask": lane})
        spent_s = time.perf_counter() - begun_s
        emulator.close()
        return spent_s / SEEDED_RESETS

    def _make_emulator(self, num_envs: int) -> Emulator:
        game: Any = resolve(self.env.id)  # an Atari game, or the bench could not have been made
        threads = min(self.effective_threads, num_envs)
        return make_emulator(game.game, game.protocol, self.env, num_envs=num_envs, threads=threads)

    def _actions(self, num_actions: int) -> IntArray:
        return np.random.default_rng(self.seed).integers(num_actions, size=(DRAWN_STEPS, self.num_envs))


def share_of_keys(seeded_reset_s: float, *, steps_per_s: float) -> float:
    """Return the share of the time that seeded resets take: one per lane and interval, and all lanes wait."""
    resets_s = seeded_reset_s * steps_per_s / SEED_INTERVAL_STEPS  # for each second of stepping
    return resets_s / (1.0 + resets_s)


class Stepping(AbstractContextManager["Stepping"]):
    """Takes random steps in a vector of envs; called with a number of vector steps."""

    def __init__(self, envs: VectorEnv | Emulator, actions: IntArray) -> None:
        self._envs = envs
        self._actions = actions  # [T, N]
        self._at = 0

    def __call__(self, count: int) -> None:
        """Take `count` vector steps."""
        for _ in range(count):
            self._envs.send(self._actions[self._at % len(self._actions)])
            self._envs.recv()
            self._at += 1

    def steps_per_s(self, seconds: float) -> float:
        """Step for about `seconds` and return the steps of all envs per second."""
        count, begun_s, spent_s = 0, time.perf_counter(), 0.0
        while spent_s < seconds:
            self(10)
            count += 10
            spent_s = time.perf_counter() - begun_s
        return count * len(self._actions[0]) / spent_s

    def __exit__(self, *_: object) -> None:
        self._envs.close()
