"""What the tests of every page ask a browser: whether charts are drawn, and whether anything was complained of."""

import time
from pathlib import Path
from typing import Any

from playwright.sync_api import Page

PATIENCE_S = 30.0
OPEN_ALL = "document.querySelectorAll('details').forEach((part) => (part.open = true))"
# of each line chart: how large it is, and how many pixels of the canvas have a colour of a series
CHARTS = """[...document.querySelectorAll('figure.lines')].map((figure) => {
  const canvas = figure.querySelector('canvas');
  const box = figure.querySelector('.plot').getBoundingClientRect();
  if (!canvas) return { name: figure.dataset.name, width: box.width, height: box.height, painted: 0 };
  const { data } = canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height);
  let painted = 0;
  for (let place = 0; place < data.length; place += 4) {
    const [red, green, blue, alpha] = data.subarray(place, place + 4);
    if (alpha && Math.max(red, green, blue) - Math.min(red, green, blue) > 60) painted++;
  }
  return { name: figure.dataset.name, width: canvas.clientWidth, height: canvas.clientHeight, painted };
})"""
ALL_DRAWN = (
    "[...document.querySelectorAll('figure.lines')]"
    ".every((figure) => figure.plot || figure.querySelector('.plot').textContent)"
)
WIDTHS = "[document.documentElement.scrollWidth, window.innerWidth]"


def wait_until(page: Page, condition: str) -> None:
    """Return when a condition holds; the page's rules forbid what Playwright's own waiting does."""
    end_s = time.monotonic() + PATIENCE_S
    while not page.evaluate(condition):
        assert time.monotonic() < end_s, condition
        page.wait_for_timeout(20)


def charts(page: Page) -> list[dict[str, Any]]:
    """Return every line chart, after all of them came into view."""
    page.evaluate(OPEN_ALL)
    height = page.evaluate("document.documentElement.scrollHeight")
    size = page.viewport_size
    assert size is not None
    page.set_viewport_size({"width": size["width"], "height": height})
    wait_until(page, ALL_DRAWN)
    page.wait_for_timeout(100)  # uPlot paints in a microtask after it is made
    found: list[dict[str, Any]] = page.evaluate(CHARTS)
    return found


def assert_drawn(found: list[dict[str, Any]]) -> None:
    for chart in found:
        assert chart["width"] > 250, chart
        assert chart["height"] > 150, chart
        assert chart["painted"] > 15, chart


def assert_silent(watched: Any, path: Path) -> None:
    assert watched.complaints == []
    assert watched.requests == [path.resolve().as_uri()]
