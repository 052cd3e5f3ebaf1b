"""A browser for the tests of this folder, and the run directories and fleets that other tests make."""

import shutil
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, sync_playwright

from redline.cli.main import DONE, main

TESTS = Path(__file__).parent.parent
sys.path[:0] = [str(TESTS / name) for name in ("browser", "report", "fleet")]

PROGRAMS = ("chromium", "chromium-browser", "google-chrome", "chrome")

MakeReport = Callable[..., Path]
OpenPage = Callable[..., "Watched"]


@dataclass
class Watched:
    """One open page: what it asked for and what it complained of so far."""

    page: Page
    requests: list[str] = field(default_factory=list)
    complaints: list[str] = field(default_factory=list)


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    program = next((path for name in PROGRAMS if (path := shutil.which(name))), None)
    assert program is not None, "no Chromium: make test-browser installs it, or says what to install"
    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=program, args=["--no-sandbox"])
        yield chromium
        chromium.close()


@pytest.fixture
def open_page(browser: Browser) -> Iterator[OpenPage]:
    """Open files in pages of their own, which are closed after the test."""
    contexts = []

    def open_file(path: Path, *, scheme: str = "light", width: int = 1280, has_script: bool = True) -> Watched:
        context = browser.new_context(
            color_scheme=scheme,  # type: ignore[arg-type]
            viewport={"width": width, "height": 900},
            java_script_enabled=has_script,
        )
        contexts.append(context)
        watched = Watched(context.new_page())
        page = watched.page
        page.on("request", lambda request: watched.requests.append(request.url))
        page.on("pageerror", lambda error: watched.complaints.append(str(error)))
        page.on(
            "console", lambda message: message.type in ("error", "warning") and watched.complaints.append(message.text)
        )
        page.goto(path.resolve().as_uri())
        return watched

    yield open_file
    for context in contexts:
        context.close()


@pytest.fixture(scope="session")
def make_report(tmp_path_factory: pytest.TempPathFactory) -> MakeReport:
    """Make the page of some runs, as a user does."""

    def make(*runs: Path) -> Path:
        page = tmp_path_factory.mktemp("page") / "report.html"
        assert main(["report", *map(str, runs), "--out", str(page), "--plain"]) == DONE
        return page

    return make
