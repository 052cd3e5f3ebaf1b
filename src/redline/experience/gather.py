"""From drawn handles to a batch: each frame of a window is copied once, into buffers that are reused."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from redline import returns
from redline.experience.chunk_pool import EPISODE_ENDS, RETURN_ENDS, ChunkPool
from redline.experience.layout import ReplayLayout
from redline.experience.memory import ReplayMemory
from redline.experience.window import needed_frames
from redline.types import Batch, Draw, FloatArray, IntArray


class BatchBuffers:
    """Memory for one batch, overwritten by each gather; pinned if a GPU will copy from it."""

    def __init__(self, layout: ReplayLayout, *, batch_size: int, n_steps: int = 1, pin_memory: bool = False) -> None:
        if n_steps > layout.max_n_steps:
            raise ValueError(f"the memory offers windows of {layout.max_n_steps} steps, not of {n_steps}")
        self.n_steps = n_steps

        def zeros(*shape: int, dtype: str) -> torch.Tensor:
            return torch.zeros(shape, dtype=getattr(torch, dtype), pin_memory=pin_memory)

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
        """Fill in everything but the frames; return the plan with which `memory.frames.read` does the rest."""
        return plan_batch(memory, draw, gamma=gamma, clip_rewards=clip_rewards, out=self)


def gather(memory: ReplayMemory, draw: Draw, *, gamma: float, clip_rewards: bool, out: BatchBuffers) -> Batch:
    """Read the windows of `out.n_steps` steps that were drawn; clipped rewards lie within [−1, 1]."""
    plan = plan_batch(memory, draw, gamma=gamma, clip_rewards=clip_rewards, out=out)
    memory.frames.read(plan, out.frames)
    return out.batch


def plan_batch(memory: ReplayMemory, draw: Draw, *, gamma: float, clip_rewards: bool, out: BatchBuffers) -> Any:
    """Fill in everything but the frames; return the plan with which `memory.frames.read` does the rest."""
    stack, n_steps = memory.layout.stack, out.n_steps
    _, _, address, step = memory.locate(draw, back=stack - 1, ahead=n_steps)  # address is [B, K + n]
    pool = memory.pool
    out.weight[:] = draw.weight
    out.action[:] = pool.action[address[:, stack - 1]]
    starts = address[:, stack - 1 : stack - 1 + n_steps]  # [B, n] beyond an end: some other row, not used
    offset, out.reward[:], out.discount[:] = read_returns(pool, starts, gamma=gamma, clip_rewards=clip_rewards)
    out.offset[:] = offset
    if n_steps == 1 and (step >= stack - 1).all():  # the usual case: every frame of every window was seen
        return memory.frames.plan(address, None)
    return memory.frames.plan(address, needed_frames(step, offset, stack=stack, n_steps=n_steps))


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
