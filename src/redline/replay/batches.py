"""From drawn handles to a batch: each frame of a window is copied once, into buffers that are reused.

A batch is made of single transitions, or of sequences for networks that remember. The handle of a sequence is the first
step that is learnt from. Up to `burn_in` steps of the same episode come before it, to warm up the network's state, and
`length` − 1 after it, as far as the episode goes and has been played. What is missing on either side is padding: it has
weight 0, and the state starts anew behind it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import fields, replace
from functools import partial
from typing import Any, Generic, Protocol, TypeVar

import numpy as np
import torch
from numpy.lib.stride_tricks import sliding_window_view

from redline import returns
from redline.replay.chunks import EPISODE_ENDS, RETURN_ENDS, ChunkPool
from redline.replay.layout import ReplayLayout
from redline.replay.memory import ReplayMemory
from redline.types import Array, Batch, BoolArray, Draw, FloatArray, IntArray, SequenceBatch
from redline.worker import Worker

BatchT = TypeVar("BatchT")
BatchT_co = TypeVar("BatchT_co", covariant=True)
Wait = Callable[[], None]  # returns when bytes may be overwritten that a device copies


class Buffers(Protocol[BatchT_co]):
    """Memory for one batch, and how it is filled; each gather overwrites it."""

    @property
    def frames(self) -> Array:
        """The frames of the batch."""

    @property
    def batch(self) -> BatchT_co:
        """The batch; it shares memory with the arrays that are filled."""

    def plan(self, memory: ReplayMemory, draw: Draw, *, gamma: float, clip_rewards: bool) -> Any:
        """Fill in everything but the frames; return the plan with which `memory.frames.read` does the rest."""


def gather(memory: ReplayMemory, draw: Draw, *, gamma: float, clip_rewards: bool, out: Buffers[BatchT]) -> BatchT:
    """Read drawn rows into the buffers; `clip_rewards` clips to [−1, 1]."""
    plan = out.plan(memory, draw, gamma=gamma, clip_rewards=clip_rewards)
    memory.frames.read(plan, out.frames)
    return out.batch


class BatchBuffers:
    """Buffers for single transitions with windows of `n_steps`; pinned if a GPU will copy from them."""

    def __init__(self, layout: ReplayLayout, *, batch_size: int, n_steps: int = 1, pin_memory: bool = False) -> None:
        _check_n_steps(layout, n_steps)
        self.n_steps = n_steps
        zeros = _zeros(pin_memory=pin_memory)
        self.batch = Batch(
            frames=zeros(batch_size, layout.stack + n_steps, *layout.frame_shape, dtype=layout.frame_dtype),
            offset=zeros(batch_size, dtype="int64"),
            action=zeros(batch_size, dtype="int64"),
            reward=zeros(batch_size, dtype="float32"),
            discount=zeros(batch_size, dtype="float32"),
            weight=zeros(batch_size, dtype="float32"),
        )
        self.frames = self.batch.frames.numpy()  # the arrays share the tensors' memory
        self.offset = self.batch.offset.numpy()
        self.action = self.batch.action.numpy()
        self.reward = self.batch.reward.numpy()
        self.discount = self.batch.discount.numpy()
        self.weight = self.batch.weight.numpy()

    def plan(self, memory: ReplayMemory, draw: Draw, *, gamma: float, clip_rewards: bool) -> Any:
        """Fill in everything but the frames; return the plan of the frames."""
        stack, n_steps = memory.layout.stack, self.n_steps
        _, _, address, step = memory.locate(draw, back=stack - 1, ahead=n_steps)  # address is [B, K + n]
        pool = memory.pool
        self.weight[:] = draw.weight
        self.action[:] = pool.action[address[:, stack - 1]]
        starts = address[:, stack - 1 : stack - 1 + n_steps]  # [B, n]; beyond an end: another row, not used
        offset, self.reward[:], self.discount[:] = read_returns(pool, starts, gamma=gamma, clip_rewards=clip_rewards)
        self.offset[:] = offset
        if n_steps == 1 and (step >= stack - 1).all():  # the usual case: every frame of every window was seen
            return memory.frames.plan(address, None)
        return memory.frames.plan(address, needed_frames(step, offset, stack=stack, n_steps=n_steps))


class SequenceBuffers:
    """Buffers for sequences of `burn_in` + `length` steps; pinned if a GPU will copy from them."""

    def __init__(
        self,
        layout: ReplayLayout,
        *,
        batch_size: int,
        burn_in: int,
        length: int,
        n_steps: int = 1,
        pin_memory: bool = False,
    ) -> None:
        _check_n_steps(layout, n_steps)
        if burn_in < 0 or length < 1:
            raise ValueError(f"a sequence has 0 or more steps of burn-in and 1 or more others, not {burn_in}, {length}")
        self.burn_in = burn_in
        self.length = length
        self.n_steps = n_steps
        steps = burn_in + length
        zeros = _zeros(pin_memory=pin_memory)
        num_frames = layout.stack - 1 + steps + n_steps
        self.batch = SequenceBatch(
            frames=zeros(batch_size, num_frames, *layout.frame_shape, dtype=layout.frame_dtype),
            starts=zeros(steps, batch_size, dtype="bool"),
            offset=zeros(steps, batch_size, dtype="int64"),
            action=zeros(steps, batch_size, dtype="int64"),
            reward=zeros(steps, batch_size, dtype="float32"),
            discount=zeros(steps, batch_size, dtype="float32"),
            weight=zeros(steps, batch_size, dtype="float32"),
        )
        self._arrays = {field.name: getattr(self.batch, field.name).numpy() for field in fields(self.batch)}
        self.frames: Array = self._arrays["frames"]  # the arrays share the tensors' memory

    def plan(self, memory: ReplayMemory, draw: Draw, *, gamma: float, clip_rewards: bool) -> Any:
        """Fill in everything but the frames; return the plan of the frames."""
        if draw.burn_in is None or draw.ahead is None:
            raise ValueError("these rows were not drawn for sequences: use with_burn_in")
        stack, n_steps, pool, out = memory.layout.stack, self.n_steps, memory.pool, self._arrays
        back, ahead = stack - 1 + self.burn_in, self.length - 1 + n_steps
        _, _, address, step = memory.locate(draw, back=back, ahead=ahead)  # address is [B, K − 1 + T + n]
        steps = address[:, stack - 1 : -1]  # [B, T + n − 1] of all transitions that matter
        windows = sliding_window_view(steps, n_steps, axis=1)  # [B, T, n]
        shape = windows.shape[:2]
        spanned, reward, discount = read_returns(
            pool, windows.reshape(-1, n_steps), gamma=gamma, clip_rewards=clip_rewards
        )
        offset = spanned.reshape(shape)
        ends = pool.flags[steps[:, self.burn_in : self.burn_in + self.length]] & EPISODE_ENDS != 0  # [B, length]
        is_seen, is_learnt = self._mark(draw.burn_in, ends, draw.ahead)
        out["offset"][:] = np.where(is_seen, offset, 1).T
        out["reward"][:] = np.where(is_seen, reward.reshape(shape), 0.0).T
        out["discount"][:] = np.where(is_seen, discount.reshape(shape), 0.0).T
        out["action"][:] = np.where(is_seen, pool.action[windows[:, :, 0]], 0).T
        out["weight"][:] = (is_learnt * draw.weight[:, None]).T
        out["starts"][:] = (np.arange(shape[1]) == self.burn_in - draw.burn_in[:, None]).T
        return memory.frames.plan(address, self._needed_frames(is_seen, offset, step, stack=stack))

    def _mark(self, burn_in: IntArray, ends: BoolArray, num_complete: IntArray) -> tuple[BoolArray, BoolArray]:
        """Mark the steps [B, T] that were seen, and those of them that are learnt from."""
        position = np.arange(-self.burn_in, self.length)  # 0 is the row drawn
        ended_before: IntArray = np.cumsum(ends, axis=1) - ends  # [B, length]
        learnt = (ended_before == 0) & (np.arange(self.length) < num_complete[:, None])
        is_learnt = np.concatenate([np.zeros((len(burn_in), self.burn_in), np.bool_), learnt], axis=1)
        return is_learnt | ((position < 0) & (position >= -burn_in[:, None])), is_learnt

    def _needed_frames(self, is_seen: BoolArray, offset: IntArray, step: Array, *, stack: int) -> BoolArray:
        """Mark the frames [B, K − 1 + T + n] that the steps seen observe or lead to."""
        position = np.arange(1 - stack - self.burn_in, self.length + self.n_steps)  # 0 is the frame of the row drawn
        at = np.arange(-self.burn_in, self.length)
        first_seen = np.where(is_seen, at, self.length).min(1)  # [B]
        last_needed = np.where(is_seen, at + offset, -self.burn_in).max(1)  # [B]
        earliest = np.maximum(first_seen - stack + 1, -step)  # not before the episode's first frame
        needed: BoolArray = (position >= earliest[:, None]) & (position <= last_needed[:, None])
        return needed


class BatchLoader(Generic[BatchT]):
    """Turns draws into batches, in their order: the caller draws rows, a thread gathers their bytes meanwhile.

    The content of a batch is fixed when its rows are submitted. The thread only copies and decodes bytes that cannot
    change or leave before it is done, so it needs no lock, and writers of the memory never wait for it. With `prefetch`
    0 there is no thread.
    """

    def __init__(
        self,
        memory: ReplayMemory,
        *,
        make_buffers: Callable[[], Buffers[BatchT]],
        gamma: float,
        clip_rewards: bool,
        prefetch: int = 0,
        group: int = 1,
    ) -> None:
        self._memory = memory
        self._gamma = gamma
        self._clip_rewards = clip_rewards
        self.prefetch = prefetch
        # for each pending batch, and for those that the learner holds: up to a group
        self._free: list[tuple[Buffers[BatchT], Wait]] = [
            (make_buffers(), nothing) for _ in range(prefetch + 2 * group)
        ]  # and what to wait for
        self._in_hand: list[Buffers[BatchT]] = []
        self._wait: Wait = nothing  # for those in hand
        self._pending: deque[tuple[Draw, Buffers[BatchT], int]] = deque()  # with the worker's ticket
        self._worker = Worker("redline-gather") if prefetch else None

    @property
    def pending(self) -> list[Draw]:
        """The draws that are not yet learnt from; oldest first."""
        return [draw for draw, _, _ in self._pending]

    def is_short_of(self, count: int) -> bool:
        """Tell whether another draw belongs in the queue before the next `count` batches are taken."""
        return len(self._pending) < self.prefetch + count

    def submit(self, draw: Draw) -> None:
        """Queue rows that the memory offers now; later writes do not change them."""
        memory, (buffers, wait) = self._memory, self._free[-1]
        wait()
        plan = buffers.plan(memory, draw, gamma=self._gamma, clip_rewards=self._clip_rewards)
        ticket = 0
        if self._worker is None:
            memory.frames.read(plan, buffers.frames)
        else:
            ticket = self._worker.submit(partial(memory.frames.read, plan, buffers.frames))
        self._free.pop()  # last: a failure must not lose buffers
        self._pending.append((draw, buffers, ticket))

    def take(self, count: int) -> list[tuple[Draw, BatchT]]:
        """Return the oldest batches, up to a group; they are overwritten after the next call, but see `hold`."""
        taken = [self._pending.popleft() for _ in range(count)]
        self._free += [(buffers, self._wait) for buffers in self._in_hand]
        self._in_hand, self._wait = [buffers for _, buffers, _ in taken], nothing
        if self._worker is not None:
            for _, _, ticket in taken:
                if self._worker.is_over:
                    raise RuntimeError("the loader is closed: no more batches will come")
                self._worker.result(ticket)
        return [(draw, buffers.batch) for draw, buffers, _ in taken]

    def hold(self, wait: Wait) -> None:
        """Overwrite the batches that were taken last only after `wait` has returned: a device still copies them."""
        self._wait = wait

    def clear(self) -> None:
        """Drop all pending batches."""
        while self._pending:
            self.take(1)

    def close(self) -> None:
        """End the thread."""
        if self._worker is not None:
            self._worker.close()


def nothing() -> None:
    """Wait for nothing."""


def with_burn_in(memory: ReplayMemory, draw: Draw, burn_in: int) -> Draw:
    """Add how many steps before each row stay readable as long as the row itself, and how many after it are complete.

    This is decided when rows are drawn: later less may be held, and more may be complete.
    """
    rows, frame, _, step = memory.locate(draw)
    back = np.arange(1, burn_in + 1)  # [burn-in] steps before the row
    in_stack = np.minimum(step[:, None] - back, memory.layout.stack - 1)
    is_there = (in_stack >= 0) & (frame[:, None] - back - in_stack >= memory.table.floor_frame[rows][:, None])
    ahead = memory.bounds().complete_before[rows] - draw.handles.number
    return replace(draw, burn_in=is_there.sum(1), ahead=ahead)


def read_returns(
    pool: ChunkPool, address: IntArray, *, gamma: float, clip_rewards: bool
) -> tuple[IntArray, FloatArray, FloatArray]:
    """Return offset, reward and discount [R] of returns over the transitions at `address` [R, n]."""
    flags = pool.flags[address]
    reward = pool.reward[address]
    if clip_rewards:
        reward = reward.clip(-1.0, 1.0)
    if address.shape[1] == 1:  # one step: the same numbers at half the cost
        discount = np.where(flags[:, 0] & RETURN_ENDS, np.float32(0.0), np.float32(gamma))
        return np.ones(len(flags), np.int64), reward[:, 0], discount
    offset = returns.steps_spanned(flags & (RETURN_ENDS | EPISODE_ENDS) != 0)
    discount = returns.bootstrap_discounts(flags & RETURN_ENDS != 0, offset, gamma)
    return offset, returns.discounted_rewards(reward, offset, gamma), discount


def needed_frames(step: Array, offset: IntArray, *, stack: int, n_steps: int) -> BoolArray:
    """Mark the frames of a window that were seen: from the episode's start to the state that follows."""
    position = np.arange(1 - stack, n_steps + 1)  # [K + n], 0 is the frame at which the transition starts
    needed: BoolArray = (position >= -step[:, None]) & (position <= offset[:, None])  # [B, K + n]
    return needed


def _check_n_steps(layout: ReplayLayout, n_steps: int) -> None:
    if n_steps > layout.max_n_steps:
        raise ValueError(f"the memory offers windows of {layout.max_n_steps} steps, not of {n_steps}")


def _zeros(*, pin_memory: bool) -> Callable[..., torch.Tensor]:
    def zeros(*shape: int, dtype: str) -> torch.Tensor:
        return torch.zeros(shape, dtype=getattr(torch, dtype), pin_memory=pin_memory)

    return zeros
