"""The report as a browser shows it: drawn, silent, and asking nobody for anything."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from full_runs import HOSTILE, write_broken_run, write_full_run, write_hostile_run
from PIL import Image
from playwright.sync_api import Page
from watching import OPEN_ALL, WIDTHS, assert_drawn, assert_silent, charts, wait_until

pytestmark = pytest.mark.browser

MakeReport = Callable[..., Path]
OpenPage = Callable[..., Any]
Folders = pytest.TempPathFactory

BARS = "[...document.querySelectorAll('.track')].map((track) => track.getBoundingClientRect().width)"
IDS = "[...document.querySelectorAll('[id]')].map((one) => one.id)"
BACKGROUND = "getComputedStyle(document.body).backgroundColor"
LINE_COLOUR = "document.querySelector('figure.lines').plot.series[1].stroke()"
RANGE = "(({ min, max }) => [min, max])(document.querySelector('figure.lines').plot.scales.x)"


@pytest.fixture(scope="session")
def one(tmp_path_factory: Folders, make_report: MakeReport) -> Path:
    return make_report(write_full_run(tmp_path_factory.mktemp("one") / "run"))


@pytest.fixture(scope="session")
def several(tmp_path_factory: Folders, make_report: MakeReport) -> Path:
    folder = tmp_path_factory.mktemp("several")
    for algorithm in ("dqn", "ppo", "c51"):
        for seed in (1, 2):
            name = f"{algorithm}-{seed}"
            write_full_run(folder / name, algorithm=algorithm, seed=seed, num_samples=400)
    return make_report(folder)


def middle_of_the_first_chart(page: Page) -> tuple[float, float, float]:
    """Return the place of the middle of its plot, and its width."""
    over = page.locator("figure.lines .u-over").first
    over.scroll_into_view_if_needed()
    box = over.bounding_box()
    assert box is not None
    return box["x"] + box["width"] / 2, box["y"] + box["height"] / 2, box["width"]


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_every_chart_of_a_run_is_drawn_and_nothing_is_asked_for(open_page: OpenPage, one: Path, scheme: str) -> None:
    watched = open_page(one, scheme=scheme)
    found = charts(watched.page)
    assert len(found) > 25
    assert_drawn(found)
    assert all(width > 100 for width in watched.page.evaluate(BARS))
    assert_silent(watched, one)


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_every_chart_of_several_runs_is_drawn(open_page: OpenPage, several: Path, scheme: str) -> None:
    watched = open_page(several, scheme=scheme)
    found = charts(watched.page)
    assert len(found) > 120
    assert_drawn(found)
    assert_silent(watched, several)
    assert watched.page.evaluate("document.querySelector('h1').textContent") == "6 runs compared"
    assert several.stat().st_size < 2_000_000


def test_light_and_dark_differ_in_page_and_lines(open_page: OpenPage, one: Path, tmp_path: Path) -> None:
    light, dark = (open_page(one, scheme=scheme).page for scheme in ("light", "dark"))
    for page, margin, line in (
        (light, (245, 246, 248), "#0072b2"),
        (dark, (16, 19, 23), "#4fabea"),
    ):
        page.wait_for_selector(".uplot")
        assert page.evaluate(BACKGROUND) == f"rgb{margin}"
        assert page.evaluate(LINE_COLOUR) == line
        page.screenshot(path=tmp_path / "page.png", full_page=True)
        with Image.open(tmp_path / "page.png") as picture:
            assert picture.size[0] == 1280
            assert picture.convert("RGB").getpixel((2, 400)) == margin
    light.emulate_media(color_scheme="dark")
    wait_until(light, f"{LINE_COLOUR} === '#4fabea'")  # drawn anew


def test_ids_are_unique(open_page: OpenPage, several: Path) -> None:
    ids = open_page(several).page.evaluate(IDS)
    assert len(ids) == len(set(ids)) > 40


@pytest.mark.parametrize("width", [360, 390, 800, 1920])
def test_nothing_sticks_out_at_any_width(open_page: OpenPage, several: Path, width: int) -> None:
    page = open_page(several, width=width).page
    page.evaluate(OPEN_ALL)
    page.wait_for_selector(".uplot")
    assert page.evaluate(WIDTHS) == [width, width]
    if width == 390:
        assert_drawn(charts(page))
        assert page.evaluate(WIDTHS) == [width, width]


def test_cursor_reads_the_values_below_it(open_page: OpenPage, one: Path) -> None:
    watched = open_page(one)
    page = watched.page
    page.wait_for_selector(".uplot")
    x, y, _ = middle_of_the_first_chart(page)
    page.mouse.move(x, y)
    readout = page.locator("figure .readout").first
    assert readout.is_visible()
    shown = readout.text_content()
    assert shown.startswith("steps")
    assert "while training, mean of the last 20" in shown
    assert "greedy evaluations" in shown
    page.mouse.move(1, 1)
    assert not readout.is_visible()
    assert watched.complaints == []


def test_dragging_zooms_and_a_button_takes_it_back(open_page: OpenPage, one: Path) -> None:
    page = open_page(one).page
    page.wait_for_selector(".uplot")
    x, y, width = middle_of_the_first_chart(page)
    before = page.evaluate(RANGE)
    page.mouse.move(x, y)
    page.mouse.down()
    page.mouse.move(x + width / 4, y, steps=5)
    page.mouse.up()
    low, high = page.evaluate(RANGE)
    assert before[0] < low < high < before[1]
    assert high - low == pytest.approx((before[1] - before[0]) / 4, rel=0.15)
    page.locator("figure.zoomed .reset").click()
    assert page.evaluate(RANGE) == pytest.approx(before)
    assert page.locator("figure.zoomed").count() == 0


def test_legend_hides_a_series(open_page: OpenPage, one: Path) -> None:
    page = open_page(one).page
    page.wait_for_selector(".uplot")
    key = page.locator("figure.lines .keys button").first
    key.click()
    assert key.get_attribute("aria-pressed") == "false"
    assert page.evaluate("document.querySelector('figure.lines').plot.series.map((one) => one.show)")[1:] == [
        False,
        True,
    ]
    key.click()
    assert page.evaluate("document.querySelector('figure.lines').plot.series.map((one) => one.show)")[1:] == [
        True,
        True,
    ]


def test_numbers_are_there_without_script(open_page: OpenPage, one: Path) -> None:
    watched = open_page(one, has_script=False)
    tables = watched.page.locator("figure.lines noscript table")
    assert tables.count() > 25
    text = tables.first.inner_text()
    assert "while training, mean of the last 20" in text
    assert "highest" in text
    assert watched.page.locator(".track").count() > 3
    assert_silent(watched, one)


def test_broken_run_gives_a_page_that_says_what_is_missing(
    open_page: OpenPage, tmp_path: Path, make_report: MakeReport
) -> None:
    path = make_report(write_broken_run(tmp_path / "broken"))
    watched = open_page(path)
    missing = watched.page.locator(".missing").inner_text()
    for name in ("run.json", "metrics.jsonl", "episodes.jsonl", "hardware.jsonl", "events.jsonl"):
        assert name in missing
    assert_silent(watched, path)


def test_broken_run_stands_beside_whole_ones(open_page: OpenPage, tmp_path: Path, make_report: MakeReport) -> None:
    write_broken_run(tmp_path / "runs" / "broken")
    write_full_run(tmp_path / "runs" / "whole", num_samples=20)
    path = make_report(tmp_path / "runs")
    watched = open_page(path)
    assert_drawn(charts(watched.page))
    assert_silent(watched, path)


def test_markup_in_a_run_stays_text(open_page: OpenPage, tmp_path: Path, make_report: MakeReport) -> None:
    for seed, name in enumerate(("<b>one", "two")):
        write_hostile_run(tmp_path / "runs" / name, seed=seed)
    path = make_report(tmp_path / "runs")
    watched = open_page(path)
    page = watched.page
    charts(page)
    assert page.title() == "2 runs compared · Redline"
    assert page.evaluate("document.querySelectorAll('script:not([type])').length") == 2
    assert page.evaluate("document.querySelectorAll('img, b > b, iframe, object, link:not([rel=icon])').length") == 0
    shown = page.evaluate("[...document.querySelectorAll('td')].map((cell) => cell.textContent)")
    assert HOSTILE in shown
    over = page.locator("figure.lines .u-over").first.bounding_box()
    page.mouse.move(over["x"] + over["width"] / 2, over["y"] + over["height"] / 2)
    assert page.title() == "2 runs compared · Redline"
    assert_silent(watched, path)


def test_browser_would_notice_requests_and_errors(open_page: OpenPage, tmp_path: Path) -> None:
    path = tmp_path / "page.html"
    path.write_text(
        "<img src='gone.png'><link rel='stylesheet' href='gone.css'><script>console.error(1); undefined.x</script>"
    )
    watched = open_page(path)
    watched.page.wait_for_load_state("networkidle")
    assert len(watched.requests) == 3
    assert len(watched.complaints) >= 3
