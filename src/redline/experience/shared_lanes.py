"""How other processes write into a replay memory: one ring of steps per lane, and no lock anywhere.

Each lane has one writer, which alone moves the lane's head, and one reader, the owner of the memory, which alone moves
its tail. A writer puts the payload down first and then publishes it by moving the head; what it did not publish does
not exist. A writer that dies therefore leaves whole steps only, and holds nothing that others wait for. Its successor
begins with a cut, so that the episode left unfinished ends there.

The owner takes what was published into its memory before it draws. So nothing is overwritten that can be sampled, and
a memory that is filled by processes is the same, byte for byte, as one that is filled by calls.

The order of two stores is kept by x86-64 processors and seen in that order by others; elsewhere it would need fences
that Python does not have, so elsewhere this is refused.
"""

from __future__ import annotations

import mmap
import os
import platform
import sys
import time
import weakref
from collections.abc import Callable
from math import prod
from multiprocessing.reduction import DupFd
from typing import Any

import numpy as np

from redline.errors import UserError
from redline.experience.chunk_pool import EPISODE_ENDS, RETURN_ENDS
from redline.experience.memory import ReplayMemory
from redline.types import Array, BoolArray, FloatArray, IntArray

STEP, BEGIN, CUT = 1, 2, 3  # kinds of records
DEPTH = 64  # records of each lane that may wait for the owner
RECORDS_PER_STEP = 2  # at most: a step that ends an episode, and the first frame of the next
CACHE_LINE_BYTES = 64  # heads and tails of different lanes do not share one
POLL_S = 0.000_5


class SharedLanes:
    """The rings, in memory that several processes map."""

    def __init__(
        self, lanes: int, frame_shape: tuple[int, ...], frame_dtype: str, *, depth: int = DEPTH, descriptor: int = -1
    ) -> None:
        if depth < RECORDS_PER_STEP:
            raise ValueError(f"a lane needs room for {RECORDS_PER_STEP} records, not for {depth}")
        check_platform()
        self.depth = depth
        self._spec = (lanes, frame_shape, frame_dtype)
        frames_bytes = lanes * depth * prod(frame_shape) * np.dtype(frame_dtype).itemsize
        num_bytes = lanes * 2 * CACHE_LINE_BYTES + lanes * depth * 16 + frames_bytes + CACHE_LINE_BYTES
        if descriptor < 0:
            descriptor = os.memfd_create("redline-lanes", os.MFD_CLOEXEC)
            os.posix_fallocate(descriptor, 0, num_bytes)  # reserved now: touching it later can't fail
        self._descriptor = descriptor
        self.close = weakref.finalize(self, os.close, descriptor)
        memory: Array = np.frombuffer(mmap.mmap(descriptor, num_bytes), np.uint8)
        cut = _Cutter(memory)
        words = CACHE_LINE_BYTES // 8
        self.head: IntArray = cut((lanes, words), "int64")[:, 0]  # records published, ever; the writer's
        self.tail: IntArray = cut((lanes, words), "int64")[:, 0]  # records taken, ever; the owner's
        self.frame = cut((lanes, depth, *frame_shape), frame_dtype)
        self.action = cut((lanes, depth), "int32")
        self.reward = cut((lanes, depth), "float32")
        self.kind = cut((lanes, depth), "uint8")
        self.flags = cut((lanes, depth), "uint8")

    def __len__(self) -> int:
        return len(self.head)

    def __reduce__(self) -> tuple[Callable[..., SharedLanes], tuple[Any, ...]]:
        """Let a process that is being started map the same memory."""
        return _attach, (DupFd(self._descriptor), self._spec, self.depth)

    def drain(self, memory: ReplayMemory) -> int:
        """Take what the writers have published into the memory; return the steps taken.

        Lane i of the rings is the i-th lane that the memory writes.
        """
        head = self.head.copy()  # read once: what comes later waits for the next call
        steps = 0
        while len(waiting := np.flatnonzero(self.tail < head)):
            at = self.tail[waiting] % self.depth
            kind = self.kind[waiting, at]
            taken = np.ones(len(waiting), np.int64)
            if (kind == CUT).any():
                memory.cut(memory.lanes[waiting[kind == CUT]])
            if (kind == BEGIN).any():
                lanes, place = waiting[kind == BEGIN], at[kind == BEGIN]
                memory.begin(memory.lanes[lanes], self.frame[lanes, place])
            is_step = kind == STEP
            if is_step.any():
                lanes, place = waiting[is_step], at[is_step]
                flags = self.flags[lanes, place]
                episode_ends = flags & EPISODE_ENDS != 0
                memory.append(
                    memory.lanes[lanes],
                    actions=self.action[lanes, place].astype(np.int64),
                    reward=self.reward[lanes, place],
                    return_ends=flags & RETURN_ENDS != 0,
                    episode_ends=episode_ends,
                    frames=self.frame[lanes, place],
                    first_frames=self.frame[lanes, (place + 1) % self.depth],
                )
                taken[is_step] += episode_ends  # the first frame of the next episode was the next record
                steps += len(lanes)
            self.tail[waiting] += taken
        return steps


class LaneWriter:
    """Writes some of the lanes, from one process, with the calls that a memory has."""

    def __init__(self, shared: SharedLanes, lanes: IntArray) -> None:
        self._shared = shared
        self._lanes = lanes

    def begin(self, first_frames: Array, *, wait_s: float | None = None) -> None:
        """Begin an episode in each lane; what a predecessor left unfinished is cut."""
        lanes = self._lanes
        self._wait_for_room(wait_s)
        head = self._shared.head[lanes]
        self._shared.kind[lanes, head % self._shared.depth] = CUT
        self._put_begin(lanes, head + 1, first_frames)
        self._shared.head[lanes] = head + 2

    def append(
        self,
        *,
        actions: IntArray,  # [N]
        reward: FloatArray,  # [N] unclipped
        return_ends: BoolArray,  # [N] terminated, or a life lost
        episode_ends: BoolArray,  # [N] terminated or truncated
        frames: Array,  # [N, *frame] after the action
        first_frames: Array,  # [N, *frame] of the next episode; read where one ended
        wait_s: float | None = None,
    ) -> None:
        """Add one step of each lane, and begin the next episode where one ended.

        Waits while the owner has not taken enough of what came before; raises TimeoutError after `wait_s`.
        """
        shared, lanes = self._shared, self._lanes
        self._wait_for_room(wait_s)
        head = shared.head[lanes]
        at = head % shared.depth
        shared.frame[lanes, at] = frames
        shared.action[lanes, at] = actions
        shared.reward[lanes, at] = reward
        shared.kind[lanes, at] = STEP
        shared.flags[lanes, at] = return_ends * np.uint8(RETURN_ENDS) + episode_ends * np.uint8(EPISODE_ENDS)
        over = np.flatnonzero(episode_ends)
        if len(over):
            self._put_begin(lanes[over], head[over] + 1, first_frames[over])
        shared.head[lanes] = head + 1 + episode_ends  # the payload is there: now it counts

    def _put_begin(self, lanes: IntArray, record: IntArray, first_frames: Array) -> None:
        at = record % self._shared.depth
        self._shared.frame[lanes, at] = first_frames
        self._shared.kind[lanes, at] = BEGIN

    def _wait_for_room(self, wait_s: float | None) -> None:
        shared, lanes = self._shared, self._lanes
        end_s = None if wait_s is None else time.monotonic() + wait_s
        while (shared.head[lanes] + RECORDS_PER_STEP - shared.tail[lanes]).max() > shared.depth:
            if end_s is not None and time.monotonic() > end_s:
                raise TimeoutError("the replay memory's owner has taken no steps for too long")
            time.sleep(POLL_S)


class _Cutter:
    """Cuts arrays out of a block of bytes, one behind the other."""

    def __init__(self, block: Array) -> None:
        self._block = block
        self._start = 0

    def __call__(self, shape: tuple[int, ...], dtype: str) -> Array:
        size = prod(shape) * np.dtype(dtype).itemsize
        part: Array = self._block[self._start : self._start + size].view(dtype).reshape(shape)
        self._start += -(-size // 8) * 8
        return part


def check_platform() -> None:
    """Refuse to share memory where the order of stores is not kept."""
    if sys.platform != "linux" or platform.machine() not in ("x86_64", "AMD64"):
        raise UserError(
            f"a replay memory is shared between processes on Linux x86-64 only, "
            f"not on {sys.platform} {platform.machine()}: use --topology inline"
        )


def _attach(descriptor: Any, spec: tuple[int, tuple[int, ...], str], depth: int) -> SharedLanes:
    lanes, frame_shape, frame_dtype = spec
    return SharedLanes(lanes, frame_shape, frame_dtype, depth=depth, descriptor=descriptor.detach())
