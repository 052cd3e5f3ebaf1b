"""Random streams are functions of (seed, purpose, index), and apart from each other."""

import numpy as np

from redline.runtime.counters import Purpose, stream


def numbers(seed: int, purpose: Purpose, index: int) -> list[int]:
    return stream(seed, purpose, index).integers(2**62, size=1_000).tolist()


def test_the_same_address_gives_the_same_numbers() -> None:
    assert numbers(1, Purpose.DRAW, 5) == numbers(1, Purpose.DRAW, 5)


def test_streams_share_no_number() -> None:
    addresses = [
        (1, Purpose.ACT, 0),
        (1, Purpose.ACT, 1),
        (1, Purpose.DRAW, 0),
        (1, Purpose.DRAW, 1),
        (2, Purpose.ACT, 0),
    ]
    drawn = [set(numbers(*address)) for address in addresses]
    assert len(set.union(*drawn)) == sum(len(each) for each in drawn)


def test_first_numbers_of_consecutive_streams_are_uniform() -> None:
    first = np.array([stream(1, Purpose.DRAW, index).random() for index in range(2_000)])
    counts, _ = np.histogram(first, bins=10, range=(0.0, 1.0))
    assert ((counts - 200) ** 2 / 200).sum() < 27.9  # 0.1 % of fair draws lie beyond, with 9 degrees of freedom
    assert abs(np.corrcoef(first[1:], first[:-1])[0, 1]) < 0.1
