"""Saving and restoring a replay memory: sealed chunks are stored once, the rest is a manifest and a few arrays."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any

import msgspec
import numpy as np

from redline.errors import UserError
from redline.replay.chunks import STARTS, Location, StoredBlock, StoredBlocks
from redline.replay.memory import ReplayMemory
from redline.replay.stored_form import (
    MAX_CHUNKS,
    SCHEMA,
    Heads,
    SnapshotManifest,
    StoredChunk,
    decode_block,
    decode_manifest,
    encode_block,
)
from redline.types import Array, IntArray

HEADS = Heads.__struct_fields__
MAX_BLOCK_BYTES = 8_000_000  # of blobs


@dataclass(frozen=True)
class ReplaySnapshot:
    """A memory between two vector steps; complete together with the blocks that the manifest locates."""

    manifest: dict[str, Any]  # a JSON value
    arrays: dict[str, Array]  # rows of the chunks that are not sealed yet


def take_snapshot(
    memory: ReplayMemory,
    store: Callable[[bytes], Location],
    is_stored: Callable[[Location], bool] = lambda _: True,
) -> ReplaySnapshot:
    """Describe the memory; `store` is given the sealed chunks that no earlier snapshot has stored.

    If `is_stored` misses one of them, because somebody removed a file, all are stored again.
    """
    pool, table, layout = memory.pool, memory.table, memory.layout
    if not all(is_stored(block.location) for block in memory.chunks.stored.blocks):
        memory.chunks.stored = StoredBlocks()
    for chunks in _blocks(memory):
        location = store(encode_block(chunks))
        num_transitions = sum(chunk.num_transitions for chunk in chunks)
        memory.chunks.stored.blocks.append(StoredBlock(len(chunks), num_transitions, location))
    tails = _unsealed_slots(memory)
    rows = [pool.rows(slot, count) for slot, count in tails.items()]
    arrays = {
        name: np.concatenate([column[:0], *(column[row] for row in rows)]) for name, column in pool.columns.items()
    }
    empty = np.zeros((0, *layout.frame_shape), layout.frame_dtype)
    arrays["frames"] = np.concatenate([empty, *(memory.frames.read_open(*tail) for tail in tails.items())])
    manifest = {
        "schema": SCHEMA,
        "capacity": layout.capacity,
        "budget_bytes": layout.budget_bytes,
        "frame_budget_bytes": memory.frames.budget_bytes,  # less than the budget leaves, if the machine ran short
        "horizon_steps": layout.horizon_steps,
        "codec": layout.effective_codec,
        "frame_shape": list(layout.frame_shape),
        "frame_dtype": layout.frame_dtype,
        "frames_per_chunk": layout.frames_per_chunk,
        "first_lane": table.first_lane,
        "lanes": memory.lanes.tolist(),
        "heads": {name: getattr(table, name).tolist() for name in HEADS},
        "full_at": memory.full_at,
        "blocks": [msgspec.to_builtins(block) for block in memory.chunks.stored.blocks],
        "chunks_gone": memory.chunks.stored.num_gone,  # of the first block
        "unsealed": {
            "lane": pool.lane[list(tails)].tolist(),
            "chunk": pool.chunk[list(tails)].tolist(),
            "first_number": pool.first_number[list(tails)].tolist(),
            "num_frames": list(tails.values()),
        },
    }
    return ReplaySnapshot(manifest, arrays)


def _blocks(memory: ReplayMemory) -> Iterator[list[StoredChunk]]:
    """Yield what is sealed and not stored yet, a block at a time."""
    retention = memory.retention
    start = retention.num_evicted + memory.chunks.stored.num_chunks
    block: list[StoredChunk] = []
    num_bytes = 0
    for slot in retention.slots(start, retention.num_sealed):
        chunk = _chunk_in(memory, slot)
        block.append(chunk)
        num_bytes += len(chunk.blob)
        if num_bytes >= MAX_BLOCK_BYTES or len(block) == MAX_CHUNKS:
            yield block
            block, num_bytes = [], 0
    if block:
        yield block


def _chunk_in(memory: ReplayMemory, slot: int) -> StoredChunk:
    pool = memory.pool
    num_frames = int(pool.num_frames[slot])
    rows = pool.rows(slot, num_frames)
    codec, blob = memory.frames.encoded(slot)
    return StoredChunk(
        lane=int(pool.lane[slot]),
        chunk=int(pool.chunk[slot]),
        first_number=int(pool.first_number[slot]),
        num_transitions=int(pool.num_transitions[slot]),
        num_frames=num_frames,
        rows={name: column[rows] for name, column in pool.columns.items()},
        codec=codec,
        blob=blob,
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


def without_damage(manifest: dict[str, Any], damaged: Sequence[Location]) -> tuple[dict[str, Any], int]:
    """Return the manifest without unreadable blocks, and how many transitions that costs.

    Older blocks go too: a lane is one history without gaps.
    """
    blocks = decode_manifest(manifest).blocks
    kept = next((i for i in range(len(blocks), 0, -1) if blocks[i - 1].location in damaged), 0)
    if kept == 0:
        return manifest, 0
    lost = sum(block.transitions for block in blocks[:kept])
    return {**manifest, "blocks": manifest["blocks"][kept:], "chunks_gone": 0}, lost


def restore_memory(
    memory: ReplayMemory,
    manifest: dict[str, Any],
    arrays: dict[str, Array],
    load: Callable[[Location], bytes],
) -> None:
    """Restore the memory of a snapshot; a smaller memory keeps the newest transitions that fit.

    If as many lanes are written as before, they continue. Otherwise the old ones are cut and become data only, and new
    ones are opened. The memory takes the snapshot's chunk size, and remembers where chunks are stored.
    """
    saved = decode_manifest(manifest)
    _check_kind(memory, saved)
    memory.allocate(replace(memory.layout, chunk_frames=saved.frames_per_chunk))
    _restore_heads(memory, saved)
    expected: dict[int, tuple[int, int]] = {}  # lane → the chunk that must come next, and its first number
    for chunk in _sealed_chunks(memory, saved, load):
        _check_order(chunk, expected)
        _put_sealed(memory, chunk)
    lanes_go_on = len(memory.lanes) == memory.layout.lanes
    for chunk in _tails(saved, arrays):
        _check_order(chunk, expected)
        if lanes_go_on:
            _put_open(memory, chunk)
        else:
            _put_sealed(memory, chunk)
    if (saved.capacity, saved.budget_bytes) == (memory.layout.capacity, memory.layout.budget_bytes):
        memory.chunks.full_at = saved.full_at
    for row in range(len(memory.table)):
        memory.chunks.settle(row)
    if not lanes_go_on:
        memory.open_lanes()
    memory.chunks.balance()  # what is withdrawn from drawing follows from what is held


def _check_kind(memory: ReplayMemory, saved: SnapshotManifest) -> None:
    held = (tuple(saved.frame_shape), saved.frame_dtype)
    wanted = (memory.layout.frame_shape, memory.layout.frame_dtype)
    if held != wanted:
        raise UserError(f"the saved replay holds frames {held}, this run has {wanted}: use the same env options")


def _restore_heads(memory: ReplayMemory, saved: SnapshotManifest) -> None:
    """Set how far each lane was written; the chunks it holds follow."""
    table = memory.table
    table.first_lane = saved.first_lane
    table.add(len(saved.heads.num_frames))
    for name in HEADS:
        getattr(table, name)[:] = getattr(saved.heads, name)
    table.first_chunk[:] = table.num_chunks
    table.first_number[:] = table.num_transitions
    table.num_sealed[:] = table.num_chunks
    if len(saved.lanes) == memory.layout.lanes:
        for lane in saved.unsealed.lane:
            table.num_sealed[lane - table.first_lane] -= 1
    table.floor_frame[:] = table.first_chunk * table.frames_per_chunk
    table.floor_number[:] = table.first_number
    memory.write_to(np.array(saved.lanes, np.int64))


def _sealed_chunks(
    memory: ReplayMemory, saved: SnapshotManifest, load: Callable[[Location], bytes]
) -> Iterator[StoredChunk]:
    """Load the chunks, oldest first, from the first block of which any can be kept."""
    blocks = saved.blocks
    held = np.cumsum([block.transitions for block in reversed(blocks)])
    kept = int(np.searchsorted(held, memory.layout.capacity, side="left")) + 1  # the last of them in part
    num_gone = saved.chunks_gone if kept >= len(blocks) else 0
    for block in blocks[-kept:]:
        memory.chunks.stored.blocks.append(block)
        if len(memory.chunks.stored.blocks) == 1:
            memory.chunks.stored.num_gone = num_gone
        chunks = decode_block(load(block.location), max_frames=memory.layout.frames_per_chunk)
        yield from islice(chunks, num_gone, None)
        num_gone = 0


def _tails(saved: SnapshotManifest, arrays: dict[str, Array]) -> Iterator[StoredChunk]:
    """Yield the chunks that were being written."""
    unsealed, start = saved.unsealed, 0
    if any(len(rows) != sum(unsealed.num_frames) for rows in arrays.values()):
        raise ValueError("the saved replay is damaged: its newest rows do not match its manifest")
    for lane, number, first_number, num_frames in zip(
        unsealed.lane, unsealed.chunk, unsealed.first_number, unsealed.num_frames, strict=True
    ):
        tail = {name: rows[start : start + num_frames] for name, rows in arrays.items()}
        blob = np.ascontiguousarray(tail.pop("frames")).data.cast("B")
        num_transitions = int(np.count_nonzero(tail["flags"] & STARTS))
        yield StoredChunk(lane, number, first_number, num_transitions, num_frames, tail, codec="raw", blob=blob)
        start += num_frames


def _check_order(chunk: StoredChunk, expected: dict[int, tuple[int, int]]) -> None:
    found = (chunk.chunk, chunk.first_number)
    if found != expected.get(chunk.lane, found):
        raise ValueError(f"chunk {chunk.chunk} of lane {chunk.lane} is damaged: another chunk is in its place")
    expected[chunk.lane] = (chunk.chunk + 1, chunk.first_number + chunk.num_transitions)


def _put_open(memory: ReplayMemory, chunk: StoredChunk) -> None:
    slot = _put_rows(memory, chunk)
    memory.frames.open(slot)
    address = np.arange(chunk.num_frames) + memory.pool.rows(slot, 1).start
    frames: Array = np.frombuffer(chunk.blob, memory.layout.frame_dtype)
    memory.frames.write(address, frames.reshape(-1, *memory.layout.frame_shape))


def _put_sealed(memory: ReplayMemory, chunk: StoredChunk) -> None:
    slot = _put_rows(memory, chunk)
    memory.pool.num_transitions[slot] = chunk.num_transitions
    memory.pool.num_frames[slot] = chunk.num_frames
    blob = memoryview(chunk.blob)
    memory.chunks.keep_sealed(slot, lambda: memory.frames.put_encoded(slot, chunk.codec, blob, chunk.num_frames))
    memory.chunks.evict_surplus()


def _put_rows(memory: ReplayMemory, chunk: StoredChunk) -> int:
    """Put everything but the frames into a free slot, after the lane's earlier chunks."""
    table, pool = memory.table, memory.pool
    row = chunk.lane - table.first_lane
    if not 0 <= row < len(table) or not 0 <= chunk.chunk < table.num_chunks[row]:
        raise ValueError(f"the saved replay is damaged: lane {chunk.lane} has no chunk {chunk.chunk}")
    if table.first_chunk[row] == table.num_chunks[row]:
        table.first_chunk[row] = chunk.chunk
        table.first_number[row] = chunk.first_number
        table.floor_frame[row] = chunk.chunk * table.frames_per_chunk
        table.floor_number[row] = chunk.first_number
    memory.chunks.find_free_slot()
    table.make_room(row)
    slot = pool.take(lane=chunk.lane, chunk=chunk.chunk, first_number=chunk.first_number)
    rows = pool.rows(slot, chunk.num_frames)
    for name, column in pool.columns.items():
        column[rows] = chunk.rows[name]
    table.slots.write(row, chunk.chunk, slot)
    starts: IntArray = np.flatnonzero(chunk.rows["flags"] & STARTS)
    numbers = chunk.first_number + np.arange(len(starts))
    table.frame_of.write(row, numbers, chunk.chunk * table.frames_per_chunk + starts)
    table.head[row] = rows.stop - 1  # right once the newest chunk of the lane is in
    memory.retention.count(chunk.num_transitions)
    return slot
