"""The replay memory of a run's checkpoint, read without touching the run, and transitions drawn from it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import load_file as load_arrays

from redline.algorithms.q_learning import QLearning
from redline.cli.replay_statistics import name_ending
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
from redline.replay.prioritized import PrioritizedSampler
from redline.runs.manifest import NEWEST, REPLAY, Checkpoint, find_checkpoint
from redline.runs.segments import find_locations, read_chunk
from redline.runtime.replay_sizing import pacing_of, replay_layout
from redline.runtime.resuming import SavedRun, read_run
from redline.runtime.training import malformed_is_damage
from redline.types import Array, Draw, EnvSpec, FloatArray, Handles

Progress = Callable[[float], None]


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
    if manifest is None or "arrays.safetensors" not in checkpoint.files:
        raise UserError(f"{checkpoint.path} holds no replay memory: it is not a checkpoint of a training run")
    algorithm = run.job.algorithm
    if not isinstance(algorithm, QLearning):
        raise UserError(f"{path} is a run of {run.algorithm}, which has no replay memory")
    spec = env_spec(run.job.env)
    load = _loader(path / REPLAY, manifest, progress)
    try:
        with malformed_is_damage(checkpoint):
            arrays = load_arrays(checkpoint.files["arrays.safetensors"])
            memory = ReplayMemory(
                _layout(
                    replay_layout(algorithm, spec, num_envs=run.job.num_envs, pacing=pacing_of(run.job, algorithm)),
                    manifest,
                )
            )
            restore_memory(memory, manifest, _part("replay", arrays), load)
            priorities = _priorities(memory, _part("sampler", arrays))
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


def _part(prefix: str, arrays: dict[str, Array]) -> dict[str, Array]:
    start = f"{prefix}."
    return {key.removeprefix(start): value for key, value in arrays.items() if key.startswith(start)}


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
