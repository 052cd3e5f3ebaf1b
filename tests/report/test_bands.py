"""Learning curves of groups: a median with a band over long runs, and short runs apart."""

import pytest

from redline.report.bands import BAND_POINTS, CurveGroup, learning_chart
from redline.report.charts import LineChart, page_data
from redline.report.run_series import Series


def flat(height: float, end: float, begin: float = 0.0) -> Series:
    return Series([begin, end], [height, height])


def chart(*groups: CurveGroup) -> LineChart:
    found = learning_chart("steps", groups)
    assert found is not None
    return found


def test_band_spans_its_runs_and_ends_with_the_shortest_of_the_long_ones() -> None:
    curves = [("a", flat(1.0, 100.0)), ("b", flat(5.0, 60.0)), ("c", flat(2.0, 80.0, begin=10.0))]
    [line] = chart(CurveGroup("dqn", 3, curves)).lines
    assert (line.label, line.colour) == ("dqn, 3 runs", 3)
    assert (line.x[0], line.x[-1], len(line.x)) == (10.0, 60.0, BAND_POINTS)
    assert (line.low[7], line.y[7], line.high[7]) == (1.0, 2.0, 5.0)


def test_run_less_than_half_as_long_is_drawn_apart_and_does_not_cut_the_band() -> None:
    curves = [("a", flat(1.0, 100.0)), ("late", flat(9.0, 49.0)), ("b", flat(3.0, 100.0))]
    band, late = chart(CurveGroup("dqn", 0, curves)).lines
    assert (band.label, band.x[-1], band.high[0]) == ("dqn, 2 runs", 100.0, 3.0)
    assert (late.label, late.x, late.low) == ("late", [0.0, 49.0], ())
    assert late.dash != band.dash


def test_one_run_has_the_name_of_its_group_and_empty_ones_none() -> None:
    [line] = chart(CurveGroup("dqn", 0, [("a", flat(1.0, 10.0)), ("b", Series([], []))])).lines
    assert (line.label, line.low) == ("dqn", ())
    assert learning_chart("steps", [CurveGroup("dqn", 0, [("b", Series([], []))])]) is None


def test_runs_without_a_common_range_are_drawn_apart() -> None:
    curves = [("a", flat(1.0, 60.0)), ("b", flat(2.0, 100.0, begin=70.0))]
    lines = chart(CurveGroup("dqn", 0, curves)).lines
    assert [line.label for line in lines] == ["a", "b"]


@pytest.mark.parametrize("colour", [0, 9])
def test_more_groups_than_colours_differ_by_their_dashes(colour: int) -> None:
    [line] = page_data(chart(CurveGroup("dqn", colour, [("a", flat(1.0, 60.0))])))["lines"]  # type: ignore[misc]
    assert (line["colour"], line.get("dash", 0)) == (colour % 8, colour // 8)
