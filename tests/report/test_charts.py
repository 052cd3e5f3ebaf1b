"""Charts: what is drawn, and what becomes of it in a page and in a picture."""

import json
import re
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree

import matplotlib as mpl
import pytest
from full_runs import HOSTILE
from PIL import Image

from redline.report.amounts import amount, moment, share, size, span
from redline.report.chart_drawing import SERIES, draw, shorten, tick_text
from redline.report.charts import Bar, Chart, Line, LineChart, ShareChart, Spread, SpreadChart, over_time, thinned
from redline.report.html_parts import Compared, Gallery, Html, as_script_data, element, table
from redline.report.inline_svg import inline_svg, readout, save_png

TIMES = [0.0, 1.0, 2.0, 3.0]


def line_chart(*lines: Line, **more: float) -> LineChart:
    return LineChart("speed", "Steps per second", "steps/s", "minutes", lines, **more)


def svg(chart: Chart) -> ElementTree.Element:
    return ElementTree.fromstring(inline_svg(draw(chart), prefix="c1-", title=chart.title))  # noqa: S314 - our own


def words(chart: Chart) -> list[str]:
    return [node.text or "" for node in svg(chart).iter("text")]


def test_words_stay_words_and_say_what_is_shown() -> None:
    chart = line_chart(Line("this run", TIMES, [1, 2, 3, 4]), Line("machine", TIMES, [2, 3, 4, 5], colour=1))
    assert {"Steps per second", "steps/s", "minutes", "this run", "machine"} <= set(words(chart))


def test_one_series_needs_no_legend() -> None:
    assert "this run" not in words(line_chart(Line("this run", TIMES, [1, 2, 3, 4])))


def test_legend_stands_above_the_plot_however_long_it_is() -> None:
    few, many = (
        draw(
            line_chart(
                *(Line(f"a series with a long name {place}", TIMES, [1, 2, 3, 4], place) for place in range(number))
            )
        )
        for number in (2, 12)
    )
    assert few.box_px[3] == many.box_px[3]
    assert many.box_px[1] > few.box_px[1] + 80


def test_hostile_labels_are_drawn_as_they_are() -> None:
    for chart in (
        line_chart(Line(HOSTILE, TIMES, [1, 2, 3, 4]), Line("\x00\ud800_\U0001f600", TIMES, [1, 2, 3, 4])),
        LineChart(HOSTILE, HOSTILE, HOSTILE, HOSTILE, (Line(HOSTILE, TIMES, TIMES),)),
        ShareChart("x", "x", "x", (Bar(HOSTILE, ((HOSTILE, 0.5),)),)),
        SpreadChart("x", "x", "x", (Spread(HOSTILE, (1.0,), 1.0, None, None, 0),)),
    ):
        text = inline_svg(draw(chart), prefix="c1-", title=HOSTILE)
        root = ElementTree.fromstring(text)  # noqa: S314 - our own
        assert root.attrib["aria-label"] == HOSTILE
        assert "<script" not in text
        assert 'onerror="' not in text


@pytest.mark.parametrize(
    "values", [[], [1.0], [float("nan")] * 3, [1.0, float("inf"), 2.0], [5.0] * 4, [0.0] * 4, [-1e300, 1e300]]
)
def test_any_values_give_a_chart(values: list[float]) -> None:
    chart = line_chart(Line("x", TIMES[: len(values)], values), bottom=0.0)
    assert svg(chart).attrib["viewBox"].startswith("0 0 ")
    json.dumps(readout(draw(chart)), allow_nan=False)


def test_nothing_to_draw_is_said() -> None:
    assert "no values" in words(line_chart())


def test_ids_begin_with_the_prefix_and_every_reference_is_to_one() -> None:
    chart = line_chart(Line("a", TIMES, [1, 2, 3, 4]), Line("b", TIMES, [1, 2, 3, 4], is_points=True))
    text = inline_svg(draw(chart), prefix="c7-", title="x")
    ids = re.findall(r' id="([^"]*)"', text)
    assert all(name.startswith("c7-") for name in ids)
    assert set(re.findall(r"url\(#([^)]*)\)", text)) <= set(ids)
    assert len(ids) == len(set(ids))


def test_svg_has_no_header_no_style_element_and_no_colour_of_its_own() -> None:
    chart = line_chart(*(Line(f"{place}", TIMES, [1, 2, 3, 4], place) for place in range(len(SERIES))))
    text = inline_svg(draw(chart), prefix="c1-", title="x")
    assert text.startswith("<svg class=")
    assert "<style" not in text
    assert "xlink" not in text
    assert re.findall(r"#[0-9a-f]{6}\b", text) == []
    assert {f"var(--s{place})" for place in range(len(SERIES))} <= set(re.findall(r"var\(--s\d\)", text))


def test_same_chart_gives_the_same_svg() -> None:
    chart = line_chart(Line("a", TIMES, [1, 2, 3, 4]))
    assert inline_svg(draw(chart), prefix="", title="x") == inline_svg(draw(chart), prefix="", title="x")


def test_settings_of_matplotlib_are_as_before() -> None:
    before = dict(mpl.rcParams)
    inline_svg(draw(line_chart(Line("a", TIMES, TIMES))), prefix="", title="x")
    assert dict(mpl.rcParams) == before


def test_nobodys_matplotlibrc_changes_a_chart() -> None:
    chart = line_chart(Line("a", TIMES, TIMES))
    usual = inline_svg(draw(chart), prefix="", title="x")
    with mpl.rc_context({"text.usetex": True, "font.size": 30.0, "axes.facecolor": "red", "lines.linewidth": 9.0}):
        assert inline_svg(draw(chart), prefix="", title="x") == usual


def test_picture_is_twice_as_fine_and_on_white(tmp_path: Path) -> None:
    drawing = draw(line_chart(Line("a", TIMES, TIMES)))
    save_png(drawing, tmp_path / "a.png")
    with Image.open(tmp_path / "a.png") as picture:
        assert picture.size == (860, round(2 * 72 * drawing.figure.get_figheight()))
        assert picture.convert("RGB").getpixel((0, 0)) == (255, 255, 255)


def test_readout_leads_from_pixels_to_values() -> None:
    chart = line_chart(
        Line("a", TIMES, [0, 10, 20, 30]), Line("b", TIMES, [1, 2, 3, 4], colour=3), bottom=0.0, top=40.0
    )
    found = readout(draw(chart))
    assert found is not None
    assert found["columns"] == [[0, 1, 2, 3]]
    assert [line["label"] for line in found["lines"]] == ["a", "b"]  # type: ignore[attr-defined]
    assert found["ys"] == [0.0, 40.0]
    assert (found["axis"], found["unit"]) == ("minutes", "steps/s")


def test_thinned_lines_keep_their_means_and_dots_are_kept_all() -> None:
    many = [float(value) for value in range(1_000)]
    chart = thinned(line_chart(Line("a", many, many), Line("b", many, many, is_points=True)), max_points=200)
    assert [len(line.x) for line in chart.lines] == [100, 1_000]
    assert chart.lines[0].y[:2] == [4.5, 14.5]
    assert chart.unit == "steps/s, means of neighbours"
    assert thinned(line_chart(Line("a", TIMES, TIMES)), max_points=1_000).lines[0].y == TIMES


def test_line_ends_where_samples_are_missing() -> None:
    times = [0.0, 1.0, 2.0, 3.0, 60.0, 61.0, 62.0]
    chart = line_chart(Line("a", times, times))
    assert [list(drawn.get_xdata()) for drawn in draw(chart).figure.axes[0].lines] == [times]
    sampled = draw(replace(chart, is_sampled=True))
    assert [list(drawn.get_xdata()) for drawn in sampled.figure.axes[0].lines] == [times[:4], times[4:]]


def test_no_mean_is_of_values_from_both_sides_of_a_gap() -> None:
    times = [float(value) for value in (*range(150), *range(1_000, 1_150))]
    chart = thinned(replace(line_chart(Line("a", times, times)), is_sampled=True), max_points=100)
    assert len(chart.lines[0].x) == 100
    assert not [x for x in chart.lines[0].x if 150 <= x < 1_000]


def test_charts_of_a_run_called_comparison_and_of_the_comparison_are_all_kept() -> None:
    gallery = Gallery(max_points=100)
    chart = line_chart(Line("a", TIMES, TIMES))
    figures = [gallery.chart(chart, owner=owner).markup for owner in ("comparison", Compared("comparison"))]
    figures.append(gallery.chart(chart, owner="comparison").markup)
    assert len(gallery.charts) == 2
    assert len(set(re.findall(r'<figure class="card" id="(c\d)"', "".join(figures)))) == 3


def test_short_runs_are_shown_in_seconds() -> None:
    short = over_time(line_chart(Line("a", [0.5, 1.0], [1, 2])))
    assert (short.x_label, short.lines[0].x) == ("seconds", [30.0, 60.0])
    assert over_time(line_chart(Line("a", [0.5, 10.0], [1, 2]))).x_label == "minutes"


def test_shares_are_drawn_to_scale() -> None:
    chart = ShareChart("x", "x", "x", (Bar("learner", (("learn", 0.25), ("rest", 0.75))),), rest="rest")
    drawing = draw(chart)
    widths = [patch.get_width() for patch in drawing.figure.axes[0].patches]
    assert widths == [0.25, 0.75]
    assert drawing.x_limits == (0.0, 1.0)


def test_band_of_an_interval_never_squeezes_the_runs() -> None:
    rows = (Spread("a", (10.0, 12.0), 11.0, -500.0, 900.0, 0),)
    low, high = draw(SpreadChart("x", "x", "x", rows)).x_limits
    assert low == 0.0
    assert 12.0 < high < 20.0


@pytest.mark.parametrize(
    ("value", "reach", "text"),
    [(5_000, 20_000, "5k"), (0, 1e6, "0"), (2.5, 3, "2.5"), (-1_500, 1_500, "−1500"), (3e9, 4e9, "3G")],
)
def test_ticks_of_an_axis_share_a_unit(value: float, reach: float, text: str) -> None:
    assert tick_text(value, reach) == text


def test_long_labels_are_cut_in_the_middle() -> None:
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


def test_text_is_escaped_and_markup_is_not() -> None:
    assert element("p", '<b>&"').markup == "<p>&lt;b&gt;&amp;&quot;</p>"
    assert (
        element("p", Html("<b>x</b>"), css='a" onclick="x').markup == '<p class="a&quot; onclick=&quot;x"><b>x</b></p>'
    )
    assert "<td>&lt;i&gt;</td>" in table("<x>", ("a",), [["<i>"]]).markup


def test_data_cannot_end_the_script_that_holds_it() -> None:
    text = as_script_data({"label": HOSTILE + "<!--"})
    assert "<" not in text
    assert json.loads(text)["label"] == HOSTILE + "<!--"
