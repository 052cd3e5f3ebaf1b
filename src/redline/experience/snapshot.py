"""Saving and restoring a replay memory: sealed chunks are encoded once, the rest is a manifest and a few arrays."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from redline.errors import UserError
from redline.experience.chunk_codec import EncodedChunk, decode_chunk, encode_chunk
from redline.experience.chunk_pool import STARTS, ChunkPool
from redline.experience.memory import ReplayMemory
from redline.types import Array, IntArray

Location = Any  # whatever the store returned: a JSON value
SCHEMA = 1
HEADS = ("num_frames", "num_transitions", "ended_before", "step", "is_open")
CHUNK_COLUMNS = ("lane", "chunk", "first_number", "num_transitions", "num_frames")


@dataclass(frozen=True)
class ReplaySnapshot:
    """A memory between two vector steps; with the chunks that the manifest locates it is complete."""

    manifest: dict[str, Any]  # a JSON value
    arrays: dict[str, Array]  # rows of the chunks that are not sealed yet


def take_snapshot(memory: ReplayMemory, store: Callable[[bytes], Location]) -> ReplaySnapshot:
    """Describe the memory as it is; `store` gets each sealed chunk that no earlier snapshot has stored."""
    pool, table, layout = memory.pool, memory.table, memory.layout
    order = memory.retention.order
    for slot in order:
        if slot not in pool.location:
            pool.location[slot] = store(encode_chunk(_chunk_in(pool, slot)))
    tails = _unsealed_slots(memory)
    rows = [pool.rows(slot, count) for slot, count in tails.items()]
    arrays = {
        name: np.concatenate([column[:0], *(column[row] for row in rows)]) for name, column in pool.columns.items()
    }
    manifest = {
        "schema": SCHEMA,
        "capacity": layout.capacity,
        "frame_shape": list(layout.frame_shape),
        "frame_dtype": layout.frame_dtype,
        "frames_per_chunk": layout.frames_per_chunk,
        "first_lane": table.first_lane,
        "lanes": memory.lanes.tolist(),
        "heads": {name: getattr(table, name).tolist() for name in HEADS},
        "sealed": {name: getattr(pool, name)[order].tolist() for name in CHUNK_COLUMNS},
        "locations": [pool.location[slot] for slot in order],
        "unsealed": {
            "lane": pool.lane[list(tails)].tolist(),
            "chunk": pool.chunk[list(tails)].tolist(),
            "first_number": pool.first_number[list(tails)].tolist(),
            "num_frames": list(tails.values()),
        },
    }
    return ReplaySnapshot(manifest, arrays)


def restore_memory(
    memory: ReplayMemory,
    manifest: dict[str, Any],
    arrays: dict[str, Array],
    load: Callable[[Location], bytes],
) -> None:
    """Make `memory` what it was when the snapshot was taken; the newest that fits, if it is smaller now.

    Lanes go on where they were if as many are to be written. Otherwise the old ones are cut and become data only,
    and new ones are open. The memory takes over the size of the chunks, and remembers where they are stored.
    """
    _check_kind(memory, manifest)
    memory.allocate(replace(memory.layout, chunk_frames=manifest["frames_per_chunk"]))
    _restore_heads(memory, manifest)
    sources = _sources(manifest, arrays)
    kept = _newest_that_fit(memory, sources)
    _restore_bounds(memory, manifest, kept)
    for source in kept:
        _put(memory, source, load)
    for row in range(len(memory.table)):
        memory.settle(row)
    if len(memory.lanes) != memory.layout.lanes:
        memory.open_lanes()
    memory.balance()  # what is withdrawn from drawing follows from what is held


@dataclass(frozen=True)
class _Source:
    """A chunk to restore, before it is read."""

    lane: int
    chunk: int
    first_number: int
    num_transitions: int
    num_frames: int
    location: Location = None
    tail: dict[str, Array] | None = None  # its rows, if it is not sealed


def _chunk_in(pool: ChunkPool, slot: int) -> EncodedChunk:
    rows = pool.rows(slot, int(pool.num_frames[slot]))
    return EncodedChunk(
        lane=int(pool.lane[slot]),
        chunk=int(pool.chunk[slot]),
        first_number=int(pool.first_number[slot]),
        num_transitions=int(pool.num_transitions[slot]),
        columns={name: column[rows] for name, column in pool.columns.items()},
    )


def _unsealed_slots(memory: ReplayMemory) -> dict[int, int]:
    """Return the slots of chunks being written, oldest first in each lane, and the frames in them."""
    table = memory.table
    slots: dict[int, int] = {}
    for row in (memory.lanes - table.first_lane).tolist():
        chunks = np.arange(table.num_sealed[row], table.num_chunks[row])
        frames = np.minimum(table.num_frames[row] - chunks * table.frames_per_chunk, table.frames_per_chunk)
        found = table.slots.read(np.full(len(chunks), row), chunks)
        slots.update(zip(found.tolist(), frames.tolist(), strict=True))
    return slots


def _check_kind(memory: ReplayMemory, manifest: dict[str, Any]) -> None:
    if manifest["schema"] != SCHEMA:
        raise UserError(f"the saved replay has schema {manifest['schema']}: this version reads {SCHEMA}")
    saved = (tuple(manifest["frame_shape"]), manifest["frame_dtype"])
    wanted = (memory.layout.frame_shape, memory.layout.frame_dtype)
    if saved != wanted:
        raise UserError(f"the saved replay holds frames {saved}, this run has {wanted}: use the same env options")


def _restore_heads(memory: ReplayMemory, manifest: dict[str, Any]) -> None:
    table = memory.table
    table.first_lane = manifest["first_lane"]
    table.add(len(manifest["heads"]["num_frames"]))
    for name in HEADS:
        getattr(table, name)[:] = manifest["heads"][name]
    memory.write_to(np.array(manifest["lanes"], np.int64))


def _sources(manifest: dict[str, Any], arrays: dict[str, Array]) -> list[_Source]:
    """Return all chunks, oldest first; those not sealed count as the newest."""
    sealed = zip(*(manifest["sealed"][name] for name in CHUNK_COLUMNS), manifest["locations"], strict=True)
    sources = [_Source(*chunk) for chunk in sealed]
    unsealed, start = manifest["unsealed"], 0
    if any(len(rows) != sum(unsealed["num_frames"]) for rows in arrays.values()):
        raise ValueError("the saved replay is damaged: its newest rows do not match its manifest")
    for lane, chunk, first_number, num_frames in zip(
        *(unsealed[name] for name in ("lane", "chunk", "first_number", "num_frames")), strict=True
    ):
        tail = {name: rows[start : start + num_frames] for name, rows in arrays.items()}
        num_transitions = int(np.count_nonzero(tail["flags"] & STARTS))
        sources.append(_Source(lane, chunk, first_number, num_transitions, num_frames, tail=tail))
        start += num_frames
    return sources


def _newest_that_fit(memory: ReplayMemory, sources: list[_Source]) -> list[_Source]:
    transitions = np.cumsum([source.num_transitions for source in reversed(sources)])
    fitting = int(np.searchsorted(transitions, memory.layout.capacity, side="right"))
    return sources[max(len(sources) - min(fitting, len(memory.pool.free)), 0) :]


def _restore_bounds(memory: ReplayMemory, manifest: dict[str, Any], kept: list[_Source]) -> None:
    """Say what each lane still holds, and how much of it is sealed."""
    table = memory.table
    table.first_chunk[:] = table.num_chunks
    table.first_number[:] = table.num_transitions
    table.num_sealed[:] = table.num_chunks
    for lane in manifest["unsealed"]["lane"]:
        table.num_sealed[lane - table.first_lane] -= 1
    for source in reversed(kept):  # the oldest of a lane comes last
        row = source.lane - table.first_lane
        table.first_chunk[row] = source.chunk
        table.first_number[row] = source.first_number
    table.num_sealed[:] = np.maximum(table.num_sealed, table.first_chunk)
    table.floor_frame[:] = table.first_chunk * table.frames_per_chunk
    table.floor_number[:] = table.first_number


def _put(memory: ReplayMemory, source: _Source, load: Callable[[Location], bytes]) -> None:
    table, pool = memory.table, memory.pool
    row = source.lane - table.first_lane
    columns = source.tail if source.tail is not None else _read(memory, source, load(source.location))
    table.make_room(row)
    slot = pool.take(lane=source.lane, chunk=source.chunk, first_number=source.first_number)
    rows = pool.rows(slot, source.num_frames)
    for name, column in pool.columns.items():
        column[rows] = columns[name]
    table.slots.write(row, source.chunk, slot)
    starts: IntArray = np.flatnonzero(columns["flags"] & STARTS)
    numbers = source.first_number + np.arange(len(starts))
    table.frame_of.write(row, numbers, source.chunk * table.frames_per_chunk + starts)
    table.head[row] = rows.stop - 1  # right once the newest chunk of the lane is in
    memory.retention.count(source.num_transitions)
    if source.tail is None:
        pool.num_transitions[slot] = source.num_transitions
        pool.num_frames[slot] = source.num_frames
        pool.location[slot] = source.location
        memory.retention.sealed.append(slot)


def _read(memory: ReplayMemory, source: _Source, data: bytes) -> dict[str, Array]:
    layout = memory.layout
    chunk = decode_chunk(
        data,
        frame_shape=layout.frame_shape,
        frame_dtype=layout.frame_dtype,
        max_frames=layout.frames_per_chunk,
    )
    found = (chunk.lane, chunk.chunk, chunk.first_number, chunk.num_transitions, len(chunk.columns["flags"]))
    wanted = (source.lane, source.chunk, source.first_number, source.num_transitions, source.num_frames)
    if found != wanted or np.count_nonzero(chunk.columns["flags"] & STARTS) != source.num_transitions:
        raise ValueError(f"chunk {source.chunk} of lane {source.lane} is damaged: another chunk is in its place")
    return chunk.columns
