"""A sampler of priorities beside a player: small memories, and training in turns."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator

import numpy as np
from replay_oracle import FRAME_SHAPE, Player

from redline.replay import PrioritizedSampler, ReplayLayout
from redline.types import Draw, Handles

Transition = tuple[int, int]  # lane, number


def layout(**changes: int) -> ReplayLayout:
    sizes = {"capacity": 200, "stack": 4, "lanes": 3, "max_n_steps": 3, "chunk_frames": 8} | changes
    return ReplayLayout(frame_shape=FRAME_SHAPE, frame_dtype="uint8", **sizes)


def one_by_one(handles: Handles) -> list[Transition]:
    return list(zip(handles.lane.tolist(), handles.number.tolist(), strict=True))


def handles_of(transitions: list[Transition]) -> Handles:
    pairs = np.array(transitions, np.int64).reshape(-1, 2)
    return Handles(pairs[:, 0], pairs[:, 1])


def draw_bytes(draw: Draw) -> bytes:
    return draw.handles.lane.tobytes() + draw.handles.number.tobytes() + draw.weight.tobytes()


def four_transitions() -> PrioritizedSampler:
    """Return a sampler of four transitions whose p^α are 1, 2, 3 and 4."""
    player = Player(layout(lanes=1, stack=1, max_n_steps=1, capacity=20, chunk_frames=4))
    player.play(np.random.default_rng(0), 4, end_probability=0)
    sampler = PrioritizedSampler(player.memory, alpha=0.5, epsilon=0.25)
    sampler.update(player.sampleable(), np.array([0.75, -3.75, 8.75, -15.75]))
    return sampler


def training(
    player: Player, sampler: PrioritizedSampler, *, seed: int, rounds: int, is_watched: bool = False
) -> Iterator[Draw]:
    """Play, update and draw in turns; somebody who watches looks at everything in between."""
    rng = np.random.default_rng(seed)
    draw = None
    for i in range(rounds):
        player.play(rng, int(rng.choice([1, 2, 3, 12])))
        if i % 40 == 30:
            player.open_lanes()
        if is_watched:
            sampler.state()
            sampler.priorities()
        player.play(rng, 1)
        if draw:
            sampler.update(draw.handles, rng.exponential(2.0, 8))
        if player.memory.num_sampleable:
            draw = sampler.draw(rng, 8, beta=0.4)
            yield draw


def train(player: Player, sampler: PrioritizedSampler, *, seed: int, rounds: int) -> None:
    deque(training(player, sampler, seed=seed, rounds=rounds), maxlen=0)
