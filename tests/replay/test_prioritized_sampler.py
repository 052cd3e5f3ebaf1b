"""Prioritised draws follow p^α, priorities follow handles, and the tree holds what the memory offers."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from prioritized_play import Transition, draw_bytes, four_transitions, handles_of, layout, one_by_one, training
from replay_oracle import FRAME_SHAPE, LARGE_FRAME_SHAPE, Player

from redline.errors import UserError
from redline.replay import PrioritizedSampler, ReplayLayout
from redline.replay.sampler import Prioritized
from redline.types import Handles

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
    with pytest.raises(UserError, match=f"sample.{name} is"):
        Prioritized(**{name: value})


@pytest.mark.parametrize("name", ["alpha", "epsilon"])
@pytest.mark.parametrize("value", [0.0, -1.0, np.nan, np.inf])
def test_a_sampler_refuses_settings_that_make_no_sense(name: str, value: float) -> None:
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
