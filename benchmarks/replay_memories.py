"""The replay memories of other libraries behind one interface, each set up as its documentation says is best.

Every adapter delivers what an update needs: state and next state as two torch tensors (32, 4, 84, 84) of uint8. A view
is enough; nothing is copied that the library does not copy itself.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from importlib import import_module
from typing import Any, Protocol

import numpy as np
import psutil
import torch

from redline.bench.replay_speed import STACK, PlayedGame
from redline.envs.vector import begin_stack, push_frames, restart_stack
from redline.types import Array, BoolArray, FloatArray, IntArray, VectorStep

INSTALL = "make setup EXTRAS=bench"

Pair = tuple[torch.Tensor, torch.Tensor]  # state and next state, each [B, K, *frame]


class PeerMemory(Protocol):
    """A peer's replay memory, filled once and sampled again and again."""

    @property
    def num_bytes(self) -> int:
        """Bytes of the arrays that it allocated for the transitions."""
        ...

    def sample(self, batch_size: int) -> Pair:
        """Draw a batch uniformly, as the peer does, and return its two states."""
        ...


@dataclass(frozen=True)
class Peer:
    """A peer by name: what must be installed, how it is set up, and how it is filled."""

    module: str
    package: str
    how: str  # set up and measured
    frames_per_transition: int
    fill: Callable[[PlayedGame], PeerMemory]

    @property
    def missing(self) -> str | None:
        """Why it can't be measured here, or None if it can."""
        try:
            import_module(self.module)
        except ImportError as error:
            return f"{self.package} is not installed ({error}): {INSTALL}"
        return None


@dataclass(frozen=True)
class Transitions:
    """One step of every lane as most replay memories take it: whole stacks."""

    state: Array  # [L, K, *frame]
    next_state: Array  # [L, K, *frame]
    action: IntArray  # [L]
    reward: FloatArray  # [L]
    terminated: BoolArray  # [L]
    truncated: BoolArray  # [L]

    @property
    def done(self) -> BoolArray:
        """Where the episode is over, for whatever reason."""
        return self.terminated | self.truncated


def transitions(played: PlayedGame, stack: int = STACK) -> Iterator[Transitions]:
    """Return the steps of a game in order, with the stacks that an actor saw."""
    state = begin_stack(played.first_frames, stack)
    for action, step in zip(played.actions, played.steps, strict=True):
        next_state = push_frames(state, step.frames)
        yield Transitions(state, next_state, action, step.reward, step.terminated, step.truncated)
        state = restart_stack(next_state, step.ended, step.first_frames)


class StableBaselines3Memory:
    """Stacks of every state, and of every next state unless memory is optimised."""

    def __init__(self, played: PlayedGame, *, optimize_memory_usage: bool) -> None:
        from gymnasium.spaces import Box, Discrete
        from stable_baselines3.common.buffers import ReplayBuffer

        shape = (STACK, *played.spec.frame_shape)
        self._buffer = ReplayBuffer(
            # where both states share an array, the last of a lane needs room for the state that follows
            played.num_transitions + (played.lanes if optimize_memory_usage else 0),
            Box(0, 255, shape, np.uint8),
            Discrete(played.spec.num_actions),
            device="cpu",
            n_envs=played.lanes,
            optimize_memory_usage=optimize_memory_usage,
            handle_timeout_termination=not optimize_memory_usage,  # the two exclude each other
        )
        for step in transitions(played):
            infos = [{"TimeLimit.truncated": bool(cut)} for cut in step.truncated]
            self._buffer.add(step.state, step.next_state, step.action, step.reward, step.done, infos)

    @property
    def num_bytes(self) -> int:
        buffer = self._buffer
        arrays = [buffer.observations, buffer.actions, buffer.rewards, buffer.dones, buffer.timeouts]
        if not buffer.optimize_memory_usage:
            arrays.append(buffer.next_observations)
        return sum(array.nbytes for array in arrays)

    def sample(self, batch_size: int) -> Pair:
        batch = self._buffer.sample(batch_size)
        return batch.observations, batch.next_observations


class TianshouMemory:
    """Each frame once, a ring per lane; stacks are cut when sampling."""

    def __init__(self, played: PlayedGame) -> None:
        from tianshou.data import Batch, VectorReplayBuffer

        self._buffer = VectorReplayBuffer(
            played.num_transitions,
            played.lanes,
            stack_num=STACK,
            ignore_obs_next=True,
            save_only_last_obs=True,
        )
        for step in transitions(played):
            self._buffer.add(
                Batch(
                    obs=step.state,
                    act=step.action,
                    rew=step.reward,
                    terminated=step.terminated,
                    truncated=step.truncated,
                    obs_next=step.next_state,
                    info=Batch(),
                )
            )

    @property
    def num_bytes(self) -> int:
        return _batch_bytes(self._buffer._meta)

    def sample(self, batch_size: int) -> Pair:
        batch, _ = self._buffer.sample(batch_size)
        return torch.from_numpy(batch.obs), torch.from_numpy(batch.obs_next)


class CpprbMemory:
    """Each frame once in a C++ ring; a history at a time, because neighbours in the ring are neighbours in time."""

    def __init__(self, played: PlayedGame) -> None:
        from cpprb import ReplayBuffer

        height, width = played.spec.frame_shape
        before = _resident_bytes()
        self._buffer = ReplayBuffer(
            played.num_transitions,
            {
                "obs": {"shape": (height, width, STACK), "dtype": np.uint8},  # the stack must be the last dimension
                "act": {"dtype": np.int64},
                "rew": {},
                "done": {},
            },
            next_of="obs",
            stack_compress="obs",
        )
        for lane in range(played.lanes):
            self._add_lane(played, lane)
        self._num_bytes = _resident_bytes() - before

    def _add_lane(self, played: PlayedGame, lane: int) -> None:
        for step in transitions(_lane_of(played, lane)):
            self._buffer.add(
                obs=np.moveaxis(step.state[0], 0, -1),
                next_obs=np.moveaxis(step.next_state[0], 0, -1),
                act=step.action[0],
                rew=step.reward[0],
                done=step.terminated[0],
            )
            if step.done[0]:
                self._buffer.on_episode_end()
        self._buffer.on_episode_end()

    @property
    def num_bytes(self) -> int:
        return self._num_bytes

    def sample(self, batch_size: int) -> Pair:
        batch = self._buffer.sample(batch_size)
        state, next_state = torch.from_numpy(batch["obs"]), torch.from_numpy(batch["next_obs"])
        return state.permute(0, 3, 1, 2), next_state.permute(0, 3, 1, 2)


class TorchRLMemory:
    """Stacks of every state and every next state in one contiguous storage."""

    def __init__(self, played: PlayedGame, *, batch_size: int = 32) -> None:
        from tensordict import TensorDict
        from torchrl.data import LazyTensorStorage, ReplayBuffer

        logging.getLogger("torchrl").setLevel(logging.WARNING)  # it greets on stdout
        self._batch_size = batch_size
        self._buffer = ReplayBuffer(storage=LazyTensorStorage(played.num_transitions), batch_size=batch_size)
        for step in transitions(played):
            after = {
                "pixels": torch.from_numpy(step.next_state),
                "reward": torch.from_numpy(step.reward[:, None]),
                "done": torch.from_numpy(step.done[:, None]),
                "terminated": torch.from_numpy(step.terminated[:, None]),
            }
            now = {"pixels": torch.from_numpy(step.state), "action": torch.from_numpy(step.action), "next": after}
            self._buffer.extend(TensorDict(now, batch_size=[played.lanes]))

    @property
    def num_bytes(self) -> int:
        return int(self._buffer._storage._storage.bytes())

    def sample(self, batch_size: int) -> Pair:
        if batch_size != self._batch_size:
            raise ValueError(f"this memory was made for batches of {self._batch_size}, not of {batch_size}")
        batch = self._buffer.sample()
        return batch["pixels"], batch["next", "pixels"]


PEERS: Mapping[str, Peer] = {
    "stable_baselines3": Peer(
        "stable_baselines3",
        "stable_baselines3",
        "ReplayBuffer as it comes; bytes of its arrays",
        2 * STACK,
        lambda played: StableBaselines3Memory(played, optimize_memory_usage=False),
    ),
    "stable_baselines3_optimized": Peer(
        "stable_baselines3",
        "stable_baselines3",
        "ReplayBuffer(optimize_memory_usage=True, handle_timeout_termination=False); bytes of its arrays; "
        "the next state of an episode's last step is the first of the next episode",
        STACK,
        lambda played: StableBaselines3Memory(played, optimize_memory_usage=True),
    ),
    "tianshou": Peer(
        "tianshou.data",
        "tianshou",
        "VectorReplayBuffer(stack_num=4, ignore_obs_next=True, save_only_last_obs=True); bytes of its arrays; "
        "the next state of an episode's last step is that step's own state",
        1,
        TianshouMemory,
    ),
    "cpprb": Peer(
        "cpprb",
        "cpprb",
        'ReplayBuffer(next_of="obs", stack_compress="obs"), filled lane after lane; growth of resident memory while '
        "it is filled; delivers the stack as the last dimension, handed on as a permuted view",
        1,
        CpprbMemory,
    ),
    "torchrl": Peer(
        "torchrl.data",
        "torchrl",
        "ReplayBuffer(LazyTensorStorage, batch_size=32); bytes of its storage; TensorDictReplayBuffer, "
        "LazyMemmapStorage and prefetch=4 were tried and are no faster",
        2 * STACK,
        TorchRLMemory,
    ),
}


def _lane_of(played: PlayedGame, lane: int) -> PlayedGame:
    one = slice(lane, lane + 1)
    steps = [VectorStep(**{name: value[one] for name, value in vars(step).items()}) for step in played.steps]
    return replace(played, first_frames=played.first_frames[one], actions=played.actions[:, one], steps=steps)


def _batch_bytes(batch: Any) -> int:
    values = batch.values() if hasattr(batch, "values") else ()
    return sum(value.nbytes if isinstance(value, np.ndarray) else _batch_bytes(value) for value in values)


def _resident_bytes() -> int:
    return int(psutil.Process().memory_info().rss)
