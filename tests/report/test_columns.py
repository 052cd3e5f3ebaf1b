"""Columns of numbers that grow, and their points for a chart."""

import numpy as np
import pytest

from redline.report.columns import Columns, extremes, shortened, thin


def test_a_column_that_comes_later_or_is_missing_has_no_value_there() -> None:
    columns = Columns(exact=("at",))
    columns.append({"at": 1.0, "a": 10.0})
    columns.append({"at": 2.0, "b": 20.0})
    columns.append({"at": 3.0, "a": 30.0})
    assert len(columns) == 3
    np.testing.assert_array_equal(columns.values("a"), [10.0, np.nan, 30.0])
    np.testing.assert_array_equal(columns.values("b"), [np.nan, 20.0, np.nan])
    np.testing.assert_array_equal(columns.values("b", 1), [20.0, np.nan])
    np.testing.assert_array_equal(columns.values("c"), [np.nan] * 3)


def test_many_rows_are_folded_in_pairs_and_stay_bounded() -> None:
    columns = Columns(exact=("at",), max_cells=20)
    for at in range(1, 12):
        columns.append({"at": float(at), "value": float(at)})
    assert columns.folds == 1
    np.testing.assert_array_equal(columns.values("at"), [2, 4, 6, 8, 10, 11])  # the second of each pair
    np.testing.assert_array_equal(columns.values("value"), [1.5, 3.5, 5.5, 7.5, 9.5, 11.0])
    for at in range(12, 10_000):
        columns.append({"at": float(at), "value": float(at)})
    assert len(columns) * 2 <= 20


def test_without_means_rows_stay_as_they_were() -> None:
    columns = Columns(exact=("number",), means=False, max_cells=6)
    for number in (1, 2, 3, 4):
        columns.append({"number": number, "return": 10.0 * number})
    np.testing.assert_array_equal(columns.values("return"), 10.0 * columns.values("number"))


def test_a_hostile_file_gets_no_endless_number_of_columns() -> None:
    columns = Columns(exact=())
    for number in range(2_000):
        columns.append({f"column {number}": 1.0})
    assert len(columns.names) == 600


def test_no_extreme_of_a_pixel_column_is_lost() -> None:
    x = np.arange(10_000.0)
    y = np.zeros(10_000)
    y[1_234], y[7_777], y[5] = 9.0, -9.0, np.nan
    places, found = thin(x, [("y", y)], pixels=100)
    assert len(places) == 100
    assert (found["y"].high.max(), found["y"].low.min()) == (9.0, -9.0)
    assert found["y"].high.argmax() == 12
    assert found["y"].mean[12] == pytest.approx(0.09)
    assert np.isfinite(found["y"].mean).all()  # one missing value among hundred others


def test_a_pixel_column_without_any_value_has_none() -> None:
    y = np.concatenate([np.full(50, np.nan), np.ones(50)])
    _, found = thin(np.arange(100.0), [("y", y)], pixels=2)
    np.testing.assert_array_equal(found["y"].mean, [np.nan, 1.0])
    np.testing.assert_array_equal(found["y"].low, [np.nan, 1.0])


def test_extremes_are_rows_that_are_there() -> None:
    rng = np.random.default_rng(0)
    x, y = np.sort(rng.random(5_000)), rng.random(5_000)
    places = extremes(x, y, pixels=50)
    assert len(places) <= 100
    assert (np.diff(places) > 0).all()
    assert {y.argmax(), y.argmin()} <= set(places.tolist())


def test_rows_of_one_moment_are_no_division_by_zero() -> None:
    x, y = np.full(1_000, 5.0), np.arange(1_000.0)
    places, found = thin(x, [("y", y)], pixels=10)
    assert (len(places), found["y"].high.max()) == (10, 999.0)
    assert len(extremes(x, y, pixels=10)) == 20


@pytest.mark.parametrize(
    ("value", "short"),
    [(0.0, 0.0), (1234567.0, 1234600.0), (-0.000123456, -0.00012346), (np.inf, np.inf), (1e-300, 1e-300)],
)
def test_numbers_are_shortened_to_their_leading_digits(value: float, short: float) -> None:
    assert shortened(np.array([value]), 5)[0] == pytest.approx(short)
