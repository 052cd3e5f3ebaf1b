"""The process of `peer`: trains Pong with Stable-Baselines3 and answers each number of seconds with what it did.

It says `{}` when it has learnt for a moment; from then on it waits for the next line of its input after every turn.
"""

from __future__ import annotations

import json
import sys
import time
from typing import Any

from redline.bench.ladder.contenders import SETTLE_STEPS
from redline.bench.ladder.task import ADAM_EPS, BATCH_SIZE, EPSILON_END, GAMMA, PONG, STEPS_PER_UPDATE
from redline.bench.training.sb3_worker import ENDLESS_STEPS, make_env, make_model
from redline.bench.training.settings import DqnSetting
from redline.runs.host import usable_cores


class Turns:
    """Begins a turn for each line that comes, and answers when it is over."""

    def __init__(self) -> None:
        self._end_s = 0.0
        self._begun: tuple[float, float, int, int] | None = None  # wall and processor seconds, steps, updates

    def after_step(self, model: Any) -> bool:
        """Look at the clock, between two steps; return whether training goes on."""
        steps, updates = int(model.num_timesteps), int(model._n_updates)
        if steps < PONG.warmup_steps + SETTLE_STEPS or steps % STEPS_PER_UPDATE:
            return True
        if self._begun is not None and time.perf_counter() < self._end_s:
            return True
        _say({} if self._begun is None else _done_since(self._begun, steps, updates))
        line = sys.stdin.readline()
        if not line:
            return False
        self._begun = time.perf_counter(), time.process_time(), steps, updates
        self._end_s = self._begun[0] + float(line)
        return True


def _done_since(begun: tuple[float, float, int, int], steps: int, updates: int) -> dict[str, float]:
    begin_s, begin_cpu_s, first_steps, first_updates = begun
    seconds, cpu_s = time.perf_counter() - begin_s, time.process_time() - begin_cpu_s
    return {
        "seconds": seconds,
        "steps": steps - first_steps,
        "updates": updates - first_updates,
        "cpu_share": cpu_s / seconds / usable_cores(),
    }


def _say(row: dict[str, float]) -> None:
    sys.stdout.write(json.dumps(row) + "\n")
    sys.stdout.flush()


def main(seed: int) -> None:
    """Train until the input ends."""
    setting = DqnSetting(
        env=PONG.env,
        seed=seed,
        num_envs=1,
        batch_size=BATCH_SIZE,
        steps_per_update=STEPS_PER_UPDATE,
        learning_rate=PONG.lr,
        adam_eps=ADAM_EPS,
        gamma=GAMMA,
        replay_capacity=PONG.capacity,
        warmup_steps=PONG.warmup_steps,
        epsilon_end=EPSILON_END,
        epsilon_over_steps=PONG.epsilon_over_steps,
        target_sync_steps=PONG.target_sync_steps,
    )
    env = make_env(setting)
    model = make_model(setting, env)
    turns = Turns()
    model.learn(ENDLESS_STEPS, callback=lambda seen, _: turns.after_step(seen["self"]), log_interval=1_000_000)
    env.close()


if __name__ == "__main__":
    main(int(sys.argv[1]))
