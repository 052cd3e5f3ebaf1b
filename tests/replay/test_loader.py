"""Batches are what was drawn, in the order in which it was drawn, whoever moves the bytes."""

from __future__ import annotations

import threading
import time
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest
from replay_oracle import LARGE_FRAME_SHAPE, Player

from redline.replay import BatchBuffers, BatchLoader, ReplayLayout, UniformSampler, gather
from redline.types import Batch, Draw

LAYOUT = ReplayLayout(
    capacity=200, frame_shape=LARGE_FRAME_SHAPE, frame_dtype="uint8", stack=4, lanes=2, horizon_steps=8, chunk_frames=4
)


def loader(player: Player, prefetch: int, group: int = 1) -> BatchLoader[Batch]:
    return BatchLoader(
        player.memory,
        make_buffers=lambda: BatchBuffers(player.memory.layout, batch_size=16),
        gamma=0.9,
        clip_rewards=False,
        prefetch=prefetch,
        group=group,
    )


@pytest.mark.parametrize("prefetch", [0, 1, 4])
@pytest.mark.parametrize("codec", ["zstd", "lz4", "raw"])
@pytest.mark.parametrize("on_disk", [False, True])
def test_batches_are_what_the_memory_held_when_they_were_drawn(
    prefetch: int, codec: str, on_disk: bool, tmp_path: Path
) -> None:
    from dataclasses import replace

    player = Player(replace(LAYOUT, codec=codec, path=tmp_path if on_disk else None))
    rng = np.random.default_rng(0)
    player.play(rng, 150)
    sampler = UniformSampler(player.memory)
    expected: list[tuple[Draw, bytes]] = []
    out = BatchBuffers(player.memory.layout, batch_size=16)
    with closing(loader(player, prefetch)) as batches:
        for _ in range(60):
            while batches.is_short_of(1):
                draw = sampler.draw(rng, 16)
                gather(player.memory, draw, gamma=0.9, clip_rewards=False, out=out)
                expected.append((draw, out.frames.tobytes()))
                batches.submit(draw)
            assert len(batches.pending) == prefetch + 1
            ((draw, batch),) = batches.take(1)
            assert (draw, batch.frames.numpy().tobytes()) == expected.pop(0)
            player.check_batch(batch, draw.handles, n_steps=1, gamma=0.9, clip=False)
            player.play(rng, 1)  # what is written meanwhile makes no difference


def test_a_batch_in_hand_is_not_overwritten_while_the_next_are_gathered() -> None:
    player = Player(LAYOUT)
    rng = np.random.default_rng(0)
    player.play(rng, 100)
    sampler = UniformSampler(player.memory)
    with closing(loader(player, 3)) as batches:
        for _ in range(4):
            batches.submit(sampler.draw(rng, 16))
        ((_, first),) = batches.take(1)
        before = first.frames.numpy().tobytes()
        batches.submit(sampler.draw(rng, 16))
        time.sleep(0.05)  # for the thread to gather all that is pending
        assert first.frames.numpy().tobytes() == before
        batches.clear()
        assert batches.pending == []


@pytest.mark.parametrize("prefetch", [1, 3])
def test_a_group_in_hand_is_not_overwritten_while_the_next_is_gathered(prefetch: int) -> None:
    player = Player(LAYOUT)
    rng = np.random.default_rng(0)
    player.play(rng, 100)
    sampler = UniformSampler(player.memory)
    with closing(loader(player, prefetch, group=2)) as batches:
        for _ in range(4):
            while batches.is_short_of(2):
                batches.submit(sampler.draw(rng, 16))
            group = batches.take(2)
            before = [batch.frames.numpy().tobytes() for _, batch in group]
            while batches.is_short_of(2):  # all that may be under way at once
                batches.submit(sampler.draw(rng, 16))
            time.sleep(0.02)  # for the thread to gather it
            for (draw, batch), bytes_before in zip(group, before, strict=True):
                assert batch.frames.numpy().tobytes() == bytes_before
                player.check_batch(batch, draw.handles, n_steps=1, gamma=0.9, clip=False)


def test_without_prefetch_there_is_no_thread() -> None:
    player = Player(LAYOUT)
    player.play(np.random.default_rng(0), 100)
    threads = threading.active_count()
    with closing(loader(player, 0)) as batches:
        batches.submit(UniformSampler(player.memory).draw(np.random.default_rng(0), 16))
        batches.take(1)
        assert threading.active_count() == threads


def test_a_reader_that_fails_is_heard(tmp_path: Path) -> None:
    from dataclasses import replace

    from redline.replay import ReplayError

    player = Player(replace(LAYOUT, path=tmp_path))
    player.play(np.random.default_rng(0), 150)
    with closing(loader(player, 1)) as batches:
        draw = UniformSampler(player.memory).draw(np.random.default_rng(0), 16)
        player.memory.close()
        batches.submit(draw)
        with pytest.raises(ReplayError, match="can't be read"):
            batches.take(1)
