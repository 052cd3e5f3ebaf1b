"""Transitions drawn from a replay memory for a person: each at most once, with all that is known of it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from redline.experience import BatchBuffers, ReplayMemory, UniformSampler, gather
from redline.experience.batches import needed_frames
from redline.report.replay_statistics import name_ending
from redline.types import Array, BoolArray, Draw, Handles


@dataclass(frozen=True)
class DrawnTransition:
    """One transition."""

    lane: int
    number: int
    step: int  # in its episode
    frames: Array  # [K + 1, *frame] the state, and the frame that follows
    is_seen: BoolArray  # [K + 1] false before an episode's first frame
    action: int
    reward: float  # unclipped
    ending: str  # terminated, truncated, life lost, or nothing


def draw_transitions(memory: ReplayMemory, count: int, rng: np.random.Generator) -> list[DrawnTransition]:
    """Draw `count` transitions uniformly, or all there are, in the order in which they were experienced."""
    wanted = min(count, memory.num_sampleable)
    if wanted == 0:
        return []
    sampler = UniformSampler(memory)
    found: dict[tuple[int, int], None] = {}  # in the order drawn
    while len(found) < wanted:
        handles = sampler.draw(rng, count).handles
        found.update(dict.fromkeys(zip(handles.lane.tolist(), handles.number.tolist(), strict=True)))
    lane, number = np.array(sorted(list(found)[:wanted]), np.int64).T
    return _read(memory, Handles(lane, number))


def _read(memory: ReplayMemory, handles: Handles) -> list[DrawnTransition]:
    count = len(handles.lane)
    buffers = BatchBuffers(memory.layout, batch_size=count, n_steps=1)
    draw = Draw(handles, weight=np.ones(count, np.float32))
    gather(memory, draw, gamma=1.0, clip_rewards=False, out=buffers)
    _, _, address, step = memory.locate(draw)
    flags = memory.pool.flags[address[:, 0]]
    is_seen = needed_frames(step, buffers.offset, stack=memory.layout.stack, n_steps=1)
    return [
        DrawnTransition(
            lane=int(handles.lane[row]),
            number=int(handles.number[row]),
            step=int(step[row]),
            frames=buffers.frames[row],
            is_seen=is_seen[row],
            action=int(buffers.action[row]),
            reward=float(buffers.reward[row]),
            ending=name_ending(int(flags[row])),
        )
        for row in range(count)
    ]
