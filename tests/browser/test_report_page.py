"""The report as a browser shows it: drawn, silent, and asking nobody for anything."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from chromium import Chromium, Page
from full_runs import HOSTILE, write_broken_run, write_full_run, write_hostile_run
from PIL import Image

pytestmark = pytest.mark.browser

MakeReport = Callable[..., Path]
Folders = pytest.TempPathFactory

OPEN_ALL = "document.querySelectorAll('details').forEach((part) => (part.open = true))"
# of each chart: how large it is, how many words and outlines it has, and how large the largest outline is
CHARTS = """[...document.querySelectorAll('figure svg.chart')].map((svg) => {
  const box = svg.getBoundingClientRect();
  const shapes = [...svg.querySelectorAll('path')].map((path) => path.getBBox());
  return {
    width: box.width, height: box.height, words: svg.querySelectorAll('text').length,
    shapes: shapes.length, reach: Math.max(...shapes.map((shape) => shape.width + shape.height)),
    inside: [...svg.querySelectorAll('text')].every((word) => {
      const place = word.getBoundingClientRect();
      return place.left >= box.left - 1 && place.right <= box.right + 8 && place.width > 0;
    }),
  };
})"""
IDS = "[...document.querySelectorAll('[id]')].map((one) => one.id)"
WIDTHS = "[document.documentElement.scrollWidth, window.innerWidth]"
BACKGROUND = "getComputedStyle(document.body).backgroundColor"
LINE_COLOUR = "getComputedStyle(document.querySelector('svg.chart path[style*=\"--s0\"]')).stroke"


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


def charts(page: Page) -> list[dict[str, Any]]:
    page.evaluate(OPEN_ALL)
    found: list[dict[str, Any]] = page.evaluate(CHARTS)
    return found


def assert_drawn(found: list[dict[str, Any]]) -> None:
    for chart in found:
        assert chart["width"] > 250, chart
        assert chart["height"] > 60, chart
        assert chart["words"] > 3, chart
        assert chart["shapes"] > 3, chart
        assert chart["reach"] > 100, chart
        assert chart["inside"], chart


def assert_silent(page: Page, path: Path) -> None:
    assert page.complaints == []
    assert page.requests == [path.resolve().as_uri()]


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_every_chart_of_a_run_is_drawn_and_nothing_is_asked_for(browser: Chromium, one: Path, scheme: str) -> None:
    page = browser.open(one, scheme=scheme)
    found = charts(page)
    assert len(found) > 30
    assert_drawn(found)
    assert_silent(page, one)


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_every_chart_of_several_runs_is_drawn(browser: Chromium, several: Path, scheme: str) -> None:
    page = browser.open(several, scheme=scheme)
    found = charts(page)
    assert len(found) > 120
    assert_drawn(found)
    assert_silent(page, several)
    assert page.evaluate("document.querySelector('h1').textContent") == "6 runs compared"
    assert several.stat().st_size < 2_000_000


def test_light_and_dark_differ_in_page_and_lines(browser: Chromium, one: Path, tmp_path: Path) -> None:
    light, dark = (browser.open(one, scheme=scheme) for scheme in ("light", "dark"))
    assert light.evaluate(BACKGROUND) == "rgb(245, 246, 248)"
    assert dark.evaluate(BACKGROUND) == "rgb(16, 19, 23)"
    assert light.evaluate(LINE_COLOUR) == "rgb(0, 114, 178)"
    assert dark.evaluate(LINE_COLOUR) == "rgb(79, 171, 234)"
    for page, margin in ((light, (245, 246, 248)), (dark, (16, 19, 23))):
        page.screenshot(tmp_path / "page.png")
        with Image.open(tmp_path / "page.png") as picture:
            assert picture.size[0] == 1280
            assert picture.convert("RGB").getpixel((2, 400)) == margin


def test_ids_are_unique(browser: Chromium, several: Path) -> None:
    ids = browser.open(several).evaluate(IDS)
    assert len(ids) == len(set(ids)) > 100


@pytest.mark.parametrize("width", [360, 800, 1920])
def test_nothing_sticks_out_at_any_width(browser: Chromium, several: Path, width: int) -> None:
    page = browser.open(several, width=width)
    page.evaluate(OPEN_ALL)
    assert page.evaluate(WIDTHS) == [width, width]


def test_cursor_reads_the_values_below_it(browser: Chromium, one: Path) -> None:
    page = browser.open(one)
    place = page.evaluate(
        "(() => { const chart = document.querySelector('figure svg.chart'); chart.scrollIntoView(); "
        "const box = chart.getBoundingClientRect(); "
        "return [box.left + box.width / 2, box.top + box.height * 0.6]; })()"
    )
    page.move_mouse(*place)
    shown = page.evaluate("document.querySelector('figure .readout').textContent")
    assert shown.startswith("steps")
    assert "while training, mean of the last 20" in shown
    assert page.evaluate("document.querySelectorAll('figure svg .spot').length") == 2
    page.move_mouse(1, 1)
    assert page.evaluate("document.querySelector('figure .readout').hidden") is True
    assert page.complaints == []


def test_charts_are_there_without_script(browser: Chromium, one: Path) -> None:
    page = browser.open(one, has_script=False)
    sizes = page.call("DOM.getDocument", depth=-1)
    figures = page.call("DOM.querySelectorAll", nodeId=sizes["root"]["nodeId"], selector="figure svg.chart")["nodeIds"]
    boxes = [page.call("DOM.getBoxModel", nodeId=figure)["model"] for figure in figures]
    assert len(boxes) > 30
    assert all(box["width"] > 250 and box["height"] > 60 for box in boxes)
    assert_silent(page, one)


def test_broken_run_gives_a_page_that_says_what_is_missing(
    browser: Chromium, tmp_path: Path, make_report: MakeReport
) -> None:
    path = make_report(write_broken_run(tmp_path / "broken"))
    page = browser.open(path)
    missing = page.evaluate("document.querySelector('.missing').textContent")
    for name in ("run.json", "metrics.jsonl", "episodes.jsonl", "hardware.jsonl", "events.jsonl"):
        assert name in missing
    assert_silent(page, path)


def test_broken_run_stands_beside_whole_ones(browser: Chromium, tmp_path: Path, make_report: MakeReport) -> None:
    write_broken_run(tmp_path / "runs" / "broken")
    write_full_run(tmp_path / "runs" / "whole", num_samples=20)
    path = make_report(tmp_path / "runs")
    page = browser.open(path)
    assert_drawn([chart for chart in charts(page) if chart["shapes"] > 12])
    assert_silent(page, path)


def test_markup_in_a_run_stays_text(browser: Chromium, tmp_path: Path, make_report: MakeReport) -> None:
    for name in ("<b>one", "two"):
        write_hostile_run(tmp_path / "runs" / name)
    path = make_report(tmp_path / "runs")
    page = browser.open(path)
    page.evaluate(OPEN_ALL)
    assert page.evaluate("document.title") == "2 runs compared · Redline"
    assert page.evaluate("document.querySelectorAll('script:not([type])').length") == 1
    assert page.evaluate("document.querySelectorAll('img, b > b, iframe, object, link:not([rel=icon])').length") == 0
    shown = page.evaluate("[...document.querySelectorAll('td')].map((cell) => cell.textContent)")
    assert HOSTILE in shown
    assert_silent(page, path)


def test_browser_would_notice_requests_and_errors(browser: Chromium, tmp_path: Path) -> None:
    path = tmp_path / "page.html"
    path.write_text(
        "<img src='gone.png'><link rel='stylesheet' href='gone.css'><script>console.error(1); undefined.x</script>"
    )
    page = browser.open(path)
    assert len(page.requests) == 3
    assert len(page.complaints) >= 3
