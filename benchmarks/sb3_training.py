"""Trains Stable-Baselines3 on an Atari game with its zoo's settings for so many seconds, and tells its episodes."""

import json
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from redline.records import RecordWriter, Row, read_records
from redline_process import tail

ENDLESS_STEPS = 10_000_000  # as in the zoo: learning rate and ε fall over them


@dataclass(frozen=True)
class Peer:
    """An algorithm of Stable-Baselines3 with the zoo's settings for Atari."""

    algorithm: str  # its class
    num_envs: int
    options: Mapping[str, Any]
    annealed: tuple[str, ...] = ()  # options that fall to 0

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


def main() -> None:
    """Train until the time is over, from the moment at which the process was started."""
    import psutil
    import stable_baselines3
    import torch
    from stable_baselines3.common.callbacks import BaseCallback
    from stable_baselines3.common.env_util import make_atari_env
    from stable_baselines3.common.vec_env import VecFrameStack

    name, game, seconds, seed, target = sys.argv[1:]
    peer, begun_s = PEERS[name], psutil.Process().create_time()

    class Telling(BaseCallback):  # type: ignore[misc, unused-ignore]
        """Writes down each episode, unclipped, and ends the training in time."""

        def _on_step(self) -> bool:
            elapsed_s = time.time() - begun_s
            for info in self.locals["infos"]:
                if "episode" in info:
                    row = {"time_s": elapsed_s, "steps": self.num_timesteps, "return": float(info["episode"]["r"])}
                    writer.write(row)
            return elapsed_s < float(seconds)

    torch.set_num_threads(psutil.cpu_count() or 1)
    options = dict(peer.options)
    for option in peer.annealed:
        options[option] = _falling(options[option])
    env = VecFrameStack(make_atari_env(f"ale_py:{GAMES[game]}", n_envs=peer.num_envs, seed=int(seed)), n_stack=4)
    model = getattr(stable_baselines3, peer.algorithm)("CnnPolicy", env, seed=int(seed), device="cpu", **options)
    with RecordWriter(Path(target)) as writer:
        model.learn(ENDLESS_STEPS, callback=Telling(), log_interval=1_000_000)
    print(json.dumps({"steps": model.num_timesteps}))


def _falling(start: float) -> Any:
    return lambda share_left: share_left * start


if __name__ == "__main__":
    main()
