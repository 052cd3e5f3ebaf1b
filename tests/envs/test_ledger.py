"""Keys are pure functions, and no action is lost."""

import numpy as np
import pytest

from redline.envs.vector import Ledger, reset_seed


def test_key_seeds_are_pure_distinct_c_ints():
    seeds = [reset_seed(1, lane, number) for lane in range(20) for number in range(20)]
    assert len(set(seeds)) == 400
    assert min(seeds) >= 0
    assert max(seeds) < 2**31
    assert seeds[21] == reset_seed(1, 1, 1) != reset_seed(2, 1, 1)


@pytest.mark.parametrize(("num_actions", "dtype"), [(18, np.uint8), (1000, np.int64)])
def test_long_histories_survive_growth_and_a_round_trip(num_actions, dtype):
    ledger = Ledger(2, num_actions=num_actions, run_seed=2**63)
    ledger.reseed(np.array([True, True]))
    actions = np.random.default_rng(0).integers(0, num_actions, (3000, 2))
    for t, row in enumerate(actions):
        if t == 500:
            ledger.reseed(np.array([False, True]))
        ledger.record(row)
    assert ledger.steps.tolist() == [3000, 2500]
    assert ledger.count.tolist() == [1, 2]
    again = Ledger(2, num_actions=num_actions, run_seed=0)
    assert again.load(ledger.state())
    for copy in (ledger, again):
        assert copy.actions(0).dtype == dtype
        assert np.array_equal(copy.actions(0), actions[:, 0])
        assert np.array_equal(copy.actions(1), actions[500:, 1])
    both = np.array([True, True])
    assert np.array_equal(again.next_seeds(both), ledger.next_seeds(both))
    again.record(actions[0])
    assert again.steps.tolist() == [3001, 2501]


def test_actions_that_a_new_key_forgets_can_be_asked_for_until_the_next_one_is_noted():
    ledger = Ledger(2, num_actions=4, run_seed=1)
    ledger.reseed(np.array([True, True]))
    for action in (1, 2, 3):
        ledger.record(np.array([action, action]))
    ledger.reseed(np.array([False, True]))
    assert ledger.actions(1).tolist() == []
    assert ledger.actions(1, 1, 3).tolist() == ledger.actions(0, 1, 3).tolist() == [2, 3]
    ledger.record(np.array([0, 0]))
    assert (ledger.actions(0).tolist(), ledger.actions(1).tolist()) == ([1, 2, 3, 0], [0])
