"""Prioritised draws follow p^α, priorities follow handles, and the tree holds what the memory offers."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from replay_oracle import FRAME_SHAPE, LARGE_FRAME_SHAPE, Player

from redline.replay import ReplayLayout, restore_memory, take_snapshot
from redline.replay.prioritized import PrioritizedSampler
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


# What is drawn


def test_strata_of_equal_width_hold_each_transition_in_proportion_to_its_scaled_priority() -> None:
    draw = four_transitions().draw(np.random.default_rng(3), 10, beta=0.4)
    assert draw.handles.number.tolist() == [0, 1, 1, 2, 2, 2, 3, 3, 3, 3]
    assert draw.handles.lane.tolist() == [0] * 10


def test_weights_are_those_of_the_paper() -> None:
    sampler = four_transitions()
    # N = 4, P = 0.1, 0.2, 0.3, 0.4; the first weight is the largest
    weights = np.array([1 / 0.4, 1 / 0.8, 1 / 1.2, 1 / 1.6])
    for beta in (0.0, 0.4, 0.5, 1.0):
        draw = sampler.draw(np.random.default_rng(0), 10, beta=beta)
        expected = (weights**beta / weights[0] ** beta)[draw.handles.number]
        np.testing.assert_allclose(draw.weight, expected, rtol=1e-6)
        assert draw.weight.dtype == np.float32
    assert sampler.draw(np.random.default_rng(0), 10, beta=1.0).weight[[0, 1, 9]].tolist() == [1.0, 0.5, 0.25]


def test_weights_are_divided_by_the_largest_of_the_batch_and_not_of_the_memory() -> None:
    sampler = four_transitions()
    sampler.update(Handles(np.array([0]), np.array([0])), np.array([0.0]))  # hardly ever drawn
    draw = sampler.draw(np.random.default_rng(0), 9, beta=1.0)
    assert 0 not in draw.handles.number
    assert draw.weight.max() == 1.0


def test_rows_are_drawn_in_proportion_to_priority_to_the_power_of_alpha() -> None:
    player = Player(layout())
    rng = np.random.default_rng(1)
    player.play(rng, 150)
    player.open_lanes()
    player.play(rng, 30)
    offered = player.sampleable()
    sampler = PrioritizedSampler(player.memory, alpha=0.6)
    errors = rng.exponential(size=len(offered.lane))
    sampler.update(offered, errors)
    expected = (errors + 1e-6) ** 0.6
    expected *= 32_000 / expected.sum()
    index = {transition: i for i, transition in enumerate(one_by_one(offered))}
    counts = np.zeros(len(expected))
    for _ in range(1_000):
        for transition in one_by_one(sampler.draw(rng, 32, beta=0.4).handles):
            counts[index[transition]] += 1
    freedom = len(counts) - 1
    chi_square = ((counts - expected) ** 2 / expected).sum()
    assert chi_square < freedom + 4 * np.sqrt(2 * freedom)  # strata make it smaller, never larger


def test_one_call_of_the_generator_whatever_the_memory_holds() -> None:
    sampler = four_transitions()
    rng, twin = np.random.default_rng(8), np.random.default_rng(8)
    for batch_size in (1, 7, 32):
        sampler.draw(rng, batch_size, beta=0.4)
        twin.random(batch_size)
        assert rng.bit_generator.state == twin.bit_generator.state


def test_same_generator_and_history_give_the_same_rows() -> None:
    def draws() -> list[bytes]:
        player = Player(layout())
        sampler = PrioritizedSampler(player.memory)
        return [draw_bytes(draw) for draw in training(player, sampler, seed=4, rounds=80)]

    assert draws() == draws()


def test_a_memory_with_nothing_complete_refuses_to_draw() -> None:
    player = Player(layout())
    sampler = PrioritizedSampler(player.memory)
    for _ in range(3):
        with pytest.raises(LookupError, match="no transition can be drawn yet"):
            sampler.draw(np.random.default_rng(0), 1, beta=0.4)
        player.cut([0])
        player.begin()
    player.step(["terminated", "", ""], [1.0, 1.0, 1.0])
    draw = sampler.draw(np.random.default_rng(0), 5, beta=0.4)
    assert one_by_one(draw.handles) == [(0, 0)] * 5
    assert draw.weight.tolist() == [1.0] * 5


# Priorities


def test_a_new_transition_enters_with_the_largest_priority_seen_so_far() -> None:
    player = Player(layout())
    rng = np.random.default_rng(0)
    sampler = PrioritizedSampler(player.memory, epsilon=0.5)
    player.play(rng, 20, end_probability=0)
    assert set(sampler.priorities().tolist()) == {1.0}
    sampler.draw(rng, 4, beta=0.4)
    for error, largest in ((-7.5, 8.0), (2.0, 8.0), (9.5, 10.0)):
        sampler.update(handles_of([(1, 3)]), np.array([error]))
        before = player.sampleable()
        player.play(rng, 1, end_probability=0)
        sampler.draw(rng, 4, beta=0.4)
        found = dict(zip(one_by_one(player.sampleable()), sampler.priorities().tolist(), strict=True))
        new = [found[transition] for transition in found.keys() - set(one_by_one(before))]
        assert new == pytest.approx([largest] * 3)
        assert found[1, 3] == pytest.approx(abs(error) + 0.5)


def test_the_exponent_is_applied_once_to_new_and_to_updated_transitions() -> None:
    player = Player(layout())
    player.play(np.random.default_rng(0), 10)
    sampler = PrioritizedSampler(player.memory, alpha=0.5, epsilon=1.0)
    offered = player.sampleable()
    sampler.update(offered, np.full(len(offered.lane), 15.0))
    assert sampler.tree.total == pytest.approx(4.0 * len(offered.lane))
    before = sampler.tree.total
    player.step(["truncated"] * 3, [0.0] * 3)
    sampler.draw(np.random.default_rng(0), 1, beta=0.4)
    added = player.memory.num_sampleable - len(offered.lane)
    assert added >= 3
    assert sampler.tree.total - before == pytest.approx(4.0 * added)


def test_of_a_transition_that_is_updated_twice_in_a_batch_the_last_priority_counts() -> None:
    sampler = four_transitions()
    sampler.update(handles_of([(0, 2), (0, 1), (0, 2)]), np.array([3.0, 5.0, 6.0]))
    assert sampler.priorities().tolist() == pytest.approx([1.0, 5.25, 6.25, 16.0])


@pytest.mark.parametrize("capacity", [40, 45, 63])
def test_a_stale_handle_changes_nothing_from_its_withdrawal_until_its_address_is_used_again(capacity: int) -> None:
    player = Player(layout(lanes=1, capacity=capacity, horizon_steps=2))
    rng = np.random.default_rng(0)
    player.play(rng, 12, end_probability=0)
    memory, sampler = player.memory, PrioritizedSampler(player.memory)
    stale = Handles(np.array([0]), np.array([5]))
    sampler.update(stale, np.array([3.0]))

    def address(number: int) -> int:
        row, numbers = np.zeros(1, np.int64), np.array([number])
        return int(memory.table.address(row, memory.table.frame_of.read(row, numbers))[0])

    was_at, is_reused = address(5), False
    while not is_reused:
        player.play(rng, 1, end_probability=0)
        sampler.draw(rng, 4, beta=0.4)
        offered = player.sampleable().number
        if 5 not in offered:
            before = sampler.state()
            sampler.update(stale, np.array([1e6]))
            after = sampler.state()
            assert all(before[name].tobytes() == after[name].tobytes() for name in before)
            is_reused = was_at in [address(number) for number in offered.tolist()]


def test_handles_that_never_were_change_nothing() -> None:
    player = Player(layout())
    player.play(np.random.default_rng(0), 30)
    player.open_lanes()
    player.play(np.random.default_rng(0), 100)  # the first lanes are evicted
    player.open_lanes()
    sampler = PrioritizedSampler(player.memory)
    assert player.memory.table.first_lane > 0
    sampler.draw(np.random.default_rng(0), 4, beta=0.4)
    before = sampler.priorities()
    sampler.update(handles_of([(0, 3), (99, 0), (4, 10**9), (4, -1), (-1, 2)]), np.full(5, 50.0))
    assert np.array_equal(sampler.priorities(), before)


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_a_priority_that_is_not_finite_is_refused_and_changes_nothing(bad: float) -> None:
    sampler = four_transitions()
    before = sampler.state()
    with pytest.raises(ValueError, match="not finite"):
        sampler.update(handles_of([(0, 0), (0, 1)]), np.array([1.0, bad]))
    assert all(np.array_equal(before[name], values) for name, values in sampler.state().items())


def test_as_many_priorities_as_handles_are_wanted() -> None:
    with pytest.raises(ValueError, match="2 handles need as many"):
        four_transitions().update(handles_of([(0, 0), (0, 1)]), np.ones(3))


def test_priorities_of_any_size_can_be_drawn_from() -> None:
    sampler = four_transitions()
    sampler.update(handles_of([(0, 0), (0, 1), (0, 2), (0, 3)]), np.array([0.0, 1e-30, 3e38, 1e300]))
    draw = sampler.draw(np.random.default_rng(0), 32, beta=1.0)
    assert np.isfinite(draw.weight).all()
    assert set(draw.handles.number.tolist()) == {3}


@pytest.mark.parametrize(("name", "value"), [("alpha", 0.0), ("alpha", 1.5), ("epsilon", 0.0), ("epsilon", np.inf)])
def test_settings_that_make_no_sense_are_refused(name: str, value: float) -> None:
    with pytest.raises(ValueError, match=f"{name} must"):
        PrioritizedSampler(Player(layout()).memory, **{name: value})


@pytest.mark.parametrize("beta", [-0.1, 1.1, np.nan])
def test_beta_out_of_range_is_refused(beta: float) -> None:
    with pytest.raises(ValueError, match="beta must"):
        four_transitions().draw(np.random.default_rng(0), 1, beta=beta)


# Any history


@st.composite
def layouts(draw: st.DrawFn) -> ReplayLayout:
    """Memories down to the smallest that can be."""
    huge = ReplayLayout(
        capacity=10_000,
        frame_shape=draw(st.sampled_from([FRAME_SHAPE, FRAME_SHAPE, LARGE_FRAME_SHAPE])),
        frame_dtype="uint8",
        stack=draw(st.integers(1, 4)),
        lanes=draw(st.integers(1, 3)),
        horizon_steps=draw(st.sampled_from([0, 0, 1, 5])),
        max_n_steps=draw(st.integers(1, 4)),
        chunk_frames=draw(st.integers(1, 5)),
    )
    return replace(huge, capacity=huge.min_capacity + draw(st.sampled_from([0, 0, 1, 7, 40])))


class Mirrored:
    """A sampler beside a dictionary of priorities."""

    def __init__(self, player: Player) -> None:
        self.player = player
        self.sampler = PrioritizedSampler(player.memory, alpha=0.5, epsilon=0.5)
        self.expected: dict[Transition, float] = {}
        self.maximum = 1.0
        self.seen: set[Transition] = set()  # ever offered

    def offered(self) -> list[Transition]:
        return one_by_one(self.player.sampleable())

    def enter(self) -> None:
        self.expected = {transition: self.expected.get(transition, self.maximum) for transition in self.offered()}
        self.seen |= self.expected.keys()

    def learn(self, rng: np.random.Generator) -> None:
        """Draw, and update what was drawn together with transitions that may be gone."""
        if not self.offered():
            return
        drawn = one_by_one(self.sampler.draw(rng, 6, beta=0.4).handles)
        self.enter()
        assert set(drawn) <= self.expected.keys()
        old = sorted(self.seen)
        drawn += [old[i] for i in rng.integers(len(old), size=6)]
        errors = rng.exponential(3.0, len(drawn)).round(3)
        self.sampler.update(handles_of(drawn), errors)
        for transition, error in zip(drawn, errors.tolist(), strict=True):
            if transition in self.expected:
                self.expected[transition] = error + 0.5
                self.maximum = max(self.maximum, error + 0.5)

    def check(self) -> None:
        """Compare with the dictionary: what was withdrawn is gone already, what is new is yet to enter."""
        offered = self.offered()
        entered = [self.expected[transition] for transition in offered if transition in self.expected]
        tree = self.sampler.tree
        leaves = tree.get(np.arange(tree.num_leaves))
        assert sorted(leaves[leaves > 0].tolist()) == pytest.approx(sorted(np.sqrt(entered).tolist()))
        assert tree.total == pytest.approx(np.sqrt(entered).sum())
        expected = [self.expected.get(transition, self.maximum) for transition in offered]
        assert self.sampler.priorities().tolist() == pytest.approx(expected, rel=1e-5)


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
@given(
    layout=layouts(),
    events=st.lists(
        st.tuples(
            st.sampled_from(["play", "play", "one lane", "cut", "new lanes", "learn", "learn"]), st.integers(1, 25)
        ),
        max_size=25,
    ),
    seed=st.integers(0, 99),
)
def test_the_tree_holds_exactly_what_is_offered_whatever_happens(
    layout: ReplayLayout, events: list[tuple[str, int]], seed: int
) -> None:
    rng = np.random.default_rng(seed)
    player = Player(layout)
    mirrored = Mirrored(player)
    for event, count in events:
        lanes = player.memory.lanes
        if event == "play":
            player.play(rng, count, end_probability=float(rng.choice([0.0, 0.1, 0.6])))
        elif event == "one lane":
            for _ in range(count):
                player.step([""], [0.5], ids=lanes[[count % len(lanes)]])
        elif event == "cut":
            player.cut([int(lanes[count % len(lanes)])])
        elif event == "new lanes":
            player.open_lanes()
        else:
            mirrored.learn(rng)
        mirrored.check()


# Save and restore


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


@pytest.mark.parametrize("warm_up", [0, 3, 100])
@pytest.mark.parametrize(("horizon_steps", "chunk_frames"), [(0, 8), (4, 8), (4, 2)])
def test_draws_after_a_restore_are_byte_identical(warm_up: int, horizon_steps: int, chunk_frames: int) -> None:
    sizes = layout(horizon_steps=horizon_steps, chunk_frames=chunk_frames)
    player = Player(sizes)
    sampler = PrioritizedSampler(player.memory)
    for _ in training(player, sampler, seed=warm_up, rounds=warm_up):
        pass
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
    for _ in training(player, sampler, seed=0, rounds=130):
        pass
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
    for _ in training(other, other_sampler, seed=0, rounds=60):
        pass
    assert other_sampler.tree.total == pytest.approx(np.sqrt(other_sampler.priorities()).sum(), rel=1e-5)


def test_a_sampler_that_lives_through_a_restore_starts_afresh_or_takes_over_what_was_saved() -> None:
    player = Player(layout(horizon_steps=4))
    sampler = PrioritizedSampler(player.memory)
    for _ in training(player, sampler, seed=0, rounds=60):
        pass
    saved, before = Saved(player, sampler), sampler.priorities()
    for _ in training(player, sampler, seed=1, rounds=60):
        pass
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
    ],
)
def test_damaged_priorities_are_refused(name: str, damage: Any) -> None:
    sampler = four_transitions()
    arrays = sampler.state()
    before = sampler.priorities()
    with pytest.raises(ValueError, match="saved priorities are damaged"):
        sampler.load_state(arrays | {name: damage(arrays[name])})
    assert np.array_equal(sampler.priorities(), before)


def test_the_bytes_it_reports_are_a_double_for_each_row_of_the_memory_and_little_besides() -> None:
    sizes = layout(capacity=100_000, lanes=8, chunk_frames=64)
    rows = sizes.num_slots * sizes.frames_per_chunk
    sampler = PrioritizedSampler(Player(sizes).memory)
    assert 8 * rows <= sampler.num_bytes < 9 * rows
