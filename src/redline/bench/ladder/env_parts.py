"""Envs for the plain loop: one behind Gymnasium's wrappers, or Redline's vector of native ones."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol

import ale_py
import gymnasium
import numpy as np
from gymnasium.spaces import Discrete
from gymnasium.wrappers import AtariPreprocessing, ClipReward, FrameStackObservation, RecordEpisodeStatistics

from redline.bench.ladder.task import STACK
from redline.bench.peer_install import INSTALL
from redline.envs import stacking
from redline.envs.atari_games import AtariGame
from redline.envs.catalog import make_vector_env, resolve
from redline.envs.config import EnvConfig
from redline.envs.vector import VectorEnv
from redline.errors import UserError
from redline.runtime.roles import usable_cores
from redline.types import Array, BoolArray, FloatArray, IntArray

LIFE_LOSS, CLIPPING = "life loss", "reward clipping"


@dataclass(frozen=True)
class StackedStep:
    """What one step of all lanes gave, in whole stacks; N lanes."""

    obs: Array  # [N, K, *frame] after the action; the final one where an episode ended
    next_obs: Array  # [N, K, *frame] for which the next action is chosen
    reward: FloatArray  # [N] as it is learnt from
    return_ends: BoolArray  # [N]
    ended: BoolArray  # [N]
    returns: list[float]  # of the episodes that ended, unclipped


class StackedEnv(Protocol):
    """N lanes that show whole stacks."""

    num_actions: int

    def reset(self) -> Array:
        """Begin an episode in every lane and return the first observations [N, K, *frame]."""
        ...

    def send(self, actions: IntArray) -> None:
        """Take one step in every lane; the results are asked for with `recv`."""
        ...

    def recv(self) -> StackedStep:
        """Return what the step gave, with ended lanes already in their next episode."""
        ...

    def close(self) -> None:
        """Give back threads and memory."""
        ...


class EnvPart(Protocol):
    """A recipe for envs."""

    @property
    def num_envs(self) -> int:
        """Lanes."""
        ...

    def make(self, env_id: str, *, seed: int) -> StackedEnv:
        """Return the lanes."""
        ...


@dataclass(frozen=True)
class Wrapped:
    """One env behind the wrappers that Gymnasium offers for Atari."""

    wrappers: tuple[str, ...] = (LIFE_LOSS, CLIPPING)  # beside those without which nothing can be learnt
    num_envs: ClassVar[int] = 1

    def make(self, env_id: str, *, seed: int) -> StackedEnv:
        """Return the one lane."""
        return _WrappedEnv(make_wrapped(env_id, self.wrappers), seed=seed)


@dataclass(frozen=True)
class Native:
    """Redline's vector env: the emulators on their own threads; what Gymnasium makes is stepped one by one."""

    num_envs: int = 1

    def make(self, env_id: str, *, seed: int) -> StackedEnv:
        """Return the lanes."""
        threads = min(usable_cores(), self.num_envs)
        config = EnvConfig(id=env_id, stack=STACK)
        return _NativeEnv(make_vector_env(config, num_envs=self.num_envs, seed=seed, threads=threads))


def make_wrapped(env_id: str, wrappers: tuple[str, ...]) -> gymnasium.Env[Any, Any]:
    """Return an env as a reader of Gymnasium's documentation makes it."""
    kind = resolve(env_id)
    is_atari = isinstance(kind, AtariGame)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # an old version: it is the one without sticky actions
        if not is_atari:
            env: gymnasium.Env[Any, Any] = gymnasium.make(kind.gymnasium_id)
        else:
            gymnasium.register_envs(ale_py)
            env = gymnasium.make(kind.gymnasium_id)
            try:
                env = AtariPreprocessing(env, terminal_on_life_loss=LIFE_LOSS in wrappers)
            except gymnasium.error.DependencyNotInstalled:
                raise UserError(f"Gymnasium's Atari wrappers need opencv, which is not installed: {INSTALL}") from None
    env = RecordEpisodeStatistics(env)
    if CLIPPING in wrappers:
        env = ClipReward(env, -1.0, 1.0)
    return FrameStackObservation(env, STACK, padding_type="zero")  # as Redline pads, so that all learn from the same


class _WrappedEnv:
    def __init__(self, env: gymnasium.Env[Any, Any], *, seed: int) -> None:
        if not isinstance(env.action_space, Discrete):
            raise TypeError(f"{env} has no discrete actions")
        self.num_actions = int(env.action_space.n)
        self._env = env
        self._seed: int | None = seed  # of the first episode; the others follow from it
        self._action = 0

    def reset(self) -> Array:
        obs, _ = self._env.reset(seed=self._seed)
        self._seed = None
        return np.asarray(obs)[None]

    def send(self, actions: IntArray) -> None:
        self._action = int(actions[0])

    def recv(self) -> StackedStep:
        obs, reward, terminated, truncated, info = self._env.step(self._action)
        ended = terminated or truncated
        seen = np.asarray(obs)[None]
        return StackedStep(
            obs=seen,
            next_obs=self.reset() if ended else seen,
            reward=np.array([reward], np.float32),
            return_ends=np.array([terminated]),
            ended=np.array([ended]),
            returns=[float(info["episode"]["r"])] if ended else [],
        )

    def close(self) -> None:
        self._env.close()


class _NativeEnv:
    def __init__(self, env: VectorEnv) -> None:
        self.num_actions = env.spec.num_actions
        self._env = env
        self._obs = np.zeros(0)
        self._returns = np.zeros(env.num_envs)  # [N] unclipped

    def reset(self) -> Array:
        self._obs = stacking.begin(self._env.reset(), STACK)
        return self._obs

    def send(self, actions: IntArray) -> None:
        self._env.send(actions)

    def recv(self) -> StackedStep:
        step = self._env.recv()
        obs = stacking.push(self._obs, step.frames)
        self._obs = stacking.restart(obs, step.ended, step.first_frames)
        self._returns += step.reward
        returns = self._returns[step.ended].tolist()
        self._returns[step.ended] = 0.0
        return StackedStep(
            obs=obs,
            next_obs=self._obs,
            reward=step.reward.clip(-1.0, 1.0),
            return_ends=step.return_ends,
            ended=step.ended,
            returns=returns,
        )

    def close(self) -> None:
        self._env.close()
