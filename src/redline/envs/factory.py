"""From a config to a running vector of environments."""

from redline.envs.atari import KEY_INTERVAL_STEPS, AtariVectorEnv
from redline.envs.catalog import resolve
from redline.envs.classic import ClassicVectorEnv
from redline.envs.config import EnvConfig
from redline.envs.vector import VectorEnv
from redline.types import EnvSpec


def make_vector_env(
    config: EnvConfig, *, num_envs: int, seed: int, threads: int, key_interval_steps: int = KEY_INTERVAL_STEPS
) -> VectorEnv:
    """Return N lanes of the env.

    `threads` run the emulators of an Atari game, other envs need none. With `key_interval_steps` 0 every Atari episode
    has a key seed of its own, as evaluation wants it; those of other envs always have.
    """
    kind = resolve(config.id)
    if kind.is_atari:
        return AtariVectorEnv(
            kind, config, num_envs=num_envs, seed=seed, threads=threads, key_interval_steps=key_interval_steps
        )
    return ClassicVectorEnv(
        kind,
        stack=config.stack,
        max_episode_frames=config.max_episode_frames,
        num_envs=num_envs,
        seed=seed,
    )


def env_spec(config: EnvConfig) -> EnvSpec:
    """Return what a network must know, for a process that has no env of its own."""
    env = make_vector_env(config, num_envs=1, seed=0, threads=1)
    env.close()
    return env.spec
