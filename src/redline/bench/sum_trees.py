"""The sum tree against one in pure Python, and whether its parents are still exact after a million updates."""

from __future__ import annotations

import numpy as np

from redline.bench.measuring import alternate, rate_of
from redline.bench.pure_sum_tree import PureSumTree
from redline.experience.sum_tree import SumTree

NUM_LEAVES = 1_000_000
NUM_UPDATES = 1_000_000
BATCH_SIZE = 32


def measure_sum_trees(
    *, rounds: int, turn_s: float, num_leaves: int = NUM_LEAVES, num_updates: int = NUM_UPDATES
) -> dict[str, object]:
    """Time batches of updates and finds in both trees, by turns."""
    rng = np.random.default_rng(1)
    tree, pure = SumTree(num_leaves), PureSumTree(num_leaves)
    first = rng.random(num_leaves)
    tree.set(np.arange(num_leaves), first)
    for leaf, value in enumerate(first.tolist()):
        pure.set(leaf, value)
    leaves = rng.integers(num_leaves, size=(1_024, BATCH_SIZE))
    values = rng.random((1_024, BATCH_SIZE))
    shares = rng.random((1_024, BATCH_SIZE))
    # each is given its numbers in its own kind: converting them is not what is measured
    listed = list(zip(leaves.tolist(), values.tolist(), shares.tolist(), strict=True))

    def work(count: int) -> None:
        for i in range(count):
            at = i % 1_024
            tree.set(leaves[at], values[at])
            tree.find(shares[at] * tree.total)

    def work_purely(count: int) -> None:
        for i in range(count):
            at_leaves, new_values, at_shares = listed[i % 1_024]
            for leaf, value in zip(at_leaves, new_values, strict=True):
                pure.set(leaf, value)
            total = pure.total
            for share in at_shares:
                pure.find(share * total)

    measured = alternate({"ours": work, "pure_python": work_purely}, rounds=rounds, turn_s=turn_s)
    ratio = rate_of([a / b for a, b in zip(measured["ours"], measured["pure_python"], strict=True)])
    for _ in range(num_updates // BATCH_SIZE):
        tree.set(rng.integers(num_leaves, size=BATCH_SIZE), rng.random(BATCH_SIZE))
    return {
        "ratio_to_pure_python": ratio.median,
        "ratio": ratio.as_dict(),
        "batches_per_s": {name: rate_of(rounds).as_dict() for name, rounds in measured.items()},
        "leaves": num_leaves,
        "batch": f"{BATCH_SIZE} updates, then {BATCH_SIZE} finds",
        "updates_before_check": num_updates,
        "parents_exact": parents_are_exact(tree),
    }


def parents_are_exact(tree: SumTree) -> bool:
    """Tell whether a tree made afresh from the same leaves has the same sums, bit for bit."""
    leaves = np.arange(tree.num_leaves)
    fresh = SumTree(tree.num_leaves)
    fresh.set(leaves, tree.get(leaves))
    same_levels = all(np.array_equal(ours, theirs) for ours, theirs in zip(tree._levels, fresh._levels, strict=True))
    return same_levels and tree.total == fresh.total
