"""From drawn handles to sequences: stretches of an episode for networks that remember.

A handle is the first step that is learnt from. Up to `burn_in` steps of the same episode come before it, to warm the
network's state up, and `length` − 1 after it, as far as the episode goes and has been played. What is missing on
either side is padding: it has weight 0, and the state starts anew behind it.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import torch
from numpy.lib.stride_tricks import sliding_window_view

from redline.experience.chunk_pool import EPISODE_ENDS
from redline.experience.gather import read_returns
from redline.experience.layout import ReplayLayout
from redline.experience.memory import ReplayMemory
from redline.types import Array, BoolArray, Draw, IntArray, SequenceBatch


class SequenceBuffers:
    """Memory for one batch of sequences, overwritten by each gather; pinned if a GPU will copy from it."""

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
        if n_steps > layout.max_n_steps:
            raise ValueError(f"the memory offers windows of {layout.max_n_steps} steps, not of {n_steps}")
        if burn_in < 0 or length < 1:
            raise ValueError(f"a sequence has 0 or more steps of burn-in and 1 or more others, not {burn_in}, {length}")
        self.burn_in = burn_in
        self.length = length
        self.n_steps = n_steps
        steps = burn_in + length

        def zeros(*shape: int, dtype: str) -> torch.Tensor:
            return torch.zeros(shape, dtype=getattr(torch, dtype), pin_memory=pin_memory)

        frames = layout.stack - 1 + steps + n_steps
        self.batch = SequenceBatch(
            frames=zeros(batch_size, frames, *layout.frame_shape, dtype=layout.frame_dtype),
            starts=zeros(steps, batch_size, dtype="bool"),
            offset=zeros(steps, batch_size, dtype="int64"),
            action=zeros(steps, batch_size, dtype="int64"),
            reward=zeros(steps, batch_size, dtype="float32"),
            discount=zeros(steps, batch_size, dtype="float32"),
            weight=zeros(steps, batch_size, dtype="float32"),
        )
        self.frames = self.batch.frames.numpy()  # the arrays share the tensors' memory
        self.starts = self.batch.starts.numpy()
        self.offset = self.batch.offset.numpy()
        self.action = self.batch.action.numpy()
        self.reward = self.batch.reward.numpy()
        self.discount = self.batch.discount.numpy()
        self.weight = self.batch.weight.numpy()

    def plan(self, memory: ReplayMemory, draw: Draw, *, gamma: float, clip_rewards: bool) -> Any:
        """Fill in everything but the frames; return the plan with which `memory.frames.read` does the rest."""
        return plan_sequences(memory, draw, gamma=gamma, clip_rewards=clip_rewards, out=self)


def with_burn_in(memory: ReplayMemory, draw: Draw, burn_in: int) -> Draw:
    """Note how many steps before each row will stay readable as long as the row itself, and how many are complete.

    Decided when rows are drawn, like the rows: later less may be held, and more be complete.
    """
    rows, frame, _, step = memory.locate(draw)
    back = np.arange(1, burn_in + 1)  # [burn-in] steps before the row
    in_stack = np.minimum(step[:, None] - back, memory.layout.stack - 1)
    is_there = (in_stack >= 0) & (frame[:, None] - back - in_stack >= memory.table.floor_frame[rows][:, None])
    ahead = memory.bounds().complete_before[rows] - draw.handles.number
    return replace(draw, burn_in=is_there.sum(1), ahead=ahead)


def gather_sequences(
    memory: ReplayMemory, draw: Draw, *, gamma: float, clip_rewards: bool, out: SequenceBuffers
) -> SequenceBatch:
    """Read the sequences that were drawn with `with_burn_in`; clipped rewards lie within [−1, 1]."""
    plan = plan_sequences(memory, draw, gamma=gamma, clip_rewards=clip_rewards, out=out)
    memory.frames.read(plan, out.frames)
    return out.batch


def plan_sequences(memory: ReplayMemory, draw: Draw, *, gamma: float, clip_rewards: bool, out: SequenceBuffers) -> Any:
    """Fill in everything but the frames; return the plan with which `memory.frames.read` does the rest."""
    if draw.burn_in is None or draw.ahead is None:
        raise ValueError("these rows were not drawn for sequences: use with_burn_in")
    stack, n_steps, pool = memory.layout.stack, out.n_steps, memory.pool
    back, ahead = stack - 1 + out.burn_in, out.length - 1 + n_steps
    _, _, address, step = memory.locate(draw, back=back, ahead=ahead)  # address is [B, K − 1 + T + n]
    steps = address[:, stack - 1 : -1]  # [B, T + n − 1] of all transitions that matter
    windows = sliding_window_view(steps, n_steps, axis=1)  # [B, T, n]
    shape = windows.shape[:2]
    spanned, reward, discount = read_returns(pool, windows.reshape(-1, n_steps), gamma=gamma, clip_rewards=clip_rewards)
    offset = spanned.reshape(shape)
    ends = pool.flags[steps[:, out.burn_in : out.burn_in + out.length]] & EPISODE_ENDS != 0  # [B, length]
    is_seen, is_learnt = _mark(draw.burn_in, ends, draw.ahead, out)
    out.offset[:] = np.where(is_seen, offset, 1).T
    out.reward[:] = np.where(is_seen, reward.reshape(shape), 0.0).T
    out.discount[:] = np.where(is_seen, discount.reshape(shape), 0.0).T
    out.action[:] = np.where(is_seen, pool.action[windows[:, :, 0]], 0).T
    out.weight[:] = (is_learnt * draw.weight[:, None]).T
    out.starts[:] = (np.arange(shape[1]) == out.burn_in - draw.burn_in[:, None]).T
    return memory.frames.plan(address, _needed_frames(is_seen, offset, step, stack=stack, out=out))


def _mark(
    burn_in: IntArray, ends: BoolArray, num_complete: IntArray, out: SequenceBuffers
) -> tuple[BoolArray, BoolArray]:
    """Mark the steps [B, T] that were seen, and those of them that are learnt from."""
    position = np.arange(-out.burn_in, out.length)  # 0 is the row drawn
    ended_before: IntArray = np.cumsum(ends, axis=1) - ends  # [B, length]
    learnt = (ended_before == 0) & (np.arange(out.length) < num_complete[:, None])
    is_learnt = np.concatenate([np.zeros((len(burn_in), out.burn_in), np.bool_), learnt], axis=1)
    return is_learnt | ((position < 0) & (position >= -burn_in[:, None])), is_learnt


def _needed_frames(is_seen: BoolArray, offset: IntArray, step: Array, *, stack: int, out: SequenceBuffers) -> BoolArray:
    """Mark the frames [B, K − 1 + T + n] that the steps seen observe or lead to."""
    position = np.arange(1 - stack - out.burn_in, out.length + out.n_steps)  # 0 is the frame of the row drawn
    at = np.arange(-out.burn_in, out.length)
    first_seen = np.where(is_seen, at, out.length).min(1)  # [B]
    last_needed = np.where(is_seen, at + offset, -out.burn_in).max(1)  # [B]
    earliest = np.maximum(first_seen - stack + 1, -step)  # not before the episode's first frame
    needed: BoolArray = (position >= earliest[:, None]) & (position <= last_needed[:, None])
    return needed
