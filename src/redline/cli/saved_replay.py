"""The replay memory of a run's checkpoint, read without touching the run: what it holds, and transitions drawn from it.

The statistics never touch frames, so they cost a few bytes per transition.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import load_file as load_arrays

from redline.algorithms.q_learning import QLearning
from redline.envs.catalog import env_spec
from redline.episodes.sheet import DrawnTransition
from redline.errors import UserError
from redline.replay import (
    BatchBuffers,
    ReplayError,
    ReplayLayout,
    ReplayMemory,
    UniformSampler,
    gather,
    restore_memory,
    without_damage,
)
from redline.replay.batches import needed_frames
from redline.replay.chunks import EPISODE_ENDS, RETURN_ENDS
from redline.replay.sampler import PrioritizedSampler
from redline.runs.manifest import NEWEST, REPLAY, Checkpoint, find_checkpoint
from redline.runs.segments import find_locations, read_chunk
from redline.runtime.replay_sizing import pacing_of, replay_layout
from redline.runtime.resuming import SavedRun, read_run
from redline.runtime.sources import part_of
from redline.runtime.training import ARRAYS, malformed_is_damage
from redline.types import Array, Draw, EnvSpec, FloatArray, Handles, IntArray, Progress

MAX_DISTINCT_REWARDS = 16

Facts = dict[str, Any]


@dataclass(frozen=True)
class SavedReplay:
    """A memory as it was when a checkpoint was taken."""

    run: SavedRun
    checkpoint: Checkpoint
    spec: EnvSpec
    memory: ReplayMemory
    codec: str  # of the run; its frames may be kept in another way here
    priorities: FloatArray | None  # of what can be drawn; None if the run draws uniformly


def read_replay(path: Path, *, steps: int | None, progress: Progress) -> SavedReplay:
    """Restore the memory of the newest valid checkpoint, or of the one at `steps`; the run is only read."""
    run = read_run(path)
    checkpoint = find_checkpoint(path, NEWEST if steps is None else steps, with_replay=True)
    manifest = checkpoint.replay
    if manifest is not None:
        manifest, num_damaged = without_damage(manifest, checkpoint.damaged_replay)
        if num_damaged:
            note = f"{num_damaged:,} transitions of checkpoint {checkpoint.steps} are damaged, or older than such"
            checkpoint = replace(checkpoint, skipped=(*checkpoint.skipped, note))
    if manifest is None or ARRAYS not in checkpoint.files:
        raise UserError(f"{checkpoint.path} holds no replay memory: it is not a checkpoint of a training run")
    algorithm = run.job.algorithm
    if not isinstance(algorithm, QLearning):
        raise UserError(f"{path} is a run of {run.algorithm}, which has no replay memory")
    spec = env_spec(run.job.env)
    load = _loader(path / REPLAY, manifest, progress)
    try:
        with malformed_is_damage(checkpoint):
            arrays = load_arrays(checkpoint.files[ARRAYS])
            layout = replay_layout(algorithm, spec, num_envs=run.job.num_envs, pacing=pacing_of(run.job, algorithm))
            memory = ReplayMemory(_layout(layout, manifest))
            restore_memory(memory, manifest, part_of("replay", arrays), load)
            priorities = _priorities(memory, part_of("sampler", arrays))
    except ReplayError as error:
        raise UserError(str(error)) from error
    return SavedReplay(run, checkpoint, spec, memory, str(manifest["codec"]), priorities)


def _layout(layout: ReplayLayout, manifest: Mapping[str, Any]) -> ReplayLayout:
    """Return a layout in which chunks stay as they are on disk: in memory, and no larger than there."""
    codec = manifest["codec"]
    if codec == "raw" and layout.is_picture:
        codec = "zstd"  # what a raw memory is saved with
    layout = replace(
        layout,
        capacity=manifest["capacity"],
        chunk_frames=manifest["frames_per_chunk"],
        codec=codec,
        budget_bytes=None,
        path=None,
    )
    if not layout.is_packed:
        return layout
    stored_bytes = sum(location["length"] for location in find_locations(manifest))
    # taken piece by piece as it is needed, so a generous bound costs nothing
    return replace(layout, budget_bytes=layout.min_bytes + 2 * stored_bytes)


def _loader(folder: Path, manifest: Mapping[str, Any], progress: Progress) -> Callable[[Any], bytes]:
    total = sum(1 for _ in find_locations(manifest))
    num_read = 0

    def load(location: Mapping[str, Any]) -> bytes:
        nonlocal num_read
        num_read += 1
        progress(min(num_read / total, 1.0))
        return read_chunk(folder, location)

    return load


def _priorities(memory: ReplayMemory, state: dict[str, Array]) -> FloatArray | None:
    if not state:
        return None
    sampler = PrioritizedSampler(memory, alpha=float(state["alpha"][0]))
    sampler.load_state(state)
    return sampler.priorities()


# Statistics


@dataclass(frozen=True)
class Kept:
    """All transitions that are kept, lane after lane, the oldest of each lane first."""

    lane: IntArray  # [T]
    action: Array  # [T] int32
    reward: Array  # [T] float32, unclipped
    step: Array  # [T] int32, in the episode
    flags: Array  # [T] uint8


def replay_statistics(
    memory: ReplayMemory, *, num_actions: int, codec: str, priorities: FloatArray | None = None
) -> Facts:
    """Count what a memory holds; `codec` is the run's own. What would be drawn from nothing is None."""
    kept = read_kept(memory)
    is_empty = len(kept.lane) == 0
    return {
        "fill": {
            "transitions": len(kept.lane),
            "capacity": memory.layout.capacity,
            "sampleable": memory.num_sampleable,
            "lanes": len(np.unique(kept.lane)),  # that hold something
            "lanes_being_written": len(memory.lanes),
        },
        "storage": describe_storage(memory, codec),
        "endings": count_endings(kept),
        "rewards": None if is_empty else describe_rewards(kept.reward),
        "actions": np.bincount(kept.action, minlength=num_actions).tolist(),  # times each was taken
        "step_range": None if is_empty else [int(kept.step.min()), int(kept.step.max())],  # in an episode
        "priorities": None if priorities is None or not len(priorities) else _spread(priorities),
    }


def read_kept(memory: ReplayMemory) -> Kept:
    """Copy what is noted beside the frames."""
    table, pool = memory.table, memory.pool
    count = table.num_transitions - table.first_number  # [L]
    rows: IntArray = np.repeat(np.arange(len(table)), count)  # [T]
    starts = np.cumsum(count) - count
    numbers = np.arange(len(rows)) - np.repeat(starts - table.first_number, count)
    address = table.address(rows, table.frame_of.read(rows, numbers))
    return Kept(
        lane=rows + table.first_lane,
        action=pool.action[address],
        reward=pool.reward[address],
        step=pool.step[address],
        flags=pool.flags[address],
    )


def describe_storage(memory: ReplayMemory, codec: str) -> Facts:
    """Say what a transition takes in the complete chunks, as a memory with this codec keeps them."""
    layout, pool = memory.layout, memory.pool
    slots = memory.retention.order
    num_transitions = int(pool.num_transitions[slots].sum())
    if layout.is_packed and codec != "raw":
        num_bytes = sum(memory.frames.sealed_bytes(slot) for slot in slots)
    else:
        num_bytes = int(pool.num_frames[slots].sum()) * layout.frame_bytes
    frames = num_bytes / num_transitions if num_transitions else None
    metadata = layout.metadata_bytes / layout.capacity  # all else
    return {
        "codec": codec,
        "frames_per_chunk": layout.frames_per_chunk,
        "frame_bytes_per_transition": frames,
        "metadata_bytes_per_transition": metadata,
        "bytes_per_transition": None if frames is None else frames + metadata,
    }


def count_endings(kept: Kept) -> Facts:
    """Count the episodes that end among the transitions kept, and how."""
    ends = kept.flags & EPISODE_ENDS != 0
    return_ends = kept.flags & RETURN_ENDS != 0
    last = np.flatnonzero(ends)
    length = kept.step[last].astype(np.int64) + 1
    first = last + 1 - length  # negative, or in another lane: the beginning is no longer kept
    is_whole = first >= 0
    is_whole &= kept.lane[np.maximum(first, 0)] == kept.lane[last]
    total = np.concatenate([[0.0], np.cumsum(kept.reward, dtype=np.float64)])
    returns = (total[last + 1] - total[np.maximum(first, 0)])[is_whole]
    return {
        "episodes": len(last),
        "terminated": int(np.count_nonzero(ends & return_ends)),
        "truncated": int(np.count_nonzero(ends & ~return_ends)),  # by a limit, or cut by a restart
        "lives_lost": int(np.count_nonzero(return_ends & ~ends)),  # terminal for learning; the episode goes on
        "mean_length_steps": float(length.mean()) if len(last) else None,
        "whole_episodes": int(np.count_nonzero(is_whole)),  # kept from their first step to their last
        "mean_return": float(returns.mean()) if len(returns) else None,  # of those, unclipped
    }


def describe_rewards(reward: Array) -> Facts:
    """Describe one reward or more, as the env gave them; count the values if they are few."""
    values, times = np.unique(reward, return_counts=True)
    is_few = len(values) <= MAX_DISTINCT_REWARDS
    return {
        **_spread(reward),
        "nonzero_share": float(np.count_nonzero(reward) / len(reward)),
        "counts": {f"{value:g}": int(count) for value, count in zip(values, times, strict=True)} if is_few else None,
    }


def _spread(values: Array) -> Facts:
    return {"min": float(values.min()), "mean": float(values.mean(dtype=np.float64)), "max": float(values.max())}


def name_ending(flags: int) -> str:
    """Say in a word how a transition ended, empty if the episode went on."""
    if flags & EPISODE_ENDS:
        return "terminated" if flags & RETURN_ENDS else "truncated"
    return "life lost" if flags & RETURN_ENDS else ""


# Drawing


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
    return _read_transitions(memory, Handles(lane, number))


def _read_transitions(memory: ReplayMemory, handles: Handles) -> list[DrawnTransition]:
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
