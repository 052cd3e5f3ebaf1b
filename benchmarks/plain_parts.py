"""Envs and replay memories for the plain loop: as Gymnasium's documentation shows them, or Redline's."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import ale_py
import gymnasium
import numpy as np
import torch
from gymnasium.wrappers import AtariPreprocessing, ClipReward, FrameStackObservation, RecordEpisodeStatistics

from redline.envs.atari_games import AtariGame
from redline.envs.catalog import make_vector_env, resolve
from redline.envs.config import EnvConfig
from redline.envs.vector import begin_stack, push_frames, restart_stack
from redline.replay import BatchBuffers, BatchLoader, ReplayLayout, ReplayMemory, UniformSampler
from redline.runs.host import usable_cores
from redline.runtime.counters import Pacing
from redline.types import Array, Batch, BoolArray, FloatArray, IntArray

STACK = 4
BATCH_SIZE = 32
STEPS_PER_UPDATE = 4
SAMPLES_PER_STEP = BATCH_SIZE / STEPS_PER_UPDATE
GAMMA = 0.99
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


class WrappedEnv:
    """One env as a reader of Gymnasium's documentation makes it."""

    def __init__(self, env_id: str, wrappers: Sequence[str], *, seed: int) -> None:
        kind = resolve(env_id)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # an old version of the game: the one without sticky actions
            gymnasium.register_envs(ale_py)
            env: gymnasium.Env[Any, Any] = gymnasium.make(kind.gymnasium_id)
            if isinstance(kind, AtariGame):
                env = AtariPreprocessing(env, terminal_on_life_loss=LIFE_LOSS in wrappers)
        env = RecordEpisodeStatistics(env)
        if CLIPPING in wrappers:
            env = ClipReward(env, -1.0, 1.0)
        self._env = FrameStackObservation(env, STACK, padding_type="zero")  # as Redline pads
        self.num_actions = int(env.action_space.n)  # type: ignore[attr-defined]
        self._seed: int | None = seed  # of the first episode; the others follow from it
        self._action = 0

    def reset(self) -> Array:
        """Begin an episode and return the first observation [1, K, *frame]."""
        obs, _ = self._env.reset(seed=self._seed)
        self._seed = None
        return np.asarray(obs)[None]

    def send(self, actions: IntArray) -> None:
        """Take the action that `recv` will play."""
        self._action = int(actions[0])

    def recv(self) -> StackedStep:
        """Play, and begin the next episode where one has ended."""
        obs, reward, terminated, truncated, info = self._env.step(self._action)
        ended, seen = terminated or truncated, np.asarray(obs)[None]
        return StackedStep(
            obs=seen,
            next_obs=self.reset() if ended else seen,
            reward=np.array([reward], np.float32),
            return_ends=np.array([terminated]),
            ended=np.array([ended]),
            returns=[float(info["episode"]["r"])] if ended else [],
        )


class NativeEnv:
    """Redline's vector env: the emulators on their own threads."""

    def __init__(self, env_id: str, *, num_envs: int, seed: int) -> None:
        threads = min(usable_cores(), num_envs)
        self._env = make_vector_env(EnvConfig(id=env_id, stack=STACK), num_envs=num_envs, seed=seed, threads=threads)
        self.num_actions = self._env.spec.num_actions
        self._obs = np.zeros(0)
        self._returns = np.zeros(num_envs)  # [N] unclipped
        self.send = self._env.send

    def reset(self) -> Array:
        """Begin an episode in every lane and return the first observations [N, K, *frame]."""
        self._obs = begin_stack(self._env.reset(), STACK)
        return self._obs

    def recv(self) -> StackedStep:
        """Return what the step gave, with ended lanes already in their next episode."""
        step = self._env.recv()
        obs = push_frames(self._obs, step.frames)
        self._obs = restart_stack(obs, step.ended, step.first_frames)
        self._returns += step.reward
        returns = self._returns[step.ended].tolist()
        self._returns[step.ended] = 0.0
        reward = step.reward.clip(-1.0, 1.0)
        return StackedStep(obs, self._obs, reward, step.return_ends, step.ended, returns)


class Transitions(NamedTuple):
    """What one update learns from; B rows of K stacked frames."""

    state: torch.Tensor  # [B, K, *frame] uint8
    action: torch.Tensor  # [B] int64
    reward: torch.Tensor  # [B]
    next_state: torch.Tensor  # [B, K, *frame] uint8
    discount: torch.Tensor  # [B] γ, or 0 where the return ends


class Replay(Protocol):
    """Stores what was played, and draws from it uniformly."""

    def add(self, obs: Array, actions: IntArray, step: StackedStep) -> None:
        """Store one step of all lanes that began at `obs`."""
        ...

    def next_batch(self, rng: np.random.Generator) -> Transitions:
        """Return rows drawn at random; overwritten by the call after the next."""
        ...


class StackReplay:
    """Both observations of every transition, copied whole."""

    def __init__(self, obs: Array, capacity: int) -> None:
        num_envs, *shape = obs.shape
        self._capacity, self._offsets, self._written = capacity, np.arange(num_envs), 0
        self._state, self._next_state = (np.empty((capacity, *shape), np.uint8) for _ in range(2))
        self._action = np.empty(capacity, np.int64)
        self._reward, self._discount = (np.empty(capacity, np.float32) for _ in range(2))

    def add(self, obs: Array, actions: IntArray, step: StackedStep) -> None:
        """Store one step of all lanes that began at `obs`."""
        at = (self._written + self._offsets) % self._capacity
        self._state[at], self._next_state[at] = obs, step.obs
        self._action[at], self._reward[at] = actions, step.reward
        self._discount[at] = np.where(step.return_ends, 0.0, GAMMA)
        self._written += len(at)

    def next_batch(self, rng: np.random.Generator) -> Transitions:
        """Return rows drawn at random."""
        at = rng.integers(min(self._written, self._capacity), size=BATCH_SIZE)
        columns = (self._state, self._action, self._reward, self._next_state, self._discount)
        return Transitions(*(torch.from_numpy(column[at]) for column in columns))


class FrameReplay:
    """Redline's replay memory: each frame once, stacks are cut when rows are drawn."""

    def __init__(self, obs: Array, capacity: int, *, codec: str, prefetch: int) -> None:
        num_envs, stack, *frame_shape = obs.shape
        pacing = Pacing(samples_per_step=SAMPLES_PER_STEP, warmup_steps=0)
        layout = ReplayLayout(
            capacity=capacity,
            frame_shape=tuple(frame_shape),
            frame_dtype="uint8",
            stack=stack,
            lanes=num_envs,
            horizon_steps=pacing.horizon_vector_steps(batches_ahead=prefetch, batch_size=BATCH_SIZE, num_envs=num_envs),
            codec=codec,
        )
        self._memory = ReplayMemory(layout)
        self._memory.begin(self._memory.lanes, obs[:, -1])
        self._sampler = UniformSampler(self._memory)
        self._loader: BatchLoader[Batch] = BatchLoader(
            self._memory,
            make_buffers=lambda: BatchBuffers(layout, batch_size=BATCH_SIZE),
            gamma=GAMMA,
            clip_rewards=False,  # they are clipped already
            prefetch=prefetch,
        )

    def add(self, obs: Array, actions: IntArray, step: StackedStep) -> None:
        """Store one step of all lanes; the frames of `obs` are stored already."""
        self._memory.append(
            self._memory.lanes,
            actions=actions,
            reward=step.reward,
            return_ends=step.return_ends,
            episode_ends=step.ended,
            frames=step.obs[:, -1],
            first_frames=step.next_obs[:, -1],
        )

    def next_batch(self, rng: np.random.Generator) -> Transitions:
        """Return rows drawn at random, perhaps some updates ago."""
        while self._loader.is_short_of(1):
            self._loader.submit(self._sampler.draw(rng, BATCH_SIZE))
        ((_, batch),) = self._loader.take(1)
        return Transitions(batch.frames[:, :-1], batch.action, batch.reward, batch.frames[:, 1:], batch.discount)
