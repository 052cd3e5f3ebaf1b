"""Speeds by the number of cores, worked by hand."""

import pytest

from redline.plan.scaling import (
    EXTRAPOLATED,
    INTERPOLATED,
    MEASURED,
    CoresSpeed,
    Scaling,
    counts_to_measure,
    scaling_of,
)


def scaling(**steps_per_s: float) -> Scaling:
    """Return a scaling without spread: `on_2=125` means 125 steps/s with two cores."""
    found = {int(name.removeprefix("on_")): rate for name, rate in steps_per_s.items()}
    return Scaling({cores: CoresSpeed(rate, 0.9 * rate, 1.1 * rate, MEASURED) for cores, rate in found.items()})


def test_a_measured_count_is_what_was_measured() -> None:
    assert scaling(on_1=100, on_2=160).speed(2) == CoresSpeed(160, 144, 176, MEASURED)


def test_beyond_the_last_count_amdahls_law_is_the_estimate_and_no_gain_the_low_end() -> None:
    found = scaling(on_1=100, on_2=160)  # 10 and 6.25 ms: 2.5 ms serial, 7.5 ms shared
    assert (found.serial_s, found.parallel_s) == pytest.approx((0.0025, 0.0075))
    on_4 = found.speed(4)  # 2.5 + 7.5 / 4 = 4.375 ms
    assert on_4.steps_per_s == pytest.approx(1000 / 4.375)
    assert on_4.low_steps_per_s == pytest.approx(144)
    assert on_4.high_steps_per_s == pytest.approx(1.1 * 1000 / 4.375)
    assert on_4.basis == EXTRAPOLATED


def test_cores_that_gained_nothing_are_not_thought_to_gain_later() -> None:
    slower = scaling(on_1=100, on_2=90)
    assert slower.parallel_s == 0.0
    assert slower.speed(64).steps_per_s == pytest.approx(90)
    assert scaling(on_1=100).speed(8).steps_per_s == pytest.approx(100)


def test_cores_can_share_no_more_than_the_whole_step() -> None:
    superlinear = scaling(on_1=100, on_2=210)
    assert superlinear.serial_s == 0.0
    assert superlinear.speed(4).steps_per_s == pytest.approx(420)


def test_between_two_counts_the_time_is_linear_in_the_share_of_a_core() -> None:
    found = scaling(on_1=100, on_2=200, on_4=250).speed(3)  # 5 and 4 ms; 1/3 lies a third of the way from 1/4 to 1/2
    assert found.steps_per_s == pytest.approx(1000 / (4 + 1 / 3))
    assert found.basis == INTERPOLATED


def test_more_cores_are_enough_where_the_next_adds_less_than_five_percent() -> None:
    measured = scaling(on_1=100, on_2=160, on_3=164, on_4=200).enough()
    assert (measured.cores, measured.basis) == (2, MEASURED)
    assert measured.next_gain == pytest.approx(0.025)
    beyond = scaling(on_1=100, on_2=125).enough()  # 10, 8, then 7.33 and 7 ms by Amdahl's law
    assert (beyond.cores, beyond.basis) == (3, EXTRAPOLATED)
    assert beyond.next_gain == pytest.approx(7.333 / 7 - 1, abs=1e-3)
    assert scaling(on_1=100, on_2=103).enough().cores == 1


def test_rounds_give_a_median_and_the_range_of_nine_tenths_of_them() -> None:
    rounds = [float(rate) for rate in range(100, 121)]
    assert scaling_of({2: rounds, 1: [50.0]}).measured == {
        1: CoresSpeed(50.0, 50.0, 50.0, MEASURED),
        2: CoresSpeed(110.0, 101.0, 119.0, MEASURED),
    }


@pytest.mark.parametrize(
    ("usable", "wanted", "counts"),
    [
        (1, (2, 8), (1,)),
        (2, (2, 96), (1, 2)),
        (4, (), (1, 2, 3, 4)),
        (64, (4, 8, 16, 96), (1, 2, 3, 4, 5, 8, 16, 64)),
    ],
)
def test_counts_are_one_all_the_wanted_and_the_small_ones(
    usable: int, wanted: tuple[int, ...], counts: tuple[int, ...]
) -> None:
    assert counts_to_measure(usable, wanted) == counts
