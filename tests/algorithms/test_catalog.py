"""Names that a user can type."""

import pytest

from redline.algorithms.catalog import ALGORITHMS, find_algorithm, find_part, part_name
from redline.errors import UserError
from redline.networks import Small


def test_an_algorithm_is_found_whatever_its_case() -> None:
    assert find_algorithm("DQN") is ALGORITHMS["dqn"]


def test_unknown_names_come_with_the_nearest() -> None:
    with pytest.raises(UserError, match="did you mean dqn"):
        find_algorithm("dqm")
    with pytest.raises(UserError, match="did you mean small"):
        find_part("network", "smal")


def test_a_part_knows_its_name_whatever_its_settings() -> None:
    assert part_name("network", Small(width=64)) == "small"
