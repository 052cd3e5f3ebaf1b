"""The pure-Python tree is a fair opponent: it finds what the vectorised one finds."""

import numpy as np

from redline.bench.pure_sum_tree import PureSumTree
from redline.bench.sum_trees import measure_sum_trees, parents_are_exact
from redline.experience.sum_tree import SumTree


def test_both_trees_find_the_same_leaves() -> None:
    rng = np.random.default_rng(0)
    values = rng.integers(0, 5, size=37).astype(np.float64)  # whole numbers add up exactly in any order
    tree, pure = SumTree(37), PureSumTree(37)
    tree.set(np.arange(37), values)
    for leaf, value in enumerate(values.tolist()):
        pure.set(leaf, value)
    masses = rng.random(500) * tree.total
    assert pure.total == tree.total == values.sum()
    assert [pure.find(mass) for mass in masses.tolist()] == tree.find(masses).tolist()


def test_a_parent_that_is_off_by_a_bit_is_noticed() -> None:
    tree = SumTree(10_000)
    tree.set(np.arange(10_000), np.random.default_rng(0).random(10_000))
    assert parents_are_exact(tree)
    tree._levels[-1][3] = np.nextafter(tree._levels[-1][3], np.inf)
    assert not parents_are_exact(tree)


def test_what_is_measured_has_a_ratio_and_a_verdict() -> None:
    found = measure_sum_trees(rounds=1, turn_s=0.01, num_leaves=1_000, num_updates=3_200)
    assert found["parents_exact"] is True
    assert found["updates_before_check"] == 3_200
    assert isinstance(found["ratio_to_pure_python"], float)
