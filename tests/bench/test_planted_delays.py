"""A delay that is planted in one part of a real training is found in that part, by the command itself."""

import json
import time
from collections.abc import Callable
from typing import Any

import gymnasium
import pytest

from redline.bench import profiling
from redline.cli.main import main
from redline.runtime.building import build_trainer
from redline.runtime.resolve import ResolvedJob
from redline.runtime.sources import ReplaySource, RolloutSource
from redline.runtime.training import InlineWorld, Trainer

DELAY_S = 0.003
CHEAP = ["--env", "CartPole-v1", "--num-envs", "1", "--network.widths", "8", "--monitor.hz", "0"]
BRIEF = ["--rounds", "24", "--turn-seconds", "0.004", "--json"]  # of which a third may be blurred by others
DQN = ["--algo", "dqn", "--batch-size", "8", "--samples-per-step", "8", "--warmup-steps", "50"]
PPO = ["--algo", "ppo", "--num-envs", "2", "--rollout-steps", "1", "--batch-size", "2", "--epochs", "1"]


def delayed(method: Callable[..., Any]) -> Callable[..., Any]:
    def call(*args: Any, **kwargs: Any) -> Any:
        time.sleep(DELAY_S)
        return method(*args, **kwargs)

    return call


def delay_sampling(trainer: Trainer) -> None:
    assert isinstance(trainer.source, ReplaySource)
    sampler: Any = trainer.source.sampler
    sampler.draw = delayed(sampler.draw)


def delay_shuffling(trainer: Trainer) -> None:
    assert isinstance(trainer.source, RolloutSource)
    buffer: Any = trainer.source.buffer
    buffer.batches = delayed(buffer.batches)


def delay_optimiser(trainer: Trainer) -> None:
    optimizer: Any = trainer.learner.optimizer
    optimizer.step = delayed(optimizer.step)


def delay_env(trainer: Trainer) -> None:
    assert isinstance(trainer.world, InlineWorld)
    envs: list[gymnasium.Env[Any, Any]] = trainer.world.env._envs  # type: ignore[attr-defined]
    for env in envs:
        env.step = delayed(env.step)  # type: ignore[method-assign]


def delay_env_beside_learning(trainer: Trainer) -> None:
    """Let a step take long after it was sent: the learner is done before, and only what is left is waited for."""
    assert isinstance(trainer.world, InlineWorld)
    env: Any = trainer.world.env
    send, recv, due_s = env.send, env.recv, [0.0]

    def send_and_note(actions: Any) -> None:
        due_s[0] = time.monotonic() + 3 * DELAY_S
        send(actions)

    def wait_and_recv() -> Any:
        time.sleep(max(0.0, due_s[0] - time.monotonic()))
        return recv()

    env.send, env.recv = send_and_note, wait_and_recv


@pytest.mark.parametrize(
    ("algorithm", "plant", "part"),
    [
        (DQN, delay_sampling, "sampling"),
        (DQN, delay_optimiser, "optimiser"),
        (DQN, delay_env, "env"),
        (DQN, delay_env_beside_learning, "env"),
        (PPO, delay_shuffling, "sampling"),
        (PPO, delay_optimiser, "optimiser"),
        (PPO, delay_env, "env"),
    ],
    ids=[
        "sampling",
        "optimiser",
        "env",
        "env beside learning",
        "rollout: sampling",
        "rollout: optimiser",
        "rollout: env",
    ],
)
def test_the_part_with_the_delay_is_named(
    algorithm: list[str],
    plant: Callable[[Trainer], None],
    part: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def build(settled: ResolvedJob, *, env_seed: int) -> Trainer:
        trainer = build_trainer(settled, env_seed=env_seed)
        plant(trainer)
        return trainer

    monkeypatch.setattr(profiling, "build_trainer", build)
    assert main(["profile", *CHEAP, *algorithm, *BRIEF]) == 0
    result = json.loads(capsys.readouterr().out)
    assert result["bottleneck"]["part"] == part, result["bottleneck"]["sentence"]
    assert result["parts"][part]["ms_per_vector_step"]["median"] > 1_000 * DELAY_S / 2
