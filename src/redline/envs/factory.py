"""From a config to a running vector of environments."""

from redline.envs.atari import KEY_INTERVAL_STEPS
from redline.envs.catalog import resolve
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
    return resolve(config.id).make_vector(
        config, num_envs=num_envs, seed=seed, threads=threads, key_interval_steps=key_interval_steps
    )


def env_spec(config: EnvConfig) -> EnvSpec:
    """Return what a network must know, without a vector of envs."""
    return resolve(config.id).spec(config)
