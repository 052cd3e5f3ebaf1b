"""The page of a fleet as a browser shows it: drawn, silent, and no wider than a phone."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from made_fleets import add_run, make_fleet
from watching import WIDTHS, assert_drawn, assert_silent, charts

from redline.cli.main import DONE, main
from redline.fleet.listing import changed, write_listing

pytestmark = pytest.mark.browser

OpenPage = Callable[..., Any]

GAMES = ("pong", "breakout", "ms_pacman", "freeway")
LINKS = "[...document.querySelectorAll('nav a')].map((link) => link.getAttribute('href'))"
TARGETS = f"{LINKS}.map((link) => document.querySelector(link) !== null)"


@pytest.fixture(scope="session")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Four games, two algorithms and three seeds, of which one game was changed; the last run is missing."""
    folder = tmp_path_factory.mktemp("fleets") / "fleet"
    listing = make_fleet(folder, GAMES, ("dqn", "ppo"), price=0.5)
    slots = [*listing.slots[:-1]]
    listing = changed(listing, ["breakout"], {"batch-size": 64}, "redline fleet change")
    write_listing(folder, listing)
    for place, slot in enumerate([*slots, *(slot for slot in listing.slots if slot.name.endswith(".v2"))]):
        values = [at / 10 * slot.seed for at in range(300)]
        config = {"batch_size": 64 if slot.name.endswith(".v2") else 32}
        add_run(folder, slot, values, begin_s=400.0 * place, seconds=400.0, greedy=[50.0], config=config)
    assert main(["fleet", "report", str(folder), "--baseline", "50", "--plain"]) == DONE
    return folder / "report.html"


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_every_chart_is_drawn_and_nothing_is_asked_for(open_page: OpenPage, fleet: Path, scheme: str) -> None:
    watched = open_page(fleet, scheme=scheme)
    found = charts(watched.page)
    assert len(found) == 2 * len(GAMES)  # against steps and time
    assert_drawn(found)
    assert watched.page.evaluate("document.querySelectorAll('figure.spreads').length") == len(GAMES) + 4
    assert_silent(watched, fleet)


@pytest.mark.parametrize("width", [390, 1280])
def test_nothing_sticks_out(open_page: OpenPage, fleet: Path, width: int) -> None:
    page = open_page(fleet, width=width).page
    assert_drawn(charts(page))  # with everything open
    assert page.evaluate(WIDTHS) == [width, width]


def test_every_link_at_the_top_has_a_target(open_page: OpenPage, fleet: Path) -> None:
    page = open_page(fleet).page
    assert page.evaluate("document.querySelector('h1').textContent") == "Fleet made"
    assert page.evaluate(TARGETS) == [True] * 7


def test_page_reads_without_scripts(open_page: OpenPage, fleet: Path) -> None:
    page = open_page(fleet, has_script=False).page
    text = page.locator("main").inner_text()
    for words in ("dqn, evaluation", "optimality gap", "highest", "3 seeds"):
        assert words in text
