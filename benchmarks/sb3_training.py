"""Trains Stable-Baselines3 on an Atari game in a process of its own: for its episodes, or for its speed.

For its episodes it has the settings of its zoo, and trains for so many seconds. For its speed it has the settings of
Redline, and tells the window of steady training. What can't be set alike: its DQN clips the gradient's norm, and its
Atari envs press FIRE when a game begins. Its A2C has torch's RMSprop; Redline computes the same update through Adam's
fused pass.
"""

import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from redline.bench.measuring import own_cpu_s
from redline.jsonl import RecordWriter, Row, read_records
from redline.runs.host import usable_cores
from redline_process import SETTLE_STEPS, WatchedProcess, read_window, tail, wait_for_window

ENDLESS_STEPS = 10_000_000  # as in the zoo: learning rate and ε fall over them
READING_INTERVAL_S = 1.0
VEC_ENVS = {"dummy": "DummyVecEnv", "subproc": "SubprocVecEnv"}


@dataclass(frozen=True)
class Peer:
    """An algorithm of Stable-Baselines3 with the zoo's settings for Atari."""

    algorithm: str  # its class
    num_envs: int
    options: Mapping[str, Any]
    annealed: tuple[str, ...] = ()  # options that fall to 0

    @property
    def batch_size(self) -> int:
        """Transitions in one update."""
        return int(self.options.get("batch_size", self.num_envs * self.options.get("n_steps", 1)))

    def settings(self) -> dict[str, Any]:
        """Return it for a record."""
        return {"num_envs": self.num_envs, "total_steps": ENDLESS_STEPS, "annealed": self.annealed, **self.options}


PEERS: Mapping[str, Peer] = {
    "sb3-ppo": Peer(
        "PPO",
        num_envs=8,
        options={
            "n_steps": 128,
            "n_epochs": 4,
            "batch_size": 256,
            "learning_rate": 2.5e-4,
            "clip_range": 0.1,
            "vf_coef": 0.5,
            "ent_coef": 0.01,
        },
        annealed=("learning_rate", "clip_range"),
    ),
    "sb3-dqn": Peer(
        "DQN",
        num_envs=1,
        options={
            "buffer_size": 100_000,
            "learning_rate": 1e-4,
            "batch_size": 32,
            "learning_starts": 100_000,
            "target_update_interval": 1_000,
            "train_freq": 4,
            "gradient_steps": 1,
            "exploration_fraction": 0.1,
            "exploration_final_eps": 0.01,
        },
    ),
}
REPLAY_CAPACITY = 20_000
WARMUP_STEPS = 2_000  # ε is low from then on, so that the network acts as in nearly all of a training
TARGET_SYNC_STEPS = 4_000


def dqn_like_redline(*, num_envs: int, capacity: int = REPLAY_CAPACITY, warmup_steps: int = WARMUP_STEPS) -> Peer:
    """Return DQN with the settings of Redline's: one update of 32 per 4 steps."""
    return Peer(
        "DQN",
        num_envs=num_envs,
        options={
            "buffer_size": capacity,
            "learning_rate": 1e-4,
            "batch_size": 32,
            "learning_starts": warmup_steps,
            "target_update_interval": TARGET_SYNC_STEPS,
            "train_freq": (max(1, 4 // num_envs), "step"),  # of the vector
            "gradient_steps": max(1, num_envs // 4),
            "exploration_fraction": warmup_steps / ENDLESS_STEPS,
            "exploration_final_eps": 0.01,
            "policy_kwargs": {"optimizer_kwargs": {"eps": 1.5e-4}},
        },
    )


# for the speed: the settings that Redline has for Atari
SPEED_PEERS: Mapping[str, Peer] = {
    "dqn": dqn_like_redline(num_envs=8),
    "dqn-one-env": dqn_like_redline(num_envs=1, capacity=4_000, warmup_steps=1_000),
    "ppo": replace(PEERS["sb3-ppo"], annealed=("learning_rate",)),
    "a2c": Peer("A2C", num_envs=16, options={"n_steps": 5, "learning_rate": 7e-4, "ent_coef": 0.01, "vf_coef": 0.5}),
}
GAMES = {
    "pong": "PongNoFrameskip-v4",
    "breakout": "BreakoutNoFrameskip-v4",
    "boxing": "BoxingNoFrameskip-v4",
    "freeway": "FreewayNoFrameskip-v4",
}


def train_peer(name: str, game: str, *, seconds: float, seed: int, folder: Path) -> list[Row]:
    """Train in a process of its own, and return the episodes with time_s, steps and return."""
    target, log = folder / "episodes.jsonl", folder / "said.log"
    with log.open("ab") as said:
        command = [sys.executable, __file__, name, game, str(seconds), str(seed), str(target)]
        done = subprocess.run(command, stdout=said, stderr=said, check=False)
    if done.returncode != 0:
        raise RuntimeError(f"{name} ended with {done.returncode}: {tail(log)}")
    return read_records(target) if target.exists() else []


def sb3_window(name: str, *, seconds: float, seed: int, vec_env: str = "dummy") -> Row:
    """Train on Pong with Redline's settings in a process of its own, and return what the window saw."""
    opens_at_steps = int(SPEED_PEERS[name].options.get("learning_starts", 0)) + SETTLE_STEPS
    with tempfile.TemporaryDirectory() as folder:
        target, log = Path(folder) / "episodes.jsonl", Path(folder) / "said.log"
        command = [sys.executable, __file__, name, "pong", "inf", str(seed), str(target), vec_env]
        with WatchedProcess(command, log) as process:
            return read_window(wait_for_window(process, Path(folder), opens_at_steps=opens_at_steps, seconds=seconds))


def main() -> None:
    """Train until the time is over, from the moment at which the process was started."""
    import psutil
    import stable_baselines3
    import torch
    from stable_baselines3.common import vec_env as vec_envs
    from stable_baselines3.common.callbacks import BaseCallback
    from stable_baselines3.common.env_util import make_atari_env

    name, game, seconds, seed, target, *vec_env = sys.argv[1:]
    is_for_speed = name in SPEED_PEERS
    peer, begun_s = (SPEED_PEERS if is_for_speed else PEERS)[name], psutil.Process().create_time()

    class Telling(BaseCallback):  # type: ignore[misc, unused-ignore]
        """Writes down each episode, unclipped, and ends the training in time."""

        def _on_step(self) -> bool:
            elapsed_s = time.time() - begun_s
            for info in self.locals["infos"]:
                if "episode" in info:
                    row = {"time_s": elapsed_s, "steps": self.num_timesteps, "return": float(info["episode"]["r"])}
                    writer.write(row)
            return elapsed_s < float(seconds)

    class TellingSpeed(Telling):
        """Writes down a reading every second too; counts updates itself, because SB3 counts PPO's epochs instead."""

        def _on_training_start(self) -> None:
            self.updates, self.read_s, self.cpu_s = 0, 0.0, 0.0
            self.model.policy.optimizer.register_step_post_hook(self._count)

        def _count(self, *_: object) -> None:
            self.updates += 1

        def _on_rollout_start(self) -> None:  # the updates that were due are done
            elapsed_s = time.time() - begun_s
            if elapsed_s < self.read_s + READING_INTERVAL_S:
                return
            cpu_s = own_cpu_s()
            metrics.write(
                {
                    "time_s": elapsed_s,
                    "steps": self.num_timesteps,
                    "updates": self.updates,
                    "samples": self.updates * peer.batch_size,
                    "cpu_percent": 100 * (cpu_s - self.cpu_s) / (elapsed_s - self.read_s),
                }
            )
            self.read_s, self.cpu_s = elapsed_s, cpu_s

    torch.set_num_threads(usable_cores())
    options = dict(peer.options)
    for option in peer.annealed:
        options[option] = _falling(options[option])
    vec_env_cls = getattr(vec_envs, VEC_ENVS[vec_env[0]]) if vec_env else None
    env = vec_envs.VecFrameStack(
        make_atari_env(f"ale_py:{GAMES[game]}", n_envs=peer.num_envs, seed=int(seed), vec_env_cls=vec_env_cls),
        n_stack=4,
    )
    model = getattr(stable_baselines3, peer.algorithm)("CnnPolicy", env, seed=int(seed), device="cpu", **options)
    with RecordWriter(Path(target)) as writer, RecordWriter(Path(target).with_name("metrics.jsonl")) as metrics:
        callback = TellingSpeed() if is_for_speed else Telling()
        model.learn(ENDLESS_STEPS, callback=callback, log_interval=1_000_000)
    print(json.dumps({"steps": model.num_timesteps}))


def _falling(start: float) -> Any:
    return lambda share_left: share_left * start


if __name__ == "__main__":
    main()
