"""Save, restore, go on: as if nothing had happened."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from replay_oracle import FRAME_SHAPE, LARGE_FRAME_SHAPE, Oracle, Player

from redline.errors import DamagedError, UserError
from redline.replay import (
    BatchBuffers,
    ReplayLayout,
    ReplayMemory,
    ReplaySnapshot,
    UniformSampler,
    gather,
    restore_memory,
    take_snapshot,
)
from redline.replay.chunks import StoredBlocks
from redline.replay.stored_form import decode_block, decode_manifest

LAYOUT = ReplayLayout(
    capacity=150,
    frame_shape=FRAME_SHAPE,
    frame_dtype="uint8",
    stack=4,
    lanes=3,
    horizon_steps=4,
    max_n_steps=3,
    chunk_frames=8,
)


class Store:
    """Keeps chunks as a run's segments would."""

    def __init__(self) -> None:
        self.chunks: list[bytes] = []

    def __call__(self, data: bytes) -> dict[str, Any]:
        self.chunks.append(data)
        return {"segment": 0, "at": len(self.chunks) - 1}

    def load(self, location: dict[str, Any]) -> bytes:
        return self.chunks[location["at"]]


def restored(snapshot: ReplaySnapshot, store: Store, layout: ReplayLayout, oracle: Oracle) -> Player:
    """Return a player whose memory went through the disk, with the oracle of the one that was saved."""
    player = Player(layout)
    manifest = json.loads(json.dumps(snapshot.manifest))
    restore_memory(player.memory, manifest, snapshot.arrays, store.load)
    player.oracle = oracle
    table = player.memory.table
    is_open = table.is_open[player.memory.lanes - table.first_lane]
    player.closed = set(player.memory.lanes[is_open == 0].tolist())
    return player


def batch_bytes(player: Player, seed: int, out: BatchBuffers) -> bytes:
    """Draw and gather one batch, as bytes."""
    draw = UniformSampler(player.memory).draw(np.random.default_rng(seed), 16)
    batch = gather(player.memory, draw, gamma=0.99, clip_rewards=True, out=out)
    tensors = (batch.frames, batch.offset, batch.action, batch.reward, batch.discount, batch.weight)
    handles = draw.handles.lane.tobytes() + draw.handles.number.tobytes()
    return handles + b"".join(tensor.numpy().tobytes() for tensor in tensors)


@pytest.mark.parametrize("steps", [1, 9, 40, 333])
def test_next_1000_batches_are_byte_identical(steps: int) -> None:
    saved = Player(LAYOUT)
    saved.play(np.random.default_rng(steps), steps)
    saved.step(["", "terminated", "truncated"], [0.5, 1.0, 2.0])
    store = Store()
    snapshot = take_snapshot(saved.memory, store)
    twin = restored(snapshot, store, LAYOUT, clone_of(saved.oracle))
    out = BatchBuffers(LAYOUT, batch_size=16, n_steps=3)
    one, other = np.random.default_rng(7), np.random.default_rng(7)
    for k in range(1_000):
        assert batch_bytes(saved, k, out) == batch_bytes(twin, k, out)
        if k % 2 == 0:
            saved.play(one, 1)
            twin.play(other, 1)


def clone_of(oracle: Oracle) -> Oracle:
    """Copy what happened, so that two players can go on from it."""
    clone = Oracle()
    for lane, episodes in oracle.episodes.items():
        for episode in episodes:
            clone.begin(lane, episode.frames[0])
            for step, frame in zip(episode.steps, episode.frames[1:], strict=True):
                clone.append(lane, replace(step), frame)
    return clone


@settings(max_examples=30, deadline=None)
@given(
    steps=st.integers(0, 120),
    cut=st.booleans(),
    lanes=st.sampled_from([1, 2, 3, 3, 5]),
    spare=st.sampled_from([0, 10, 400]),
    chunk_frames=st.sampled_from([1, 3, 8]),
    horizon_steps=st.sampled_from([0, 6]),
    seed=st.integers(0, 99),
)
def test_restored_rows_equal_the_oracle(
    *, steps: int, cut: bool, lanes: int, spare: int, chunk_frames: int, horizon_steps: int, seed: int
) -> None:
    rng = np.random.default_rng(seed)
    saved = Player(replace(LAYOUT, chunk_frames=chunk_frames))
    saved.play(rng, steps)
    if cut and steps:
        saved.cut([0, 2])
    store = Store()
    snapshot = take_snapshot(saved.memory, store)
    sizes = {"lanes": lanes, "horizon_steps": horizon_steps, "chunk_frames": chunk_frames}
    smallest = replace(LAYOUT, capacity=10_000, **sizes).min_capacity
    layout = replace(LAYOUT, capacity=smallest + spare, **sizes)
    if lanes != 3:  # the worlds do not come back, so their episodes are cut
        for lane in set(saved.memory.lanes.tolist()) - saved.closed:
            saved.oracle.cut(lane)
    player = restored(snapshot, store, layout, saved.oracle)
    if layout.capacity >= LAYOUT.capacity:
        assert player.memory.num_transitions == saved.memory.num_transitions
    for _ in range(4):
        if player.memory.num_sampleable:
            player.check_rows(player.sampleable(), n_steps=3)
        drawn = player.sampleable()
        player.play(rng, horizon_steps or 10)
        if horizon_steps:
            assert player.memory.is_resident(drawn).all()
    assert player.memory.num_transitions <= layout.capacity


def test_restore_with_other_lanes_keeps_old_lanes_as_data() -> None:
    saved = Player(LAYOUT)
    rng = np.random.default_rng(0)
    saved.play(rng, 40, end_probability=0)
    store = Store()
    snapshot = take_snapshot(saved.memory, store)
    for lane in (0, 1, 2):
        saved.oracle.cut(lane)
    player = restored(snapshot, store, replace(LAYOUT, lanes=2), saved.oracle)
    assert player.memory.lanes.tolist() == [3, 4]
    assert player.memory.num_sampleable == 120  # the cut completes the windows of the last steps
    player.check_rows(player.sampleable(), n_steps=3)
    player.play(rng, 30)
    handles = player.sampleable()
    assert np.count_nonzero(handles.lane >= 3) >= 2 * 28
    assert 0 < np.count_nonzero(handles.lane < 3) < 120
    player.check_rows(handles, n_steps=3)


def test_smaller_memory_keeps_the_newest_that_fit() -> None:
    saved = Player(LAYOUT)
    saved.play(np.random.default_rng(0), 100)
    store = Store()
    snapshot = take_snapshot(saved.memory, store)
    player = restored(snapshot, store, replace(LAYOUT, capacity=90), saved.oracle)
    assert 90 - 8 < player.memory.num_transitions <= 90
    ends = player.memory.table.num_transitions
    assert ends.tolist() == [100, 100, 100]
    assert (ends - player.memory.table.first_number >= 90 // 3 - 8).all()


def test_newest_rows_of_too_many_lanes_are_kept_as_far_as_they_fit() -> None:
    saved = Player(replace(LAYOUT, lanes=6, horizon_steps=0))
    saved.play(np.random.default_rng(0), 8, end_probability=0)  # a full chunk and one more frame in each lane
    store = Store()
    snapshot = take_snapshot(saved.memory, store)
    assert store.chunks == []
    for lane in range(6):
        saved.oracle.cut(lane)
    player = restored(snapshot, store, replace(LAYOUT, lanes=1, capacity=20), saved.oracle)
    assert player.memory.num_transitions == 2 * 8
    assert set(player.sampleable().lane.tolist()) == {4, 5}
    player.check_rows(player.sampleable(), n_steps=3)
    assert not player.memory.pool.flags[:8].any()  # the slot of zeros is as it was
    player.play(np.random.default_rng(0), 40)
    player.check_rows(player.sampleable(), n_steps=3)


def test_smaller_memory_keeps_no_more_chunks_than_it_has_slots() -> None:
    large = replace(LAYOUT, frame_shape=LARGE_FRAME_SHAPE, capacity=300, codec="raw")
    saved = Player(large)
    rng = np.random.default_rng(0)
    saved.play(rng, 200, end_probability=1.0)
    store = Store()
    snapshot = take_snapshot(saved.memory, store)
    player = restored(snapshot, store, replace(large, capacity=275), saved.oracle)
    assert saved.memory.num_transitions <= 275  # the slots decide, not the capacity
    assert player.memory.num_transitions < saved.memory.num_transitions
    player.check_rows(player.sampleable(), n_steps=3)
    player.play(rng, 20)
    player.check_rows(player.sampleable(), n_steps=3)


def test_restore_reads_no_chunk_that_will_not_be_kept() -> None:
    saved = Player(LAYOUT)
    rng, store = np.random.default_rng(0), Store()
    for _ in range(10):
        saved.play(rng, 10)
        snapshot = take_snapshot(saved.memory, store)
    loaded = []

    def load(location: dict[str, Any]) -> bytes:
        loaded.append(location["at"])
        return store.load(location)

    memory = ReplayMemory(replace(LAYOUT, capacity=90))
    restore_memory(memory, snapshot.manifest, snapshot.arrays, load)
    assert loaded == list(range(len(store.chunks)))[-len(loaded) :]
    assert 0 < len(loaded) < len(store.chunks)


def test_each_chunk_is_encoded_once_even_after_a_restore() -> None:
    player = Player(LAYOUT)
    rng = np.random.default_rng(0)
    player.play(rng, 30)
    store = Store()
    take_snapshot(player.memory, store)
    first = len(store.chunks)
    assert first > 0
    assert take_snapshot(player.memory, store).manifest["blocks"][0]["location"] == {"segment": 0, "at": 0}
    assert len(store.chunks) == first
    player.play(rng, 8)
    snapshot = take_snapshot(player.memory, store)
    grown = len(store.chunks)
    assert grown == first + 1
    again = restored(snapshot, store, LAYOUT, player.oracle)
    assert take_snapshot(again.memory, store).manifest == snapshot.manifest
    assert len(store.chunks) == grown


def test_chunks_whose_file_was_removed_are_stored_again() -> None:
    player = Player(LAYOUT)
    player.play(np.random.default_rng(0), 30)
    take_snapshot(player.memory, Store())
    store = Store()
    snapshot = take_snapshot(player.memory, store, lambda _: False)
    assert len(store.chunks) > 0
    again = restored(snapshot, store, LAYOUT, player.oracle)
    assert take_snapshot(again.memory, store).manifest == snapshot.manifest


def test_sealed_chunks_never_change() -> None:
    player = Player(LAYOUT)
    rng = np.random.default_rng(3)
    seen: dict[tuple[int, int], bytes] = {}
    for _ in range(100):
        player.play(rng, 1, end_probability=0.02)
        player.memory.chunks.stored = StoredBlocks()  # so that every chunk is stored anew
        store = Store()
        take_snapshot(player.memory, store)
        for block in store.chunks:
            for chunk in decode_block(block, max_frames=LAYOUT.frames_per_chunk):
                rows = b"".join(column.tobytes() for column in chunk.rows.values())
                data = rows + bytes(chunk.blob)
                assert seen.setdefault((chunk.lane, chunk.chunk), data) == data
        if rng.random() < 0.5:
            player.cut([int(rng.integers(3))])
            player.begin()
    assert len(seen) > 10


def test_snapshot_of_an_empty_memory_restores_to_an_empty_memory() -> None:
    store = Store()
    snapshot = take_snapshot(ReplayMemory(LAYOUT), store)
    player = restored(snapshot, store, LAYOUT, Oracle())
    assert player.memory.num_transitions == 0
    player.play(np.random.default_rng(0), 10)
    player.check_rows(player.sampleable(), n_steps=3)


def saved_memory() -> tuple[ReplaySnapshot, Store]:
    player = Player(LAYOUT)
    rng = np.random.default_rng(0)
    store = Store()
    for _ in range(5):
        player.play(rng, 10)
        snapshot = take_snapshot(player.memory, store)
    return snapshot, store


@pytest.mark.parametrize("damage", ["flip", "short", "empty", "swapped", "magic", "schema"])
def test_damaged_chunk_is_refused(damage: str) -> None:
    snapshot, store = saved_memory()
    chunk = bytearray(store.chunks[2])
    if damage == "flip":
        chunk[len(chunk) // 2] ^= 1
    elif damage == "magic":
        chunk[0] ^= 1
    elif damage == "schema":
        chunk[4] += 1
    replacements = {"short": bytes(chunk[:-3]), "empty": b"", "swapped": store.chunks[1]}
    store.chunks[2] = replacements.get(damage, bytes(chunk))
    expected = {
        "flip": "checksum",
        "short": "checksum",
        "empty": "cut short",
        "swapped": "another chunk is in its place",
        "magic": "first bytes are wrong",
        "schema": "schema 3, this version reads 2",
    }
    with pytest.raises(ValueError, match=expected[damage]):
        restore_memory(ReplayMemory(LAYOUT), snapshot.manifest, snapshot.arrays, store.load)


def test_tails_that_do_not_match_the_manifest_are_refused() -> None:
    snapshot, store = saved_memory()
    arrays = {name: rows[:-1] for name, rows in snapshot.arrays.items()}
    with pytest.raises(ValueError, match="newest rows do not match"):
        restore_memory(ReplayMemory(LAYOUT), snapshot.manifest, arrays, store.load)


def test_frames_of_another_kind_are_a_user_error() -> None:
    snapshot, store = saved_memory()
    memory = ReplayMemory(replace(LAYOUT, frame_shape=(4,)))
    with pytest.raises(UserError, match="use the same env options"):
        restore_memory(memory, snapshot.manifest, snapshot.arrays, store.load)


def test_another_schema_is_a_user_error() -> None:
    snapshot, store = saved_memory()
    manifest = snapshot.manifest | {"schema": 1}
    with pytest.raises(UserError, match="schema 1: this version reads 2"):
        restore_memory(ReplayMemory(LAYOUT), manifest, snapshot.arrays, store.load)


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"codec": 5}, "codec"),
        ({"lanes": [0, "1"]}, "lanes"),
        ({"capacity": 0}, "capacity"),
        ({"unsealed": {"lane": [0], "chunk": [], "first_number": [], "num_frames": []}}, "unsealed of several lengths"),
    ],
)
def test_field_of_a_manifest_that_does_not_fit_is_named(change: dict[str, Any], named: str) -> None:
    snapshot, _ = saved_memory()
    assert decode_manifest(snapshot.manifest).capacity == LAYOUT.capacity
    with pytest.raises(DamagedError, match=named):
        decode_manifest(snapshot.manifest | change)
