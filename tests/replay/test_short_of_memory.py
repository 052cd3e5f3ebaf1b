"""A machine that runs out while the memory fills: less is kept, nothing that was drawn is lost, and it is said."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import numpy as np
import pytest
from replay_oracle import LARGE_FRAME_SHAPE, Player

from redline.replay import ReplayError, ReplayLayout
from redline.replay.backing import MARGIN_BYTES, Ram
from redline.types import Handles

LAYOUT = ReplayLayout(
    capacity=20_000,
    frame_shape=LARGE_FRAME_SHAPE,
    frame_dtype="uint8",
    stack=3,
    lanes=2,
    horizon_steps=4,
    max_n_steps=2,
    chunk_frames=4,
)


class Machine:
    """Has so many bytes to spare; what is reserved goes off them."""

    def __init__(self, spare_bytes: int, monkeypatch: pytest.MonkeyPatch) -> None:
        self.spare_bytes = spare_bytes
        ram = partial(Ram, free_bytes=lambda: self.spare_bytes + MARGIN_BYTES)
        monkeypatch.setattr("redline.replay.frames.Ram", ram)


@pytest.mark.parametrize("horizon_steps", [0, 1, 4, 30])
@pytest.mark.parametrize("codec", ["zstd", "raw"])
def test_rows_drawn_stay_readable_for_the_horizon_when_the_machine_runs_out(
    codec: str, horizon_steps: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("redline.replay.frames.GROWTH_BYTES", 50_000)
    machine = Machine(10**9, monkeypatch)
    player = Player(replace(LAYOUT, codec=codec, horizon_steps=horizon_steps))
    memory = player.memory
    rng = np.random.default_rng(0)
    drawn: list[Handles] = []
    for step in range(1_500):
        player.play(rng, 1, end_probability=0.05)
        if memory.num_transitions == 1_200:
            machine.spare_bytes = 0
        drawn.append(player.sampleable())
        if step >= horizon_steps:
            assert memory.is_resident(drawn.pop(0)).all()
        if step % 50 == 0:
            player.check_rows(player.sampleable(), n_steps=2)
    assert memory.frames.is_short
    assert memory.full_at is not None
    assert 800 < memory.num_transitions < 2_900
    assert memory.num_sampleable > 500


@pytest.mark.parametrize("codec", ["zstd", "raw"])
def test_a_machine_without_room_for_the_least_is_an_error_with_a_sentence(
    codec: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("redline.replay.frames.GROWTH_BYTES", 0)
    Machine(20_000, monkeypatch)
    with pytest.raises(ReplayError, match="no memory is left: free some"):
        Player(replace(LAYOUT, codec=codec)).play(np.random.default_rng(0), 200)
