"""The sum tree against one that is obvious, and at the edges where rounding bites."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from naive_sum_tree import NaiveSumTree

from redline.replay.sum_tree import WIDTH, SumTree
from redline.types import Array

SIZES = [1, 2, 3, 5, 7, 8, 31, 32, 33, 100, 1_000, 4_095, 4_096, 4_097, 4_129, 131_073, 140_001]
VALUES = st.one_of(
    st.just(0.0),
    st.floats(0, 1e3),
    st.sampled_from([5e-324, 1e-300, 1e-17, 0.1, 1 / 3, 1e16, 1e290]),
)
Call = tuple[list[int], list[float]]  # leaves, perhaps some twice, and their values


@st.composite
def histories(draw: st.DrawFn, values: st.SearchStrategy[float]) -> tuple[int, list[Call]]:
    """A size, and what is set in each call."""
    size = draw(st.one_of(st.integers(1, 40), st.integers(41, 6_000), st.integers(130_000, 140_000)))
    call = st.lists(st.tuples(st.integers(0, size - 1), values), max_size=12)
    calls = draw(st.lists(call, max_size=8))
    return size, [([leaf for leaf, _ in pairs], [value for _, value in pairs]) for pairs in calls]


def build(values: Array) -> SumTree:
    tree = SumTree(len(values))
    tree.set(np.arange(len(values)), values)
    return tree


def assert_parents_are_sums(tree: SumTree) -> None:
    for level, parents in pairwise(tree._levels):
        sums = level.reshape(-1, WIDTH).sum(axis=1)
        assert np.array_equal(parents[: len(sums)], sums)
        assert not parents[len(sums) :].any()
    assert np.array_equal(tree._running[1:], np.cumsum(tree._levels[-1]))


def played(tree: SumTree, naive: NaiveSumTree, calls: list[Call]) -> Iterator[None]:
    """Set the same in both, one call after the other."""
    for leaves, values in calls:
        tree.set(np.array(leaves, np.int64), np.array(values))
        for leaf, value in zip(leaves, values, strict=True):
            naive.set(leaf, value)
        yield


@settings(max_examples=150, deadline=None)
@given(history=histories(st.integers(0, 9).map(float)), shares=st.lists(st.floats(0, 1), max_size=20))
def test_whole_numbers_give_the_same_sums_and_the_same_leaves_as_the_naive_tree(
    history: tuple[int, list[Call]], shares: list[float]
) -> None:
    size, calls = history
    tree, naive = SumTree(size), NaiveSumTree(size)
    for _ in played(tree, naive, calls):
        assert tree.total == naive.total
        touched = sorted({leaf for leaves, _ in calls for leaf in leaves})
        assert tree.get(np.array(touched, np.int64)).tolist() == [naive.get(leaf) for leaf in touched]
        if tree.total > 0:
            masses = np.floor(np.array([*shares, 0.0, 1.0]) * tree.total)
            assert tree.find(masses).tolist() == [naive.find(mass) for mass in masses.tolist()]


@settings(max_examples=150, deadline=None)
@given(history=histories(VALUES), shares=st.lists(st.floats(0, 1), max_size=20))
def test_any_numbers_give_the_sums_and_leaves_of_the_naive_tree_but_for_rounding(
    history: tuple[int, list[Call]], shares: list[float]
) -> None:
    size, calls = history
    tree, naive = SumTree(size), NaiveSumTree(size)
    for _ in played(tree, naive, calls):
        assert tree.total == pytest.approx(naive.total, rel=1e-14, abs=0)
        assert_parents_are_sums(tree)
        if tree.total == 0:
            continue
        masses = np.array([*shares, 0.0, 1.0]) * tree.total
        found = tree.find(masses)
        values = tree.get(found)
        assert (values > 0).all()
        before = np.concatenate([[0.0], np.cumsum(tree.get(np.arange(size)))])[found]
        slack = 1e-13 * tree.total
        assert (before <= masses + slack).all()
        assert (masses <= before + values + slack).all()


@pytest.mark.parametrize("size", SIZES)
def test_whole_numbers_are_found_where_the_running_sum_passes_them(size: int) -> None:
    rng = np.random.default_rng(size)
    values = rng.integers(0, 4, size)
    values[rng.integers(size)] = 5
    tree = build(values)
    assert tree.total == values.sum()
    assert tree.find(np.arange(values.sum())).tolist() == np.repeat(np.arange(size), values).tolist()


@pytest.mark.parametrize("size", SIZES)
def test_the_whole_mass_gives_the_last_leaf_that_is_not_zero(size: int) -> None:
    rng = np.random.default_rng(size)
    for last in {0, size // 3, size // 2, size - 1}:
        values = rng.random(size)
        values[last] = 0.1
        values[last + 1 :] = 0
        tree = build(values)
        edges = np.array([tree.total, np.nextafter(tree.total, 0)])
        assert tree.find(edges)[0] == last
        assert (tree.get(tree.find(edges)) > 0).all()


@pytest.mark.parametrize("size", SIZES)
def test_a_single_leaf_is_found_by_every_mass(size: int) -> None:
    for leaf in {0, size // 2, size - 1}:
        for value in (5e-324, 0.1, 1e300 / size):
            tree = SumTree(size)
            tree.set(np.array([leaf]), np.array([value]))
            masses = np.array([0.0, value / 2, np.nextafter(value, 0), value])
            assert tree.find(masses).tolist() == [leaf] * 4


def test_a_zero_leaf_is_never_found_among_values_that_round_badly() -> None:
    rng = np.random.default_rng(0)
    for size in (3, 100, 999, 4_200):
        for _ in range(40):
            values = 10.0 ** rng.uniform(-20, 5, size) * (rng.random(size) < 0.4)
            if not values.any():
                continue
            tree = build(values)
            sums = np.minimum(np.cumsum(values), tree.total)
            masses = np.concatenate([sums, np.nextafter(sums, 0), np.minimum(np.nextafter(sums, 9e9), tree.total)])
            found = tree.find(np.concatenate([masses, rng.random(200) * tree.total]))
            assert found.max() < size
            assert (tree.get(found) > 0).all()


@pytest.mark.parametrize("size", [1_999, 200_003])
def test_parents_are_exactly_the_sums_of_their_children_after_a_million_updates(size: int) -> None:
    rng = np.random.default_rng(1)
    tree, values = SumTree(size), np.zeros(size)
    done = 0
    while done < 1_000_000:
        count = int(rng.choice([1, 32, 200, 2_000], p=[0.1, 0.5, 0.38, 0.02]))
        leaves = rng.integers(0, size, count)
        new = 10.0 ** rng.uniform(-6, 6, count) * (rng.random(count) < 0.8)
        tree.set(leaves, new)
        values[leaves] = new
        done += count
    assert np.array_equal(tree.get(np.arange(size)), values)
    assert_parents_are_sums(tree)
    assert tree.total == build(values).total


def test_of_a_leaf_that_is_set_twice_the_last_value_counts() -> None:
    tree = SumTree(100_000)  # so large that not every parent is added up
    tree.set(np.array([7, 6, 7, 90_000, 7]), np.array([1.0, 2.0, 3.0, 4.0, 5.0]))
    assert tree.get(np.array([6, 7, 90_000])).tolist() == [2.0, 5.0, 4.0]
    assert tree.total == 11.0
    assert_parents_are_sums(tree)


def test_single_precision_and_minus_zero_are_welcome() -> None:
    tree = SumTree(5)
    tree.set(np.array([0, 3, 4], np.int32), np.array([0.5, -0.0, 2.0], np.float32))
    assert tree.get(np.arange(5)).tolist() == [0.5, 0.0, 0.0, 0.0, 2.0]
    assert tree.find(np.array([-0.0, 0.25, 0.5, 2.5], np.float32)).tolist() == [0, 0, 4, 4]


def test_one_value_serves_all_leaves_of_a_call() -> None:
    tree = SumTree(5)
    tree.set(np.array([0, 3]), 2.5)
    assert tree.get(np.arange(5)).tolist() == [2.5, 0.0, 0.0, 2.5, 0.0]


@pytest.mark.parametrize("value", [-1.0, -5e-324, np.nan, np.inf, -np.inf, 1e308])
def test_a_value_that_is_negative_or_not_finite_or_could_overflow_is_refused_and_changes_nothing(value: float) -> None:
    tree = build(np.array([1.0, 2.0, 3.0]))
    with pytest.raises(ValueError, match="finite"):
        tree.set(np.array([0, 1]), np.array([9.0, value]))
    assert tree.get(np.arange(3)).tolist() == [1.0, 2.0, 3.0]


def test_the_largest_values_allowed_have_a_finite_sum() -> None:
    tree = SumTree(1_000)
    tree.set(np.arange(1_000), np.finfo(np.float64).max / 2_000)
    assert np.isfinite(tree.total)
    assert tree.find(np.array([tree.total])).tolist() == [999]


@pytest.mark.parametrize("leaf", [-1, 5])
def test_a_leaf_out_of_range_is_refused(leaf: int) -> None:
    tree = SumTree(5)  # though its lowest level has room for more
    with pytest.raises(IndexError, match="between 0 and 4"):
        tree.set(np.array([leaf]), np.array([1.0]))
    with pytest.raises(IndexError, match="between 0 and 4"):
        tree.get(np.array([leaf]))


@pytest.mark.parametrize("mass", [-1.0, 6.1, np.nan, np.inf])
def test_a_mass_out_of_range_is_refused(mass: float) -> None:
    with pytest.raises(ValueError, match="between 0 and 6"):
        build(np.array([1.0, 2.0, 3.0])).find(np.array([mass]))


def test_nothing_can_be_found_in_a_tree_of_zeros() -> None:
    tree = build(np.zeros(3))
    with pytest.raises(LookupError, match="every leaf is zero"):
        tree.find(np.array([0.0]))


def test_no_leaves_at_all_are_no_change() -> None:
    tree = build(np.array([1.0, 2.0]))
    tree.set(np.zeros(0, np.int64), np.zeros(0))
    assert tree.total == 3.0
    assert tree.find(np.zeros(0)).tolist() == []


def test_a_tree_without_leaves_is_refused() -> None:
    with pytest.raises(ValueError, match="a leaf at least"):
        SumTree(0)
