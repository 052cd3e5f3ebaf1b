"""Priorities go through a checkpoint with their transitions: the same draws follow, in a memory of any size."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from prioritized_play import draw_bytes, four_transitions, layout, one_by_one, train, training
from replay_oracle import Player

from redline.replay import PrioritizedSampler, restore_memory, take_snapshot


class Saved:
    """A memory and its priorities as they would go through a checkpoint."""

    def __init__(self, player: Player, sampler: PrioritizedSampler) -> None:
        self.chunks: list[bytes] = []
        self.snapshot = take_snapshot(player.memory, self.store)
        self.arrays = {name: values.copy() for name, values in sampler.state().items()}
        self.oracle = player.oracle

    def store(self, data: bytes) -> dict[str, Any]:
        self.chunks.append(data)
        return {"at": len(self.chunks) - 1}

    def into(self, player: Player) -> None:
        """Restore the memory of a player; what came before does not matter to the frames it makes up."""
        manifest = json.loads(json.dumps(self.snapshot.manifest))
        restore_memory(player.memory, manifest, self.snapshot.arrays, lambda location: self.chunks[location["at"]])
        for lane, episodes in self.oracle.episodes.items():
            player.oracle.episodes[lane] = [replace(episode, steps=list(episode.steps)) for episode in episodes]
            last = player.oracle.episodes[lane][-1]
            last.frames = list(last.frames)
        table = player.memory.table
        is_open = table.is_open[player.memory.lanes - table.first_lane]
        player.closed = set(player.memory.lanes[is_open == 0].tolist())


@pytest.mark.parametrize("warm_up", [0, 3, 100])
@pytest.mark.parametrize(("horizon_steps", "chunk_frames"), [(0, 8), (4, 8), (4, 2)])
def test_draws_after_a_restore_are_byte_identical(warm_up: int, horizon_steps: int, chunk_frames: int) -> None:
    sizes = layout(horizon_steps=horizon_steps, chunk_frames=chunk_frames)
    player = Player(sizes)
    sampler = PrioritizedSampler(player.memory)
    train(player, sampler, seed=warm_up, rounds=warm_up)
    player.play(np.random.default_rng(1), 2)  # so that some are offered and have not entered yet
    saved = Saved(player, sampler)
    twin = Player(sizes)
    saved.into(twin)
    twin_sampler = PrioritizedSampler(twin.memory)
    twin_sampler.load_state(saved.arrays)
    again = twin_sampler.state()
    assert all(values.tobytes() == again[name].tobytes() for name, values in saved.arrays.items())
    assert again.keys() == saved.arrays.keys()
    originals = training(player, sampler, seed=7, rounds=100)
    copies = training(twin, twin_sampler, seed=7, rounds=100)
    compared = 0
    for original, copy in zip(originals, copies, strict=True):
        assert draw_bytes(original) == draw_bytes(copy)
        compared += 1
    assert compared >= 99
    assert sampler.tree.total == twin_sampler.tree.total


def test_saving_and_inspecting_change_nothing() -> None:
    def draws(is_watched: bool) -> list[bytes]:
        player = Player(layout())
        sampler = PrioritizedSampler(player.memory)
        return [draw_bytes(draw) for draw in training(player, sampler, seed=2, rounds=100, is_watched=is_watched)]

    assert draws(is_watched=True) == draws(is_watched=False)


@pytest.mark.parametrize(
    "changes",
    [{"lanes": 2}, {"lanes": 5}, {"capacity": 120}, {"capacity": 400}, {"horizon_steps": 0}, {"horizon_steps": 9}],
)
def test_priorities_stay_with_their_transitions_in_a_memory_of_another_kind(changes: dict[str, int]) -> None:
    sizes = layout(horizon_steps=4)
    player = Player(sizes)
    sampler = PrioritizedSampler(player.memory, alpha=0.5)
    train(player, sampler, seed=0, rounds=130)
    known = dict(zip(one_by_one(player.sampleable()), sampler.priorities().tolist(), strict=True))
    saved = Saved(player, sampler)
    other = Player(replace(sizes, **changes))
    saved.into(other)
    other_sampler = PrioritizedSampler(other.memory, alpha=0.5)
    other_sampler.load_state(saved.arrays)
    maximum = float(saved.arrays["maximum"][0])
    for _ in range(2):
        offered = one_by_one(other.sampleable())
        assert known.keys() & set(offered)
        expected = [known.get(transition, maximum) for transition in offered]
        assert other_sampler.priorities().tolist() == pytest.approx(expected, rel=1e-5)
        other_sampler.draw(np.random.default_rng(0), 8, beta=0.4)
        assert other_sampler.tree.total == pytest.approx(np.sqrt(expected).sum())
    train(other, other_sampler, seed=0, rounds=60)
    assert other_sampler.tree.total == pytest.approx(np.sqrt(other_sampler.priorities()).sum(), rel=1e-5)


def test_a_sampler_that_lives_through_a_restore_starts_afresh_or_takes_over_what_was_saved() -> None:
    player = Player(layout(horizon_steps=4))
    sampler = PrioritizedSampler(player.memory)
    train(player, sampler, seed=0, rounds=60)
    saved, before = Saved(player, sampler), sampler.priorities()
    train(player, sampler, seed=1, rounds=60)
    saved.into(player)
    assert set(sampler.priorities().tolist()) == {1.0}
    sampler.draw(np.random.default_rng(0), 8, beta=0.4)
    assert sampler.tree.total == player.memory.num_sampleable
    saved.into(player)
    sampler.load_state(saved.arrays)
    assert np.array_equal(sampler.priorities(), before)


def test_another_exponent_keeps_the_priorities() -> None:
    player = Player(layout())
    player.play(np.random.default_rng(0), 40)
    sampler, other = PrioritizedSampler(player.memory, alpha=0.5), PrioritizedSampler(player.memory, alpha=0.9)
    offered = player.sampleable()
    errors = np.random.default_rng(0).exponential(size=len(offered.lane))
    sampler.update(offered, errors)
    other.load_state(sampler.state())
    assert other.priorities().tolist() == pytest.approx(sampler.priorities().tolist(), rel=1e-5)
    assert other.tree.total == pytest.approx(((errors + 1e-6) ** 0.9).sum())


@pytest.mark.parametrize(
    ("name", "damage"),
    [
        ("scaled", lambda values: values[:-1]),
        ("scaled", lambda values: values * np.nan),
        ("scaled", lambda values: values * 0),
        ("size", lambda values: values + 1),
        ("first", lambda values: values[:-1]),
        ("block", lambda values: values[:-1]),
        ("maximum", lambda values: values * np.inf),
        ("alpha", lambda values: values * 0),
    ],
)
def test_damaged_priorities_are_refused(name: str, damage: Any) -> None:
    sampler = four_transitions()
    arrays = sampler.state()
    before = sampler.priorities()
    with pytest.raises(ValueError, match="saved priorities are damaged"):
        sampler.load_state(arrays | {name: damage(arrays[name])})
    assert np.array_equal(sampler.priorities(), before)
