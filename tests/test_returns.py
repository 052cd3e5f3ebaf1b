"""Returns of n steps on numbers worked by hand: γ = 0.5."""

import numpy as np
import pytest

from redline.errors import UserError
from redline.returns import NStep, bootstrap_discounts, discounted_rewards, steps_spanned


def test_a_return_spans_n_steps_or_ends_with_the_first_end() -> None:
    ends = np.array([[0, 0, 0], [1, 0, 0], [0, 1, 1], [0, 0, 1]], dtype=bool)
    assert steps_spanned(ends).tolist() == [3, 1, 2, 3]


def test_rewards_beyond_the_span_do_not_count() -> None:
    reward = np.array([[1, 2, 4], [1, 2, 4], [1, 2, 4]], dtype=np.float32)
    # 1 + 1 + 1, 1 + 1, 1
    assert discounted_rewards(reward, np.array([3, 2, 1]), 0.5).tolist() == [3.0, 2.0, 1.0]


def test_the_discount_is_that_of_the_steps_really_spanned_and_zero_where_the_return_ended() -> None:
    return_ends = np.array([[0, 0, 0], [0, 1, 0], [0, 0, 0]], dtype=bool)
    # three steps, terminated at the second, truncated at the second
    assert bootstrap_discounts(return_ends, np.array([3, 2, 2]), 0.5).tolist() == [0.125, 0.0, 0.25]


def test_impossible_returns_are_refused() -> None:
    with pytest.raises(UserError, match=r"returns\.n is 0"):
        NStep(n=0)
    with pytest.raises(UserError, match=r"returns\.gamma is 1\.01"):
        NStep(gamma=1.01)
