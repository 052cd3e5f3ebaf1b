"""Charts: what a page is given to draw, and the pictures that matplotlib makes of them."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import matplotlib as mpl
import pytest
from full_runs import HOSTILE
from PIL import Image

from redline.report.charts import Bar, Line, LineChart, ShareChart, Spread, SpreadChart, over_time, page_data, thinned
from redline.report.parts import Cell, Table, Text, amount, grid, moment, render_parts, share, size, span
from redline.report.png import draw, save_png, shorten, tick_text

TIMES = [0.0, 1.0, 2.0, 3.0]


def line_chart(*lines: Line, **more: Any) -> LineChart:
    return LineChart("speed", "Steps per second", "steps/s", "minutes", lines, **more)


def drawn(chart: LineChart) -> dict[str, Any]:
    """Return what the page's script reads."""
    found: dict[str, Any] = json.loads(json.dumps(page_data(chart), allow_nan=False))
    return found


def html(*parts: Any) -> str:
    return render_parts("a page", "", parts, unix_s=0.0)


def test_series_that_share_their_places_share_a_column() -> None:
    chart = line_chart(
        Line("a", TIMES, [0, 10, 20, 30]), Line("b", TIMES, [1, 2, 3, 4.00009], colour=3), bottom=0.0, top=40.0
    )
    found = drawn(chart)
    assert found["columns"] == [[0, 1, 2, 3]]
    assert [(line["label"], line["key"], line["colour"], line["x"]) for line in found["lines"]] == [
        ("a", 0, 0, 0),
        ("b", 1, 3, 0),
    ]
    assert found["lines"][1]["y"] == [1, 2, 3, 4]
    assert (found["axis"], found["bottom"], found["top"]) == ("minutes", 0.0, 40.0)


def test_series_without_an_entry_of_their_own_belong_to_the_one_before() -> None:
    faint = [Line(str(place), TIMES, TIMES, is_faint=True, in_legend=place == 1) for place in (1, 2, 3)]
    found = drawn(line_chart(Line("mean", TIMES, TIMES, colour=1), *faint))
    assert [line["key"] for line in found["lines"]] == [0, 1, 1, 1]


@pytest.mark.parametrize(
    "values", [[], [1.0], [float("nan")] * 3, [1.0, float("inf"), 2.0], [5.0] * 4, [0.0] * 4, [-1e300, 1e300]]
)
def test_any_values_give_a_chart(values: list[float], tmp_path: Path) -> None:
    chart = line_chart(Line("x", TIMES[: len(values)], values), bottom=0.0)
    drawn(chart)
    html(grid([chart], max_points=100))
    save_png(chart, tmp_path / "a.png")


def test_line_ends_where_samples_are_missing() -> None:
    times = [0.0, 1.0, 2.0, 3.0, 60.0, 61.0, 62.0]
    chart = line_chart(Line("a", times, times))
    assert drawn(chart)["lines"][0]["y"] == times
    sampled = replace(chart, is_sampled=True)
    assert drawn(sampled)["lines"][0]["y"] == [0, 1, 2, 3, None, 60, 61, 62]
    assert [list(line.get_xdata()) for line in draw(sampled).axes[0].lines] == [times[:4], times[4:]]


def test_points_at_one_place_are_all_kept_and_in_order() -> None:
    found = drawn(line_chart(Line("a", [2.0, 1.0, 1.0], [5.0, 6.0, 7.0], is_points=True)))
    [x] = found["columns"]
    assert x == sorted(set(x))
    assert x == pytest.approx([1.0, 1.0, 2.0])
    assert found["lines"][0]["y"] == [6, 7, 5]


def test_a_band_stays_with_its_line() -> None:
    line = Line("a", TIMES, [1, 2, float("nan"), 4], low=[0, 1, 2, 3], high=[2, 3, 4, 5])
    found = drawn(line_chart(line))
    assert (found["columns"], found["lines"][0]["low"], found["lines"][0]["high"]) == (
        [[0, 1, 3]],
        [0, 1, 3],
        [2, 3, 5],
    )


def test_thinned_lines_keep_their_means_and_dots_are_kept_all() -> None:
    many = [float(value) for value in range(1_000)]
    chart = thinned(line_chart(Line("a", many, many), Line("b", many, many, is_points=True)), max_points=200)
    assert [len(line.x) for line in chart.lines] == [100, 1_000]
    assert chart.lines[0].y[:2] == [4.5, 14.5]
    assert chart.unit == "steps/s, means of neighbours"
    assert thinned(line_chart(Line("a", TIMES, TIMES)), max_points=1_000).lines[0].y == TIMES


def test_no_mean_is_of_values_from_both_sides_of_a_gap() -> None:
    times = [float(value) for value in (*range(150), *range(1_000, 1_150))]
    chart = thinned(replace(line_chart(Line("a", times, times)), is_sampled=True), max_points=100)
    assert len(chart.lines[0].x) == 100
    assert not [x for x in chart.lines[0].x if 150 <= x < 1_000]


def test_short_runs_are_shown_in_seconds() -> None:
    short = over_time(line_chart(Line("a", [0.5, 1.0], [1, 2])))
    assert (short.x_label, short.lines[0].x) == ("seconds", [30.0, 60.0])
    assert over_time(line_chart(Line("a", [0.5, 10.0], [1, 2]))).x_label == "minutes"


def test_a_legend_names_series_in_full_and_one_series_needs_none() -> None:
    name = "a run with a name that is far too long to stand in any legend of a picture, of all things"
    one, two = Line(name, TIMES, TIMES), Line("b", TIMES, TIMES)
    assert f"</i>{name}</button>" in html(grid([line_chart(one, two)], max_points=9))
    assert '<button type="button" data-key' not in html(grid([line_chart(one)], max_points=9))


def test_numbers_are_there_without_script() -> None:
    page = html(grid([line_chart(Line("a", TIMES, [4, 8, 2, 6]))], max_points=9))
    cells = "".join(f'<td class="n">{value}</td>' for value in (4, 6, 2, 8))
    assert f"<tr><td>a</td>{cells}</tr>" in page.split("<noscript>")[1]


def test_shares_are_drawn_to_scale() -> None:
    chart = ShareChart("x", "x", "x", (Bar("learner", (("learn", 0.25), ("rest", 0.75))),), rest="rest")
    axes = draw(chart).axes[0]
    assert [patch.get_width() for patch in axes.patches] == [0.25, 0.75]
    assert axes.get_xlim() == (0.0, 1.0)
    page = html(grid([chart], max_points=9))
    assert "width:25.0%;color:var(--s0)" in page
    assert "width:75.0%;color:var(--rest)" in page


def test_interval_of_a_few_runs_never_squeezes_them() -> None:
    chart = SpreadChart("x", "x", "x", (Spread("a", (10.0, 12.0), 11.0, -500.0, 900.0, 0),))
    low, high = chart.limits()
    assert low == 0.0
    assert 12.0 < high < 20.0
    page = html(grid([chart], max_points=9))
    assert '<i class="band" style="left:0.0%;right:0.0%"></i>' in page
    assert page.count('<i class="dot"') == 2


def test_hostile_labels_are_shown_as_they_are(tmp_path: Path) -> None:
    charts = (
        line_chart(Line(HOSTILE, TIMES, [1, 2, 3, 4]), Line("\x00\ud800_\U0001f600", TIMES, [1, 2, 3, 4])),
        LineChart(HOSTILE, HOSTILE, HOSTILE, HOSTILE, (Line(HOSTILE, TIMES, TIMES),)),
        ShareChart("x", "x", "x", (Bar(HOSTILE, ((HOSTILE, 0.5),)),)),
        SpreadChart("x", "x", "x", (Spread(HOSTILE, (1.0,), 1.0, None, None, 0),)),
    )
    page = html(grid(charts, max_points=9))
    assert page.encode()
    assert "<script>document" not in page
    assert "<img" not in page
    for chart in charts:
        save_png(chart, tmp_path / "a.png")


def test_data_cannot_end_the_script_that_holds_it() -> None:
    page = html(grid([line_chart(Line(HOSTILE + "<!--", TIMES, TIMES))], max_points=9))
    text = page.split('<script type="application/json">')[1].split("</script>")[0]
    assert "<" not in text
    assert json.loads(text)["lines"][0]["label"] == HOSTILE + "<!--"


def test_text_is_escaped_wherever_it_stands() -> None:
    page = html(Text('<b>&"'), Table("<x>", ("<h>",), [["<i>"], [Cell("<u>", note="<s>", href='"><a')]]))
    assert "<p>&lt;b&gt;&amp;&#34;</p>" in page
    assert "<td>&lt;i&gt;</td>" in page
    assert '<a href="&#34;&gt;&lt;a">&lt;u&gt;</a><small>&lt;s&gt;</small>' in page
    assert 'aria-label="&lt;x&gt;"' in page


def test_settings_of_matplotlib_are_as_before(tmp_path: Path) -> None:
    before = dict(mpl.rcParams)
    save_png(line_chart(Line("a", TIMES, TIMES)), tmp_path / "a.png")
    assert dict(mpl.rcParams) == before


def test_nobodys_matplotlibrc_changes_a_picture(tmp_path: Path) -> None:
    chart = line_chart(Line("a", TIMES, TIMES), Line("$x$", TIMES, TIMES))
    save_png(chart, tmp_path / "usual.png")
    with mpl.rc_context({"text.usetex": True, "font.size": 30.0, "axes.facecolor": "red", "lines.linewidth": 9.0}):
        save_png(chart, tmp_path / "other.png")
    assert (tmp_path / "usual.png").read_bytes() == (tmp_path / "other.png").read_bytes()


def test_picture_is_twice_as_fine_and_on_white(tmp_path: Path) -> None:
    save_png(line_chart(Line("a", TIMES, TIMES)), tmp_path / "a.png")
    with Image.open(tmp_path / "a.png") as picture:
        assert picture.size == (860, 600)
        assert picture.convert("RGB").getpixel((0, 0)) == (255, 255, 255)


def test_legend_of_a_picture_takes_no_room_from_the_plot(tmp_path: Path) -> None:
    lines = [Line(f"a series with a name that is rather long {place}", TIMES, TIMES, place) for place in range(12)]
    heights = []
    for number in (2, 12):
        figure = draw(line_chart(*lines[:number]))
        figure.savefig(tmp_path / "a.png")  # lays it out
        heights.append(figure.axes[0].get_position().height * figure.get_figheight())
    assert heights[1] > 0.9 * heights[0]


@pytest.mark.parametrize(
    ("value", "reach", "text"),
    [(5_000, 20_000, "5k"), (0, 1e6, "0"), (2.5, 3, "2.5"), (-1_500, 1_500, "−1500"), (3e9, 4e9, "3G")],
)
def test_ticks_of_an_axis_share_a_unit(value: float, reach: float, text: str) -> None:
    assert tick_text(value, reach) == text


def test_long_labels_of_pictures_are_cut_in_the_middle() -> None:
    assert shorten("a" * 50 + "z", 11) == "aaaaa…aaaaz"
    assert shorten("short") == "short"
    assert shorten("a\x00b") == "a�b"


def test_amounts_have_three_digits_that_matter() -> None:
    assert [amount(value) for value in (None, float("nan"), 0, 3, 0.1234, 12.345, 1234.5, -2.5, 1e-5)] == [
        "–", "–", "0", "3", "0.123", "12.3", "1,234", "−2.50", "1.0e−05",
    ]  # fmt: skip
    assert (share(0.4567), size(1_234_567), size(None), span(90.0), span(7_200)) == (
        "45.7 %",
        "1.23 MB",
        "–",
        "90 s",
        "2 h",
    )
    assert [amount(value) for value in (99.94, 99.96, 999.6, 0.9999)] == ["99.9", "100", "1,000", "1.00"]
    assert (moment(0.0), moment(1e30)) == ("1970-01-01 00:00:00 UTC", "–")
