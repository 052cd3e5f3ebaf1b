"""How the tests of this room make an Atari env: few lanes, two threads, small key intervals."""

from collections.abc import Callable, Iterator

import pytest

from redline.envs.atari import AtariVectorEnv
from redline.envs.catalog import resolve
from redline.envs.config import EnvConfig

MakeAtari = Callable[..., AtariVectorEnv]


@pytest.fixture
def make_atari() -> Iterator[MakeAtari]:
    made: list[AtariVectorEnv] = []

    def make(
        env_id: str,
        *,
        num_envs: int = 1,
        seed: int = 0,
        seed_interval_steps: int = 10_000,
        max_episode_frames: int = 108_000,
    ) -> AtariVectorEnv:
        config = EnvConfig(id=env_id, max_episode_frames=max_episode_frames)
        env = AtariVectorEnv(
            resolve(env_id),
            config,
            num_envs=num_envs,
            seed=seed,
            threads=2,
            seed_interval_steps=seed_interval_steps,
        )
        made.append(env)
        return env

    yield make
    for env in made:
        env.close()
